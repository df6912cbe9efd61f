// SPDX-License-Identifier: MIT
#include "attest/base/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "attest/base/text.h"

namespace attest {
namespace {

TEST(Dropout, ThresholdIsTheRateInUnitsOfTwoToTheMinus32) {
  EXPECT_EQ(dropout_threshold(0), 0U);
  EXPECT_EQ(dropout_threshold(0x1p-32), 1U);
  EXPECT_EQ(dropout_threshold(0.25), 1U << 30U);
  EXPECT_EQ(dropout_threshold(0.5), 1U << 31U);
  EXPECT_EQ(dropout_threshold(1 - 0x1p-53), 0xFFFFFFFFU);
}

TEST(Dropout, AWeightsBitsAreItsLaneOfPhiloxOnItsPlace) {
  constexpr std::uint64_t seed = 0x0123456789ABCDEFULL;
  for (std::uint32_t j = 0; j < 16; ++j) {
    const WeightPlace at{.b = 3, .h = 7, .i = 0xFFFFFFFEU, .j = 4 * 0x3FFFFFF0U + j};
    const auto four = philox({at.j / 4, at.i, at.h, at.b}, {0x89ABCDEFU, 0x01234567U});
    EXPECT_EQ(dropout_bits(seed, at, at.j / 4), four);
    const std::uint32_t own = four[j % 4];
    EXPECT_FALSE(dropped(seed, own, at)) << "bits equal to the threshold stay, j " << j;
    EXPECT_TRUE(own == 0xFFFFFFFFU || dropped(seed, own + 1, at)) << "j " << j;
  }
}

TEST(Dropout, NothingIsDroppedAtRateZero) {
  for (std::uint32_t j = 0; j < 1000; ++j) {
    EXPECT_FALSE(dropped(j, dropout_threshold(0), {.b = 0, .h = 1, .i = 2, .j = j}));
  }
}

TEST(Dropout, TheDroppedShareIsTheRateWithinFiveDeviations) {
  // n independent weights drop n·rate of them, with a deviation of √(n·rate·(1 − rate)); five
  // deviations are left by chance once in two million runs, and this run's seeds are fixed.
  constexpr double n = 2 * 3 * 64 * 256;
  for (const std::uint64_t seed : {1ULL, 20261130ULL, 1ULL << 32U}) {
    for (const double rate : {0.01, 0.1, 0.5, 0.9}) {
      const std::uint32_t threshold = dropout_threshold(rate);
      double count = 0;
      for (std::uint32_t b = 0; b < 2; ++b) {
        for (std::uint32_t h = 0; h < 3; ++h) {
          for (std::uint32_t i = 0; i < 64; ++i) {
            for (std::uint32_t j = 0; j < 256; ++j) {
              count += dropped(seed, threshold, {.b = b, .h = h, .i = i, .j = j}) ? 1 : 0;
            }
          }
        }
      }
      EXPECT_LE(std::fabs(count - n * rate), 5 * std::sqrt(n * rate * (1 - rate)))
          << sentence("seed ", seed, ", rate ", rate, ", dropped ", count, " of ", n);
    }
  }
}

TEST(Dropout, EveryPartOfAPlaceAndOfTheSeedCounts) {
  constexpr std::uint64_t seed = 11;
  const WeightPlace at{.b = 1, .h = 2, .i = 3, .j = 4};
  const auto bits = [](std::uint64_t of, WeightPlace place) {
    return dropout_bits(of, place, place.j / 4)[place.j % 4];
  };
  const std::uint32_t own = bits(seed, at);
  EXPECT_NE(bits(seed + 1, at), own);
  EXPECT_NE(bits(seed + (1ULL << 32U), at), own);
  EXPECT_NE(bits(seed, {.b = 2, .h = 2, .i = 3, .j = 4}), own);
  EXPECT_NE(bits(seed, {.b = 1, .h = 1, .i = 3, .j = 4}), own);
  EXPECT_NE(bits(seed, {.b = 1, .h = 2, .i = 4, .j = 4}), own);
  EXPECT_NE(bits(seed, {.b = 1, .h = 2, .i = 3, .j = 5}), own);
}

}  // namespace
}  // namespace attest
