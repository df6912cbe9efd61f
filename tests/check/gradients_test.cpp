// SPDX-License-Identifier: MIT
#include "attest/check/gradients/gradients.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <limits>
#include <set>

#include "attest/base/text.h"
#include "attest/check/gradients/gradient_mistakes.h"
#include "tests/check/gradients_dumps.h"
#include "tests/check/gradients_mistakes.h"

namespace attest::test {
namespace {

using check::Diagnosis;
using check::Judgement;

GradientDump made_dump(GradientDump dump, const std::vector<Made>& mistakes) {
  Mine program(dump);
  for (const Made& made : mistakes) program.mistakes.emplace(made.after, made.step);
  program.run();
  dump.gradients = program.gradients();
  return dump;
}

const Made& mistake(const std::string& name) {
  static const std::vector<Made> all = all_made();
  return *std::find_if(all.begin(), all.end(), [&](const Made& made) { return made.name == name; });
}

Diagnosis of(const GradientDump& dump, std::int64_t most_mistakes = 3) {
  auto out = check::diagnose_gradients(dump, {.most_mistakes = most_mistakes});
  EXPECT_TRUE(out) << out.failure().message;
  return out ? *out : Diagnosis{};
}

std::set<std::string> names_of(const check::Explanation& explanation) {
  std::set<std::string> out(explanation.same.begin(), explanation.same.end());
  for (const auto& made : explanation.mistakes) out.insert(std::string(made.mistake->name));
  return out;
}

TEST(DiagnoseGradients, SaysWhichMistakesCoincide) {
  // A batch of two: half of everything is the mean over the batch.
  const Diagnosis out = of(made_dump(square_dump(2), {mistake("gradient.halved")}));
  ASSERT_EQ(out.judgement, Judgement::wrong_named);
  const auto names = names_of(out.explanations.front());
  EXPECT_TRUE(names.contains("gradient.halved"));
  EXPECT_TRUE(names.contains("gradient.batch_mean"));
  // Without d_key, a scale that d_query lacks may be lacking in both; d_key would tell.
  GradientDump half = made_dump(square_dump(2), {mistake("gradient.scale_missing_in_d_query")});
  half.gradients.resize(1);
  const Diagnosis cut = of(half);
  ASSERT_EQ(cut.judgement, Judgement::wrong_named);
  const auto both = names_of(cut.explanations.front());
  EXPECT_TRUE(both.contains("gradient.scale_missing_in_d_query"));
  EXPECT_TRUE(both.contains("gradient.scale_missing"));
  ASSERT_FALSE(cut.would_decide.empty());
  EXPECT_NE(cut.would_decide.front().find("d_key"), std::string::npos);
}

TEST(DiagnoseGradients, ExplainsEachGradientByItself) {
  GradientDump dump = made_dump(square_dump(2), {});
  const GradientDump other = made_dump(square_dump(2), {mistake("gradient.rows_term_missing")});
  dump.gradients[0] = other.gradients[0];  // d_query alone
  const Diagnosis out = of(dump);
  ASSERT_EQ(out.judgement, Judgement::wrong_named);
  ASSERT_EQ(out.explanations.front().mistakes.size(), 1U);
  EXPECT_EQ(out.explanations.front().mistakes.front().mistake->name, "gradient.rows_term_missing");
  ASSERT_EQ(out.explanations.front().fitted.size(), 1U);
  EXPECT_NE(out.explanations.front().fitted.front().find("in dQ alone"), std::string::npos);
  EXPECT_EQ(out.first_wrong_stage, "d_query");
}

TEST(DiagnoseGradients, SaysWhereItIsWrong) {
  GradientDump dump = made_dump(square_dump(2), {});
  auto& d_key = dump.gradients[1].values;
  for (std::int64_t d = 0; d < d_key.extent(3); ++d) d_key(1, 2, d_key.extent(2) - 1, d) += 0.5;
  const Diagnosis out = of(dump);
  EXPECT_EQ(out.judgement, Judgement::wrong_unexplained);
  ASSERT_EQ(out.where.size(), 1U);
  EXPECT_EQ(out.where.front(),
            sentence("dK: only batch 1, only the last head (2), only the last key (",
                     d_key.extent(2) - 1, ")"));
  ASSERT_TRUE(out.stages[1].first_wrong);
  EXPECT_EQ(out.stages[1].first_wrong->address,
            sentence("batch1.h2.d_key[", d_key.extent(2) - 1, ",0]"));
  EXPECT_FALSE(out.nearest.empty());
}

/// Neither alone, where rows without keys make single mistakes that give NaN, nor in pairs of mistakes.
TEST(DiagnoseGradients, NaNNeverPasses) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const int most_mistakes : {1, 2}) {
      GradientDump dump = made_dump(most_mistakes == 1 ? wide_dump(3) : square_dump(3), {});
      dump.gradients[2].values.elements()[5] = bad;
      const Diagnosis out = of(dump, most_mistakes);
      EXPECT_EQ(out.judgement, Judgement::wrong_unexplained);
      EXPECT_EQ(out.stages[2].wrong, 1);
      EXPECT_EQ(out.stages[2].used, std::numeric_limits<double>::infinity());
    }
  }
}

