// SPDX-License-Identifier: MIT
#pragma once

#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"

namespace attest::lab {

/// The activations, number by number, each with its derivative right below. What layers.h says of
/// all layers holds; Φ and φ are the normal distribution and its density, σ(x) = 1/(1 + e^−x).
/// NaN gives NaN. Results below 2⁻¹⁰²² err by less than 2⁻¹⁰⁶⁰ more.

/// Formula       max(0, x)
/// Edge cases    −0 gives +0. Unlike Python's max(0.0, x), NaN stays NaN.
/// Accuracy      exact.
[[nodiscard]] double relu(double x) noexcept;

/// Formula       1 for x > 0, else 0: at 0 the derivative from the left.
[[nodiscard]] double relu_derivative(double x) noexcept;

/// Formula       x·Φ(x) = x/2 · (1 + erf(x/√2))
///               below −1, where 1 + erf cancels, x·M(−x)·φ(x) with Mills' ratio M(t) = Φ(−t)/φ(t)
///               from Laplace's fraction 1/(t + 1/(t + 2/(t + 3/(t + …)))), positive throughout
/// Edge cases    −∞ gives −0, +∞ gives +∞.
/// Accuracy      |error| ≤ 8u·|y|: no digit is lost in the tail.
/// Cost          about 100 ns; below −1, 300 divisions.
/// Sources       Hendrycks, Gimpel 2016 (arXiv:1606.08415); Abramowitz and Stegun 26.2.14.
[[nodiscard]] double gelu_erf(double x) noexcept;

/// Formula       Φ(x) + x·φ(x),   below −1 φ(x)·(M(−x) + x)
/// Edge cases    −∞ gives 0, +∞ gives 1.
/// Accuracy      |error| ≤ 8u·(Φ + |x|·φ): relative but for the zero near −0.7518.
[[nodiscard]] double gelu_erf_derivative(double x) noexcept;

/// Formula       x/2 · (1 + tanh(w)) = x·σ(2w),   w = √(2/π)·(x + 0.044715 x³)
///               computed with σ, since 1 + tanh cancels for negative x
/// Edge cases    −∞ gives −0, +∞ gives +∞.
/// Accuracy      |error| ≤ u·(12|w| + 5)·|y|: an error of w grows by its exponential.
/// Sources       Hendrycks, Gimpel 2016.
[[nodiscard]] double gelu_tanh(double x) noexcept;

/// Formula       σ(2w) + x/2 · w′/cosh²(w),   w′ = √(2/π)·(1 + 3·0.044715 x²)
/// Edge cases    −∞ gives 0, +∞ gives 1.
/// Accuracy      |error| ≤ u·(12|w| + 10)·(σ(2w) + |x/2 · w′/cosh²(w)|).
[[nodiscard]] double gelu_tanh_derivative(double x) noexcept;

/// Formula       x·σ(x), σ(x) = 1/(1 + e^−x) or e^x/(1 + e^x), whichever does not overflow
/// Edge cases    −∞ gives −0, +∞ gives +∞.
/// Accuracy      |error| ≤ 5u·|y|.
/// Sources       Elfwing et al. 2017 (arXiv:1702.03118); as "swish", Ramachandran et al. 2017.
[[nodiscard]] double silu(double x) noexcept;

/// Formula       σ(x)·(1 + x·(1 − σ(x))), with 1 − σ(x) = σ(−x)
/// Edge cases    −∞ gives 0, +∞ gives 1.
/// Accuracy      |error| ≤ 9u·σ(x)·(1 + |x|·σ(−x)).
[[nodiscard]] double silu_derivative(double x) noexcept;

/// An activation, or its derivative, by its name in a config.
[[nodiscard]] double activation(Activation kind, double x) noexcept;
[[nodiscard]] double activation_derivative(Activation kind, double x) noexcept;

/// An activation of every element.
///
/// Formula       y = f(x)
/// Shapes        x [N, F]; y [N, F].
/// Fails         shape-mismatch, if x is absent.
/// See also      activate_backward · oracle::activation.
[[nodiscard]] Result<Tensor<double>> activate(View<const double, 2> x, Activation kind);

/// The gradient of `activate`. Overwrites nothing: returns a new tensor.
///
/// Formula       d_x = d_y·f′(x)
/// Shapes        x [N, F], d_y [N, F]; d_x [N, F].
/// Fails         shape-mismatch.
[[nodiscard]] Result<Tensor<double>> activate_backward(View<const double, 2> x, Activation kind,
                                                       View<const double, 2> d_y);

/// The product of a gate and what it lets through: a gated feed-forward layer is
/// gated_product(activate(x·gate_weight), x·up_weight).
///
/// Formula       y = gate ⊙ up
/// Shapes        gate [N, F], up [N, F]; y [N, F].
/// Accuracy      correctly rounded.
/// Fails         shape-mismatch.
/// Sources       Dauphin et al. 2016; Shazeer 2020 (arXiv:2002.05202).
[[nodiscard]] Result<Tensor<double>> gated_product(View<const double, 2> gate,
                                                   View<const double, 2> up);

struct GatedProductGradients {
  Tensor<double> d_gate;  // [N, F]
  Tensor<double> d_up;    // [N, F]
};

/// The gradients of `gated_product`. Overwrites nothing: returns new tensors.
///
/// Formula       d_gate = d_y ⊙ up,   d_up = d_y ⊙ gate
/// Accuracy      correctly rounded.
/// Fails         shape-mismatch.
[[nodiscard]] Result<GatedProductGradients> gated_product_backward(View<const double, 2> gate,
                                                                   View<const double, 2> up,
                                                                   View<const double, 2> d_y);

}  // namespace attest::lab
