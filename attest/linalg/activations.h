// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"

namespace attest {

/// The activations, element by element, alone or as the gate of a product.
///
/// What holds for all four: S is double, float, Half or BFloat16; 16-bit numbers are storage, what is
/// calculated with is float. u is 2⁻⁵³ for double, 2⁻²⁴ otherwise, η the smallest subnormal.
///
/// Formula       relu       max(0, x)
///               gelu_erf   x·Φ(x) = x/2 · (1 + erf(x/√2))
///               gelu_tanh  x·σ(2w) = x/2 · (1 + tanh(w)),   w = √(2/π)·(x + 0.044715·x³)
///               silu       x·σ(x) = x / (1 + exp(−x))
/// Shapes        all [N, F], 0 included. The numbers of a row lie beside each other; rows of an input
///               may be anywhere. An output may be an input, if that is the same view, else they must
///               not overlap.
/// Edge cases    NaN gives NaN. f(−∞) is +0 for relu, −0 for the others; f(+∞) = +∞; f′(−∞) = 0,
///               f′(+∞) = 1; relu(−0) = +0, relu′(0) = 0.
/// Accuracy      |f̂ − f| ≤ c·u·|f| + 2η·(1 + |x|), with c = 0 (relu), 16 (gelu_erf), 12·|w| + 10
///               (gelu_tanh), 8 (silu): no digit is lost in the tails. |f̂′ − f′| ≤ (c + 4)·u·A +
///               3η·(1 + |x| + |x|³)
///               with A the sum of the sizes of f′'s terms: Φ + |x|·φ, σ + |x·(2w)′|·σ·σ(−2w),
///               σ + |x|·σ·σ(−x); one rounding more for each product, one to 16 bits.
/// Determinism   the same bits for any number of threads, per instruction set; an element's bits
///               depend on that element alone. The host's rounding and flushing modes change nothing.
/// Throws        ShapeError, ValueError: shape-mismatch, bad-stride, bad-option, bad-isa, before
///               anything is written.
/// Sources       Hendrycks, Gimpel 2016 (arXiv:1606.08415); Elfwing et al. 2017 (arXiv:1702.03118);
///               for the products Dauphin et al. 2016, Shazeer 2020 (arXiv:2002.05202).
///
/// Each comes twice: `x` throws, `try_x` returns its failure.

/// y = f(x). Overwrites y.
/// See also      lab::activate.
template <class S>
void activate(View<S, 2> y, std::type_identity_t<View<const S, 2>> x, Activation kind,
              const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_activate(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                                        Activation kind, const Execution& execution = {});

/// d_x = d_y·f′(x). Overwrites d_x.
/// See also      lab::activate_backward.
template <class S>
void activate_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> x,
                       std::type_identity_t<View<const S, 2>> d_y, Activation kind,
                       const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_activate_backward(View<S, 2> d_x,
                                                 std::type_identity_t<View<const S, 2>> x,
                                                 std::type_identity_t<View<const S, 2>> d_y,
                                                 Activation kind, const Execution& execution = {});

/// y = f(gate)·up: SwiGLU with silu, GeGLU with a gelu, ReGLU with relu. Overwrites y.
/// See also      lab::gated_product.
template <class S>
void gated_activation(View<S, 2> y, std::type_identity_t<View<const S, 2>> gate,
                      std::type_identity_t<View<const S, 2>> up, Activation kind,
                      const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_gated_activation(View<S, 2> y,
                                                std::type_identity_t<View<const S, 2>> gate,
                                                std::type_identity_t<View<const S, 2>> up,
                                                Activation kind, const Execution& execution = {});

/// What `gated_activation` was given, and the gradient of its result.
template <class S>
struct GatedInputs {
  View<const S, 2> gate{};  ///< [N, F]
  View<const S, 2> up{};    ///< [N, F]
  View<const S, 2> d_y{};   ///< [N, F]
};

/// d_gate = d_y·up·f′(gate),  d_up = d_y·f(gate). Overwrites both.
/// See also      lab::gated_product_backward.
template <class S>
void gated_activation_backward(View<S, 2> d_gate, std::type_identity_t<View<S, 2>> d_up,
                               const std::type_identity_t<GatedInputs<S>>& inputs, Activation kind,
                               const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_gated_activation_backward(
    View<S, 2> d_gate, std::type_identity_t<View<S, 2>> d_up,
    const std::type_identity_t<GatedInputs<S>>& inputs, Activation kind,
    const Execution& execution = {});

}  // namespace attest
