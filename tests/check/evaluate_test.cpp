// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include "attest/base/random.h"
#include "attest/check/at_index.h"
#include "attest/check/mistakes/catalogue.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"

namespace attest::check {
namespace {

Tensor<double> numbers(const Shape& shape, Random& random) {
  Tensor<double> out(shape);
  for (double& x : out.elements()) x = static_cast<double>(static_cast<float>(random.bell()));
  return out;
}

/// Any options at all, on small shapes.
AttentionCase any_case(Random& random) {
  AttentionCase call;
  const std::int64_t B = random.between(1, 3);
  const std::int64_t G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, 3);
  const std::int64_t T = random.between(1, 7);
  const std::int64_t S = random.between(1, 9);
  const std::int64_t D = random.between(1, 20);
  const std::int64_t E = random.between(1, 9);
  const auto likely = [&] { return random.between(0, 2) == 0; };
  call.query = numbers({B, H, T, D}, random);
  call.key = numbers({B, G, S, D}, random);
  call.value = numbers({B, G, S, E}, random);
  call.empty_row = likely() ? EmptyRow::nan : EmptyRow::zero;
  if (likely()) call.scale = random.uniform(-1, 2);
  if (likely()) call.softcap = random.uniform(0.2, 3);
  if (likely())
    call.bias = numbers({likely() ? 1 : B, likely() ? 1 : H, likely() ? 1 : T, S}, random);
  if (call.bias && likely()) call.bias->elements()[0] = -INFINITY;
  if (likely()) {
    for (std::int64_t h = 0; h < H; ++h) call.alibi_slopes.push_back(random.uniform());
  }
  if (likely()) {
    for (std::int64_t h = 0; h < H; ++h) call.sink.push_back(random.bell());
  }
  if (likely()) call.dropout = {.rate = 0.3, .seed = random.bits()};
  if (likely()) {
    Tensor<bool> visible({likely() ? 1 : B, likely() ? 1 : H, T, likely() ? 1 : S});
    for (bool& x : visible.elements()) x = random.between(0, 3) > 0;
    call.visible = visible;
  }
  Mask& mask = call.mask;
  mask.future_hidden = likely();
  const auto corner = random.between(0, 2);
  mask.corner = corner == 0   ? Corner::top_left
                : corner == 1 ? Corner::bottom_right
                              : Corner::at_offset;
  if (corner == 2) {
    for (std::int64_t b = 0; b < B; ++b) mask.query_offset.push_back(random.between(-3, 5));
  }
  if (likely()) mask.window.left = random.between(0, 4);
  if (likely()) mask.window.right = random.between(0, 4);
  if (likely()) {
    for (std::int64_t b = 0; b < B; ++b) mask.key_lengths.push_back(random.between(0, S));
  }
  if (likely()) {
    const std::int64_t q = random.between(0, T);
    const std::int64_t k = random.between(0, S);
    mask.packing = {.query_starts = {0, q, T}, .key_starts = {0, k, S}};
  }
  if (likely()) {
    for (std::int64_t i = 0; i < B * T; ++i) mask.documents.query.push_back(random.between(0, 2));
    for (std::int64_t j = 0; j < S; ++j) mask.documents.key.push_back(random.between(0, 2));
  }
  return call;
}

Dump dump_of(AttentionCase call) {
  Dump out;
  const Shape& q = call.query.shape();
  out.claim.shape = {.B = q[0],
                     .H = q[1],
                     .G = call.key.extent(1),
                     .T = q[2],
                     .S = call.key.extent(2),
                     .D = q[3],
                     .E = call.value.extent(3)};
  out.claim.call = std::move(call);
  return out;
}

void expect_near(double found, double expected, const std::string& where) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
        << where << ": " << found << " instead of " << expected;
    return;
  }
  EXPECT_NEAR(found, expected, 1e-13 * (1 + std::fabs(expected))) << where;
}

