// SPDX-License-Identifier: MIT
#include "attest/lab/exact_sum.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "attest/lab/environment.h"

namespace attest::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
// Digit d of the accumulator counts units of 2^(32 d − 1088): below 2⁻¹⁰⁷⁴, the smallest double.
constexpr int lowest_exponent = -1088;

struct Pair {
  double sum;
  double error;
};

/// 2Sum (Handbook of Floating-Point Arithmetic, Alg. 4.4): a + b = sum + error exactly.
Pair two_sum(double a, double b) noexcept {
  const double sum = a + b;
  const double b_part = sum - a;
  const double a_part = sum - b_part;
  return {sum, (a - a_part) + (b - b_part)};
}

/// A sum kept as high + low, with the errors that `low` itself made bounded by `slack`.
///
/// Sum2 of Ogita, Rump and Oishi: `low` collects the exact errors of the additions into `high`,
/// with n rounded additions. Each of these is off by at most u·|low so far|, and
/// |low| ≤ Σ|error|, so slack = n · 2⁻⁵² · Σ|error| bounds them all twice over.
class QuickSum {
 public:
  void add(double value) noexcept {
    const Pair step = two_sum(high_, value);
    high_ = step.sum;
    low_ += step.error;
    size_ += step.error < 0 ? -step.error : step.error;
    ++count_;
  }

  /// Whether the quick way decides the rounding; then `rounded` holds the exact sum's nearest.
  bool decides(double& rounded) const noexcept {
    if (!(high_ < infinity && high_ > -infinity)) return false;  // overflow, infinity or NaN
    const Pair total = two_sum(high_, low_);
    const double slack = static_cast<double>(count_) * 0x1p-52 * size_;
    // If moving the remainder by the slack either way rounds to the same number, so does the truth.
    rounded = total.sum;
    if (total.sum + (total.error + slack) != total.sum) return false;
    if (total.sum + (total.error - slack) != total.sum) return false;
    // A tie, or a slack that vanished beside the error, must be decided exactly.
    if (slack != 0 && total.error != 0 && total.error + slack == total.error) return false;
    if (total.sum == 0) rounded = 0;  // +0 for every zero sum
    return slack == 0 || total.sum != 0;
  }

 private:
  double high_ = 0;
  double low_ = 0;
  double size_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace

void ExactAccumulator::add(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto field = static_cast<int>((bits >> 52U) & 0x7FFU);
  const std::uint64_t fraction = bits & ((1ULL << 52U) - 1);
  const bool negative = (bits >> 63U) != 0;
  if (field == 0x7FF) {
    if (fraction != 0)
      nan_ = true;
    else
      (negative ? minus_infinity_ : plus_infinity_) = true;
    return;
  }
  // value = ± significand · 2^exponent, with a whole significand below 2⁵³.
  const std::uint64_t significand = field == 0 ? fraction : fraction | (1ULL << 52U);
  const int exponent = std::max(field, 1) - 1075;
  const auto place = static_cast<unsigned>(exponent - lowest_exponent);
  const std::size_t digit = place / 32;
  const unsigned shift = place % 32;
  // The shifted significand has at most 85 bits: three digits.
  const std::uint64_t low = (significand << shift) & 0xFFFFFFFFU;
  const std::uint64_t upper = shift == 0 ? significand >> 32U : significand >> (32U - shift);
  const std::int64_t parts[3] = {static_cast<std::int64_t>(low),
                                 static_cast<std::int64_t>(upper & 0xFFFFFFFFU),
                                 static_cast<std::int64_t>(upper >> 32U)};
  for (std::size_t i = 0; i < 3; ++i) digits_[digit + i] += negative ? -parts[i] : parts[i];
  // 2³⁰ digits below 2³² stay below 2⁶²; settle before that could be exceeded.
  if (++pending_ == (1U << 30U)) settle();
}

void ExactAccumulator::settle() noexcept {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < digit_count; ++i) {
    const std::int64_t digit = digits_[i] + carry;
    carry = digit >> 32;  // floor, so that every settled digit is in [0, 2³²)
    digits_[i] = digit & 0xFFFFFFFF;
  }
  digits_[digit_count - 1] += carry;  // the top digit keeps the sign
  pending_ = 0;
}

