// SPDX-License-Identifier: MIT
#include "attest/base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

namespace attest {
namespace {

using Block = std::array<std::uint32_t, 4>;

TEST(Philox, GivesThePublishedKnownAnswers) {
  constexpr std::uint32_t ones = 0xFFFFFFFFU;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, FirstWordsAreThoseOfPhilox) {
  const Random random(0);
  EXPECT_EQ(random.at(0), 0xe169c58d6627e8d5ULL);
  EXPECT_EQ(random.at(1), 0x9b00dbd8bc57ac4cULL);
}

TEST(Random, DrawingIsJumpingToTheNextPosition) {
  constexpr std::uint64_t seed = 0x0123456789ABCDEFULL;
  Random stream(seed, 7);
  const Random jump(seed, 7);
  for (std::uint64_t position = 0; position < 1000; ++position) {
    ASSERT_EQ(stream.bits(), jump.at(position)) << "seed " << seed << " position " << position;
  }
}

TEST(Random, PositionsBeyondThirtyTwoBitsAreOthers) {
  const Random random(1);
  std::set<std::uint64_t> seen;
  for (std::uint64_t n = 0; n < 64; ++n) seen.insert(random.at(1ULL << n));
  EXPECT_EQ(seen.size(), 64U);
  EXPECT_NE(random.at(0), random.at(1ULL << 33U));
}

TEST(Random, SeedsAndStreamsMakeOtherNumbersInAllTheirBits) {
  std::set<std::uint64_t> seen;
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(Random(1ULL << bit).at(0));
    seen.insert(Random(0, 1ULL << bit).at(0));
  }
  EXPECT_EQ(seen.size(), 128U);
}

TEST(Random, UniformIsAMultipleOfTwoToTheMinus53BelowOne) {
  Random random(3);
  double sum = 0;
  constexpr int count = 100000;
  for (int n = 0; n < count; ++n) {
    const double x = random.uniform();
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    ASSERT_EQ(std::floor(x * 0x1p53), x * 0x1p53);
    sum += x;
  }
  // The mean of n uniforms has deviation 1/√(12 n); six of them are never seen by chance.
  EXPECT_LT(std::fabs(sum / count - 0.5), 6 / std::sqrt(12.0 * count));
}

TEST(Random, UniformBetweenStaysBetween) {
  Random random(4);
  for (int n = 0; n < 10000; ++n) {
    const double x = random.uniform(-3, 5);
    ASSERT_GE(x, -3);
    ASSERT_LE(x, 5);
  }
}

TEST(Random, BetweenReachesEveryValueEquallyOften) {
  Random random(5);
  constexpr int count = 60000;
  std::array<int, 6> seen{};
  for (int n = 0; n < count; ++n) {
    const auto value = random.between(-2, 3);
    ASSERT_GE(value, -2);
    ASSERT_LE(value, 3);
    ++seen[static_cast<std::size_t>(value + 2)];
  }
  // Binomial with p = 1/6: six standard deviations.
  const double allowed = 6 * std::sqrt(count * (1.0 / 6) * (5.0 / 6));
  for (const int times : seen) EXPECT_LT(std::fabs(times - count / 6.0), allowed);
}

TEST(Random, BetweenHoldsAtTheEdgesOfTheRange) {
  constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t high = std::numeric_limits<std::int64_t>::max();
  Random random(6);
  EXPECT_EQ(random.between(9, 9), 9);
  EXPECT_EQ(random.between(low, low), low);
  EXPECT_EQ(random.between(high, high), high);
  bool negative = false;
  bool positive = false;
  for (int n = 0; n < 200; ++n) {
    const auto value = random.between(low, high);
    (value < 0 ? negative : positive) = true;
    ASSERT_GE(random.between(low, high - 1), low);
    const auto upper = random.between(low + 1, high);
    ASSERT_GT(upper, low);
  }
  EXPECT_TRUE(negative);
  EXPECT_TRUE(positive);
}

TEST(Random, BetweenRejectsTheShortLastInterval) {
  // 3·2⁶² values: without rejection the lowest quarter would be drawn twice as often.
  Random random(7);
  constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t high = (std::int64_t{1} << 62U) - 1;
  constexpr int count = 30000;
  int lowest = 0;
  for (int n = 0; n < count; ++n) {
    if (random.between(low, high) < low + (std::int64_t{1} << 62U)) ++lowest;
  }
  EXPECT_LT(std::fabs(lowest - count / 3.0), 6 * std::sqrt(count * (1.0 / 3) * (2.0 / 3)));
}

TEST(Random, BellHasMeanZeroAndVarianceOne) {
  Random random(8);
  constexpr int count = 50000;
  double sum = 0;
  double squares = 0;
  for (int n = 0; n < count; ++n) {
    const double x = random.bell();
    ASSERT_LT(std::fabs(x), 6);
    sum += x;
    squares += x * x;
  }
  EXPECT_LT(std::fabs(sum / count), 6 / std::sqrt(static_cast<double>(count)));
  // Var(x²) = E x⁴ − 1 = 2 − 0.1 for this sum of twelve; 2 bounds it.
  EXPECT_LT(std::fabs(squares / count - 1), 6 * std::sqrt(2.0 / count));
}

}  // namespace
}  // namespace attest
