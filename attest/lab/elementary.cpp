// SPDX-License-Identifier: MIT
#include "attest/lab/elementary.h"

#include "attest/lab/elementary_detail.h"
#include "attest/lab/environment.h"

// The public entry points. Each answers the arguments whose result needs no computation, then tries
// the fast path, then lets the big arithmetic decide.
namespace attest::lab {
namespace {

using detail::infinity;
using detail::is_nan;
using detail::magnitude;
using detail::quiet_nan;
using detail::with_sign_of;

// Half the distance from 1 to its lower neighbour, and so the least relative distance that a result
// must have from a representable number before it can round to another one.
constexpr double half_gap = 0x1p-54;

/// Runs a function of one variable in the exact environment. The pins keep the compiler from moving
/// arithmetic across the change of environment.
template <double (*Function)(double)>
double exactly(double x) noexcept {
  const ExactEnvironment environment;
  ExactEnvironment::pin(x);
  double y = Function(x);
  ExactEnvironment::pin(y);
  return y;
}

double rounded_exp(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (x >= 710.0) return infinity();  // e^709.79 > 2^1024
  if (x <= -746.0) return 0.0;        // e^-745.14 < 2^-1075
  if (magnitude(x) < half_gap) return 1.0;
  if (const auto y = detail::exp_fast(x)) return *y;
  return detail::exp_big(x);
}

/// 2^k for an integral k < 1024: a normal number, a single bit of the subnormal range, or zero (the
/// tie 2^-1075 goes to the even zero).
double power_of_two(double k) noexcept {
  const int exponent = static_cast<int>(k);
  if (exponent >= -1022) return detail::scaled(1.0, exponent);
  if (exponent < -1074) return 0.0;
  return std::bit_cast<double>(std::uint64_t{1} << (exponent + 1074));
}

double rounded_exp2(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (x >= 1024.0) return infinity();
  if (x <= -1075.0) return 0.0;
  if (x == detail::nearest_integer(x)) return power_of_two(x);
  if (magnitude(x) < half_gap) return 1.0;
  if (const auto y = detail::exp2_fast(x)) return *y;
  return detail::exp2_big(x);
}

double rounded_expm1(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (x >= 710.0) return infinity();
  if (x <= -38.0) return -1.0;            // e^-38 < 2^-54
  if (magnitude(x) < half_gap) return x;  // x (1 + x/2 + ...)
  if (const auto y = detail::expm1_fast(x)) return *y;
  return detail::expm1_big(x);
}

double rounded_log(double x) noexcept {
  if (is_nan(x) || x < 0.0) return quiet_nan();
  if (x == 0.0) return -infinity();
  if (x == infinity()) return x;
  if (x == 1.0) return 0.0;
  if (const auto y = detail::log_fast(x)) return *y;
  return detail::log_big(x);
}

double rounded_tanh(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (magnitude(x) >= 20.0) return with_sign_of(1.0, x);  // 1 - tanh < 2 e^-40 < 2^-56
  if (magnitude(x) < 0x1p-28) return x;                   // x (1 - x^2/3 + ...)
  if (const auto y = detail::tanh_fast(x)) return *y;
  return detail::tanh_big(x);
}

double rounded_sech_squared(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (magnitude(x) >= 374.0) return 0.0;   // 4 e^-748 < 2^-1075
  if (magnitude(x) < 0x1p-28) return 1.0;  // 1 - x^2 + ...
  if (const auto y = detail::sech_squared_fast(x)) return *y;
  return detail::sech_squared_big(x);
}

double rounded_erf(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (x == 0.0) return x;
  if (magnitude(x) >= 6.0) return with_sign_of(1.0, x);  // 1 - erf(6) < 2^-55
  if (const auto y = detail::erf_fast(x)) return *y;
  return detail::erf_big(x);
}

double rounded_normal_density(double x) noexcept {
  if (is_nan(x)) return quiet_nan();
  if (magnitude(x) >= 39.0) return 0.0;  // e^-760.5 / 2.5 < 2^-1075
  if (const auto y = detail::normal_density_fast(x)) return *y;
  return detail::normal_density_big(x);
}

double rounded_sin(double x) noexcept {
  if (is_nan(x) || magnitude(x) == infinity()) return quiet_nan();
  if (magnitude(x) < 0x1p-27) return x;  // x (1 - x^2/6 + ...)
  if (const auto y = detail::sin_fast(x)) return *y;
  return detail::sin_big(x);
}

double rounded_cos(double x) noexcept {
  if (is_nan(x) || magnitude(x) == infinity()) return quiet_nan();
  if (magnitude(x) < 0x1p-27) return 1.0;  // 1 - x^2/2 + ...
  if (const auto y = detail::cos_fast(x)) return *y;
  return detail::cos_big(x);
}

}  // namespace

double exp(double x) noexcept { return exactly<rounded_exp>(x); }
double exp2(double x) noexcept { return exactly<rounded_exp2>(x); }
double expm1(double x) noexcept { return exactly<rounded_expm1>(x); }
double log(double x) noexcept { return exactly<rounded_log>(x); }
double tanh(double x) noexcept { return exactly<rounded_tanh>(x); }
double sech_squared(double x) noexcept { return exactly<rounded_sech_squared>(x); }
double erf(double x) noexcept { return exactly<rounded_erf>(x); }
double normal_density(double x) noexcept { return exactly<rounded_normal_density>(x); }
double sin(double x) noexcept { return exactly<rounded_sin>(x); }
double cos(double x) noexcept { return exactly<rounded_cos>(x); }

}  // namespace attest::lab
