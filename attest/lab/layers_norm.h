// SPDX-License-Identifier: MIT
#pragma once

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"

namespace attest::lab {

/// What a norm is given beside its rows.
struct NormParameters {
  View<const double, 1> gain{};  ///< [C]; absent: ones
  View<const double, 1> bias{};  ///< [C]; absent: zeros
  double epsilon = 1e-5;         ///< added inside the root
};

struct NormResult {
  Tensor<double> output;    // [N, C]
  Tensor<double> mean;      // [N]; no element for rms_norm, which measures from zero
  Tensor<double> variance;  // [N]: the mean of (x − mean)², for rms_norm of x²
};

struct NormGradients {
  Tensor<double> d_x;     // [N, C]
  Tensor<double> d_gain;  // [C]; what a gain would get, whether or not there was one
  Tensor<double> d_bias;  // [C]; likewise
};

/// Each row with mean 0 and variance (nearly) 1.
///
/// Formula       mean     = Σ_c x[n,c] / C
///               variance = Σ_c (x[n,c] − mean)² / C           the population's, not C − 1
///               y        = (x − mean) / √(variance + ε) · gain + bias
///               each line rounded as written, each Σ once
/// Shapes        x [N, C], gain [C], bias [C]; y [N, C], mean [N], variance [N].
/// Edge cases    a constant row gives zeros (or the bias), not 0/0, if ε > 0 and its mean is exact:
///               C·x fits a binary64. With ε > 0 the variance of y stays slightly below 1. A square
///               that overflows makes the variance +∞ and y zero. N may be 0, C may not.
/// Accuracy      with n = (x − mean)/√(variance + ε) and k = |mean|/√(variance + ε):
///               |error| ≤ u·(|gain|·((7 + 2k)·|n| + 2k) + |y|), so rows far from zero lose digits.
/// Determinism   as layers.h says; the order of the features cannot matter.
/// Fails         shape-mismatch; bad-option unless ε is finite and ≥ 0.
/// Cost          about 5·N·C operations.
/// Sources       Ba, Kiros, Hinton 2016 (arXiv:1607.06450).
/// See also      layer_norm_backward · rms_norm · oracle::norm.
[[nodiscard]] Result<NormResult> layer_norm(View<const double, 2> x, const NormParameters& norm);

/// The gradients of `layer_norm`. Overwrites nothing: returns new tensors.
///
/// Formula       with n = (x − mean)/√(variance + ε) and d_n = d_y·gain
///               d_bias = Σ_n d_y,   d_gain = Σ_n d_y·n        over the rows
///               d_x    = (d_n − Σ_c d_n/C − n·Σ_c (d_n·n)/C) / √(variance + ε)
/// Shapes        x, d_y, d_x [N, C]; d_gain, d_bias [C].
/// Edge cases    d_x of a row sums to zero up to rounding: shifting a row changes nothing.
/// Accuracy      each Σ, and the difference of three, rounded once.
/// Fails         as `layer_norm`; shape-mismatch if d_y has another shape than x.
/// Cost          about 10·N·C operations.
[[nodiscard]] Result<NormGradients> layer_norm_backward(View<const double, 2> x,
                                                        const NormParameters& norm,
                                                        View<const double, 2> d_y);

/// Each row with mean square (nearly) 1.
///
/// Formula       variance = Σ_c x[n,c]² / C
///               y        = x / √(variance + ε) · gain + bias
/// Shapes        as `layer_norm`; mean has no element.
/// Edge cases    a row of zeros gives zeros if ε > 0; else as `layer_norm`.
/// Accuracy      |error| ≤ u·(5·|gain·x|/√(variance + ε) + |y|).
/// Fails, cost, determinism as `layer_norm`.
/// Sources       Zhang, Sennrich 2019 (arXiv:1910.07467).
/// See also      rms_norm_backward · layer_norm · oracle::norm.
[[nodiscard]] Result<NormResult> rms_norm(View<const double, 2> x, const NormParameters& norm);

/// The gradients of `rms_norm`. Overwrites nothing: returns new tensors.
///
/// Formula       as `layer_norm_backward` without the mean: n = x/√(variance + ε),
///               d_x = (d_n − n·Σ_c (d_n·n)/C) / √(variance + ε)
/// Fails         as `layer_norm_backward`.
[[nodiscard]] Result<NormGradients> rms_norm_backward(View<const double, 2> x,
                                                      const NormParameters& norm,
                                                      View<const double, 2> d_y);

}  // namespace attest::lab
