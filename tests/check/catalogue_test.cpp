// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "attest/base/random.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

std::vector<double> values_of(const Mistake& mistake) {
  if (mistake.values.empty()) return {0};
  return {mistake.values.begin(), mistake.values.end()};
}

Tensor<double> numbers(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  Tensor<double> out(shape);
  for (double& x : out.elements()) x = static_cast<double>(static_cast<float>(random.bell()));
  return out;
}

/// A claim without any option, of shapes that coincide in nothing.
Claim plain_claim(std::int64_t T, std::int64_t S, std::int64_t G = 2) {
  Claim out;
  out.shape = {.B = 2, .H = 6, .G = G, .T = T, .S = S, .D = 10, .E = 10};
  out.call.query = numbers({2, 6, T, 10}, 1);
  out.call.key = numbers({2, G, S, 10}, 2);
  out.call.value = numbers({2, G, S, 10}, 3);
  out.call.empty_row = EmptyRow::zero;
  return out;
}

Tensor<bool> random_mask(const Shape& shape) {
  Random random(5);
  Tensor<bool> out(shape);
  for (bool& x : out.elements()) x = random.between(0, 3) > 0;
  return out;
}

/// Claims on which every mistake can be made at least once.
std::vector<Claim> claims() {
  std::vector<Claim> out;
  const auto add = [&](Claim claim, auto&& change) {
    change(claim);
    out.push_back(std::move(claim));
  };
  add(plain_claim(7, 7, 6), [](Claim&) {});
  add(plain_claim(7, 9), [](Claim&) {});
  add(plain_claim(300, 300), [](Claim& c) { c.call.mask = Mask::causal(); });
  add(plain_claim(5, 9), [](Claim& c) {
    c.call.mask = Mask::causal_bottom_right();
    c.past = 4;
    c.call.mask.window = {.left = 3, .right = 1};
    c.call.alibi_slopes = {1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2, 1. / 8};
  });
  add(plain_claim(7, 7), [](Claim& c) {
    c.call.visible = random_mask({2, 6, 7, 7});
    c.call.mask = Mask::causal();
    c.call.bias = numbers({2, 6, 7, 7}, 6);
    c.call.softcap = 0.7;
    c.call.scale = 0.4;
    c.call.sink = {1, -1, 0.5, 2, 0, -0.5};
    c.call.dropout = {.rate = 0.2, .seed = 3};
    c.call.empty_row = EmptyRow::nan;
  });
  add(plain_claim(7, 7), [](Claim& c) {
    c.call.mask.key_lengths = {4, 7};
    c.call.mask.window = {.left = 3, .right = 1};
    c.call.visible = random_mask({2, 1, 1, 7});
    c.call.alibi_slopes = {1, 2, 3, 4, 5, 6};
  });
  add(plain_claim(7, 9), [](Claim& c) {
    c.call.mask = Mask::causal_bottom_right();
    c.call.mask.key_lengths = {4, 9};
  });
  add(plain_claim(9, 9), [](Claim& c) {
    c.call.mask = Mask::causal();
    c.call.mask.packing = {.query_starts = {0, 2, 9}, .key_starts = {0, 2, 9}};
  });
  add(plain_claim(9, 9), [](Claim& c) {
    c.call.mask.documents = {{0, 0, 1, 1, 1, 2, 2, 2, 2}, {0, 0, 1, 1, 1, 2, 2, 2, 2}};
  });
  add(plain_claim(7, 7), [](Claim& c) { c.call.query(0, 0, 0, 0) = 60000; });
  add(plain_claim(2, 9), [](Claim& c) { c.call.mask.key_lengths = {4, 9}; });
  add(plain_claim(9, 9), [](Claim& c) {
    c.call.mask = Mask::causal_bottom_right();
    c.call.mask.packing = {.query_starts = {0, 2, 9}, .key_starts = {0, 5, 9}};
  });
  add(plain_claim(7, 9), [](Claim& c) {  // interleaved pairs of a part of each row, far out
    RopeClaim rope{.config = {.pairing = RopePairing::interleaved, .rotary_dim = 4}};
    for (std::int64_t i = 0; i < 7; ++i) rope.query_positions.push_back(i + 3001);
    for (std::int64_t j = 0; j < 9; ++j) rope.key_positions.push_back(j + 3001);
    c.rope = rope;
  });
  add(plain_claim(7, 9), [](Claim& c) {  // wider values than queries, and rotary positions
    c.shape.E = 14;
    c.call.value = numbers({2, 2, 9, 14}, 3);
    c.past = 2;
    c.call.mask = Mask::causal_at(2);
    RopeClaim rope;
    for (std::int64_t i = 0; i < 7; ++i) rope.query_positions.push_back(i + 2);
    for (std::int64_t j = 0; j < 9; ++j) rope.key_positions.push_back(j);
    c.rope = rope;
  });
  return out;
}

