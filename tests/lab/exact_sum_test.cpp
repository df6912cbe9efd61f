// SPDX-License-Identifier: MIT
#include "attest/lab/exact_sum.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/base/random.h"
#include "tests/support/bits.h"
#include "tests/support/host_modes.h"
#include "tests/support/whole_sum.h"

namespace attest::lab {
namespace {

using test::same_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double largest = std::numeric_limits<double>::max();
constexpr double tiny = std::numeric_limits<double>::denorm_min();

double accumulated(std::span<const double> values) {
  ExactAccumulator accumulator;
  for (const double value : values) accumulator.add(value);
  return accumulator.rounded();
}

std::string describe(std::span<const double> values) {
  std::string out = "sum of";
  for (std::size_t n = 0; n < values.size() && n < 40; ++n) out += " " + test::hex(values[n]);
  return values.size() > 40 ? out + " …" : out;
}

/// Both ways to the sum, and the reference's.
::testing::AssertionResult right(std::span<const double> values) {
  const double expected = test::whole_sum(values);
  const double quick = exact_sum(values);
  const double slow = accumulated(values);
  if (same_bits(quick, expected) && same_bits(slow, expected)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "exact_sum " << test::hex(quick) << ", accumulator " << test::hex(slow) << ", expected "
         << test::hex(expected) << ": " << describe(values);
}

double any_finite(Random& random) {
  for (;;) {
    const double value = std::bit_cast<double>(random.bits());
    if (std::isfinite(value)) return value;
  }
}

/// Numbers of one of many shapes, chosen by `kind`.
double draw(Random& random, std::int64_t kind) {
  switch (kind) {
    case 0:
      return any_finite(random);
    case 1:
      return static_cast<double>(random.between(-9, 9));
    case 2:
      return random.uniform(-1, 1);
    case 3:  // powers of two within 60 places of one another: many ties
      return std::ldexp(random.between(0, 1) == 0 ? 1.0 : -1.0,
                        static_cast<int>(random.between(-30, 30)));
    case 4:  // around the subnormals
      return std::bit_cast<double>((random.bits() << 63U) | (random.bits() >> 10U));
    case 5:  // huge, so that intermediate sums overflow
      return std::ldexp(random.uniform(-1, 1), 1024);
    case 6:
      return random.bell() * std::ldexp(1.0, static_cast<int>(random.between(-200, 200)));
    default:  // multiples of the smallest double
      return static_cast<double>(random.between(-3, 3)) * tiny;
  }
}

std::vector<double> hostile(Random& random, std::size_t most) {
  const auto count = static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(most)));
  const std::int64_t kind = random.between(0, 8);
  std::vector<double> values;
  for (std::size_t n = 0; n < count; ++n) {
    values.push_back(draw(random, kind == 8 ? random.between(0, 7) : kind));
  }
  // Half of the time most of it cancels: the negatives come back, in another order.
  if (random.between(0, 1) == 0) {
    const std::size_t half = values.size();
    for (std::size_t n = 0; n < half; ++n) {
      if (random.between(0, 9) != 0) values.push_back(-values[half - 1 - n]);
    }
  }
  for (std::size_t n = values.size(); n > 1; --n) {
    std::swap(
        values[n - 1],
        values[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(n) - 1))]);
  }
  return values;
}

TEST(ExactSum, OfNothingAndOfZerosIsPlusZero) {
  using Values = std::vector<double>;
  for (const Values& values :
       {Values{}, Values{0.0}, Values{-0.0}, Values{-0.0, -0.0}, Values{1, -1},
        Values{-1e300, 1e300}, Values{tiny, -tiny}, Values{1e16, 1, -1e16, -1}}) {
    EXPECT_TRUE(same_bits(exact_sum(values), 0.0)) << describe(values);
    EXPECT_TRUE(same_bits(accumulated(values), 0.0)) << describe(values);
  }
}

TEST(ExactSum, OfOneIsThatOne) {
  for (const double value : {1.0, -1.0, 0.1, tiny, -tiny, largest, -largest, 0x1p-1022}) {
    EXPECT_TRUE(same_bits(exact_sum(std::vector{value}), value));
    EXPECT_TRUE(same_bits(accumulated(std::vector{value}), value));
  }
}

