// SPDX-License-Identifier: MIT
// Rotary positions as operands apply them, against the exact tier and against the formulas.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "attest/base/random.h"
#include "attest/check/mistakes/operands.h"
#include "attest/lab/positions.h"
#include "tests/check/whole_tensors.h"

namespace attest::check {
namespace {

constexpr double u = 0x1p-53;

Claim random_claim(const lab::AttentionShape& shape, std::uint64_t seed) {
  Random random(seed);
  Claim claim = test::numbered_claim(shape);
  for (Tensor<double>* tensor : {&claim.call.query, &claim.call.key, &claim.call.value}) {
    for (double& x : tensor->elements()) x = random.bell();
  }
  return claim;
}

RopeClaim rope_at(const lab::AttentionShape& shape, const RopeConfig& config, std::int64_t query,
                  std::int64_t key) {
  RopeClaim out{.config = config};
  for (std::int64_t i = 0; i < shape.T; ++i) out.query_positions.push_back(query + i);
  for (std::int64_t j = 0; j < shape.S; ++j) out.key_positions.push_back(key + j);
  return out;
}

/// Every number within the error that its angle allows: a frequency and a product each round on
/// either side, 5 units of the angle, and 10 more operations.
void expect_turned(std::span<const double> found, std::span<const double> row,
                   std::span<const double> expected, double largest_angle) {
  double norm = 0;
  for (const double x : row) norm = std::max(norm, std::fabs(x));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t d = 0; d < found.size(); ++d) {
    ASSERT_NEAR(found[d], expected[d], u * (5 * largest_angle + 10) * 2 * norm) << d;
  }
}

TEST(OperandRope, IsTheExactTiersAtEveryPosition) {
  const lab::AttentionShape shape{.B = 2, .H = 2, .G = 2, .T = 70, .S = 130, .D = 10, .E = 10};
  Claim claim = random_claim(shape, 5);
  for (const std::int64_t first : {0L, 63L, 4096L, 1000003L, -40L}) {
    for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
      for (const std::int64_t width : {0, 10, 6, 2}) {
        const RopeConfig config{.pairing = pairing, .rotary_dim = width, .base = 5e5};
        claim.rope = rope_at(shape, config, first + 60, first);
        OperandRecipe with_value;
        with_value.rope.value_too = true;
        auto operands = Operands::make(claim, with_value);
        ASSERT_TRUE(operands.has_value());
        const auto exact = [&](const Tensor<double>& x, std::int64_t from) {
          return lab::rope(x.view<4>(), config, std::vector<std::int64_t>{from}).value();
        };
        const auto query = exact(claim.call.query, first + 60);
        const auto key = exact(claim.call.key, first);
        const auto value = exact(claim.call.value, first);
        const double angle = std::fabs(static_cast<double>(first)) + 200;
        const auto D = static_cast<std::size_t>(shape.D);
        for (const std::int64_t i : {0L, 3L, 4L, 69L}) {
          const auto at = static_cast<std::size_t>((1 * 2 + 1) * 70 + i) * D;
          expect_turned(operands->query({1, 1, i}), claim.call.query.elements().subspan(at, D),
                        query.elements().subspan(at, D), angle);
        }
        for (const std::size_t j : {0U, 1U, 63U, 64U, 129U}) {
          const std::size_t at = (2 * 130 + j) * D;
          expect_turned(operands->keys(1, 0).subspan(j * D, D),
                        claim.call.key.elements().subspan(at, D), key.elements().subspan(at, D),
                        angle);
          expect_turned(operands->values(1, 0).subspan(j * D, D),
                        claim.call.value.elements().subspan(at, D), value.elements().subspan(at, D),
                        angle);
        }
      }
    }
  }
}

