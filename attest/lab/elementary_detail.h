// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cfloat>
#include <cstdint>
#include <optional>

#include "attest/lab/big.h"

// Internal to the elementary functions: double-double arithmetic, the rounding tests, and the two
// paths of each function. Tests reach in here to compare the paths with each other.
namespace attest::lab::detail {

static_assert(FLT_EVAL_METHOD == 0, "double arithmetic must round to double at once");

/// An unevaluated sum hi + lo with |lo| <= ulp(hi)/2: about 106 bits.
struct DoubleDouble {
  double hi = 0.0;
  double lo = 0.0;
};

/// a + b exactly (Handbook of Floating-Point Arithmetic, Alg. 4.4, "2Sum").
inline DoubleDouble two_sum(double a, double b) noexcept {
  const double sum = a + b;
  const double b_part = sum - a;
  const double a_part = sum - b_part;
  return {sum, (a - a_part) + (b - b_part)};
}

/// a + b exactly if |a| >= |b| or a = 0 (Handbook, Alg. 4.3, "Fast2Sum").
inline DoubleDouble fast_two_sum(double a, double b) noexcept {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

/// a as a sum of two 26-bit numbers (Handbook, Alg. 4.9, Veltkamp); |a| < 2^995.
inline DoubleDouble split(double a) noexcept {
  const double shifted = 0x1.0000002p27 * a;
  const double head = shifted - (shifted - a);
  return {head, a - head};
}

/// a * b exactly (Handbook, Alg. 4.10, Dekker) unless it overflows or the low part underflows. It
/// takes 17 operations where a fused multiply-add would take 2, and needs no special hardware.
inline DoubleDouble two_product(double a, double b) noexcept {
  const DoubleDouble x = split(a);
  const DoubleDouble y = split(b);
  const double product = a * b;
  const double error = ((x.hi * y.hi - product) + x.hi * y.lo + x.lo * y.hi) + x.lo * y.lo;
  return {product, error};
}

inline DoubleDouble operator-(DoubleDouble a) noexcept { return {-a.hi, -a.lo}; }

/// Sum with relative error below 2^-104 when the signs agree; else below 2^-104 (|a| + |b|).
inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) noexcept {
  const DoubleDouble high = two_sum(a.hi, b.hi);
  return fast_two_sum(high.hi, high.lo + (a.lo + b.lo));
}

/// Product with relative error below 2^-101.
inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) noexcept {
  const DoubleDouble high = two_product(a.hi, b.hi);
  return fast_two_sum(high.hi, high.lo + (a.hi * b.lo + a.lo * b.hi));
}

inline DoubleDouble operator*(double a, DoubleDouble b) noexcept {
  const DoubleDouble high = two_product(a, b.hi);
  return fast_two_sum(high.hi, high.lo + a * b.lo);
}

/// Quotient with relative error below 2^-100: one division, one exact remainder, one correction.
inline DoubleDouble operator/(DoubleDouble a, DoubleDouble b) noexcept {
  const double quotient = a.hi / b.hi;
  const DoubleDouble back = two_product(quotient, b.hi);
  const double rest = ((a.hi - back.hi) - back.lo) + (a.lo - quotient * b.lo);
  return fast_two_sum(quotient, rest / b.hi);
}

inline std::uint64_t bits_of(double x) noexcept { return std::bit_cast<std::uint64_t>(x); }

inline double magnitude(double x) noexcept {
  return std::bit_cast<double>(bits_of(x) & 0x7FFFFFFFFFFFFFFFU);
}

inline double with_sign_of(double magnitude, double sign) noexcept {
  return std::bit_cast<double>(bits_of(magnitude) | (bits_of(sign) & 0x8000000000000000U));
}

inline bool is_nan(double x) noexcept { return x != x; }

inline double infinity() noexcept { return std::bit_cast<double>(std::uint64_t{0x7FF} << 52); }
inline double quiet_nan() noexcept { return std::bit_cast<double>(std::uint64_t{0x7FF8} << 48); }