TEST(Catalogue, NamesAreUniqueAndSortedWithinTheirAxis) {
  const auto all = catalogue();
  EXPECT_GE(all.size(), 170U);
  std::set<std::string_view> names;
  for (std::size_t n = 0; n < all.size(); ++n) {
    EXPECT_TRUE(names.insert(all[n].name).second) << all[n].name;
    EXPECT_EQ(find_mistake(all[n].name), &all[n]);
    if (n == 0) continue;
    EXPECT_LT(std::tie(all[n - 1].axis, all[n - 1].name), std::tie(all[n].axis, all[n].name));
  }
  EXPECT_EQ(find_mistake("no.such"), nullptr);
}

TEST(Catalogue, EverySentenceIsOne) {
  for (const Mistake& mistake : catalogue()) {
    EXPECT_NE(mistake.make, nullptr) << mistake.name;
    EXPECT_TRUE(mistake.what.ends_with(".")) << mistake.name;
    EXPECT_GT(mistake.look_for.size(), 5U) << mistake.name;
    for (const std::string_view text : {mistake.what, mistake.look_for, mistake.seen_in}) {
      EXPECT_EQ(text.find("  "), std::string_view::npos) << mistake.name << ": " << text;
    }
  }
}

TEST(Catalogue, EveryMistakeCanBeMadeAndIsAnotherRecipe) {
  const auto all = claims();
  for (const Mistake& mistake : catalogue()) {
    int made = 0;
    for (const double value : values_of(mistake)) {
      for (const Claim& claim : all) {
        Recipe recipe;
        if (!mistake.make(recipe, claim, value)) continue;
        ++made;
        const bool same = recipe.operands == OperandRecipe{} && recipe.scoring == ScoringRecipe{};
        EXPECT_FALSE(same) << mistake.name << " (" << value << ")";
      }
    }
    EXPECT_GT(made, 0) << mistake.name;
  }
}

TEST(Catalogue, NothingIsMadeWhereThereIsNothingToMakeItOn) {
  const Claim plain = plain_claim(7, 9);
  for (const Mistake& mistake : catalogue()) {
    const bool needs_more = mistake.axis == Axis::bias || mistake.axis == Axis::alibi ||
                            mistake.axis == Axis::mask || mistake.axis == Axis::packing ||
                            mistake.axis == Axis::sink;
    for (const double value : values_of(mistake)) {
      Recipe recipe;
      EXPECT_FALSE(needs_more && mistake.make(recipe, plain, value)) << mistake.name;
    }
  }
}

TEST(Catalogue, MakingOneCostsNothingAndEvaluatesOrIsRefused) {
  for (const Claim& claim : claims()) {
    Dump dump{.claim = claim};
    for (const Mistake& mistake : catalogue()) {
      for (const double value : values_of(mistake)) {
        Recipe recipe;
        if (!mistake.make(recipe, claim, value)) continue;
        auto evaluation = Evaluation::make(dump, recipe);
        if (!evaluation) continue;
        const StageRow& row = evaluation->row({1, 5, claim.shape.T - 1});
        EXPECT_EQ(row.output.size(), static_cast<std::size_t>(claim.shape.E)) << mistake.name;
      }
    }
  }
}

TEST(Catalogue, LabelsHoldTheValue) {
  const Mistake* const tail = find_mistake("tail.zero_keys_counted");
  ASSERT_NE(tail, nullptr);
  EXPECT_EQ((Made{tail, 16}.label()), "tail.zero_keys_counted (16)");
  EXPECT_EQ((Made{find_mistake("scale.none"), 0}.label()), "scale.none");
  EXPECT_EQ((Made{find_mistake("causal.finite_fill"), -1e9}.label()),
            "causal.finite_fill (-1e+09)");
  // Of a mistake without a list, what was fitted.
  EXPECT_EQ((Made{find_mistake("scale.none"), 0.371234}.label()), "scale.none (0.371)");
  EXPECT_EQ(Made{}.label(), "");
}

}  // namespace
}  // namespace attest::check