TEST(ExactSum, IsCorrectlyRoundedUnderCancellation) {
  EXPECT_EQ(exact_sum(std::vector{1e16, 1.0, -1e16}), 1);
  EXPECT_EQ(exact_sum(std::vector{1e300, 1e-300, -1e300}), 1e-300);
  EXPECT_EQ(exact_sum(std::vector{1e308, 1.0, tiny, -1.0, -1e308}), tiny);
  const std::vector<double> tenths(10, 0.1);
  EXPECT_EQ(exact_sum(tenths), 1.0);
  std::vector<double> layers;
  for (int n = 1023; n >= -1074; n -= 7) {
    layers.push_back(std::ldexp(1.0, n));
    layers.push_back(-std::ldexp(1.0, n));
  }
  layers.push_back(3 * tiny);
  EXPECT_TRUE(same_bits(exact_sum(layers), 3 * tiny));
}

TEST(ExactSum, DecidesTiesToEvenAndEverythingBesideThem) {
  for (const double one : {1.0, 1 + 0x1p-52, 0x1p-900, 0x1p900, 0x1.fffffffffffffp3}) {
    const double half = std::ldexp(std::nextafter(one, infinity) - one, -1);
    for (const double sign : {1.0, -1.0}) {
      EXPECT_TRUE(right(std::vector{sign * one, sign * half}));
      for (const double crumb : {half * 0x1p-60, half * 0x1p-150, tiny, half * 0x1p-52}) {
        EXPECT_TRUE(right(std::vector{sign * one, sign * half, crumb}));
        EXPECT_TRUE(right(std::vector{sign * one, sign * half, -crumb}));
        EXPECT_TRUE(right(std::vector{crumb, sign * half, -crumb, sign * one}));
        EXPECT_TRUE(right(std::vector{sign * one, -sign * half, crumb}));
        EXPECT_TRUE(right(std::vector{sign * one, -sign * half / 2, -crumb}));
        EXPECT_TRUE(right(std::vector{sign * one, -sign * half / 2, crumb}));
      }
    }
  }
}

TEST(ExactSum, StepsOfTheRemainderBelowAPowerOfTwoAreHalfAsWide) {
  for (int exponent = -1000; exponent <= 1000; exponent += 125) {
    const double power = std::ldexp(1.0, exponent);
    const double quarter = std::ldexp(power, -54);
    for (const double crumb : {0.0, std::ldexp(quarter, -50), -std::ldexp(quarter, -50)}) {
      EXPECT_TRUE(right(std::vector{power, -quarter, crumb})) << exponent;
      EXPECT_TRUE(right(std::vector{power, -3 * quarter, crumb})) << exponent;
      EXPECT_TRUE(right(std::vector{power, quarter * 2, crumb})) << exponent;
    }
  }
}

TEST(ExactSum, IntermediateOverflowIsNoFailure) {
  EXPECT_EQ(exact_sum(std::vector{1e308, 1e308, -1e308}), 1e308);
  EXPECT_EQ(exact_sum(std::vector{largest, largest, -largest, -largest}), 0);
  EXPECT_EQ(exact_sum(std::vector{largest, largest, 1.0, -largest, -largest}), 1);
  std::vector<double> many(1000, largest);
  many.resize(2000, -largest);
  many.push_back(-tiny);
  EXPECT_EQ(exact_sum(many), -tiny);
}

TEST(ExactSum, ATotalOutOfRangeIsInfinite) {
  EXPECT_EQ(exact_sum(std::vector{largest, largest}), infinity);
  EXPECT_EQ(exact_sum(std::vector{-largest, -largest}), -infinity);
  // Half a step above the largest double is the tie that rounds to infinity; less stays.
  const double half = 0x1p970;
  EXPECT_EQ(exact_sum(std::vector{largest, half}), infinity);
  EXPECT_EQ(exact_sum(std::vector{largest, half, -tiny}), largest);
  EXPECT_EQ(exact_sum(std::vector{largest, std::nextafter(half, 0.0)}), largest);
  EXPECT_TRUE(right(std::vector{-largest, -half, tiny}));
}

