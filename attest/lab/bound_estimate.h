// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

/// Running error analysis: arithmetic that carries, beside each number of the exact tier, a bound
/// of its distance from the mathematical value. Internal to bound.cpp and its tests.
///
/// Every operation computes `value` exactly as the exact tier does, so the two agree bit for bit,
/// and `error` from the sizes at hand: what the operands' errors can do, plus one rounding of the
/// result.
///
/// Source        Higham: Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3.
namespace attest::lab::detail {

/// Half the distance from 1 to the next number: a rounding errs by at most unit·|result|.
inline constexpr double unit = 0x1p-53;

/// A result below 2⁻¹⁰²² errs by up to 2⁻¹⁰⁷⁵. The rest pays for underflow in the bound itself.
inline constexpr double tiny = 0x1p-1072;

/// |true − value| ≤ error.
struct Estimate {
  double value = 0;
  double error = 0;
};

[[nodiscard]] inline double size_of(double x) { return x < 0 ? -x : x; }

/// One rounding of a product, a quotient or an elementary function.
[[nodiscard]] inline double rounding(double result) {
  return std::max(unit * size_of(result), tiny);
}

/// One rounding of a sum: exact where it is tiny, because every double is a multiple of 2⁻¹⁰⁷⁴.
[[nodiscard]] inline double sum_rounding(double result) { return unit * size_of(result); }

/// |a'b' − ab| ≤ |a|·e_b + |b|·e_a + e_a·e_b for a', b' within e_a, e_b of a, b.
[[nodiscard]] Estimate product(Estimate a, Estimate b);

/// |a'/b' − a/b| ≤ (e_a + |a/b|·e_b) / (|b| − e_b).
[[nodiscard]] Estimate quotient(Estimate a, Estimate b);

/// Σ terms, rounded once; errors add.
[[nodiscard]] Estimate sum(std::span<const Estimate> terms);
[[nodiscard]] Estimate difference(Estimate a, Estimate b);

/// √a' − √a = (a' − a) / (√a' + √a).
[[nodiscard]] Estimate root(Estimate a);

/// tanh and 1/cosh² change by at most e·(their steepest slope within e of x), and that is at most
/// 1/cosh² or 2/cosh² of the point nearest to zero.
[[nodiscard]] Estimate tanh_of(Estimate x);
[[nodiscard]] Estimate sech_squared_of(Estimate x);

/// The weights and the log_sum_exp of exponents, as softmax_row computes them; a sink is the last.
///
/// The true softmax does not change when *any* constant is subtracted, so the computed peak counts
/// as exact: only what distinguishes the exponents errs, δ_k = e_k + u·|x_k − peak|.
///
///     |exp − true exp|  ≤ ε_k = (exp + u·exp)·(e^δ_k − 1) + u·exp
///     |weight − true|   ≤ (exp_j·Σ_{k≠j} ε_k + ε_j·Σ_{k≠j} exp_k) / (sum·least sum) + 2u·weight
///     |lse − true|      ≤ min(max δ + 2u, Σ ε_k / least sum) + u·(1 + |log sum| + |lse|)
///
/// with the least sum Σ (exp_k − u·exp_k)·e^−δ_k, and a weight's error at most max(w, 1 − w). A
/// lone exponent has weight 1 without error.
struct Shares {
  std::vector<Estimate> weights;
  Estimate log_sum_exp;
};
[[nodiscard]] Shares shares(std::span<const Estimate> exponents);

/// Whether the weights of a mean leave something for a sink, whose value is 0.
enum class Sink { absent, present };

/// Σ_j weights[j]·values[j] where the weights (with the sink's) sum to 1.
///
/// A constant c may be subtracted from all values, so with c the middle of their hull and e the
/// errors of the values
///     error ≤ min(Σ e_w·|v − c|, width of the hull) + Σ (w + e_w)·e_v
///             + Σ u·|w·v| + u·|mean| + 4u·(|c| + width)
[[nodiscard]] Estimate mean_of(std::span<const Estimate> weights, std::span<const Estimate> values,
                               Sink sink);

/// The bound to publish. The factor pays for the roundings of the bound's own arithmetic: no path
/// through it has more than 2¹² of them, for sums of fewer than 2¹¹ terms. Infinite where nothing
/// can be promised: a value that is not finite, or an error that lost its sense.
[[nodiscard]] inline double published(Estimate x) {
  constexpr double safety = 1 + 0x1p-40;
  const bool finite = x.value - x.value == 0 && x.error - x.error == 0;
  return finite ? x.error * safety : std::numeric_limits<double>::infinity();
}

}  // namespace attest::lab::detail