TEST(OperandRope, PositionsMayBeEachBatchsOwn) {
  const lab::AttentionShape shape{.B = 2, .H = 1, .G = 1, .T = 2, .S = 3, .D = 4, .E = 1};
  Claim claim = random_claim(shape, 6);
  claim.rope = RopeClaim{
      .config = {}, .query_positions = {4, 9, 100, 7}, .key_positions = {0, 1, 2, 50, 40, 30}};
  auto operands = Operands::make(claim, {});
  ASSERT_TRUE(operands.has_value());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t j = 0; j < 3; ++j) {
      const std::int64_t at = b * 3 + j;
      const auto rows = claim.call.key.elements().subspan(static_cast<std::size_t>(at * 4), 4);
      const Tensor<double> row({1, 1, 1, 4}, rows);
      const std::int64_t position = claim.rope->key_positions[static_cast<std::size_t>(at)];
      const auto exact = lab::rope(row.view<4>(), {}, std::vector<std::int64_t>{position}).value();
      expect_turned(operands->keys(b, 0).subspan(static_cast<std::size_t>(j * 4), 4), rows,
                    exact.elements(), 100);
    }
  }
}

/// One row of eight features at one position, turned by that recipe.
std::vector<double> turned(const std::vector<double>& x, std::int64_t position,
                           const OperandRecipe& recipe, const RopeConfig& config = {}) {
  Claim claim;
  claim.shape = {.B = 1, .H = 1, .G = 1, .T = 1, .S = 1, .D = 8, .E = 1};
  claim.call.query = Tensor<double>({1, 1, 1, 8}, x);
  claim.call.key = claim.call.query;
  claim.call.value = Tensor<double>({1, 1, 1, 1});
  claim.rope = rope_at(claim.shape, config, position, position);
  auto operands = Operands::make(claim, recipe);
  if (!operands) return {};
  const auto row = operands->query({0, 0, 0});
  return {row.begin(), row.end()};
}

/// Pair i of four, (x[a], x[b]), turned by these two angles: its first feature's and its second's.
struct Pair {
  std::size_t a, b;
  double first, second;
};

void expect_pairs(const std::vector<double>& found, const std::vector<double>& x,
                  const std::vector<Pair>& pairs) {
  ASSERT_EQ(found.size(), x.size());
  std::vector<double> expected = x;
  for (const Pair& pair : pairs) {
    expected[pair.a] = x[pair.a] * std::cos(pair.first) - x[pair.b] * std::sin(pair.first);
    expected[pair.b] = x[pair.b] * std::cos(pair.second) + x[pair.a] * std::sin(pair.second);
  }
  expect_turned(found, x, expected, 70);
}

const std::vector<double> row{0.5, -1.25, 2, 0.75, -0.375, 1.5, -2.5, 1};