TEST(Evaluate, TheClaimItselfIsTheExactTiersAnswer) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const Dump dump = dump_of(any_case(random));
    const AttentionCase& call = dump.claim.call;
    const auto exact = lab::attention(call.inputs(), call.options()).value();
    auto evaluation = Evaluation::make(dump, {});
    ASSERT_TRUE(evaluation.has_value());
    const lab::AttentionShape& s = dump.claim.shape;
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t h = 0; h < s.H; ++h) {
        for (std::int64_t i = 0; i < s.T; ++i) {
          const StageRow& row = evaluation->row({b, h, i});
          const std::string where = "seed " + std::to_string(seed) + " row " + std::to_string(b) +
                                    "," + std::to_string(h) + "," + std::to_string(i);
          for (std::int64_t j = 0; j < s.S; ++j) {
            expect_near(row.weights[static_cast<std::size_t>(j)], exact.weights(b, h, i, j), where);
          }
          for (std::int64_t e = 0; e < s.E; ++e) {
            expect_near(row.output[static_cast<std::size_t>(e)], exact.output(b, h, i, e), where);
          }
          expect_near(row.log_sum_exp, exact.log_sum_exp(b, h, i), where);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Evaluate, EveryTableIsTheExactTiers) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const Dump dump = dump_of(any_case(random));
    const AttentionCase& call = dump.claim.call;
    const lab::AttentionShape& s = dump.claim.shape;
    const lab::RowPlace at{s.B - 1, s.H - 1, s.T - 1};
    const auto exact = lab::attention_row(call.inputs(), call.options(), at).value();
    auto evaluation = Evaluation::make(dump, {});
    ASSERT_TRUE(evaluation.has_value());
    const StageRow& row = evaluation->row(at);
    const std::pair<const std::vector<double>&, const std::vector<double>&> tables[] = {
        {row.dot, exact.dot},
        {row.scaled, exact.scaled},
        {row.capped, exact.capped},
        {row.biased, exact.biased},
        {row.masked, exact.masked}};
    for (const auto& [found, wanted] : tables) {
      ASSERT_EQ(found.size(), wanted.size());
      for (std::size_t j = 0; j < found.size(); ++j) {
        expect_near(found[j], wanted[j], "seed " + std::to_string(seed));
      }
    }
  }
}

/// Every table of a claim, as the default recipe gives it.
std::vector<Observed> tables_of(const Dump& dump, std::initializer_list<Stage> stages) {
  const lab::AttentionShape& s = dump.claim.shape;
  std::vector<Observed> out;
  auto evaluation = Evaluation::make(dump, {});
  for (const Stage stage : stages) {
    const std::int64_t width = stage == Stage::output ? s.E : s.S;
    Tensor<double> values({s.B, s.H, s.T, width});
    for (std::int64_t row = 0; row < s.B * s.H * s.T; ++row) {
      const auto numbers =
          evaluation->row({row / (s.H * s.T), row / s.T % s.H, row % s.T}).of(stage);
      std::copy(numbers.begin(), numbers.end(), values.data() + row * width);
    }
    out.push_back({.stage = stage, .values = std::move(values)});
  }
  return out;
}

Dump rich_dump() {
  Random random(11);
  AttentionCase call;
  call.query = numbers({2, 4, 5, 6}, random);
  call.key = numbers({2, 2, 7, 6}, random);
  call.value = numbers({2, 2, 7, 3}, random);
  call.mask = Mask::causal_bottom_right();
  call.bias = numbers({2, 4, 5, 7}, random);
  call.softcap = 1.5;
  call.sink = {0.5, -1, 2, 0};
  call.empty_row = EmptyRow::zero;
  return dump_of(std::move(call));
}

void expect_row(std::span<const double> found, std::span<const double> wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t n = 0; n < found.size(); ++n) expect_near(found[n], wanted[n], "number");
}

TEST(Evaluate, BeginsAtTheFirstTableOfADumpWithoutQueryAndKey) {
  const Dump whole = rich_dump();
  auto right = Evaluation::make(whole, {});
  for (const Stage first :
       {Stage::dot, Stage::scaled, Stage::capped, Stage::biased, Stage::masked, Stage::weights}) {
    Dump part = whole;
    part.claim.call.query = Tensor<double>();
    part.claim.call.key = Tensor<double>();
    part.stages = tables_of(whole, {first, Stage::output});
    auto evaluation = Evaluation::make(part, {});
    ASSERT_TRUE(evaluation.has_value());
    const StageRow& wanted = right->row({1, 3, 2});
    const StageRow& found = evaluation->row({1, 3, 2});
    expect_row(found.output, wanted.output);
    expect_row(found.weights, wanted.weights);
    if (first == Stage::weights) {
      EXPECT_TRUE(found.masked.empty());
      continue;
    }
    expect_row(found.masked, wanted.masked);
    expect_near(found.log_sum_exp, wanted.log_sum_exp, "log_sum_exp");
    if (first > Stage::dot) {
      EXPECT_TRUE(found.dot.empty());
    }
  }
  Dump nothing = whole;
  nothing.claim.call.query = Tensor<double>();
  nothing.claim.call.key = Tensor<double>();
  nothing.stages = tables_of(whole, {Stage::output});
  EXPECT_FALSE(Evaluation::make(nothing, {}).has_value());
}

