// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "tests/lab/elementary_reference.h"
#include "tests/support/draws.h"

namespace attest::lab::testing {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double least = std::numeric_limits<double>::denorm_min();
constexpr std::uint64_t million = 1'000'000;

void expect_correct_on_random_arguments(const char* name) {
  const std::uint64_t count = test::draws(million, million);
  const Findings found = compare_with_reference(subject(name), count);
  EXPECT_EQ(found.compared, count);
  EXPECT_EQ(found.wrong, 0U) << found.message;
}

/// x and a few neighbours on both sides, with both signs.
void expect_correct_around(const Subject& s, Reference& reference, double x, int neighbours = 3) {
  for (int i = -neighbours; i <= neighbours; ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(x) + static_cast<std::uint64_t>(i);
    for (const double argument : {std::bit_cast<double>(bits), -std::bit_cast<double>(bits)}) {
      const double expected = s.reference(reference, argument);
      const double result = s.function(argument);
      EXPECT_TRUE(same_bits(result, expected))
          << s.name << "(" << shown(argument) << ") = " << shown(result) << ", expected "
          << shown(expected);
    }
  }
}

TEST(Exp, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("exp"); }
TEST(Exp2, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("exp2"); }
TEST(Expm1, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("expm1"); }
TEST(Log, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("log"); }
TEST(Tanh, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("tanh"); }
TEST(Erf, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("erf"); }
TEST(Sin, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("sin"); }
TEST(Cos, IsCorrectlyRoundedOnRandomArguments) { expect_correct_on_random_arguments("cos"); }
TEST(SechSquared, IsCorrectlyRoundedOnRandomArguments) {
  expect_correct_on_random_arguments("sech_squared");
}
TEST(NormalDensity, IsCorrectlyRoundedOnRandomArguments) {
  expect_correct_on_random_arguments("normal_density");
}

TEST(Elementary, NanGivesQuietNan) {
  const double signalling = std::bit_cast<double>(std::uint64_t{0x7FF0000000000001});
  for (const Subject& s : subjects()) {
    for (const double x : {nan, -nan, signalling}) {
      const auto bits = std::bit_cast<std::uint64_t>(s.function(x));
      EXPECT_EQ(bits, std::uint64_t{0x7FF8000000000000}) << s.name;
    }
  }
}

TEST(Elementary, SpecialValuesAreAsDocumented) {
  EXPECT_TRUE(agree(exp(-inf), 0.0));
  EXPECT_TRUE(agree(exp(inf), inf));
  EXPECT_TRUE(agree(exp(0.0), 1.0));
  EXPECT_TRUE(agree(exp(-0.0), 1.0));
  EXPECT_TRUE(agree(exp2(-inf), 0.0));
  EXPECT_TRUE(agree(exp2(inf), inf));
  EXPECT_TRUE(agree(exp2(-0.0), 1.0));
  EXPECT_TRUE(agree(expm1(-0.0), -0.0));
  EXPECT_TRUE(agree(expm1(0.0), 0.0));
  EXPECT_TRUE(agree(expm1(-inf), -1.0));
  EXPECT_TRUE(agree(expm1(inf), inf));
  EXPECT_TRUE(agree(log(0.0), -inf));
  EXPECT_TRUE(agree(log(-0.0), -inf));
  EXPECT_TRUE(agree(log(-1.0), nan));
  EXPECT_TRUE(agree(log(-inf), nan));
  EXPECT_TRUE(agree(log(-least), nan));
  EXPECT_TRUE(agree(log(1.0), 0.0));
  EXPECT_TRUE(agree(log(inf), inf));
  EXPECT_TRUE(agree(sech_squared(0.0), 1.0));
  EXPECT_TRUE(agree(sech_squared(inf), 0.0));
  EXPECT_TRUE(agree(sech_squared(-inf), 0.0));
  EXPECT_TRUE(agree(normal_density(inf), 0.0));
  EXPECT_TRUE(agree(normal_density(-inf), 0.0));
  EXPECT_TRUE(agree(cos(0.0), 1.0));
  EXPECT_TRUE(agree(cos(-0.0), 1.0));
  for (const double x : {inf, -inf}) {
    EXPECT_TRUE(agree(sin(x), nan));
    EXPECT_TRUE(agree(cos(x), nan));
    EXPECT_TRUE(agree(tanh(x), std::copysign(1.0, x)));
    EXPECT_TRUE(agree(erf(x), std::copysign(1.0, x)));
  }
  for (const double zero : {0.0, -0.0}) {
    EXPECT_TRUE(agree(sin(zero), zero));
    EXPECT_TRUE(agree(tanh(zero), zero));
    EXPECT_TRUE(agree(erf(zero), zero));
  }
}

TEST(Exp2, IsExactOnIntegers) {
  for (int k = -1074; k < 1024; ++k) EXPECT_TRUE(agree(exp2(k), std::ldexp(1.0, k)));
  EXPECT_TRUE(agree(exp2(1024.0), inf));
  EXPECT_TRUE(agree(exp2(-1075.0), 0.0));  // a tie, to even
  EXPECT_TRUE(agree(exp2(std::nextafter(-1075.0, 0.0)), least));
}

TEST(Exp, OverflowsAndUnderflowsWhereTheExactValueDoes) {
  EXPECT_TRUE(agree(exp(0x1.62e42fefa39efp+9), 0x1.fffffffffff2ap1023));
  EXPECT_TRUE(agree(exp(std::nextafter(0x1.62e42fefa39efp+9, inf)), inf));
  EXPECT_TRUE(agree(exp(-0x1.74910d52d3051p9), least));
  EXPECT_TRUE(agree(exp(std::nextafter(-0x1.74910d52d3051p9, -inf)), 0.0));
}

TEST(Elementary, IsCorrectlyRoundedBesideThresholds) {
  Reference reference;
  for (const Subject& s : subjects()) {
    for (const double x : s.thresholds) {
      expect_correct_around(s, reference, std::abs(x), 200);
    }
  }
}

TEST(Elementary, IsCorrectlyRoundedOnIntegersHalvesAndPowersOfTwo) {
  Reference reference;
  for (const Subject& s : subjects()) {
    for (int i = 1; i <= 1600; ++i) expect_correct_around(s, reference, 0.5 * i, 0);
    for (int k = -1074; k < 1024; ++k) {
      expect_correct_around(s, reference, std::ldexp(1.0, k), 1);
    }
  }
}

// The fast paths change the table entry at multiples of 2^-8 (sin, cos, exp2), 2^-6 (erf), 2^-8 of
// the significand (log) and odd multiples of (ln 2)/256 (the exponential family).
TEST(Elementary, IsCorrectlyRoundedBesideTheEdgesOfTheTables) {
  Reference reference;
  for (const Subject& s : subjects()) {
    for (int i = 1; i <= 1600; ++i) {
      expect_correct_around(s, reference, i * 0x1p-8, 2);
      expect_correct_around(s, reference, i * 0.002707606173999011, 2);
    }
  }
}

// The published worst cases that could be recalled, with the relative distance of the value from a
// number of 54 bits. The expected values are MPFR's, so that a mistake here would only lose a hard
// case: Lefevre and Muller, "Worst cases for correct rounding of the elementary functions in double
// precision" (ARITH 15, 2001).
TEST(Elementary, IsCorrectlyRoundedOnPublishedHardCases) {
  const std::pair<const char*, double> cases[] = {
      {"exp", 0x1.9e9cbbfd6080bp-31},   // 2^-111
      {"log", 0x1.62a88613629b6p678},   // 2^-118
      {"log", 0x1.ea71d85cee02p-509},   // 2^-114
      {"log", 0x1.9476e304cd7c7p-384},  // 2^-114
      {"log", 0x1.26e9c4d32796p-232},   // 2^-114
      {"exp2", 0x1.e4596526bf94dp-10},  // 2^-113
      {"sin", 0x1.6ac5b262ca1ffp849},   // 2^-123, and next to a multiple of pi/2
      {"cos", 0x1.6ac5b262ca1ffp849},
  };
  Reference reference;
  for (const auto& [name, x] : cases) expect_correct_around(subject(name), reference, x);
}

// Beside 1 and beside 0 the first terms of a power series fall on ties by themselves, and a later
// one decides.
TEST(Elementary, IsCorrectlyRoundedWhereTheSeriesBeginsWithATie) {
  Reference reference;
  for (int k = 1; k < 4000; ++k) {
    expect_correct_around(subject("exp"), reference, k * 0x1p-54, 0);
    expect_correct_around(subject("expm1"), reference, k * 0x1p-54, 0);
    expect_correct_around(subject("log"), reference, 1.0 + k * 0x1p-52, 0);
    expect_correct_around(subject("log"), reference, 1.0 - k * 0x1p-53, 0);
    expect_correct_around(subject("cos"), reference, std::sqrt(k * 0x1p-54), 1);
    expect_correct_around(subject("sech_squared"), reference, std::sqrt(k * 0x1p-55), 1);
    expect_correct_around(subject("sin"), reference, std::cbrt(3.0 * k) * 0x1p-27, 1);
    expect_correct_around(subject("tanh"), reference, std::cbrt(1.5 * k) * 0x1p-27, 1);
  }
}

TEST(Elementary, IsCorrectlyRoundedBesideMultiplesOfHalfPi) {
  Reference reference;
  Number pi(1300);
  Number angle(53);
  mpfr_const_pi(pi, MPFR_RNDN);
  for (int shift = -1; shift < 1010; shift += 5) {
    for (unsigned long k = 1; k < 50; ++k) {
      mpfr_mul_ui(angle, pi, k, MPFR_RNDN);
      mpfr_mul_2si(angle, angle, shift, MPFR_RNDN);
      const double x = mpfr_get_d(angle, MPFR_RNDN);
      expect_correct_around(subject("sin"), reference, x, 1);
      expect_correct_around(subject("cos"), reference, x, 1);
    }
  }
}

TEST(Elementary, SymmetriesHoldBitForBit) {
  for (const char* name : {"sin", "tanh", "erf", "cos", "sech_squared", "normal_density"}) {
    const Subject& s = subject(name);
    const bool odd = std::signbit(s.function(-0.25));
    Arguments arguments(s, 7);
    for (int i = 0; i < 20'000; ++i) {
      const double x = arguments.next();
      const double mirrored = s.function(-x);
      EXPECT_TRUE(agree(s.function(x), odd ? -mirrored : mirrored)) << name << " " << shown(x);
    }
  }
}

TEST(Elementary, FastAndSlowPathsAgree) {
  for (const Subject& s : subjects()) {
    const Findings found = on_two_threads([&s](std::uint64_t thread, Findings& findings) {
      Arguments arguments(s, 100 + thread);
      while (findings.compared < 10'000) {
        const double x = arguments.next();
        if (!for_both_paths(s, x)) continue;
        const double slow = s.big(x);
        const auto fast = s.fast(x);
        ++findings.compared;
        if (fast && !same_bits(*fast, slow)) findings.note(s, x, *fast, slow);
        if (!same_bits(s.function(x), slow)) findings.note(s, x, s.function(x), slow);
      }
    });
    EXPECT_GE(found.compared, 20'000U);
    EXPECT_EQ(found.wrong, 0U) << found.message;
  }
}

TEST(Elementary, FastPathRarelyHandsOver) {
  for (const Subject& s : subjects()) {
    constexpr int count = 200'000;
    std::mt19937_64 random(test_seed());
    int handed_over = 0;
    for (int i = 0; i < count; ++i) {
      // Where the functions are used: normal results, some distance from the thresholds.
      const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
      const double x = s.low * 0.9 + 0.9 * (s.high - s.low) * unit;
      if (for_both_paths(s, x) && !s.fast(x)) ++handed_over;
    }
    RecordProperty(std::string("handed_over_") + s.name, handed_over);
    EXPECT_LT(handed_over, count / 1000) << s.name;
  }
}

// A bound that is too small shows only in about one of 2^15 arguments as a wrong result. So the
// estimates are held against the precise values themselves.
TEST(Elementary, EstimatesKeepTheirErrorBounds) {
  for (const Subject& s : subjects()) {
    Reference reference;
    Arguments arguments(s, 200);
    double worst = 0.0;
    double where = 0.0;
    for (int asked = 0; asked < 40'000;) {
      const double x = arguments.next();
      if (!for_both_paths(s, x)) continue;
      ++asked;
      const detail::Estimate estimate = s.estimate(x);
      const auto precise = [&](mpfr_ptr result) { s.precise(reference, result, x); };
      const double share = reference.relative_error(estimate, precise) / estimate.relative_error;
      if (share > worst) where = x;
      worst = std::max(worst, share);
    }
    RecordProperty(std::string("share_of_bound_") + s.name, std::to_string(worst));
    EXPECT_LT(worst, 1.0) << s.name << " at " << shown(where) << ", seed " << test_seed();
  }
}

void expect_power(double base, std::int64_t p, std::int64_t q, double expected) {
  EXPECT_TRUE(agree(rational_power(base, p, q), expected))
      << shown(base) << " ^ (" << p << "/" << q << "), seed " << test_seed();
}

TEST(RationalPower, ExactCasesAreExact) {
  for (int h = 0; h < 8; ++h) expect_power(2.0, -8 * (h + 1), 8, std::ldexp(1.0, -(h + 1)));
  expect_power(4.0, 1, 2, 2.0);
  expect_power(9.0, 3, 2, 27.0);
  expect_power(9.0, 6, 4, 27.0);
  expect_power(0.25, -1, 2, 2.0);
  expect_power(0x1p-1074, 1, 2, 0x1p-537);
  expect_power(0x1p-1074, 1, 1, least);
  expect_power(0x1p-1074, -1, 1, inf);
  expect_power(4.0, -1075, 2, 0.0);  // a tie between 0 and 2^-1074
  expect_power(5.0, 0, 7, 1.0);
  expect_power(1.0, 12345, 7, 1.0);
  expect_power(10000.0, 1, 4, 10.0);
  expect_power(10000.0, -1, 4, 0.1);
  expect_power(0x1.fffffffffffffp1023, 1, 1, 0x1.fffffffffffffp1023);
  expect_power(7450580596923828125.0, 1, 27, 5.0);  // 5^27 has 63 bits: rounded, so no power
}

TEST(RationalPower, TiesGoToEven) {
  for (std::uint64_t n = 94906267; n < 94906267 + 20'000; n += 2) {  // squares of 54 bits
    expect_power(static_cast<double>(n), 2, 1, static_cast<double>(n * n));
  }
  for (std::uint64_t n = 208065; n < 208065 + 4'000; n += 2) {  // cubes of 54 bits, from squares
    const double square = static_cast<double>(n * n);
    expect_power(square, 3, 2, static_cast<double>(n * n * n));
    expect_power(square * 0x1p-40, 3, 2, static_cast<double>(n * n * n) * 0x1p-60);
  }
  // 3^25 2^-1075 lies between two subnormal numbers.
  expect_power(3.0 * 0x1p-43, 25, 1, static_cast<double>((847288609443U + 1) / 2) * 0x1p-1074);
}

TEST(RationalPower, RefusesWhatItDoesNotDefine) {
  for (const double base : {0.0, -0.0, -2.0, inf, -inf, nan}) expect_power(base, 1, 2, nan);
  expect_power(2.0, 1, 0, nan);
  expect_power(2.0, 1, -1, nan);
  expect_power(2.0, (1 << 20) + 1, 1, nan);
  expect_power(2.0, -(1 << 20) - 1, 1, nan);
  expect_power(2.0, 1, (1 << 20) + 1, nan);
  expect_power(2.0, 1 << 20, 1, inf);
  expect_power(2.0, -(1 << 20), 1, 0.0);
}

/// Compares with MPFR's correctly rounded root of an exact power: sees ties.
Findings compare_small_fractions(std::uint64_t thread, int count) {
  Findings findings;
  std::mt19937_64 random(test_seed() + thread);
  Reference reference;
  Number power(3600);
  Number root(256);  // far from any near-tie, and rounded once more only by mpfr_get_d
  for (int i = 0; i < count; ++i) {
    const double base =
        std::ldexp(static_cast<double>(1 + random() % 2000), static_cast<int>(random() % 21) - 10);
    const long p = static_cast<long>(random() % 129) - 64;
    const unsigned long q = 1 + random() % 12;
    mpfr_set_d(power, base, MPFR_RNDN);
    mpfr_pow_si(power, power, p, MPFR_RNDN);
    mpfr_rootn_ui(root, power, q, MPFR_RNDN);
    const double expected = mpfr_get_d(root, MPFR_RNDN);
    const double result = rational_power(base, p, static_cast<std::int64_t>(q));
    ++findings.compared;
    if (!same_bits(result, expected) && findings.wrong++ == 0) {
      findings.message = shown(base) + " ^ " + std::to_string(p) + "/" + std::to_string(q) + " = " +
                         shown(result) + ", expected " + shown(expected);
    }
  }
  return findings;
}

TEST(RationalPower, IsCorrectlyRoundedForSmallFractions) {
  const Findings found = on_two_threads([](std::uint64_t thread, Findings& findings) {
    findings.add(compare_small_fractions(thread, 50'000));
  });
  EXPECT_EQ(found.wrong, 0U) << found.message << ", seed " << test_seed();
}

TEST(RationalPower, IsCorrectlyRoundedOnRandomArguments) {
  const std::uint64_t count = test::draws(million, million);
  const Findings found = compare_powers_with_reference(count);
  EXPECT_EQ(found.compared, count);
  EXPECT_EQ(found.wrong, 0U) << found.message;
}

TEST(RationalPower, IsCorrectlyRoundedOnRotaryFrequenciesAndSlopes) {
  Reference reference;
  for (const double base : {10000.0, 500000.0, 1000000.0, 160000.0, 8000000.0}) {
    for (std::int64_t d = 2; d <= 512; d += 2) {
      for (std::int64_t i = 1; 2 * i < d; ++i) {
        const double expected = reference.rational_power(base, -2 * i, d);
        ASSERT_PRED2(same_bits, rational_power(base, -2 * i, d), expected) << base << i << "/" << d;
      }
    }
  }
  for (std::int64_t n = 1; n <= 128; ++n) {
    for (std::int64_t h = 0; h < n; ++h) {
      const double expected = reference.rational_power(2.0, -8 * (h + 1), n);
      ASSERT_PRED2(same_bits, rational_power(2.0, -8 * (h + 1), n), expected) << h << " of " << n;
    }
  }
}

TEST(RationalPower, FastAndSlowPathsAgree) {
  std::mt19937_64 random(test_seed());
  int handed_over = 0;
  for (int i = 0; i < 10'000; ++i) {
    const double base = 1.5 + static_cast<double>(random() >> 11) * 0x1p-35;
    const std::int64_t p = static_cast<std::int64_t>(random() % 8192) - 4096;
    const std::int64_t q = 4097 + static_cast<std::int64_t>(random() % 8192);
    const auto fast = detail::rational_power_fast(base, p, q);
    if (!fast) ++handed_over;
    if (fast) {
      EXPECT_TRUE(agree(*fast, detail::rational_power_big(base, p, q)));
    }
  }
  EXPECT_LT(handed_over, 100);
}

// The hardware rounds sums, products and quotients correctly, and so is a judge for Big.
TEST(Big, AgreesWithTheHardwareAfterRounding) {
  std::mt19937_64 random(test_seed());
  for (int i = 0; i < 200'000; ++i) {
    const auto a = std::bit_cast<double>(random());
    const int exponent = std::isfinite(a) && a != 0.0 ? std::ilogb(a) : 0;
    const auto b = std::ldexp(
        std::bit_cast<double>((random() & 0xFFFFFFFFFFFFFU) | (std::uint64_t{1023} << 52)),
        exponent - 60 + static_cast<int>(random() % 120));
    if (!std::isfinite(a) || !std::isfinite(b) || b == 0.0 || a == 0.0) continue;
    const auto x = Big<3>::from_double(a);
    const auto y = Big<3>::from_double(b);
    EXPECT_TRUE(agree(x.nearest_double(), a));
    EXPECT_TRUE(agree((x + y).nearest_double(), a + b));
    EXPECT_TRUE(agree((x - y).nearest_double(), a - b));
    EXPECT_TRUE(agree((x * y).nearest_double(), a * b));
    if (std::isnormal(a / b)) {
      EXPECT_TRUE(agree((x / y).nearest_double(), a / b));
    }
  }
}

#if defined(__SSE2__)

std::vector<double> telling_arguments(const Subject& s) {
  std::vector<double> x = {least,  -least, 0x1p-1030, -0x1.8p-1023, 0.1,   -0.7, 1.0 / 3, 5.5,
                           -30.25, -708.5, -744.9,    37.9,         373.0, 1e22, 0x1p1023};
  Arguments arguments(s, 9);
  for (int i = 0; i < 2000; ++i) x.push_back(arguments.next());
  return x;
}

void expect_host_changes_nothing(const Subject& s, unsigned settings) {
  const std::vector<double> x = telling_arguments(s);
  std::vector<double> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = s.function(x[i]);
  std::vector<double> result(x.size());
  unsigned after = 0;
  {
    const HostSettings host(settings);
    for (std::size_t i = 0; i < x.size(); ++i) result[i] = s.function(x[i]);
    after = _mm_getcsr();
  }
  EXPECT_EQ(after & ~status_flags, settings & ~status_flags) << s.name;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(agree(result[i], expected[i]))
        << s.name << " " << shown(x[i]) << " MXCSR " << settings;
  }
}

TEST(Elementary, HostRoundingModeChangesNothing) {
  for (const Subject& s : subjects()) {
    for (const unsigned rounding : roundings) expect_host_changes_nothing(s, 0x1F80 | rounding);
  }
}

TEST(Elementary, HostFlushingOfSubnormalsChangesNothing) {
  for (const Subject& s : subjects()) {
    for (const unsigned rounding : roundings) {
      expect_host_changes_nothing(s, 0x1F80 | flush_to_zero | denormals_are_zero | rounding);
    }
  }
}

TEST(RationalPower, HostSettingsChangeNothing) {
  for (const unsigned rounding : roundings) {
    for (std::int64_t p = -3000; p < 3000; p += 7) {
      const double base = p % 2 == 0 ? 10000.0 : 0x1.8p-1030;
      const double expected = rational_power(base, p, 3001);
      double result = 0.0;
      {
        const HostSettings host(0x1F80 | flush_to_zero | denormals_are_zero | rounding);
        result = rational_power(base, p, 3001);
      }
      EXPECT_TRUE(agree(result, expected));
    }
  }
}

// In a process of its own, so that the tables are built under the hostile settings too.
TEST(ElementaryDeathTest, TablesBuiltUnderHostileSettingsAreTheSame) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto agree_with_reference = [] {
    constexpr int count = 2000;
    bool good = true;
    for (const Subject& s : subjects()) {
      std::vector<double> result;
      {
        const HostSettings host(0x1F80 | flush_to_zero | denormals_are_zero | 0x6000);
        for (int i = 0; i < count; ++i) result.push_back(s.function(-18.7 + 0.0187 * i));
      }
      Reference reference;
      for (int i = 0; i < count; ++i) {
        double x = 0.0;
        {
          const HostSettings host(0x1F80 | flush_to_zero | denormals_are_zero | 0x6000);
          x = -18.7 + 0.0187 * i;
          asm volatile("" : "+x"(x));
        }
        good = good && same_bits(result[static_cast<std::size_t>(i)], s.reference(reference, x));
      }
    }
    std::exit(good ? 0 : 1);
  };
  EXPECT_EXIT(agree_with_reference(), ::testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace attest::lab::testing
