// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/dropout_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attest/base/random.h"

namespace attest::check {
namespace {

/// One row of weights and values, with some weights dropped.
struct Row {
  std::vector<double> weights, values, output;
  std::vector<std::uint8_t> dropped;
};

Row row_of(std::size_t S, std::size_t E, std::size_t drop, double rate, std::uint64_t seed) {
  Random random(seed);
  Row out;
  for (std::size_t j = 0; j < S; ++j) out.weights.push_back(std::exp(random.bell()));
  const double sum = std::accumulate(out.weights.begin(), out.weights.end(), 0.0);
  for (double& w : out.weights) w /= sum;
  for (std::size_t n = 0; n < S * E; ++n) out.values.push_back(random.bell());
  out.dropped.assign(S, 0);
  for (std::size_t n = 0; n < drop;) {
    auto& place =
        out.dropped[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(S) - 1))];
    n += place == 0 ? 1 : 0;
    place = 1;
  }
  out.output.assign(E, 0);
  for (std::size_t j = 0; j < S; ++j) {
    if (out.dropped[j] != 0) continue;
    for (std::size_t e = 0; e < E; ++e) {
      out.output[e] += out.weights[j] / (1 - rate) * out.values[j * E + e];
    }
  }
  for (double& x : out.output) x = static_cast<double>(static_cast<float>(x));
  return out;
}

std::vector<std::uint8_t> found_in(const Row& row, double rate, Precision stored = Precision::f32) {
  return dropped_keys(row.weights, row.values, row.output, rate, stored);
}

TEST(DropoutFit, FindsAnySetWithAsManyNumbersAsKeys) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t S = 4 + seed % 29;
    const Row row = row_of(S, 32, S / 3, 0.3, seed);
    EXPECT_EQ(found_in(row, 0.3), row.dropped) << "seed " << seed;
  }
}

TEST(DropoutFit, FindsAFewAmongHundreds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Row row = row_of(300, 64, 12, 0.05, seed);
    EXPECT_EQ(found_in(row, 0.05), row.dropped) << "seed " << seed;
  }
}

TEST(DropoutFit, SaysNothingWhereAnySetWouldFit) {
  EXPECT_TRUE(found_in(row_of(40, 1, 4, 0.1, 1), 0.1).empty());
  EXPECT_TRUE(found_in(row_of(60, 8, 4, 0.1, 1), 0.1, Precision::bf16).empty());
  EXPECT_FALSE(found_in(row_of(60, 8, 4, 0.1, 1), 0.1, Precision::f32).empty());
  EXPECT_TRUE(found_in(row_of(513, 64, 4, 0.1, 1), 0.1).empty());
}

TEST(DropoutFit, KeysWithoutWeightAreKept) {
  Row row = row_of(10, 16, 3, 0.2, 7);
  row.weights.push_back(0);
  row.values.insert(row.values.end(), 16, NAN);
  const auto found = found_in(row, 0.2);
  ASSERT_EQ(found.size(), 11U);
  EXPECT_EQ(found.back(), 0);
  row.dropped.push_back(0);
  EXPECT_EQ(found, row.dropped);
}

}  // namespace
}  // namespace attest::check