TEST(Evaluate, WithoutValueThereIsNoOutput) {
  Dump dump = rich_dump();
  dump.claim.call.value = Tensor<double>();
  dump.claim.shape.E = 0;
  auto evaluation = Evaluation::make(dump, {});
  ASSERT_TRUE(evaluation.has_value());
  EXPECT_TRUE(evaluation->row({0, 0, 0}).output.empty());
  EXPECT_EQ(evaluation->row({0, 0, 0}).weights.size(), 7U);
}

TEST(Evaluate, ATableUnderTheNameOfAnother) {
  Dump dump = rich_dump();
  dump.stages = tables_of(dump, {Stage::capped, Stage::masked, Stage::output});
  Recipe recipe;
  ASSERT_TRUE(find_mistake("label.qk_modes_swapped")->make(recipe, dump.claim, 0));
  auto right = Evaluation::make(dump, {});
  auto swapped = Evaluation::make(dump, recipe);
  ASSERT_TRUE(swapped.has_value());
  const StageRow wanted = right->row({1, 2, 3});
  expect_row(swapped->row({1, 2, 3}).masked, wanted.capped);
  expect_row(swapped->row({1, 2, 3}).capped, wanted.masked);
  // But the table that a dump begins with is believed: nothing before it could contradict another name.
  Dump late = dump;
  late.claim.call.query = late.claim.call.key = Tensor<double>();
  EXPECT_TRUE(Evaluation::make(late, {}).has_value());
  EXPECT_FALSE(Evaluation::make(late, recipe).has_value());
  // A table that the dump does not hold cannot be called wrongly.
  dump.stages = tables_of(dump, {Stage::output});
  EXPECT_FALSE(Evaluation::make(dump, recipe).has_value());
}

TEST(Evaluate, SumsOverQueriesHeadsAndBatchAreOne) {
  const Dump dump = [] {
    Dump out = rich_dump();
    out.claim.call.mask = {};
    out.claim.call.sink.clear();
    return out;
  }();
  const lab::AttentionShape& s = dump.claim.shape;
  const auto total = [&](SoftmaxOver over, bool b, bool h, bool i, bool j) {
    Recipe recipe;
    recipe.scoring.softmax.over = over;
    auto evaluation = Evaluation::make(dump, recipe);
    double sum = 0;
    for (std::int64_t m = 0; m < (b ? s.B : 1); ++m) {
      for (std::int64_t n = 0; n < (h ? s.H : 1); ++n) {
        for (std::int64_t t = 0; t < (i ? s.T : 1); ++t) {
          const auto& weights = evaluation->row({m, n, t}).weights;
          for (std::size_t key = 0; key < (j ? weights.size() : 1); ++key) sum += weights[key];
        }
      }
    }
    return sum;
  };
  EXPECT_NEAR(total(SoftmaxOver::keys, false, false, false, true), 1, 1e-14);
  EXPECT_NEAR(total(SoftmaxOver::queries, false, false, true, false), 1, 1e-14);
  EXPECT_NEAR(total(SoftmaxOver::heads, false, true, false, false), 1, 1e-14);
  EXPECT_NEAR(total(SoftmaxOver::batch, true, false, false, false), 1, 1e-14);
  EXPECT_NEAR(total(SoftmaxOver::pairs, false, false, true, true), 1, 1e-14);
}

