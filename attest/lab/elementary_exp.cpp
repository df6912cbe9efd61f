// SPDX-License-Identifier: MIT
#include <array>
#include <cstddef>

#include "attest/lab/elementary_detail.h"

// The exponential family, after Tang: x = n (ln 2)/128 + r with |r| < 0.0028, so that
//   e^x = 2^(n div 128) * 2^((n mod 128)/128) * e^r
// with the middle factor from a table and the last one from its power series.
namespace attest::lab::detail {
namespace {

constexpr int steps = 128;

struct ExponentialTable {
  std::array<DoubleDouble, steps> power;  // 2^(j/128)
  double steps_per_unit;                  // 128 / ln 2
  // (ln 2)/128 in three parts. With 35 bits each in the first two, their products with |n| < 2^18
  // are exact.
  double step_head;
  double step_middle;
  double step_tail;
  DoubleDouble ln2;
  DoubleDouble inverse_sqrt_two_pi;

  static const ExponentialTable& get() noexcept;
};

const ExponentialTable& ExponentialTable::get() noexcept {
  static const ExponentialTable table = [] {
    using Number = Big<3>;
    const auto& constants = BigConstants<3>::get();
    ExponentialTable t{};
    Number step = constants.ln2.scaled(-7);
    for (int j = 0; j < steps; ++j) {
      t.power[static_cast<std::size_t>(j)] =
          double_double(BigMath<3>::exp(Number::from_integer(j) * step));
    }
    t.steps_per_unit = constants.inverse_ln2.scaled(7).nearest_double();
    t.step_head = step.take_leading_bits(35);
    t.step_middle = step.take_leading_bits(35);
    t.step_tail = step.nearest_double();
    t.ln2 = double_double(constants.ln2);
    const Number sqrt_two = BigMath<3>::exp(constants.ln2.scaled(-1));
    t.inverse_sqrt_two_pi = double_double((BigMath<3>::inverse_sqrt_pi() * sqrt_two).scaled(-1));
    return t;
  }();
  return table;
}

/// x = n (ln 2)/128 + rest. The rest is accurate to 2^-110: x - n head is exact, because both are
/// multiples of 2^-61 and their difference is below 2^-8; n middle is exact by its 35 bits.
struct Reduced {
  int n;
  DoubleDouble rest;
};

Reduced reduced(DoubleDouble x, const ExponentialTable& table) noexcept {
  const double n = nearest_integer(x.hi * table.steps_per_unit);
  const double first = x.hi - n * table.step_head;
  const DoubleDouble second = two_sum(first, -(n * table.step_middle));
  const double low = second.lo + (x.lo - n * table.step_tail);
  return {static_cast<int>(n), fast_two_sum(second.hi, low)};
}

/// e^r - 1 for |r| < 2^-8.5: r + r^2/2 in double-double, what follows in double. The latter is
/// below 2^-19.6 relatively and carries some six rounding errors; the first term left out is
/// r^8/8!. The relative error is below 2^-69.5.
DoubleDouble expm1_of_rest(DoubleDouble r) noexcept {
  const DoubleDouble square = two_product(r.hi, r.hi);
  const double s = square.hi;
  const double cubic =
      r.hi * s *
      ((1.0 / 6 + r.hi * (1.0 / 24)) + s * ((1.0 / 120 + r.hi * (1.0 / 720)) + s * (1.0 / 5040)));
  const DoubleDouble high = fast_two_sum(r.hi, 0.5 * s);
  return fast_two_sum(high.hi, high.lo + (r.lo + (0.5 * square.lo + r.hi * r.lo) + cubic));
}

/// 2^(n/128) (1 + p): of the relative error of p, the factor |p| < 2^-8.5 remains, 2^-78.
Estimate power_times(int n, DoubleDouble p, const ExponentialTable& table) noexcept {
  const DoubleDouble power = table.power[static_cast<std::size_t>(n & (steps - 1))];
  const DoubleDouble change = power * p;
  const DoubleDouble high = fast_two_sum(power.hi, change.hi);
  return {fast_two_sum(high.hi, high.lo + (power.lo + change.lo)), n >> 7, 0x1p-76};
}

double power_of_two(int k) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

}  // namespace

Estimate exp_double_double(DoubleDouble x) noexcept {
  const ExponentialTable& table = ExponentialTable::get();
  const Reduced r = reduced(x, table);
  return power_times(r.n, expm1_of_rest(r.rest), table);
}

/// The same scheme with r^2/2 and all that follows in plain double, for speed. Relative errors,
/// with u = 2^-53 and q = r^2/2 + ... < 2^-18: four roundings in q and six in the sums that carry
/// it, 10 u q < 2^-67.7; the product of r with its own low part 2^-70; the low part of the table
/// entry times q 2^-71; the series after r^6 2^-72. In all below 2^-67.2, and twice that is allowed
/// for.
Estimate exp_estimate(double x) noexcept {
  if (x <= -708.0 || x >= 709.0) return no_estimate();
  const ExponentialTable& table = ExponentialTable::get();
  const double n = nearest_integer(x * table.steps_per_unit);
  const DoubleDouble r = two_sum(x - n * table.step_head, -(n * table.step_middle));
  const int index = static_cast<int>(n);
  const double s = r.hi * r.hi;
  const double q =
      s * ((0.5 + r.hi * (1.0 / 6)) + s * ((1.0 / 24 + r.hi * (1.0 / 120)) + s * (1.0 / 720)));
  const double low = (r.lo - n * table.step_tail) + q;

  const DoubleDouble power = table.power[static_cast<std::size_t>(index & (steps - 1))];
  const DoubleDouble product = two_product(power.hi, r.hi);
  const DoubleDouble high = fast_two_sum(power.hi, product.hi);
  const double rest = high.lo + (product.lo + (power.lo + (power.hi * low + power.lo * r.hi)));
  return {fast_two_sum(high.hi, rest), index >> 7, 0x1p-66};
}

/// x = n/128 + f exactly, and 2^f = e^(f ln 2).
Estimate exp2_estimate(double x) noexcept {
  const ExponentialTable& table = ExponentialTable::get();
  const double n = nearest_integer(x * steps);
  const DoubleDouble rest = (x - n * (1.0 / steps)) * table.ln2;
  return power_times(static_cast<int>(n), expm1_of_rest(rest), table);
}

/// Without a table entry, e^r - 1 keeps its relative accuracy of 2^-69.5. With one, |e^x - 1| is at
/// least 2^-8.6, and the error 2^-78 of the factor e^r becomes 2^-69.3 at worst.
Estimate expm1_estimate(double x) noexcept {
  constexpr double error = 0x1p-68;
  const ExponentialTable& table = ExponentialTable::get();
  const Reduced r = reduced({x, 0.0}, table);
  const DoubleDouble p = expm1_of_rest(r.rest);
  if (r.n == 0) return {p, 0, error};
  const Estimate power = power_times(r.n, p, table);
  // e^x - 1 = 2^k (v - 2^-k); beyond 2^200 the one is far below the error bound.
  const double one = power.exponent > 200 ? 0.0 : power_of_two(-power.exponent);
  const DoubleDouble high = two_sum(power.v.hi, -one);
  return {fast_two_sum(high.hi, high.lo + power.v.lo), power.exponent, error};
}

/// tanh(x) = E / (E + 2) with E = e^2x - 1. No cancellation, and the relative error of E shrinks.
Estimate tanh_estimate(double x) noexcept {
  const Estimate e = expm1_estimate(2.0 * magnitude(x));
  const double scale = power_of_two(e.exponent);
  const DoubleDouble value = {e.v.hi * scale, e.v.lo * scale};
  const DoubleDouble quotient = value / (value + DoubleDouble{2.0, 0.0});
  return {x < 0.0 ? -quotient : quotient, 0, 0x1p-67};
}

/// 1/cosh(x)^2 = 4 E / (1 + E)^2 with E = e^-2|x|, all terms positive: below 2^-75. Far out the E
/// in the denominator no longer counts.
Estimate sech_squared_estimate(double x) noexcept {
  const Estimate e = exp_double_double({-2.0 * magnitude(x), 0.0});
  const double scale = e.exponent < -200 ? 0.0 : power_of_two(e.exponent);
  const DoubleDouble sum = DoubleDouble{1.0, 0.0} + DoubleDouble{e.v.hi * scale, e.v.lo * scale};
  return {e.v / (sum * sum), e.exponent + 2, 0x1p-74};
}

/// The square of x is exact in two doubles; the rest is the core's error and one product: 2^-75.
Estimate normal_density_estimate(double x) noexcept {
  const ExponentialTable& table = ExponentialTable::get();
  // Below 2^-100 the square would underflow, and is too small to matter.
  const double a = magnitude(x) < 0x1p-100 ? 0.0 : x;
  const DoubleDouble square = two_product(a, a);
  const Estimate e = exp_double_double({-0.5 * square.hi, -0.5 * square.lo});
  return {e.v * table.inverse_sqrt_two_pi, e.exponent, 0x1p-74};
}

std::optional<double> exp_fast(double x) noexcept { return decided(exp_estimate(x)); }
std::optional<double> exp2_fast(double x) noexcept { return decided(exp2_estimate(x)); }
std::optional<double> expm1_fast(double x) noexcept { return decided(expm1_estimate(x)); }
std::optional<double> tanh_fast(double x) noexcept { return decided(tanh_estimate(x)); }
std::optional<double> sech_squared_fast(double x) noexcept {
  return decided(sech_squared_estimate(x));
}
std::optional<double> normal_density_fast(double x) noexcept {
  return decided(normal_density_estimate(x));
}

}  // namespace attest::lab::detail
