// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"

namespace attest {

/// Softmax of rows, and its logarithm.
///
/// What holds for all four: S is double, float, Half or BFloat16; 16-bit numbers are storage, what is
/// calculated with is float. u is 2⁻⁵³ for double, 2⁻²⁴ otherwise, η the smallest subnormal.
///
/// Shapes        all [N, C], 0 included. The numbers of a row lie beside each other; rows of an input
///               may be anywhere. An output may be an input, if that is the same view, else they must
///               not overlap.
/// Determinism   the same bits for any number of threads, per instruction set; a row's bits depend on
///               that row alone. The host's rounding and flushing modes change nothing.
/// Throws        ShapeError, ValueError: shape-mismatch, bad-stride, bad-isa, before anything is
///               written.
/// Sources       Bridle 1990; subtracting the peak keeps exp from overflowing.
///
/// Each comes twice: `x` throws, `try_x` returns its failure.

/// Overwrites y.
///
/// Formula       y[n,c] = exp(x[n,c] − peak) / Σ_c exp(x[n,c] − peak),   peak = max_c x[n,c]
/// Edge cases    −∞ gives 0. A row that holds NaN or +∞, or nothing but −∞, becomes NaN; no other row
///               does. Exponentials below the smallest normal number keep only its grid.
/// Accuracy      |error| ≤ u·(C/8 + 20)·y + (|x − peak|·u)·y + 2η, the middle term from rounding the
///               difference; then one rounding to 16 bits.
/// Cost          one exponential a number (two for 16 bits), three passes over a row.
/// See also      lab::softmax_row.
template <class S>
void softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
             const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                                       const Execution& execution = {});

/// The gradient of `softmax`, from its result. Overwrites d_x.
///
/// Formula       d_x = y·(d_y − Σ_c y·d_y)
/// Accuracy      |error| ≤ u·|y|·((C/8 + 12)·Σ_c |y·d_y| + 3·|d_y|) + η, for the given y.
template <class S>
void softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                      std::type_identity_t<View<const S, 2>> d_y, const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_softmax_backward(View<S, 2> d_x,
                                                std::type_identity_t<View<const S, 2>> y,
                                                std::type_identity_t<View<const S, 2>> d_y,
                                                const Execution& execution = {});

/// Overwrites y.
///
/// Formula       y[n,c] = (x[n,c] − peak) − log Σ_c exp(x[n,c] − peak)
/// Edge cases    −∞ stays; else as `softmax`.
/// Accuracy      |error| ≤ u·(C/8 + 20 + 2·|x − peak| + 2·log C), so a confident row keeps its digits
///               to that absolute error.
/// Cost          one exponential a number, one logarithm a row.
/// See also      lab::softmax_row.
template <class S>
void log_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                 const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_log_softmax(View<S, 2> y, std::type_identity_t<View<const S, 2>> x,
                                           const Execution& execution = {});

/// The gradient of `log_softmax`, from its result. Overwrites d_x.
///
/// Formula       d_x = d_y − exp(y)·Σ_c d_y
/// Accuracy      |error| ≤ u·((C/8 + 15)·exp(y)·Σ_c |d_y| + 2·|d_x|) + η, for the given y.
template <class S>
void log_softmax_backward(View<S, 2> d_x, std::type_identity_t<View<const S, 2>> y,
                          std::type_identity_t<View<const S, 2>> d_y,
                          const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_log_softmax_backward(View<S, 2> d_x,
                                                    std::type_identity_t<View<const S, 2>> y,
                                                    std::type_identity_t<View<const S, 2>> d_y,
                                                    const Execution& execution = {});

}  // namespace attest
