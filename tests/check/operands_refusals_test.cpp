// SPDX-License-Identifier: MIT
// What operands refuse: readings that the shapes do not allow, or of tensors that are not there.

#include <gtest/gtest.h>

#include <array>

#include "attest/check/mistakes/operands.h"
#include "tests/check/whole_tensors.h"

namespace attest::check {
namespace {

using test::numbered;
using test::numbered_claim;

TEST(OperandRefusals, OfWhatTheShapesDoNotAllow) {
  const auto refused = [](const Claim& claim, const OperandRecipe& recipe) {
    return !Operands::make(claim, recipe).has_value();
  };
  const Claim odd = numbered_claim({.B = 2, .H = 3, .G = 3, .T = 4, .S = 5, .D = 3, .E = 2});
  EXPECT_TRUE(refused(odd, {.head_count = HeadCount::half}));   // three heads
  EXPECT_TRUE(refused(odd, {.head_count = HeadCount::twice}));  // of three features
  EXPECT_TRUE(refused(odd, {.arguments = {Role::key, Role::query, Role::value}}));  // T, S
  EXPECT_TRUE(refused(odd, {.arguments = {Role::query, Role::value, Role::key}}));  // D, E
  EXPECT_TRUE(refused(odd, {.loaded = {Role::query, Role::query, Role::value}}));
  EXPECT_TRUE(refused(odd, {.fused_read = FusedOrder::hcd}));
  EXPECT_TRUE(refused(odd, {.batch_time = BatchTime::exchanged}));  // 4 batches of query, 5 of key
  EXPECT_TRUE(refused(odd, {.heads = {.wrong_head = 3}}));
  EXPECT_TRUE(refused(odd, {.slots = {.drop_first = 2, .drop_last = 3}}));
  EXPECT_TRUE(refused(odd, {.cache = CacheUse::ignored}));  // there is none
  EXPECT_FALSE(refused(odd, {.slots = {.drop_first = 2, .drop_last = 2}}));

  const Claim groups = numbered_claim({.B = 1, .H = 6, .G = 2, .T = 4, .S = 4, .D = 2, .E = 2});
  EXPECT_TRUE(refused(groups, {.head_count = HeadCount::one}));
  EXPECT_TRUE(refused(groups, {.fused_read = FusedOrder::hdc}));
  EXPECT_TRUE(refused(groups, {.heads = {.keys = HeadMap::divided_by_G}}));  // 5 / 2 is no head
  EXPECT_TRUE(refused(groups, {.heads = {.values = HeadMap::modulo_group}}));
  EXPECT_TRUE(refused(groups, {.arguments = {Role::query, Role::query, Role::value}}));
  EXPECT_FALSE(refused(groups, {.head_count = HeadCount::half}));

  const Claim cached = numbered_claim({.B = 2, .H = 2, .G = 2, .T = 3, .S = 6, .D = 2, .E = 2}, 3);
  OperandRecipe exchanged;
  for (Reading& reading : exchanged.reading) reading.split = Split::exchanged;
  EXPECT_TRUE(refused(cached, exchanged));  // new keys of another shape than the cache
  EXPECT_TRUE(refused(cached, {.head_count = HeadCount::one}));
  EXPECT_FALSE(refused(cached, {.head_count = HeadCount::one, .cache_read_likewise = true}));
}

TEST(OperandRefusals, EmptyTensorsAreReadAsTheyAreAlone) {
  for (const auto& [B, T, S] : {std::array<std::int64_t, 3>{0, 2, 2}, {1, 0, 2}, {1, 2, 0}}) {
    const Claim claim = numbered_claim({.B = B, .H = 2, .G = 2, .T = T, .S = S, .D = 2, .E = 2});
    auto operands = Operands::make(claim, {});
    ASSERT_TRUE(operands.has_value());
    const auto all = static_cast<std::size_t>(B > 0 ? S * 2 : 0);
    if (B > 0) {
      EXPECT_EQ(operands->keys(0, 1).size(), all);
    }
    OperandRecipe recipe;
    for (Reading& reading : recipe.reading) reading.split = Split::reshaped;
    EXPECT_FALSE(Operands::make(claim, recipe).has_value());
  }
}

TEST(OperandRefusals, WhatIsMissingIsEmptyAndNotMisread) {
  Claim claim;
  claim.shape = {.B = 2, .H = 4, .G = 0, .T = 3, .S = 5, .D = 0, .E = 0};
  auto operands = Operands::make(claim, {});
  ASSERT_TRUE(operands.has_value());
  EXPECT_EQ(operands->shape().S, 5);
  EXPECT_TRUE(operands->query({0, 0, 0}).empty());
  EXPECT_TRUE(operands->keys(0, 0).empty());
  OperandRecipe recipe;
  recipe.reading[1].split = Split::reshaped;
  EXPECT_FALSE(Operands::make(claim, recipe).has_value());

  // Weights and value alone: heads are merged wrongly, values read wrongly.
  claim.shape = {.B = 2, .H = 4, .G = 2, .T = 3, .S = 5, .D = 0, .E = 3};
  claim.call.value = numbered({2, 2, 5, 3}, 1);
  recipe = {};
  recipe.reading[2].split = Split::reshaped;
  operands = Operands::make(claim, recipe);
  ASSERT_TRUE(operands.has_value());
  const Tensor<double> expected =
      test::reshaped(test::permuted(claim.call.value, test::heads_and_rows), {2, 2, 5, 3});
  EXPECT_EQ(operands->values(1, 3)[4], expected(1, 1, 1, 1));
}

}  // namespace
}  // namespace attest::check