TEST(DiagnoseGradients, ZeroGradientsDecideNothing) {
  GradientDump dump = square_dump(1);
  for (double& x : dump.d_output.elements()) x = 0;
  const Diagnosis out = of(made_dump(dump, {}));
  EXPECT_EQ(out.judgement, Judgement::undecided);
  EXPECT_FALSE(out.would_decide.empty());
}

TEST(DiagnoseGradients, SaysWhatRightNumbersCannotTell) {
  GradientDump dump = square_dump(2);  // no flow into log_sum_exp, no group
  const Diagnosis out = of(made_dump(dump, {}));
  ASSERT_EQ(out.judgement, Judgement::right);
  ASSERT_EQ(out.explanations.size(), 1U);
  const auto names = names_of(out.explanations.front());
  EXPECT_TRUE(names.contains("gradient.log_sum_exp_flow_ignored"));
  EXPECT_FALSE(names.contains("gradient.rows_term_missing"));
}

TEST(DiagnoseGradients, RefusesWhatCannotBeJudged) {
  const auto id = [](const GradientDump& dump) {
    const auto out = check::diagnose_gradients(dump);
    return out ? std::string("none") : out.failure().id;
  };
  const GradientDump good = made_dump(wide_dump(1), {});
  EXPECT_EQ(id(good), "none");
  GradientDump dump = good;
  dump.gradients.clear();
  EXPECT_EQ(id(dump), "missing-tensor");
  dump = good;
  dump.d_output = {};
  EXPECT_EQ(id(dump), "missing-tensor");
  dump = good;
  dump.claim.call.value = {};
  EXPECT_EQ(id(dump), "missing-tensor");
  dump = good;
  dump.claim.call.sink.clear();
  EXPECT_EQ(id(dump), "missing-tensor");
  dump = good;
  dump.gradients[0].values = Tensor<double>({2, 2});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = good;
  dump.d_log_sum_exp = Tensor<double>({1, 2, 3});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = good;
  dump.gradients.push_back(dump.gradients.front());
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = good;
  dump.claim.call.empty_row = EmptyRow::error;
  EXPECT_EQ(id(dump), "no-visible-key");
}

TEST(GradientMistakes, HaveNamesOfTheirOwnAndWords) {
  std::set<std::string_view> names;
  for (const check::GradientMistake& entry : check::gradient_mistakes()) {
    EXPECT_TRUE(names.insert(entry.mistake.name).second) << entry.mistake.name;
    EXPECT_TRUE(entry.mistake.name.starts_with("gradient."));
    EXPECT_FALSE(entry.mistake.what.empty()) << entry.mistake.name;
    EXPECT_FALSE(entry.mistake.look_for.empty()) << entry.mistake.name;
    EXPECT_NE(entry.make, nullptr);
  }
  std::printf("%zu mistakes\n", names.size());
}