TEST(OperandRope, WrongRotationsAreTheirFormulas) {
  constexpr std::int64_t p = 7;
  const auto angle = [](double exponent) { return p * std::pow(1e4, -exponent); };
  OperandRecipe recipe;
  const auto with = [&](auto change) {
    recipe = {};
    change(recipe.rope);
    return turned(row, p, recipe);
  };
  std::array<double, 4> a{};
  for (std::size_t i = 0; i < 4; ++i) a[i] = angle(static_cast<double>(i) / 4);
  const std::vector<Pair> halves{
      {0, 4, a[0], a[0]}, {1, 5, a[1], a[1]}, {2, 6, a[2], a[2]}, {3, 7, a[3], a[3]}};
  const std::vector<Pair> neighbours{
      {0, 1, a[0], a[0]}, {2, 3, a[1], a[1]}, {4, 5, a[2], a[2]}, {6, 7, a[3], a[3]}};
  expect_pairs(turned(row, p, {}), row, halves);
  expect_pairs(with([](RopeRecipe& r) { r.query_other_pairing = true; }), row, neighbours);
  expect_pairs(with([](RopeRecipe& r) { r.query_other_pairing = r.keep_tables = true; }), row,
               {{0, 1, a[0], a[1]}, {2, 3, a[2], a[3]}, {4, 5, a[0], a[1]}, {6, 7, a[2], a[3]}});
  expect_pairs(with([](RopeRecipe& r) { r.other_tables = true; }), row,
               {{0, 4, a[0], a[2]}, {1, 5, a[0], a[2]}, {2, 6, a[1], a[3]}, {3, 7, a[1], a[3]}});
  expect_pairs(
      with([](RopeRecipe& r) { r.query = Turn::reversed; }), row,
      {{0, 4, -a[0], -a[0]}, {1, 5, -a[1], -a[1]}, {2, 6, -a[2], -a[2]}, {3, 7, -a[3], -a[3]}});
  expect_pairs(with([](RopeRecipe& r) { r.query = Turn::twice; }), row,
               {{0, 4, 2 * a[0], 2 * a[0]},
                {1, 5, 2 * a[1], 2 * a[1]},
                {2, 6, 2 * a[2], 2 * a[2]},
                {3, 7, 2 * a[3], 2 * a[3]}});
  EXPECT_EQ(with([](RopeRecipe& r) { r.query = Turn::none; }), row);
  EXPECT_EQ(with([](RopeRecipe& r) { r.query_shift = -p; }), row);
  EXPECT_EQ(with([](RopeRecipe& r) { r.query_positions = RopePositions::from_zero; }), row);
  EXPECT_EQ(with([](RopeRecipe& r) { r.query_positions = RopePositions::head; }), row);
  expect_pairs(with([](RopeRecipe& r) { r.width = 0.5; }), row,
               {{0, 2, a[0], a[0]}, {1, 3, a[2], a[2]}});
  expect_pairs(with([](RopeRecipe& r) {
                 r.width = 0.5;
                 r.last_features = true;
               }),
               row, {{4, 6, a[0], a[0]}, {5, 7, a[2], a[2]}});
}

TEST(OperandRope, WrongFrequenciesAreTheirFormulas) {
  constexpr std::int64_t p = 7;
  const auto expect = [&](RopeRecipe rope, const std::array<double, 4>& frequencies) {
    OperandRecipe recipe;
    recipe.rope = rope;
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < 4; ++i) {
      pairs.push_back({i, i + 4, p * frequencies[i], p * frequencies[i]});
    }
    expect_pairs(turned(row, p, recipe), row, pairs);
  };
  const auto powers = [](double base, const std::array<double, 4>& exponents) {
    std::array<double, 4> out{};
    for (std::size_t i = 0; i < 4; ++i) out[i] = std::pow(base, -exponents[i]);
    return out;
  };
  expect({.base = 500}, powers(500, {0, 0.25, 0.5, 0.75}));
  expect({.exponent = RopeExponent::half}, powers(1e4, {0, 0.125, 0.25, 0.375}));
  expect({.exponent = RopeExponent::from_one}, powers(1e4, {0.25, 0.5, 0.75, 1}));
  expect({.exponent = RopeExponent::to_the_end}, powers(1e4, {0, 1. / 3, 2. / 3, 1}));
  expect({.exponent = RopeExponent::backwards}, powers(1e4, {0.75, 0.5, 0.25, 0}));
  expect({.positions_divided_by = 4}, {0.25, 0.025, 0.0025, 0.00025});
  // Waves of 2π, 20π, 200π and 2000π positions: 8192 positions hold 1304, 130, 13 and 1.3 of them,
  // so that only the last is between 1 and 4.
  const double waves = 8192 * 1e-3 / (2 * 3.14159265358979323846);
  const double smooth = (waves - 1) / 3;
  expect({.long_wave_factor = 8, .exponent = RopeExponent::llama3_scaled},
         {1, 0.1, 0.01, 1e-3 * ((1 - smooth) / 8 + smooth)});
}

