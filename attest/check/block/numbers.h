// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/check/mistakes/claim.h"

/// Tables of numbers with what rounding may do to them. Internal to the block's checker.
namespace attest::check::block {

/// The roundings of a precision: of sums and functions, and of what is stored.
struct Rounding {
  double sum = 0;     ///< unit roundoff of arithmetic
  double factor = 0;  ///< what a factor of a product loses before it is multiplied (tf32)
  double store = 0;   ///< unit roundoff of a stored result
  double floor = 0;   ///< what underflow loses, flushed to zero or not
  double safety = 1;  ///< 2 for binary64, where the exact tier's own roundings are as large
};
[[nodiscard]] Rounding rounding_of(Precision precision);

/// The mean square of a rounding of size u is u²/3, if its error is anywhere in ±u alike.
[[nodiscard]] inline double mean_square(double size) { return size * size / 3; }

/// A table, and beside each number the variance and a bound of its error, if these are wanted.
///
/// The bound is a running error analysis: errors of operands by the derivative, plus every rounding of the
/// plain loop (Higham: Accuracy and Stability, 2nd ed., §3.3). The variance takes the same roundings as
/// independent, each anywhere in its interval alike; a sum of n terms is rounded at each of its partial
/// sums, which are known here, so that the model has no free constant.
struct Numbers {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> value{};
  std::vector<double> variance{};  ///< empty: not wanted
  std::vector<double> bound{};     ///< likewise

  Numbers() = default;
  Numbers(std::int64_t rows_, std::int64_t columns_, bool noisy_);
  [[nodiscard]] bool noisy() const { return !variance.empty(); }
  [[nodiscard]] std::size_t at(std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(r * columns + c);
  }
  [[nodiscard]] bool empty() const { return value.empty(); }

  void set(std::size_t place, double number, double spread, double limit) {
    value[place] = number;
    if (!noisy()) return;
    variance[place] = spread;
    bound[place] = limit;
  }
  [[nodiscard]] double variance_at(std::size_t n) const { return noisy() ? variance[n] : 0; }
  [[nodiscard]] double bound_at(std::size_t n) const { return noisy() ? bound[n] : 0; }
  /// Standard deviation of a number of a noisy table; never 0 where the bound is not.
  [[nodiscard]] double deviation_at(std::size_t n) const;
};

/// How far the numbers of a table may be from it, in the two zones that attention has too (noise.h).
///
/// Formula       typical  z·σ, z the largest of so many normal deviates (largest_deviation)
///               at most  min(√K·z·σ, bound)
///               The variance takes roundings as independent. Where numbers of a row share one (a norm's
///               divisor, a softmax's sum), the sum of K products that they go into carries at most √K
///               times as much, by Cauchy and Schwarz. The bound knows no signs, and after a few layers is
///               thousands of times what happens; where it is the smaller one, it holds.
struct Zones {
  double safety = 1;  ///< as Rounding has it
  double terms = 1;   ///< K, of the longest sum of the block
  [[nodiscard]] double typical(const Numbers& table, std::size_t n) const;
  [[nodiscard]] double most(const Numbers& table, std::size_t n) const;
};

/// Numbers that are given: no error.
[[nodiscard]] Numbers given(const Tensor<double>& table, std::int64_t rows, bool noisy);

/// The same rows in another order, or some of them.
[[nodiscard]] Numbers rows_of(const Numbers& table, std::span<const std::int64_t> rows);

/// A sum of terms that carry errors, in the order of the plain loop.
class NoisySum {
 public:
  void add(double term, double variance, double bound) {
    value += term;
    size += term < 0 ? -term : term;
    terms += 1;
    squares += value * value;
    variance_ += variance;
    bound_ += bound;
  }
  double value = 0;
  double size = 0;     ///< Σ |terms|
  double squares = 0;  ///< Σ (partial sums)²
  double terms = 0;
  [[nodiscard]] double variance(const Rounding& u) const {
    return variance_ + mean_square(u.sum) * squares;
  }
  [[nodiscard]] double bound(const Rounding& u) const { return bound_ + u.sum * terms * size; }

 private:
  double variance_ = 0;
  double bound_ = 0;
};

/// Adds the rounding of a result that is stored, and what underflow costs.
void store(Numbers& table, const Rounding& u);

/// The rounding of a table in a file: the precision's, or that of the type if this is coarser.
[[nodiscard]] Rounding rounding_of(Precision precision, DType dtype);
/// Adds what storing in a coarser type than the precision's does.
void store_coarser(Numbers& table, DType dtype, Precision precision);

/// a + factor·b
[[nodiscard]] Numbers added(const Numbers& a, const Numbers& b, double factor, const Rounding& u);
[[nodiscard]] Numbers multiplied(const Numbers& a, const Numbers& b, const Rounding& u);
[[nodiscard]] Numbers scaled(Numbers a, double factor, const Rounding& u);

}  // namespace attest::check::block