/// Of each the tests have code of their own, made from the formulas.
TEST(GradientMistakes, AreMadeByTheTestsProgramToo) {
  std::set<std::string> programs;
  for (const Made& made : all_made()) {
    EXPECT_TRUE(programs.insert(made.name).second) << made.name;
  }
  for (const check::GradientMistake& entry : check::gradient_mistakes()) {
    EXPECT_EQ(programs.erase(std::string(entry.mistake.name)), 1U) << entry.mistake.name;
  }
  EXPECT_TRUE(programs.empty()) << *programs.begin();
}

GradientDump causal_dump(std::int64_t B, std::int64_t H, std::int64_t T, std::int64_t D) {
  GradientDump dump;
  Random random(5);
  AttentionCase& call = dump.claim.call;
  call.query = stored_numbers(random, {B, H, T, D}, DType::f32);
  call.key = stored_numbers(random, {B, H / 2, T, D}, DType::f32);
  call.value = stored_numbers(random, {B, H / 2, T, D}, DType::f32);
  dump.d_output = stored_numbers(random, {B, H, T, D}, DType::f32);
  call.mask = Mask::causal();
  return dump;
}

/// A call that is too large for the exact tier.
TEST(DiagnoseGradients, JudgesLargeCalls) {
  const GradientDump dump = causal_dump(1, 4, 200, 32);
  const Diagnosis right = of(made_dump(dump, {}));
  EXPECT_EQ(right.judgement, Judgement::right);
  ASSERT_FALSE(right.remarks.empty());  // not the exact tier
  const Diagnosis out = of(made_dump(dump, {mistake("gradient.rows_term_missing")}));
  ASSERT_EQ(out.judgement, Judgement::wrong_named);
  EXPECT_TRUE(out.sampled);
  EXPECT_TRUE(names_of(out.explanations.front()).contains("gradient.rows_term_missing"));
}

/// A call of which recipes are evaluated on a sample: those that no sample can show are found all the same.
TEST(DiagnoseGradients, NamesMistakesOfLargeCalls) {
  const GradientDump dump = causal_dump(2, 2, 64, 16);
  for (const char* name :
       {"gradient.heads_last_only", "gradient.causal_not_reused", "gradient.scale_missing_in_d_key",
        "gradient.layout_bthd_in_d_query", "gradient.heads_reversed_in_d_query",
        "gradient.batches_pile_up", "gradient.d_value_transposed", "gradient.d_key_d_value_swapped",
        "gradient.last_keys_lost"}) {
    const Diagnosis out = of(made_dump(dump, {mistake(name)}));
    ASSERT_EQ(out.judgement, Judgement::wrong_named) << name;
    EXPECT_TRUE(out.sampled);
    EXPECT_TRUE(names_of(out.explanations.front()).contains(name)) << name;
  }
}

/// One query in the middle has another number than the mistake gives; it is not among the sample, for it
/// is right.
TEST(DiagnoseGradients, NamesNothingThatFitsASampleAlone) {
  GradientDump dump = causal_dump(2, 2, 64, 16);
  const GradientDump right = made_dump(dump, {});
  dump = made_dump(dump, {mistake("gradient.rows_term_missing")});
  dump.gradients.resize(1);
  EXPECT_EQ(of(dump, 1).judgement, Judgement::wrong_named);
  int unnamed = 0;
  for (std::int64_t query = 1; query < 63; query += 5) {
    GradientDump mixed = dump;
    for (std::int64_t d = 0; d < 16; ++d) {
      mixed.gradients[0].values(1, 1, query, d) = right.gradients[0].values(1, 1, query, d);
    }
    EXPECT_EQ(of(mixed, 1).judgement, Judgement::wrong_unexplained) << "query " << query;
    ++unnamed;
  }
  EXPECT_EQ(unnamed, 13);
}

}  // namespace
}  // namespace attest::test
