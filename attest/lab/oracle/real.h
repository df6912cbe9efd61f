// SPDX-License-Identifier: MIT
#pragma once

#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdint>
#include <ios>
#include <limits>
#include <string>

namespace attest::lab::oracle {

/// The number of the oracle: binary, 64 decimal digits (214 bits), exponents of 32 bits.
///
/// Fourteen digits more than the fifty that are promised: exp of an argument of 10⁷ loses seven of
/// them, and sums and the root of a small layer lose a few. Every binary64 number converts exactly.
using Real =
    boost::multiprecision::number<boost::multiprecision::cpp_bin_float<
                                      64, boost::multiprecision::digit_base_10, void, std::int32_t>,
                                  boost::multiprecision::et_off>;

/// The number itself; of a variable on a tape (tape.h), the number it stands for.
[[nodiscard]] inline const Real& value_of(const Real& x) { return x; }

[[nodiscard]] inline bool is_finite(const Real& x) { return boost::multiprecision::isfinite(x); }

[[nodiscard]] inline Real infinity() { return std::numeric_limits<Real>::infinity(); }

[[nodiscard]] inline Real not_a_number() { return std::numeric_limits<Real>::quiet_NaN(); }

[[nodiscard]] inline const Real& pi() {
  static const Real number = 4 * boost::multiprecision::atan(Real(1));
  return number;
}

/// The decimal text of x with `count` ≥ 2 significant digits: "6.6976154932e-01".
[[nodiscard]] inline std::string digits(const Real& x, int count) {
  if (boost::multiprecision::isnan(x)) return "nan";
  if (boost::multiprecision::isinf(x)) return x < 0 ? "-inf" : "inf";
  return x.str(count - 1, std::ios_base::scientific);
}

/// exp(x). Beyond ±10⁹ the result is 0 or +∞: it would leave the 32-bit exponent near 1.4·10⁹.
[[nodiscard]] inline Real exp(const Real& x) {
  if (x < -1000000000) return Real(0);
  if (x > 1000000000) return infinity();
  return boost::multiprecision::exp(x);
}

/// log(1 + x), with all its digits for small x too.
[[nodiscard]] inline Real log1p(const Real& x) {
  if (abs(x) > Real(0.01)) return log(1 + x);
  // log(1 + x) = 2·artanh(z) = 2·(z + z³/3 + z⁵/5 + …) with z = x / (2 + x)
  const Real z = x / (2 + x);
  Real power = z;
  Real sum = z;
  for (int k = 3; k < 121; k += 2) {  // |z| < 0.0051, and 0.0051¹²¹ < 10⁻²⁷⁰
    power *= z * z;
    const Real before = sum;
    sum += power / k;
    if (sum == before) break;
  }
  return 2 * sum;
}

/// 1 / (1 + exp(−x)).
[[nodiscard]] inline Real logistic(const Real& x) { return 1 / (1 + exp(-x)); }

/// tanh(x), as (1 − exp(−2x)) / (1 + exp(−2x)) from 0.1 on; below, from its series, because there
/// the difference would cancel.
[[nodiscard]] inline Real tanh(const Real& x) {
  if (x < 0) return -tanh(-x);
  if (x >= Real(0.1)) {
    const Real decay = exp(-2 * x);
    return (1 - decay) / (1 + decay);
  }
  // sinh(x) = x + x³/3! + …, cosh(x) = 1 + x²/2! + …
  Real term = 1;
  Real sinh = 0;
  Real cosh = 1;
  for (int k = 1; k < 60; ++k) {  // 0.1⁶⁰ / 60! < 10⁻¹⁴⁰
    term *= x / k;
    (k % 2 == 1 ? sinh : cosh) += term;
  }
  return sinh / cosh;
}

/// erf(x) = 2/√π · exp(−x²) · Σ_n 2ⁿ x²ⁿ⁺¹ / (1·3·5·…·(2n+1)); all terms have one sign.
[[nodiscard]] inline Real erf(const Real& x) {
  if (abs(x) > 20) return Real(x < 0 ? -1 : 1);  // 1 − erf(20) < 10⁻¹⁷⁵
  Real term = x;
  Real sum = x;
  for (int n = 1; n < 3000; ++n) {
    term *= 2 * x * x / (2 * n + 1);
    const Real before = sum;
    sum += term;
    if (sum == before) break;
  }
  return 2 / sqrt(pi()) * exp(-x * x) * sum;
}

/// erfc(x) = 1 − erf(x), without the cancellation for large x.
[[nodiscard]] inline Real erfc(const Real& x) {
  if (x < 4) return 1 - erf(x);  // cancels at most eight digits, erfc(4) = 1.5·10⁻⁸
  // erfc(x) = exp(−x²)/√π · 1/(x + (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))), from the inside out
  Real tail = x;
  for (int k = 400; k > 0; --k) tail = x + Real(k) / 2 / tail;
  return exp(-x * x) / sqrt(pi()) / tail;
}

/// The binary64 number nearest to x, ties to even, subnormal numbers included; ±∞ beyond their
/// range.
[[nodiscard]] inline double nearest_double(const Real& x) {
  if (boost::multiprecision::isnan(x)) return std::numeric_limits<double>::quiet_NaN();
  if (x < 0) return -nearest_double(-x);
  if (x == 0) return 0;
  if (boost::multiprecision::isinf(x)) return std::numeric_limits<double>::infinity();
  int exponent = 0;
  const Real fraction = frexp(x, &exponent);  // x = fraction · 2^exponent, fraction in [1/2, 1)
  if (exponent > 1024) return std::numeric_limits<double>::infinity();
  // 53 bits, but none below 2⁻¹⁰⁷⁴
  const int bits = exponent >= -1021 ? 53 : exponent + 1074;
  if (bits < 0) return 0;
  const Real scaled = ldexp(fraction, bits);  // in [2^(bits-1), 2^bits)
  const Real below = floor(scaled);
  auto mantissa = below.convert_to<std::int64_t>();
  const Real rest = scaled - below;
  const Real half = Real(0.5);
  if (rest > half || (rest == half && mantissa % 2 != 0)) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), exponent - bits);  // exact, or past the range
}

}  // namespace attest::lab::oracle