TEST(OperandRope, RowsOfAllHeadsTurnAsOneBeforeTheSplit) {
  // Two heads of four features, which are one row of eight.
  Claim claim = random_claim({.B = 1, .H = 2, .G = 2, .T = 1, .S = 1, .D = 4, .E = 1}, 3);
  claim.call.query = Tensor<double>({1, 2, 1, 4}, row);
  claim.rope = rope_at(claim.shape, {}, 7, 7);
  OperandRecipe recipe;
  recipe.rope.before_split = true;
  auto operands = Operands::make(claim, recipe);
  ASSERT_TRUE(operands.has_value());
  const std::vector<double> expected = turned(row, 7, {});
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::size_t d = 0; d < 4; ++d) {
      EXPECT_EQ(operands->query({0, h, 0})[d], expected[static_cast<std::size_t>(h) * 4 + d]);
    }
  }
}

TEST(OperandRope, CachedKeysAndNewKeysHavePositionsOfTheirOwn) {
  const lab::AttentionShape shape{.B = 1, .H = 1, .G = 1, .T = 2, .S = 5, .D = 2, .E = 1};
  Claim claim = random_claim(shape, 4);
  for (double& x : claim.call.key.elements()) x = 0;
  for (std::int64_t j = 0; j < 5; ++j) claim.call.key(0, 0, j, 0) = 1;
  claim.past = 3;
  claim.rope = rope_at(shape, {}, 3, 0);
  // A key (1, 0) at position p becomes (cos p, sin p).
  const auto angles = [&](CachedTurn turn) {
    OperandRecipe recipe;
    recipe.rope.cached = turn;
    auto operands = Operands::make(claim, recipe);
    std::vector<double> out;
    for (std::size_t j = 0; j < 5; ++j) {
      const auto key = operands->keys(0, 0).subspan(2 * j, 2);
      const double angle = std::atan2(key[1], key[0]);
      out.push_back(std::round((angle < -1e-9 ? angle + 2 * std::acos(-1.0) : angle) * 1e6) / 1e6);
    }
    return out;
  };
  EXPECT_EQ(angles(CachedTurn::claimed), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(angles(CachedTurn::cached_unturned), (std::vector<double>{0, 0, 0, 3, 4}));
  EXPECT_EQ(angles(CachedTurn::cached_twice), (std::vector<double>{0, 2, 4, 3, 4}));
  EXPECT_EQ(angles(CachedTurn::new_from_zero), (std::vector<double>{0, 1, 2, 0, 1}));
}

TEST(OperandRope, TablesOfSixteenBitsAreRoundedToTheirType) {
  OperandRecipe recipe;
  recipe.rope.rounding = RopeRounding::tables_bf16;
  const std::vector<double> unit{1, 0, 0, 0, 0, 0, 0, 0};
  // cos 7 = 0.75390225… and sin 7 = 0.65698660… to 8 bits: 193/256 and 168/256.
  EXPECT_EQ(turned(unit, 7, recipe)[0], 193. / 256);
  EXPECT_EQ(turned(unit, 7, recipe)[4], 168. / 256);
  recipe.rope.rounding = RopeRounding::tables_f16;
  EXPECT_EQ(turned(unit, 7, recipe)[0], 1544. / 2048);
  // 259 is no bf16 number; 260 is the nearest.
  recipe.rope.rounding = RopeRounding::positions_bf16;
  EXPECT_EQ(turned(unit, 259, recipe), turned(unit, 260, {}));
}

TEST(OperandRope, RefusesWidthsAndPositionsThatDoNotFit) {
  const lab::AttentionShape shape{.B = 1, .H = 1, .G = 1, .T = 2, .S = 2, .D = 3, .E = 3};
  Claim claim = random_claim(shape, 8);
  claim.rope = rope_at(shape, {}, 0, 0);
  EXPECT_FALSE(Operands::make(claim, {}).has_value());  // three features make no pairs
  claim.rope->config.rotary_dim = 2;
  EXPECT_TRUE(Operands::make(claim, {}).has_value());
  claim.rope->key_positions.pop_back();
  EXPECT_FALSE(Operands::make(claim, {}).has_value());
  claim.rope->key_positions = {0, 1, 2};
  EXPECT_FALSE(Operands::make(claim, {}).has_value());
}

}  // namespace
}  // namespace attest::check