TEST(ExactSum, SubnormalTotalsAreExact) {
  EXPECT_EQ(exact_sum(std::vector{0x1p-1022, -tiny}), 0x1p-1022 - tiny);
  EXPECT_EQ(exact_sum(std::vector{1.0, tiny, -1.0}), tiny);
  EXPECT_TRUE(right(std::vector{0x1.8p-1022, 0x1.fffffffffffffp-1022, tiny, tiny}));
}

TEST(ExactSum, InfinitiesAndNaNFollowIeeeInAnyOrder) {
  const double nan = std::nan("");
  std::vector<std::pair<std::vector<double>, double>> cases{
      {{infinity, 1, -largest}, infinity},
      {{-infinity, largest, largest}, -infinity},
      {{infinity, -infinity, 1}, nan},
      {{nan, 1, 2}, nan},
      {{nan, infinity, 0}, nan},
      {{infinity, infinity}, infinity},
      {{infinity, -largest, -largest}, infinity}};
  for (auto& [values, expected] : cases) {
    std::sort(values.begin(), values.end(), [](double a, double b) {
      return std::bit_cast<std::uint64_t>(a) < std::bit_cast<std::uint64_t>(b);
    });
    do {
      EXPECT_TRUE(same_bits(exact_sum(values), expected)) << describe(values);
      EXPECT_TRUE(same_bits(accumulated(values), expected)) << describe(values);
    } while (std::next_permutation(values.begin(), values.end()));
  }
}

TEST(ExactSum, EveryOrderGivesTheSameBits) {
  constexpr std::uint64_t seed = 31;
  Random random(seed);
  for (int n = 0; n < 60; ++n) {
    std::vector<double> values;
    for (int k = 0; k < 6; ++k) values.push_back(draw(random, random.between(0, 7)));
    if (n % 2 == 0) values[5] = -values[0];
    std::sort(values.begin(), values.end());
    const double first = exact_sum(values);
    do {
      ASSERT_TRUE(same_bits(exact_sum(values), first))
          << "seed " << seed << " " << describe(values);
    } while (std::next_permutation(values.begin(), values.end()));
  }
}

TEST(ExactSum, AgreesWithWholeNumbersOnRandomCases) {
  constexpr std::uint64_t seed = 32;
  Random random(seed);
  for (int n = 0; n < 100000; ++n) {
    const auto values = hostile(random, 8);
    ASSERT_TRUE(right(values)) << "seed " << seed << " case " << n;
  }
}

TEST(ExactSum, AgreesWithWholeNumbersOnLongSums) {
  constexpr std::uint64_t seed = 33;
  Random random(seed);
  for (int n = 0; n < 150; ++n) {
    const auto values = hostile(random, n % 3 == 0 ? 5000 : 300);
    ASSERT_TRUE(right(values)) << "seed " << seed << " case " << n << " of " << values.size();
  }
}

/// A sum, and a last number that puts the rest exactly on a tie or one step beside it: whatever
/// the quick way thinks it knows, it must not decide wrongly.
TEST(ExactSum, ConstructedNearTiesAreDecidedRight) {
  constexpr std::uint64_t seed = 34;
  Random random(seed);
  for (int n = 0; n < 20000; ++n) {
    const auto count = static_cast<std::size_t>(random.between(1, 12));
    std::vector<double> values;
    for (std::size_t k = 0; k < count; ++k) values.push_back(random.bell());
    // What is left of the exact sum when its nearest double is taken away, exactly.
    const double nearest = test::whole_sum(values);
    values.push_back(-nearest);
    const double rest = test::whole_sum(values);
    values.pop_back();
    const double step = std::nextafter(std::fabs(nearest), infinity) - std::fabs(nearest);
    values.push_back(std::copysign(step / 2, nearest) - rest);
    for (const double crumb : {0.0, step * 0x1p-54, -step * 0x1p-54, tiny, -tiny}) {
      values.push_back(crumb);
      ASSERT_TRUE(right(values)) << "seed " << seed << " case " << n;
      values.pop_back();
    }
  }
}

