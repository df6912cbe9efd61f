// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>
#include <mpfr.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iomanip>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attest/lab/elementary.h"
#include "attest/lab/elementary_detail.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

// What the tests of the elementary functions share: MPFR as the judge, the arguments, and a loop
// over two threads.
namespace attest::lab::testing {

/// One number of MPFR's, freed at the end of its scope.
class Number {
 public:
  explicit Number(mpfr_prec_t precision) { mpfr_init2(value_, precision); }
  ~Number() { mpfr_clear(value_); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  operator mpfr_ptr() { return value_; }  // NOLINT: stands for the handle in MPFR's functions

 private:
  mpfr_t value_;
};

using MpfrFunction = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);

/// Correctly rounded references. One per thread; MPFR's exponent range is local to the thread.
class Reference {
 public:
  Reference() {
    mpfr_const_pi(scratch_, MPFR_RNDN);
    mpfr_mul_2ui(scratch_, scratch_, 1, MPFR_RNDN);
    mpfr_rec_sqrt(inverse_sqrt_two_pi_, scratch_, MPFR_RNDN);
  }

  double direct(MpfrFunction function, double x) {
    mpfr_set_d(x_, x, MPFR_RNDN);
    return to_double(function(y_, x_, MPFR_RNDN));
  }

  /// The value of `precise` to 200 bits, rounded: not for exact cases, which would have to be seen.
  template <typename Precise>
  double rounded(const Precise& precise) {
    precise(scratch_);
    return to_double(mpfr_set(y_, scratch_, MPFR_RNDN));
  }

  void sech_squared(mpfr_ptr result, double x) {
    mpfr_set_d(x_, x, MPFR_RNDN);
    mpfr_sech(result, x_, MPFR_RNDN);
    mpfr_sqr(result, result, MPFR_RNDN);
  }

  void normal_density(mpfr_ptr result, double x) {
    mpfr_set_d(x_, x, MPFR_RNDN);
    mpfr_sqr(result, x_, MPFR_RNDN);
    mpfr_div_2ui(result, result, 1, MPFR_RNDN);
    mpfr_neg(result, result, MPFR_RNDN);
    mpfr_exp(result, result, MPFR_RNDN);
    mpfr_mul(result, result, inverse_sqrt_two_pi_, MPFR_RNDN);
  }

  double rational_power(double base, std::int64_t numerator, std::int64_t denominator) {
    return rounded([&](mpfr_ptr result) {
      mpfr_set_d(x_, base, MPFR_RNDN);
      mpfr_log(result, x_, MPFR_RNDN);
      mpfr_mul_si(result, result, static_cast<long>(numerator), MPFR_RNDN);
      mpfr_div_si(result, result, static_cast<long>(denominator), MPFR_RNDN);
      mpfr_exp(result, result, MPFR_RNDN);
    });
  }

  /// |estimate / precise value - 1|.
  template <typename Precise>
  double relative_error(const detail::Estimate& estimate, const Precise& precise) {
    precise(scratch_);
    mpfr_set_d(difference_, estimate.v.hi, MPFR_RNDN);
    mpfr_add_d(difference_, difference_, estimate.v.lo, MPFR_RNDN);
    mpfr_mul_2si(difference_, difference_, estimate.exponent, MPFR_RNDN);
    mpfr_div(difference_, difference_, scratch_, MPFR_RNDN);
    mpfr_sub_ui(difference_, difference_, 1, MPFR_RNDN);
    return std::abs(mpfr_get_d(difference_, MPFR_RNDN));
  }

 private:
  /// y_, rounded to 53 bits with the given ternary value, on binary64's exponent range.
  double to_double(int ternary) {
    const mpfr_exp_t emin = mpfr_get_emin();
    const mpfr_exp_t emax = mpfr_get_emax();
    mpfr_set_emin(-1073);
    mpfr_set_emax(1024);
    ternary = mpfr_check_range(y_, ternary, MPFR_RNDN);
    mpfr_subnormalize(y_, ternary, MPFR_RNDN);
    const double result = mpfr_get_d(y_, MPFR_RNDN);
    mpfr_set_emin(emin);
    mpfr_set_emax(emax);
    return result;
  }