/// Round to integer: beyond 2^52 doubles have no fraction left (Handbook, section 10.2.3).
inline double nearest_integer(double x) noexcept {
  constexpr double shift = 0x1.8p52;
  return (x + shift) - shift;
}

/// x * 2^k by adding to the exponent field, for normal x and a normal result (or exactly 2^1024).
inline double scaled(double x, int k) noexcept {
  return std::bit_cast<double>(bits_of(x) + (static_cast<std::uint64_t>(k) << 52));
}

/// What a fast path knows: the value is v * 2^exponent, within `relative_error` of itself.
/// Estimates outside the range of a fast path say nothing: their relative error is infinite.
struct Estimate {
  DoubleDouble v;
  int exponent = 0;
  double relative_error = 0.0;
};

inline Estimate no_estimate() noexcept { return {{1.0, 0.0}, 0, infinity()}; }

/// Ziv's rounding test: the double nearest to every number the estimate allows, or nothing if two
/// doubles come into question. The stated error must exceed the true bound by at least one part in
/// 2^30, which pays for the roundings of lo +- error.
inline std::optional<double> decided(const Estimate& e) noexcept {
  const double error = e.relative_error * magnitude(e.v.hi);
  const double below = e.v.hi + (e.v.lo - error);
  const double above = e.v.hi + (e.v.lo + error);
  if (!(below == above)) return std::nullopt;
  // A double that rounds to at least 2^-1022 is the same on the subnormal grid; all below is left
  // to the big arithmetic, as is overflow.
  const int biased = static_cast<int>((bits_of(below) >> 52) & 0x7FFU) + e.exponent;
  if (biased < 1 || biased > 2046) return std::nullopt;
  return scaled(below, e.exponent);
}

/// A table entry from the big arithmetic: within 2^-106 relatively.
template <int Limbs>
DoubleDouble double_double(const Big<Limbs>& v) noexcept {
  const double hi = v.nearest_double();
  return {hi, (v - Big<Limbs>::from_double(hi)).nearest_double()};
}

/// The shared core of the exponential family, e^(hi + lo) for |hi| < 761.
Estimate exp_double_double(DoubleDouble x) noexcept;

/// The estimates, with the error bounds derived beside each.
Estimate exp_estimate(double x) noexcept;
Estimate exp2_estimate(double x) noexcept;
Estimate expm1_estimate(double x) noexcept;
Estimate log_estimate(double x) noexcept;
Estimate tanh_estimate(double x) noexcept;
Estimate sech_squared_estimate(double x) noexcept;
Estimate erf_estimate(double x) noexcept;
Estimate normal_density_estimate(double x) noexcept;
Estimate sin_estimate(double x) noexcept;
Estimate cos_estimate(double x) noexcept;
Estimate rational_power_estimate(double base, std::int64_t p, std::int64_t q) noexcept;

/// The first attempt: the estimate, and the rounding test.
std::optional<double> exp_fast(double x) noexcept;
std::optional<double> exp2_fast(double x) noexcept;
std::optional<double> expm1_fast(double x) noexcept;
std::optional<double> log_fast(double x) noexcept;
std::optional<double> tanh_fast(double x) noexcept;
std::optional<double> sech_squared_fast(double x) noexcept;
std::optional<double> erf_fast(double x) noexcept;
std::optional<double> normal_density_fast(double x) noexcept;
std::optional<double> sin_fast(double x) noexcept;
std::optional<double> cos_fast(double x) noexcept;
std::optional<double> rational_power_fast(double base, std::int64_t p, std::int64_t q) noexcept;

/// The decision by rising precision, for arguments that are no special or exact case.
double exp_big(double x) noexcept;
double exp2_big(double x) noexcept;
double expm1_big(double x) noexcept;
double log_big(double x) noexcept;
double tanh_big(double x) noexcept;
double sech_squared_big(double x) noexcept;
double erf_big(double x) noexcept;
double normal_density_big(double x) noexcept;
double sin_big(double x) noexcept;
double cos_big(double x) noexcept;
double rational_power_big(double base, std::int64_t p, std::int64_t q) noexcept;

}  // namespace attest::lab::detail