TEST(ExactSum, IsOddAndScalesWithPowersOfTwo) {
  EXPECT_TRUE(rc::check([](const std::vector<double>& drawn) {
    std::vector<double> values;
    for (const double x : drawn) {
      if (std::isfinite(x) && (x == 0 || std::fabs(x) > 1e-250)) values.push_back(x);
    }
    const double sum = exact_sum(values);
    std::vector<double> negative;
    std::vector<double> scaled;
    for (const double x : values) {
      negative.push_back(-x);
      scaled.push_back(x * 0x1p-50);
    }
    RC_ASSERT(exact_sum(negative) == (sum == 0 ? 0 : -sum));
    if (sum == 0 || std::fabs(sum) > 1e-250) RC_ASSERT(exact_sum(scaled) == sum * 0x1p-50);
    RC_ASSERT(same_bits(sum, test::whole_sum(values)));
    RC_ASSERT(same_bits(sum, accumulated(values)));
  }));
}

TEST(ExactSum, SameBitsUnderHostRoundingModes) {
  constexpr std::uint64_t seed = 36;
  Random random(seed);
  std::vector<std::vector<double>> sums;
  for (int n = 0; n < 3000; ++n) sums.push_back(hostile(random, 8));
  std::vector<double> expected;
  for (const auto& values : sums) expected.push_back(test::whole_sum(values));
  const auto all = [&sums] {
    std::vector<double> out;
    for (const auto& values : sums) out.push_back(exact_sum(values));
    return out;
  };
  for (const auto& [mode, found] : test::under_host_modes(all)) {
    EXPECT_TRUE(same_bits(found, expected)) << mode << ", seed " << seed;
  }
}

TEST(ExactDot, SameBitsUnderHostRoundingModes) {
  constexpr std::uint64_t seed = 37;
  Random random(seed);
  std::vector<double> left(300);
  std::vector<double> other(300);
  for (double& x : left) x = draw(random, random.between(2, 4));
  for (double& x : other) x = draw(random, random.between(2, 4));
  const auto all = [&] {
    std::vector<double> out;
    for (std::size_t n = 0; n + 3 <= left.size(); ++n) {
      out.push_back(exact_dot({&left[n], 1}, {&other[n], 1}, 3));
    }
    return out;
  };
  const std::vector<double> expected = all();
  for (const auto& [mode, found] : test::under_host_modes(all)) {
    EXPECT_TRUE(same_bits(found, expected)) << mode << ", seed " << seed;
  }
}

TEST(ExactDot, IsTheSumOfRoundedProducts) {
  constexpr std::uint64_t seed = 35;
  Random random(seed);
  for (int n = 0; n < 20000; ++n) {
    const std::int64_t count = random.between(0, 9);
    const std::int64_t kind = random.between(0, 6);
    std::vector<double> left(30);
    std::vector<double> right_side(30);
    for (double& x : left) x = draw(random, kind);
    for (double& x : right_side) x = draw(random, kind == 5 ? 2 : kind);
    const std::int64_t left_step = random.between(0, 3);
    const std::int64_t right_step = random.between(-3, 3);
    const std::size_t start = right_step < 0 ? 29 : 0;
    std::vector<double> products;
    for (std::int64_t k = 0; k < count; ++k) {
      products.push_back(left[static_cast<std::size_t>(k * left_step)] *
                         right_side[start + static_cast<std::size_t>(k * right_step)]);
    }
    const double found =
        exact_dot({left.data(), left_step}, {&right_side[start], right_step}, count);
    ASSERT_TRUE(same_bits(found, test::whole_sum(products)))
        << "seed " << seed << " case " << n << " " << describe(products);
  }
}

TEST(ExactDot, RoundsEachProductBeforeTheSum) {
  // (1 + 2⁻³⁰)² = 1 + 2⁻²⁹ + 2⁻⁶⁰: rounded, the last term is gone; a fused sum would keep it.
  const double x = 1 + 0x1p-30;
  const std::vector<double> left{x, 1};
  const std::vector<double> other{x, -(1 + 0x1p-29)};
  EXPECT_EQ(exact_dot({left.data(), 1}, {other.data(), 1}, 2), 0);
}

TEST(ExactDot, ProductsThatOverflowAreInfinite) {
  const std::vector<double> left{1e200, 1, 1e200};
  const std::vector<double> other{1e200, 1, -1e200};
  EXPECT_EQ(exact_dot({left.data(), 1}, {other.data(), 1}, 2), infinity);
  EXPECT_TRUE(std::isnan(exact_dot({left.data(), 1}, {other.data(), 1}, 3)));
}

}  // namespace
}  // namespace attest::lab
