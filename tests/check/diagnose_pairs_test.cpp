// SPDX-License-Identifier: MIT
// Mistakes made together, constants beside them, and every name that equal numbers have.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>

#include "attest/base/random.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/evaluate.h"
#include "tests/support/draws.h"
#include "tests/support/matrices.h"

namespace attest::check {
namespace {

using test::random_bell;

Claim claim_of(lab::AttentionShape s, std::uint64_t seed) {
  Random random(seed);
  Claim out{.shape = s};
  out.call.query = random_bell(random, {s.B, s.H, s.T, s.D});
  out.call.key = random_bell(random, {s.B, s.G, s.S, s.D});
  out.call.value = random_bell(random, {s.B, s.G, s.S, s.E});
  return out;
}

Recipe recipe_of(const Claim& claim,
                 const std::vector<std::pair<std::string_view, double>>& mistakes) {
  Recipe out;
  for (const auto& [name, value] : mistakes) {
    const Mistake* mistake = find_mistake(name);
    if (mistake == nullptr || !mistake->make(out, claim, value)) {
      ADD_FAILURE() << name << " cannot be made";
    }
  }
  return out;
}

void write_row(Dump& dump, const StageRow& row, std::int64_t n) {
  double* const to = dump.stages.front().values.data() + n * dump.claim.shape.E;
  for (std::size_t e = 0; e < row.output.size(); ++e) {
    to[e] = static_cast<double>(to_float_nearest(row.output[e]));
  }
}

/// The output of a recipe as a program in binary32 stores it.
Dump dump_of(const Claim& claim, const Recipe& recipe) {
  const lab::AttentionShape& s = claim.shape;
  Dump out{.claim = claim};
  out.stages.push_back({Stage::output, Tensor<double>({s.B, s.H, s.T, s.E}), DType::f32, "output"});
  auto evaluation = Evaluation::make(out, recipe);
  for (std::int64_t n = 0; n < s.B * s.H * s.T; ++n) {
    write_row(out, evaluation->row({n / (s.H * s.T), n / s.T % s.H, n % s.T}), n);
  }
  return out;
}

std::set<std::string> names_of(const Diagnosis& diagnosis) {
  std::set<std::string> out;
  if (diagnosis.judgement != Judgement::wrong_named) return out;
  for (const Made& made : diagnosis.explanations.front().mistakes) out.insert(made.label());
  return out;
}

/// Whether the verdict lists these two, in any order, as giving the same numbers.
bool lists(const Diagnosis& diagnosis, const std::string& one, const std::string& other) {
  const auto& same = diagnosis.explanations.front().same;
  return std::ranges::any_of(same, [&](const std::string& label) {
    return label == one + " + " + other || label == other + " + " + one;
  });
}

using Names = std::set<std::string>;
constexpr lab::AttentionShape small{.B = 2, .H = 6, .G = 6, .T = 11, .S = 13, .D = 10, .E = 10};

TEST(DiagnosePairs, NamesPowersOfTwoBesideAnotherSoftmax) {
  const Claim claim = claim_of(small, 1);
  for (const std::string form : {"softmax.twice", "softmax.plus_one", "softmax.over_queries"}) {
    for (const std::string base : {"softmax.base2", "softmax.exp_with_log2e"}) {
      const Dump dump = dump_of(claim, recipe_of(claim, {{base, 0}, {form, 0}}));
      const auto diagnosis = diagnose(dump);
      ASSERT_TRUE(diagnosis.has_value());
      EXPECT_EQ(names_of(*diagnosis), (Names{base, form})) << to_text(dump, *diagnosis);
    }
  }
}

TEST(DiagnosePairs, NamesWhatEmptyRowsGiveBesideAnotherSoftmax) {
  Claim claim = claim_of(small, 2);
  claim.call.mask = Mask::causal_top_left();
  claim.call.mask.key_lengths = {0, 13};
  const Dump dump =
      dump_of(claim, recipe_of(claim, {{"softmax.sigmoid", 0}, {"empty_rows.first_value", 0}}));
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(names_of(*diagnosis), (Names{"softmax.sigmoid", "empty_rows.first_value"}))
      << to_text(dump, *diagnosis);
}

TEST(DiagnosePairs, GivesEveryKeyItsShareWhereASecondSoftmaxSeesAnEmptyRow) {
  Claim claim = claim_of(small, 3);
  claim.call.mask = Mask::causal_top_left();
  const Recipe recipe =
      recipe_of(claim, {{"causal.strict", 0}, {"softmax.twice", 0}});  // row 0 sees nothing
  const Dump dump{.claim = claim};
  auto evaluation = Evaluation::make(dump, recipe);
  const std::vector<double> weights = evaluation->row({0, 0, 0}).weights;
  ASSERT_EQ(weights.size(), 13U);
  for (const double w : weights) EXPECT_DOUBLE_EQ(w, 1.0 / 13);
}

TEST(DiagnosePairs, ListsAllNamesThatAConstantHasBesideAnotherMistake) {
  // 1/8 is 1/D, 1/√64, and a literal.
  Claim claim = claim_of({.B = 2, .H = 6, .G = 6, .T = 11, .S = 13, .D = 8, .E = 8}, 4);
  Random random(5);
  claim.call.bias = random_bell(random, {2, 6, 11, 13});
  const Dump dump = dump_of(claim, recipe_of(claim, {{"scale.twice", 0}, {"bias.sign", 0}}));
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(names_of(*diagnosis), (Names{"scale.twice", "bias.sign"})) << to_text(dump, *diagnosis);
  EXPECT_TRUE(lists(*diagnosis, "scale.padded_head_dim (64)", "bias.sign"));
  EXPECT_TRUE(lists(*diagnosis, "scale.other_constant (0.125)", "bias.sign"));
}

TEST(DiagnosePairs, ListsAllNamesThatHiddenKeysHaveBesideAnotherMistake) {
  Claim claim = claim_of({.B = 2, .H = 6, .G = 6, .T = 11, .S = 11, .D = 10, .E = 10}, 6);
  claim.call.mask = Mask::causal();
  claim.call.mask.window.left = 3;
  const Dump dump =
      dump_of(claim, recipe_of(claim, {{"window.only_no_causal", 0}, {"layout.batch_rolled", 1}}));
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(diagnosis.has_value());
  ASSERT_EQ(names_of(*diagnosis).size(), 2U) << to_text(dump, *diagnosis);
  const Names best = names_of(*diagnosis);
  for (const std::string name : {"window.only_no_causal", "causal.missing"}) {
    EXPECT_TRUE(best.contains(name) || lists(*diagnosis, name, "layout.batch_rolled (1)") ||
                lists(*diagnosis, name, "layout.batch_rolled (-1)"))
        << name << "\n"
        << to_text(dump, *diagnosis);
  }
}

TEST(DiagnosePairs, NamesTheTwoMistakesThatAConstantOfNoNameAmountsTo) {
  // cap·tanh(x·c) is a softcap of the scale c·cap, which nobody calls 0.265.
  Claim claim = claim_of({.B = 2, .H = 6, .G = 6, .T = 14, .S = 14, .D = 20, .E = 21}, 7);
  claim.call.softcap = 1.5;
  const Dump dump =
      dump_of(claim, recipe_of(claim, {{"softcap.no_divide", 0}, {"scale.padded_head_dim", 16}}));
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(diagnosis.has_value());
  EXPECT_EQ(names_of(*diagnosis), (Names{"softcap.no_divide", "scale.padded_head_dim (16)"}))
      << to_text(dump, *diagnosis);
  const auto& same = diagnosis->explanations.front().same;
  EXPECT_TRUE(std::ranges::any_of(same, [](const std::string& label) {
    return label.starts_with("scale.other_constant (0.265165");
  }));
}

TEST(DiagnosePairs, FitsTheBaseOfRotaryPositions) {
  for (const double base : {37000.0, 730.0}) {
    Claim claim = claim_of({.B = 1, .H = 3, .G = 3, .T = 40, .S = 90, .D = 16, .E = 16}, 8);
    claim.past = 50;
    claim.call.mask = Mask::causal_at(50);
    RopeClaim rope;
    for (std::int64_t i = 0; i < 40; ++i) rope.query_positions.push_back(i + 50);
    for (std::int64_t j = 0; j < 90; ++j) rope.key_positions.push_back(j);
    claim.rope = rope;
    Recipe recipe;
    recipe.operands.rope.base = base;
    const Dump dump = dump_of(claim, recipe);
    const auto diagnosis = diagnose(dump);
    ASSERT_TRUE(diagnosis.has_value());
    ASSERT_EQ(diagnosis->judgement, Judgement::wrong_named) << to_text(dump, *diagnosis);
    const Explanation& best = diagnosis->explanations.front();
    ASSERT_EQ(best.mistakes.size(), 1U) << to_text(dump, *diagnosis);
    EXPECT_EQ(best.mistakes.front().mistake->name, "rope.base");
    EXPECT_NEAR(best.mistakes.front().value / base, 1, 1e-4);
  }
}

TEST(DiagnosePairs, NamesASoftmaxOverAnotherAxisBesideAMistakeInLongerCalls) {
  Claim claim = claim_of({.B = 2, .H = 5, .G = 5, .T = 40, .S = 63, .D = 64, .E = 64}, 9);
  claim.call.mask = Mask::causal_top_left();
  for (const std::string over : {"softmax.over_queries", "softmax.over_heads"}) {
    const Dump dump = dump_of(claim, recipe_of(claim, {{"causal.zero_scores", 0}, {over, 0}}));
    const auto diagnosis = diagnose(dump);
    ASSERT_TRUE(diagnosis.has_value());
    EXPECT_EQ(names_of(*diagnosis), (Names{"causal.zero_scores", over}))
        << to_text(dump, *diagnosis);
  }
}

/// Rows [first, last) as the recipe computes them; all others as claimed.
Dump with_rows(const Dump& right, const Recipe& recipe, std::int64_t first, std::int64_t last) {
  Dump out = right;
  auto evaluation = Evaluation::make(out, recipe);
  const lab::AttentionShape& s = out.claim.shape;
  for (std::int64_t n = first; n < last; ++n) {
    write_row(out, evaluation->row({n / (s.H * s.T), n / s.T % s.H, n % s.T}), n);
  }
  return out;
}

TEST(DiagnosePairs, FindsOneWrongRowAndOneWrongHeadOfALargeCall) {
  const lab::AttentionShape s{.B = 1, .H = 12, .G = 12, .T = 1024, .S = 1032, .D = 64, .E = 64};
  Claim claim = claim_of(s, 10);
  claim.call.mask = Mask::causal_top_left();
  const Dump right = dump_of(claim, {});
  const std::int64_t last_head = 11 * s.T;
  Recipe open;
  open.scoring.sight.causal = false;
  const auto timed = [&](std::string_view what, const Dump& dump) {
    const auto begin = std::chrono::steady_clock::now();
    auto diagnosis = diagnose(dump);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << what << ": " << took.count() << " s\n";
    return diagnosis;
  };
  const auto cleared = timed("right", right);
  ASSERT_TRUE(cleared.has_value());
  EXPECT_EQ(cleared->judgement, Judgement::right) << to_text(right, *cleared);

  // The last query of all heads sees everything: one row of a thousand.
  Dump last_row = right;
  for (std::int64_t h = 0; h < s.H; ++h)
    last_row = with_rows(last_row, open, (h + 1) * s.T - 1, (h + 1) * s.T);
  const auto by_row = timed("the last row of each head", last_row);
  ASSERT_TRUE(by_row.has_value());
  EXPECT_EQ(names_of(*by_row), (Names{"causal.last_row_open"})) << to_text(last_row, *by_row);

  // The last head reads the first one's keys and values.
  const Mistake& other = *find_mistake("heads.one_reads_kv0");
  Recipe reads;
  ASSERT_TRUE(other.make(reads, claim, 11));
  const Dump one_head = with_rows(right, reads, last_head, last_head + s.T);
  const auto by_head = timed("the last head", one_head);
  ASSERT_TRUE(by_head.has_value());
  EXPECT_EQ(names_of(*by_head), (Names{"heads.one_reads_kv0 (11)"})) << to_text(one_head, *by_head);

  if (!test::all_draws()) return;  // what nothing explains is searched to the end
  // One row of one head alone: nobody's mistake, but it is found and shown.
  const std::int64_t row = last_head + 517;
  const Dump one_row = with_rows(right, open, row, row + 1);
  const auto alone = timed("one row of the last head", one_row);
  ASSERT_TRUE(alone.has_value());
  EXPECT_NE(alone->judgement, Judgement::right);
  EXPECT_NE(alone->judgement, Judgement::right_by_rounding);
  EXPECT_EQ(alone->stages.front().first_wrong->address.substr(0, 15), "h11.output[517,")
      << to_text(one_row, *alone);
}

}  // namespace
}  // namespace attest::check