TEST(Evaluate, ARowIsTheSameInAnyOrderOfAsking) {
  const Dump dump = rich_dump();
  for (const Mistake& mistake : catalogue()) {
    const double value = mistake.values.empty() ? 0 : mistake.values[0];
    Recipe recipe;
    if (!mistake.make(recipe, dump.claim, value)) continue;
    auto evaluation = Evaluation::make(dump, recipe);
    auto again = Evaluation::make(dump, recipe);
    if (!evaluation) continue;
    const StageRow first = evaluation->row({1, 1, 2});
    for (const lab::RowPlace at : {lab::RowPlace{0, 0, 0}, {1, 3, 4}, {0, 2, 1}}) again->row(at);
    const StageRow& second = again->row({1, 1, 2});
    ASSERT_EQ(first.output.size(), second.output.size());
    for (std::size_t e = 0; e < first.output.size(); ++e) {
      const bool same = first.output[e] == second.output[e] ||
                        (std::isnan(first.output[e]) && std::isnan(second.output[e]));
      EXPECT_TRUE(same) << mistake.name;
    }
  }
}

TEST(Evaluate, AProgramThatLosesKeysHasNoOwnValueForEveryQuery) {
  Random random(7);
  AttentionCase call;
  call.query = numbers({1, 1, 4, 2}, random);
  call.key = numbers({1, 1, 4, 2}, random);
  call.value = numbers({1, 1, 4, 3}, random);
  const Dump dump = dump_of(std::move(call));
  Recipe own;
  ASSERT_TRUE(find_mistake("out.is_own_value")->make(own, dump.claim, 0));
  EXPECT_TRUE(Evaluation::make(dump, own).has_value());
  ASSERT_TRUE(find_mistake("kv.last_key_dropped")->make(own, dump.claim, 0));
  EXPECT_FALSE(Evaluation::make(dump, own).has_value());
}

/// A call on which most mistakes can be made; with as many queries as keys, or fewer.
Dump open_to_mistakes(std::int64_t T, std::int64_t S, std::int64_t D, std::int64_t E) {
  Random random(12);
  AttentionCase call;
  call.query = numbers({2, 4, T, D}, random);
  call.key = numbers({2, 2, S, D}, random);
  call.value = numbers({2, 2, S, E}, random);
  call.mask = Mask::causal_bottom_right();
  call.mask.window.left = 2;
  call.mask.key_lengths = {S, S - 1};
  call.bias = numbers({2, 4, T, S}, random);
  call.alibi_slopes = {0.5, 0.25, 0.125, 1};
  call.softcap = 1.5;
  call.sink = {0.5, -1, 2, 0};
  call.dropout = {.rate = 0.3, .seed = 5};
  call.empty_row = EmptyRow::zero;
  return dump_of(std::move(call));
}

std::optional<Recipe> with(const Recipe& before, const Mistake& mistake, const Claim& claim) {
  Recipe out = before;
  const double value = mistake.values.empty() ? 0 : mistake.values.back();
  if (mistake.make == nullptr || !mistake.make(out, claim, value)) return std::nullopt;
  return out;
}

/// The sanitizers watch: a mistake that was written for tables of the claim's shape must not read outside
/// those that another one has left.
TEST(Evaluate, WhateverChangesTheTablesEveryOtherMistakeStaysInside) {
  int pairs = 0;
  for (Dump dump : {open_to_mistakes(5, 5, 4, 3), open_to_mistakes(5, 5, 3, 4),
                    open_to_mistakes(4, 6, 4, 4), open_to_mistakes(3, 2, 2, 3)}) {
    const lab::AttentionShape& s = dump.claim.shape;
    dump.stages = tables_of(dump, {Stage::output});
    for (const Mistake& first : catalogue()) {
      if (first.axis > Axis::keys) continue;
      const auto changed = with({}, first, dump.claim);
      if (!changed) continue;
      for (const Mistake& second : catalogue()) {
        const auto both = with(*changed, second, dump.claim);
        if (!both) continue;
        auto evaluation = Evaluation::make(dump, *both);
        if (!evaluation) continue;
        for (const std::int64_t i : {std::int64_t{0}, s.T - 1}) {
          const StageRow& row = evaluation->row({s.B - 1, s.H - 1, i});
          ASSERT_EQ(row.output.size(), at_index(s.E)) << first.name << " + " << second.name;
        }
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 10'000);
}

}  // namespace
}  // namespace attest::check