double ExactAccumulator::rounded() const noexcept {
  if (nan_ || (plus_infinity_ && minus_infinity_)) return not_a_number;
  if (plus_infinity_) return infinity;
  if (minus_infinity_) return -infinity;

  ExactAccumulator settled = *this;
  settled.settle();
  const bool negative = settled.digits_[digit_count - 1] < 0;
  if (negative) {
    for (std::int64_t& digit : settled.digits_) digit = -digit;
    settled.settle();
  }
  // The magnitude's leading digit, then 64 bits from it down and whether anything is left below.
  std::size_t top = digit_count;
  while (top > 0 && settled.digits_[top - 1] == 0) --top;
  if (top == 0) return 0.0;
  const auto digit_at = [&](std::size_t index) {
    return static_cast<std::uint64_t>(settled.digits_[index]);
  };
  --top;
  const int digit_bits = 64 - std::countl_zero(digit_at(top));
  const int leading = 32 * static_cast<int>(top) + digit_bits - 1 + lowest_exponent;  // 2^leading
  if (leading > 1023) return negative ? -infinity : infinity;
  // The unit in the last place: 52 below the leading bit, but never below 2⁻¹⁰⁷⁴.
  const int unit = std::max(leading - 52, -1074);
  const int unit_place = unit - lowest_exponent;     // bit number of the last kept bit, ≥ 14
  const auto bit_range = [&](int from, int count) {  // `count` ≤ 53 bits starting at bit `from`
    std::uint64_t out = 0;
    for (int i = 0; i < count; ++i) {
      const int bit = from + i;
      const std::uint64_t one = (digit_at(static_cast<std::size_t>(bit / 32)) >> (bit % 32)) & 1U;
      out |= one << i;
    }
    return out;
  };
  std::uint64_t kept = bit_range(unit_place, leading - unit + 1);
  const bool half = bit_range(unit_place - 1, 1) != 0;
  bool below = bit_range((unit_place - 1) / 32 * 32, (unit_place - 1) % 32) != 0;
  for (int i = 0; i < (unit_place - 1) / 32 && !below; ++i) {
    below = digit_at(static_cast<std::size_t>(i)) != 0;
  }
  if (half && (below || (kept & 1U) != 0)) ++kept;
  // As an integer, exponent field and fraction carry into each other correctly.
  const std::uint64_t encoded = (static_cast<std::uint64_t>(unit + 1074) << 52U) + kept;
  if (encoded >= 0x7FFULL << 52U) return negative ? -infinity : infinity;
  const double magnitude = std::bit_cast<double>(encoded);
  return negative ? -magnitude : magnitude;
}

double exact_sum(std::span<const double> values) noexcept {
  const ExactEnvironment environment;
  QuickSum quick;
  for (const double value : values) quick.add(value);
  double rounded = 0;
  if (quick.decides(rounded)) {
    ExactEnvironment::pin(rounded);
    return rounded;
  }
  ExactAccumulator accumulator;
  for (const double value : values) accumulator.add(value);
  return accumulator.rounded();
}

double exact_dot(Strided left, Strided right, std::int64_t count) noexcept {
  const ExactEnvironment environment;
  QuickSum quick;
  for (std::int64_t n = 0; n < count; ++n) {
    quick.add(left.data[n * left.stride] * right.data[n * right.stride]);
  }
  double rounded = 0;
  if (quick.decides(rounded)) {
    ExactEnvironment::pin(rounded);
    return rounded;
  }
  ExactAccumulator accumulator;
  for (std::int64_t n = 0; n < count; ++n) {
    double product = left.data[n * left.stride] * right.data[n * right.stride];
    ExactEnvironment::pin(product);
    accumulator.add(product);
  }
  return accumulator.rounded();
}

}  // namespace attest::lab