  Number x_{53};
  Number y_{53};
  Number scratch_{200};
  Number difference_{200};
  Number inverse_sqrt_two_pi_{200};
};

/// A function of one variable, its two paths, its reference and where to look closely.
struct Subject {
  const char* name;
  double (*function)(double) noexcept;
  detail::Estimate (*estimate)(double) noexcept;
  std::optional<double> (*fast)(double) noexcept;
  double (*big)(double) noexcept;
  double (*reference)(Reference&, double);
  void (*precise)(Reference&, mpfr_ptr, double);
  double low;  // the interesting range
  double high;
  double smallest;                 // below this magnitude the paths are not asked
  std::vector<double> thresholds;  // where the case distinctions are, or should be
};

template <MpfrFunction Function>
double direct(Reference& reference, double x) {
  return reference.direct(Function, x);
}

template <MpfrFunction Function>
void precise(Reference&, mpfr_ptr result, double x) {
  mpfr_set_d(result, x, MPFR_RNDN);
  Function(result, result, MPFR_RNDN);
}

template <void (Reference::*Function)(mpfr_ptr, double)>
void composed(Reference& reference, mpfr_ptr result, double x) {
  (reference.*Function)(result, x);
}

template <void (Reference::*Function)(mpfr_ptr, double)>
double rounded(Reference& reference, double x) {
  return reference.rounded([&](mpfr_ptr result) { (reference.*Function)(result, x); });
}

inline const std::vector<Subject>& subjects() {
  namespace d = attest::lab::detail;
  static const std::vector<Subject> all = {
      {"exp",
       exp,
       d::exp_estimate,
       d::exp_fast,
       d::exp_big,
       direct<mpfr_exp>,
       precise<mpfr_exp>,
       -746,
       710,
       0x1p-54,
       {709.782712893384, 709.0, -708.0, -708.3964185322641, -744.4400719213812, -745.1332191019412,
        0x1p-54, -0x1p-54, 0x1p-53, -0x1p-53, 0.0027, -0.0027}},
      {"exp2",
       exp2,
       d::exp2_estimate,
       d::exp2_fast,
       d::exp2_big,
       direct<mpfr_exp2>,
       precise<mpfr_exp2>,
       -1075.5,
       1024,
       0x1p-54,
       {1024, 1023, -1021, -1022, -1023, -1074, -1075, 0x1p-54, -0x1p-54, 0x1p-53, 0.5, -0.5}},
      {"expm1",
       expm1,
       d::expm1_estimate,
       d::expm1_fast,
       d::expm1_big,
       direct<mpfr_expm1>,
       precise<mpfr_expm1>,
       -40,
       710,
       0x1p-54,
       {709.782712893384, -37.42994775023705, -38, 0x1p-54, -0x1p-54, 0.0027, -0.0027, 0.25,
        -0.25}},
      {"log",
       log,
       d::log_estimate,
       d::log_fast,
       d::log_big,
       direct<mpfr_log>,
       precise<mpfr_log>,
       0,
       100,
       0,
       {1.0, 0.5, 2.0, 0x1p-1022, 0x1p-1074, 0x1.fffffffffffffp1023, 1.41421356, 0.70710678,
        1.00390625, 0.998046875}},
      {"tanh",
       tanh,
       d::tanh_estimate,
       d::tanh_fast,
       d::tanh_big,
       direct<mpfr_tanh>,
       precise<mpfr_tanh>,
       -20,
       20,
       0x1p-28,
       {19.06154746539849, 20, 0x1p-28, 0x1p-27, 0x1p-26, 0.00135, 0.125}},
      {"sech_squared",
       sech_squared,
       d::sech_squared_estimate,
       d::sech_squared_fast,
       d::sech_squared_big,
       rounded<&Reference::sech_squared>,
       composed<&Reference::sech_squared>,
       -374,
       374,
       0x1p-28,
       {354.8, 354.891, 373, 373.2597, 374, 0x1p-28, 0x1p-27, 0x1.6a09e667f3bcdp-27, 0x1p-26}},
      {"erf",
       erf,
       d::erf_estimate,
       d::erf_fast,
       d::erf_big,
       direct<mpfr_erf>,
       precise<mpfr_erf>,
       -6,
       6,
       0x1p-1074,
       {5.9215871957945065, 6, 0x1p-1022, 0x1p-1074, 0x1p-900, 0x1p-6, 0x1p-27}},
      {"normal_density",
       normal_density,
       d::normal_density_estimate,
       d::normal_density_fast,
       d::normal_density_big,
       rounded<&Reference::normal_density>,
       composed<&Reference::normal_density>,
       -39,
       39,
       0,
       {37.5, 37.6, 38.5, 38.6, 39, 0x1p-100, 0x1p-27, 0x1p-54}},
      {"sin",
       sin,
       d::sin_estimate,
       d::sin_fast,
       d::sin_big,
       direct<mpfr_sin>,
       precise<mpfr_sin>,
       -100,
       100,
       0x1p-27,
       {0.75, 0.7853981633974483, 1.5707963267948966, 3.141592653589793, 6.283185307179586, 0x1p-27,
        0x1p-26, 0x1p53, 0x1p1023, 0x1.6ac5b262ca1ffp849}},
      {"cos",
       cos,
       d::cos_estimate,
       d::cos_fast,
       d::cos_big,
       direct<mpfr_cos>,
       precise<mpfr_cos>,
       -100,
       100,
       0x1p-27,
       {0.75, 0.7853981633974483, 1.5707963267948966, 3.141592653589793, 6.283185307179586, 0x1p-27,
        0x1p-26, 0x1p53, 0x1p1023, 0x1.6ac5b262ca1ffp849}},
  };
  return all;
}

inline const Subject& subject(const std::string& name) {
  for (const Subject& s : subjects()) {
    if (name == s.name) return s;
  }
  std::abort();
}

inline std::uint64_t number_from_environment(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

inline std::uint64_t test_seed() {
  return number_from_environment("ATTEST_TEST_SEED", 0x41747465737401);
}

/// Arguments of four kinds in turn: any bit pattern; uniform in the interesting range; of any small
/// order of magnitude; and close to a threshold.
class Arguments {
 public:
  Arguments(const Subject& s, std::uint64_t stream)
      : subject_(s), random_(test_seed() + 0x9E3779B97F4A7C15U * (stream + 1)) {}

  double next() {
    switch (kind_++ % 4) {
      case 0:
        return std::bit_cast<double>(random_());
      case 1:
        return subject_.low + (subject_.high - subject_.low) * unit();
      case 2:
        return signed_by_chance(std::bit_cast<double>((random_() & 0xFFFFFFFFFFFFFU) |
                                                      ((1023 - 62 + random_() % 66) << 52)));
      default:
        return near_threshold();
    }
  }

 private:
  double unit() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  double signed_by_chance(double x) {
    const bool negative = subject_.low < 0 && random_() % 2 == 0;
    return negative ? -x : x;
  }

  double near_threshold() {
    const double threshold = subject_.thresholds[random_() % subject_.thresholds.size()];
    const std::uint64_t distance = random_() >> (44 + random_() % 20);
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(threshold);
    return signed_by_chance(
        std::bit_cast<double>(random_() % 2 == 0 ? bits + distance : bits - distance));
  }

  const Subject& subject_;
  std::mt19937_64 random_;
  unsigned kind_ = 0;
};

inline bool same_bits(double a, double b) {
  return (a != a && b != b) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

inline std::string shown(double x) {
  std::ostringstream text;
  text << std::hexfloat << x << std::defaultfloat << std::setprecision(17) << " (" << x
       << ", bits 0x" << std::hex << std::bit_cast<std::uint64_t>(x) << ")";
  return text.str();
}

inline ::testing::AssertionResult agree(double result, double expected) {
  if (same_bits(result, expected)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << shown(result) << ", expected " << shown(expected);
}

/// Whether both paths of the function are made for this argument.
inline bool for_both_paths(const Subject& s, double x) {
  const bool in_range = x >= s.low && x <= s.high && std::abs(x) >= s.smallest && x != 0.0;
  const bool exact =
      (s.function == exp2 && x == std::nearbyint(x)) || (s.function == log && x == 1);
  return in_range && !exact;
}

/// What a comparison found. The message is empty if all results agreed.
struct Findings {
  std::uint64_t compared = 0;
  std::uint64_t wrong = 0;
  std::string message;

  void note(const Subject& s, double x, double result, double expected) {
    if (wrong++ != 0) return;
    message = std::string(s.name) + "(" + shown(x) + ") = " + shown(result) + ", expected " +
              shown(expected) + ", seed " + std::to_string(test_seed());
  }

  void add(const Findings& other) {
    compared += other.compared;
    wrong += other.wrong;
    if (message.empty()) message = other.message;
  }
};

/// Runs work(thread, findings) on two threads and adds up what they found.
template <typename Work>
Findings on_two_threads(const Work& work) {
  std::array<Findings, 2> parts;
  {
    // MPFR keeps caches for each thread, which a leak checker counts: give them back.
    std::thread other([&] {
      work(std::uint64_t{1}, parts[1]);
      mpfr_free_cache();
    });
    work(std::uint64_t{0}, parts[0]);
    mpfr_free_cache();
    other.join();
  }
  parts[0].add(parts[1]);
  return parts[0];
}

/// Compares `count` results with MPFR; the streams of different rounds differ.
inline Findings compare_with_reference(const Subject& s, std::uint64_t count,
                                       std::uint64_t round = 0) {
  return on_two_threads([&](std::uint64_t thread, Findings& findings) {
    Reference reference;
    Arguments arguments(s, 2 * round + thread);
    for (std::uint64_t i = 0; i < count / 2; ++i) {
      const double x = arguments.next();
      const double result = s.function(x);
      const double expected = s.reference(reference, x);
      ++findings.compared;
      if (!same_bits(result, expected)) findings.note(s, x, result, expected);
    }
  });
}

/// A random power whose value is no tie of a short fraction: small denominators are left out, for
/// which 200 bits of MPFR would not see a tie. (elementary_test.cpp has another judge for them.)
struct RandomPower {
  double base;
  std::int64_t p;
  std::int64_t q;

  static RandomPower next(std::mt19937_64& random) {
    const bool any_base = random() % 2 == 0;
    const auto step = static_cast<double>(random() >> (11 + random() % 44)) * 0x1p-40;
    const double base =
        any_base ? std::bit_cast<double>(random() % 0x7FF0000000000000U) : 1.0 + step;
    const auto spread = std::int64_t{1} << (random() % 21);
    const auto p = static_cast<std::int64_t>(random() % (2U << 20)) % (2 * spread + 1) - spread;
    return {base, p, 65 + static_cast<std::int64_t>(random() % ((1U << 20) - 64))};
  }

  [[nodiscard]] bool trivial() const { return base == 0.0 || p == 0; }

  [[nodiscard]] std::string text() const {
    return shown(base) + " ^ (" + std::to_string(p) + "/" + std::to_string(q) + ")";
  }
};

inline Findings compare_powers_with_reference(std::uint64_t count, std::uint64_t round = 0) {
  return on_two_threads([=](std::uint64_t thread, Findings& findings) {
    std::mt19937_64 random(test_seed() + 0x9E3779B97F4A7C15U * (2 * round + thread + 1));
    Reference reference;
    while (findings.compared < count / 2) {
      const RandomPower power = RandomPower::next(random);
      if (power.trivial()) continue;
      const double result = rational_power(power.base, power.p, power.q);
      const double expected = reference.rational_power(power.base, power.p, power.q);
      ++findings.compared;
      if (same_bits(result, expected) || findings.wrong++ != 0) continue;
      findings.message = power.text() + " = " + shown(result) + ", expected " + shown(expected) +
                         ", seed " + std::to_string(test_seed());
    }
  });
}

#if defined(__SSE2__)

inline constexpr unsigned flush_to_zero = 0x8000;
inline constexpr unsigned denormals_are_zero = 0x0040;
inline constexpr unsigned status_flags = 0x003F;
inline constexpr unsigned roundings[] = {0x0000, 0x2000, 0x4000, 0x6000};

/// Sets MXCSR for the life of the object.
class HostSettings {
 public:
  explicit HostSettings(unsigned settings) : before_(_mm_getcsr()) { _mm_setcsr(settings); }
  ~HostSettings() { _mm_setcsr(before_); }
  HostSettings(const HostSettings&) = delete;
  HostSettings& operator=(const HostSettings&) = delete;

 private:
  unsigned before_;
};

#endif

}  // namespace attest::lab::testing
