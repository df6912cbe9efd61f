// SPDX-License-Identifier: MIT
#include <numeric>

#include "attest/lab/elementary.h"
#include "attest/lab/elementary_detail.h"
#include "attest/lab/environment.h"

// Rational powers base^(p/q) = e^(ln(base) p/q), and the cases in which the result is a dyadic
// rational number, which no rising precision could tell from a tie.
namespace attest::lab {
namespace {

constexpr std::int64_t largest = std::int64_t{1} << 20;

/// base = odd * 2^exponent.
struct OddTimesPower {
  std::uint64_t odd;
  int exponent;
};

OddTimesPower decomposed(double base) noexcept {
  const std::uint64_t bits = detail::bits_of(base);
  const int biased = static_cast<int>(bits >> 52);
  const std::uint64_t stored = bits & 0xFFFFFFFFFFFFFU;
  const std::uint64_t m = biased == 0 ? stored : stored | (std::uint64_t{1} << 52);
  const int zeros = std::countr_zero(m);
  return {m >> zeros, (biased == 0 ? 1 : biased) - 1075 + zeros};
}

/// root^q, or something above 2^53 if the power is.
std::uint64_t power_up_to_53_bits(std::uint64_t root, std::int64_t q) noexcept {
  constexpr std::uint64_t limit = std::uint64_t{1} << 53;
  std::uint64_t power = 1;
  for (std::int64_t i = 0; i < q; ++i) {
    if (power > limit / root) return limit + 1;
    power *= root;
  }
  return power;
}

/// The integer r with r^q = n, or 0 if there is none; n is odd and below 2^53.
std::uint64_t exact_root(std::uint64_t n, std::int64_t q) noexcept {
  if (n == 1 || q == 1) return n;
  if (q > 33) return 0;  // 3^34 > 2^53
  std::uint64_t low = 1;
  std::uint64_t high = std::uint64_t{1} << 27;  // low^q <= n < high^q
  while (high - low > 1) {
    const std::uint64_t middle = (low + high) / 2;
    (power_up_to_53_bits(middle, q) <= n ? low : high) = middle;
  }
  return power_up_to_53_bits(low, q) == n ? low : 0;
}

/// The exact result for p/q in lowest terms, if it is dyadic and might be a tie. By unique
/// factorization base^(p/q) is dyadic exactly if q divides the exponents of all prime factors of
/// base, and no odd one ends in the denominator. Results whose odd part has more than 768 bits are
/// left to the rising precision: an odd number that long is no tie of 54 bits.
std::optional<double> dyadic_power(double base, std::int64_t p, std::int64_t q) noexcept {
  const OddTimesPower b = decomposed(base);
  if (b.exponent % q != 0 || (p < 0 && b.odd != 1)) return std::nullopt;
  const std::uint64_t root = exact_root(b.odd, q);
  if (root == 0) return std::nullopt;
  using Number = Big<12>;
  Number power = Number::from_integer(1);
  if (root > 1) {
    if (p * static_cast<std::int64_t>(std::bit_width(root)) > Number::bits) return std::nullopt;
    const Number factor = Number::from_integer(static_cast<std::int64_t>(root));
    for (std::int64_t i = 0; i < p; ++i) power = power * factor;
  }
  return power.scaled(static_cast<int>(b.exponent / q * p)).nearest_double();
}

double rounded_power(double base, std::int64_t numerator, std::int64_t denominator) noexcept {
  const bool base_valid = base > 0.0 && base < detail::infinity();
  const bool exponent_valid =
      denominator > 0 && denominator <= largest && numerator >= -largest && numerator <= largest;
  if (!base_valid || !exponent_valid) return detail::quiet_nan();
  if (numerator == 0 || base == 1.0) return 1.0;
  const std::int64_t divisor = std::gcd(numerator, denominator);
  const std::int64_t p = numerator / divisor;
  const std::int64_t q = denominator / divisor;
  if (const auto y = dyadic_power(base, p, q)) return *y;
  const double estimate =
      detail::log_estimate(base).v.hi * static_cast<double>(p) / static_cast<double>(q);
  if (estimate > 800.0) return detail::infinity();
  if (estimate < -800.0) return 0.0;
  if (const auto y = detail::rational_power_fast(base, p, q)) return *y;
  return detail::rational_power_big(base, p, q);
}

}  // namespace

namespace detail {

/// With y = ln(base) p/q, the relative error of y (2^-67, and 2^-98 for the product and the
/// quotient) becomes |y| as large in e^y.
Estimate rational_power_estimate(double base, std::int64_t p, std::int64_t q) noexcept {
  const DoubleDouble product = static_cast<double>(p) * log_estimate(base).v;
  const DoubleDouble y = product / DoubleDouble{static_cast<double>(q), 0.0};
  if (magnitude(y.hi) > 740.0) return no_estimate();
  Estimate e = exp_double_double(y);
  e.relative_error += 0x1p-66 * magnitude(y.hi);
  return e;
}

std::optional<double> rational_power_fast(double base, std::int64_t p, std::int64_t q) noexcept {
  return decided(rational_power_estimate(base, p, q));
}

}  // namespace detail

double rational_power(double base, std::int64_t numerator, std::int64_t denominator) noexcept {
  const ExactEnvironment environment;
  ExactEnvironment::pin(base);
  double y = rounded_power(base, numerator, denominator);
  ExactEnvironment::pin(y);
  return y;
}

}  // namespace attest::lab
