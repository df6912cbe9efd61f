// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"

namespace attest {

/// Rows with mean 0 and variance (nearly) 1, or with mean square (nearly) 1.
///
/// What holds for both: S is double, float, Half or BFloat16; 16-bit numbers are storage, what is
/// calculated with, and what statistics and gradients of parameters are kept in, is float
/// (AccumulatorOf<S>). u is 2⁻⁵³ for double, 2⁻²⁴ otherwise.
///
/// Determinism   the same bits for any number of threads, per instruction set; y and d_x of a row
///               depend on that row (and the parameters) alone, d_gain and d_bias on N too: rows are
///               summed in at most 64 groups, then the groups in order. The host's rounding and
///               flushing modes change nothing.
/// Throws        ShapeError, ValueError: shape-mismatch, bad-stride, bad-option (ε negative or not
///               finite), bad-isa, before anything is written.
/// Sources       Ba, Kiros, Hinton 2016 (arXiv:1607.06450); Zhang, Sennrich 2019 (arXiv:1910.07467).
///
/// Each comes twice: `x` throws, `try_x` returns its failure.

/// What a norm is given beside its rows, and what it leaves for the way back.
template <class S>
struct NormOptions {
  Norm kind = Norm::layer_norm;
  View<const S, 1> gain{};           ///< [C]; absent: ones
  View<const S, 1> bias{};           ///< [C]; absent: zeros
  double epsilon = 1e-5;             ///< added inside the root
  View<AccumulatorOf<S>, 1> mean{};  ///< [N], overwritten unless absent; not for rms_norm
  View<AccumulatorOf<S>, 1> inverse_deviation{};  ///< [N], overwritten unless absent
};

/// Overwrites y, and the statistics that are asked for.
///
/// Formula       layer_norm  mean = Σ_c x/C,  variance = Σ_c (x − mean)²/C
///               rms_norm    mean = 0,        variance = Σ_c x²/C
///               inverse_deviation = 1/√(variance + ε)
///               y = (x − mean)·inverse_deviation·gain + bias
///               with the mean corrected by Σ_c (x − mean)/C, which also corrects the variance
/// Shapes        x, y [N, C], C ≥ 1; numbers of a row, of gain and of bias lie beside each other. y
///               may be x, if that is the same view, else they must not overlap.
/// Edge cases    NaN or ∞ in a row makes that row NaN, and no other. A square that overflows makes
///               the variance +∞ and y zero (or the bias); a sum that overflows makes the row NaN. A
///               row of equal numbers gives zeros (or the bias) up to rounding if ε > 0.
/// Accuracy      with n = (x − mean)·inverse_deviation and k = |mean|·inverse_deviation:
///               |error| ≤ u·(|gain|·((C/8 + 20)·(|n| + 1) + k) + 2·|y|)   layer_norm
///               |error| ≤ u·((C/16 + 12)·|gain·n| + 2·|y|)                rms_norm
///               leaving out u², while (C/8 + 8)·k·u ≤ 2⁻⁶ and nothing overflows or falls below the
///               normal range; then one rounding to 16 bits. k stands alone: the error of a row far
///               from zero does not grow with C.
/// Cost          three passes over a row (two for rms_norm), which mostly sits in the cache.
/// See also      norm_backward · lab::layer_norm · lab::rms_norm.
template <class S>
void norm(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
          const std::type_identity_t<NormOptions<S>>& options = {},
          const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_norm(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                                    const std::type_identity_t<NormOptions<S>>& options = {},
                                    const Execution& execution = {});

/// What the way back starts from.
template <class S>
struct NormBackwardInputs {
  Norm kind = Norm::layer_norm;
  View<const S, 2> x{};                    ///< [N, C]
  View<const S, 2> d_y{};                  ///< [N, C]
  View<const S, 1> gain{};                 ///< [C]; absent: ones
  View<const AccumulatorOf<S>, 1> mean{};  ///< [N], of the forward call; not for rms_norm
  View<const AccumulatorOf<S>, 1> inverse_deviation{};  ///< [N], of the forward call
};

/// Where the gradients go; what is absent is not computed. d_gain and d_bias come together.
template <class S>
struct NormGradients {
  View<S, 2> d_x{};                    ///< [N, C]
  View<AccumulatorOf<S>, 1> d_gain{};  ///< [C]; what a gain would get, whether or not there was one
  View<AccumulatorOf<S>, 1> d_bias{};  ///< [C]; likewise
};

/// The gradients of `norm`. Overwrites what is given.
///
/// Formula       with n = (x − mean)·inverse_deviation and d_n = d_y·gain
///               d_bias = Σ_n d_y,   d_gain = Σ_n d_y·n        over the rows
///               d_x    = (d_n − Σ_c d_n/C − n·Σ_c (d_n·n)/C)·inverse_deviation
///               rms_norm without the middle term
/// Edge cases    N = 0: d_gain and d_bias are 0. d_x may be d_y or x, if that is the same view.
/// Accuracy      for the given statistics, with m = C/8 + 16, e = |n| + k + 1, a = Σ_c |d_n|/C and
///               b = Σ_c |d_n|·e/C:   |error of d_x| ≤ 2·m·u·(|d_n| + a + e·b)·inverse_deviation;
///               |error of d_gain| ≤ (N/64 + C/8 + 104)·u·Σ_n |d_y|·e, of d_bias (N/64 + 84)·u·Σ_n |d_y|.
///               (a row's n carries its own error; a sum passes N/64 + 17 rows, then 64 groups)
/// Cost          two passes over a row; 2·64·C numbers of scratch at most for d_gain and d_bias.
/// See also      lab::layer_norm_backward · lab::rms_norm_backward.
template <class S>
void norm_backward(const NormGradients<S>& gradients,
                   const std::type_identity_t<NormBackwardInputs<S>>& inputs,
                   const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_norm_backward(
    const NormGradients<S>& gradients, const std::type_identity_t<NormBackwardInputs<S>>& inputs,
    const Execution& execution = {});

}  // namespace attest
