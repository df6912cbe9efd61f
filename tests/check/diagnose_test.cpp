// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/base/random.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/io/json.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"
#include "tests/support/file_assertions.h"
#include "tests/support/random_case.h"

namespace attest::check {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// A call with random numbers that fit binary32.
AttentionCase call_of(lab::AttentionShape s, std::uint64_t seed) {
  Random random(seed);
  const auto draw = [&](Shape shape) {
    Tensor<double> out(std::move(shape));
    for (double& x : out.elements()) x = static_cast<double>(static_cast<float>(random.bell()));
    return out;
  };
  AttentionCase out;
  out.query = draw({s.B, s.H, s.T, s.D});
  out.key = draw({s.B, s.G, s.S, s.D});
  out.value = draw({s.B, s.G, s.S, s.E});
  return out;
}

constexpr lab::AttentionShape shape{.B = 2, .H = 4, .G = 2, .T = 7, .S = 9, .D = 10, .E = 6};

Tensor<double> as_float(Tensor<double> x) {
  for (double& v : x.elements()) v = static_cast<double>(static_cast<float>(v));
  return x;
}

/// The exact tier's tables for a call.
Observed observed(Stage stage, const AttentionCase& call) {
  const auto result = lab::attention(call.inputs(), call.options());
  Observed out{.stage = stage, .name = std::string(name_of(stage))};
  if (stage == Stage::output) out.values = as_float(result->output);
  if (stage == Stage::weights) out.values = as_float(result->weights);
  if (stage == Stage::log_sum_exp) out.values = as_float(result->log_sum_exp);
  if (stage < Stage::weights) {
    const lab::AttentionShape s = *lab::check_attention(call.inputs(), call.options());
    out.values = Tensor<double>({s.B, s.H, s.T, s.S});
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t h = 0; h < s.H; ++h) {
        for (std::int64_t i = 0; i < s.T; ++i) {
          const auto row = lab::attention_row(call.inputs(), call.options(), {b, h, i});
          const auto& from = stage == Stage::dot      ? row->dot
                             : stage == Stage::scaled ? row->scaled
                             : stage == Stage::masked ? row->masked
                                                      : row->biased;
          for (std::int64_t j = 0; j < s.S; ++j) {
            out.values(b, h, i, j) = from[static_cast<std::size_t>(j)];
          }
        }
      }
    }
    out.values = as_float(std::move(out.values));
  }
  return out;
}

Dump dump_of(const AttentionCase& claim, const AttentionCase& made, std::vector<Stage> stages) {
  Dump out;
  out.claim.call = claim;
  for (const Stage stage : stages) out.stages.push_back(observed(stage, made));
  return out;
}

std::string told(const Dump& dump, const Diagnosis& diagnosis) { return to_text(dump, diagnosis); }

std::string cause(const Diagnosis& diagnosis) {
  if (diagnosis.explanations.empty()) return "";
  std::string out;
  for (const Made& made : diagnosis.explanations.front().mistakes) {
    out += (out.empty() ? "" : " + ") + std::string(made.mistake->name);
  }
  return out;
}

bool explained_by(const Diagnosis& diagnosis, std::string_view name) {
  if (cause(diagnosis) == name) return true;
  if (diagnosis.explanations.empty()) return false;
  const auto& same = diagnosis.explanations.front().same;
  return std::ranges::any_of(same, [&](const std::string& s) { return s.starts_with(name); });
}

TEST(Diagnose, ClearsTheExactTiersTables) {
  AttentionCase call = call_of(shape, 1);
  call.mask = Mask::causal_bottom_right();
  const Dump dump = dump_of(call, call,
                            {Stage::dot, Stage::scaled, Stage::masked, Stage::weights,
                             Stage::log_sum_exp, Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::right) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->first_wrong_stage, "");
  ASSERT_EQ(diagnosis->stages.size(), 6);
  for (const StageJudgement& stage : diagnosis->stages) {
    EXPECT_GT(stage.compared, 0) << stage.name;
    EXPECT_EQ(stage.wrong, 0) << stage.name;
  }
}

TEST(Diagnose, RefusesWhatIsNoDump) {
  const AttentionCase call = call_of(shape, 2);
  Dump dump = dump_of(call, call, {Stage::output});
  dump.claim.call.value = Tensor<double>();
  EXPECT_TRUE(test::refused(diagnose(dump), "missing-tensor", "value is missing"));
  dump = dump_of(call, call, {Stage::output});
  dump.claim.call.key = Tensor<double>();
  EXPECT_TRUE(test::refused(diagnose(dump), "missing-tensor", "one of query and key"));
  dump = dump_of(call, call, {});
  EXPECT_TRUE(test::refused(diagnose(dump), "missing-tensor", "nothing to judge"));
  dump = dump_of(call, call, {Stage::output});
  dump.stages.front().values = Tensor<double>({2, 4, 7, 5});
  EXPECT_TRUE(test::refused(diagnose(dump), "shape-mismatch", "output must have 336 numbers"));
  dump = dump_of(call, call, {Stage::output, Stage::weights});
  EXPECT_TRUE(test::refused(diagnose(dump), "bad-option", "order of computation"));
  dump = dump_of(call, call, {Stage::output});
  dump.claim.call.mask = Mask::causal();
  EXPECT_TRUE(test::refused(diagnose(dump), "causal-needs-square"));
}

TEST(Diagnose, SaysThatNothingWasCompared) {
  AttentionCase call = call_of(shape, 3);
  call.query = Tensor<double>({2, 4, 0, 10});
  Dump dump;
  dump.claim.call = call;
  dump.claim.shape = {.B = 2, .H = 4, .G = 2, .T = 0, .S = 9, .D = 10, .E = 6};
  dump.stages.push_back({.stage = Stage::output, .values = Tensor<double>({2, 4, 0, 6})});
  const auto diagnosis = diagnose(dump);
  if (!diagnosis) {
    EXPECT_TRUE(test::refused(diagnosis, "missing-tensor"));
    return;
  }
  EXPECT_EQ(diagnosis->judgement, Judgement::undecided);
  EXPECT_NE(diagnosis->remarks.front().find("0 numbers compared"), std::string::npos);
}

TEST(Diagnose, LetsNoNaNPass) {
  AttentionCase call = call_of(shape, 4);
  Dump dump = dump_of(call, call, {Stage::output});
  dump.stages[0].values(1, 2, 3, 4) = nan;
  auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_unexplained) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->stages[0].nan_apart, 1);
  EXPECT_EQ(diagnosis->stages[0].first_wrong->address, "batch1.h2.output[3,4]");
  EXPECT_EQ(diagnosis->where, (std::vector<std::string>{"only batch 1", "only head 2",
                                                        "only query 3", "only feature 4"}));
  // A NaN where the claim itself gives one proves nothing either way.
  call.value(0, 0, 0, 0) = nan;
  dump = dump_of(call, call, {Stage::output});
  diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::undecided) << told(dump, *diagnosis);
}

TEST(Diagnose, TakesNaNOnlyFromRowsThatMayBeNaN) {
  AttentionCase call = call_of({.B = 1, .H = 2, .G = 2, .T = 6, .S = 3, .D = 4, .E = 3}, 5);
  call.mask = Mask::causal_bottom_right();  // rows 0, 1 and 2 see no key
  call.empty_row = EmptyRow::nan;
  Dump dump = dump_of(call, call, {Stage::output});
  auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::right) << told(dump, *diagnosis);
  dump.claim.call.empty_row = EmptyRow::zero;
  diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << told(dump, *diagnosis);
  EXPECT_EQ(cause(*diagnosis), "empty_rows.nan");
  EXPECT_EQ(diagnosis->where.front(), "exactly the queries that see no key");
}

TEST(Diagnose, DoesNotFailARightDumpForNaNBehindTheMask) {
  AttentionCase call = call_of(shape, 6);
  call.mask.key_lengths = {5, 8};
  for (std::int64_t j = 8; j < 9; ++j) {
    call.key(0, 0, j, 0) = nan;
    call.value(1, 1, j, 2) = infinity;
  }
  const Dump dump = dump_of(call, call, {Stage::weights, Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::right) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->remarks.front(), "NaN or infinity in key, value");
}

TEST(Diagnose, NamesTheMistakeAndTheFirstWrongStage) {
  AttentionCase call = call_of(shape, 7);
  call.mask = Mask::causal_bottom_right();
  AttentionCase made = call;
  made.mask = Mask::causal_top_left();
  const Dump dump =
      dump_of(call, made, {Stage::scaled, Stage::masked, Stage::weights, Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << told(dump, *diagnosis);
  EXPECT_TRUE(explained_by(*diagnosis, "causal.top_left")) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->first_wrong_stage, "masked");
  EXPECT_EQ(diagnosis->stages[0].wrong, 0);
  EXPECT_EQ(diagnosis->stages[2].link, "follows from masked");
  EXPECT_EQ(diagnosis->stages[3].link, "follows from weights");
}

TEST(Diagnose, FitsAScaleAndNamesItsForms) {
  AttentionCase call = call_of(shape, 8);
  AttentionCase made = call;
  made.scale = 0.37;
  const Dump dump = dump_of(call, made, {Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << told(dump, *diagnosis);
  ASSERT_FALSE(diagnosis->explanations.front().fitted.empty());
  EXPECT_EQ(diagnosis->explanations.front().fitted.front().substr(0, 12), "scale = 0.37");
}

TEST(Diagnose, NamesTwoMistakesMadeTogether) {
  AttentionCase call = call_of(shape, 9);
  call.mask = Mask::causal_bottom_right();
  AttentionCase made = call;
  made.mask = Mask::causal_top_left();
  made.scale = 1;
  const Dump dump = dump_of(call, made, {Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_named) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->explanations.front().mistakes.size(), 2);
  EXPECT_NE(cause(*diagnosis).find("scale.none"), std::string::npos) << cause(*diagnosis);
}

TEST(Diagnose, JudgesAChainWithoutQueryAndKey) {
  const AttentionCase call = call_of(shape, 10);
  Dump dump = dump_of(call, call, {Stage::scaled, Stage::weights, Stage::output});
  dump.claim.call.query = Tensor<double>();
  dump.claim.call.key = Tensor<double>();
  auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::right) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->stages[0].compared, 0);
  // Weights of another program: they do not follow from the scores, the output does from them.
  AttentionCase made = call;
  made.mask = Mask::causal_top_left();
  dump.stages[1] = observed(Stage::weights, made);
  dump.stages[2] = observed(Stage::output, made);
  diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->first_wrong_stage, "weights") << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->stages[2].link, "follows from weights");
}

TEST(Diagnose, ClearsACorrectDumpThatWasRoundedBeforeItWasWidened) {
  const AttentionCase call = call_of(shape, 11);
  Dump dump = dump_of(call, call, {Stage::output});
  for (double& x : dump.stages[0].values.elements()) x = to_double(to_bfloat16(x));
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::right) << told(dump, *diagnosis);
  EXPECT_NE(diagnosis->remarks.front().find("fits bf16"), std::string::npos);
}

TEST(Diagnose, SaysWhereAnUnexplainedTableIsWrong) {
  const AttentionCase call = call_of(shape, 12);
  Dump dump = dump_of(call, call, {Stage::output});
  Random random(12);
  for (std::int64_t i = 4; i < 7; ++i) {
    for (std::int64_t e = 0; e < 6; ++e) dump.stages[0].values(0, 3, i, e) += random.bell();
  }
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->judgement, Judgement::wrong_unexplained) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->where,
            (std::vector<std::string>{"only batch 0", "only the last head", "from query 4 on"}));
  EXPECT_FALSE(diagnosis->nearest.empty());
}

std::string_view text_at(const io::Json& json, std::string_view name) {
  const io::Json* found = json.find(name);
  const std::string* text = found == nullptr ? nullptr : found->string_if();
  return text == nullptr ? "" : std::string_view(*text);
}

TEST(Diagnose, IsOneScreenOfTextAndOneObjectOfJson) {
  AttentionCase call = call_of(shape, 14);
  call.mask = Mask::causal_bottom_right();
  AttentionCase made = call;
  made.mask = Mask::causal_top_left();
  const Dump dump = dump_of(call, made, {Stage::scaled, Stage::weights, Stage::output});
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  const std::string text = to_text(dump, *diagnosis);
  EXPECT_LE(std::ranges::count(text, '\n'), 40) << text;
  EXPECT_NE(text.find("causal.top_left"), std::string::npos) << text;
  EXPECT_NE(text.find("tolerance"), std::string::npos) << text;
  EXPECT_NE(text.find("look for"), std::string::npos) << text;
  EXPECT_NE(text.find("should be"), std::string::npos) << text;
  const auto json = io::parse_json(to_json(dump, *diagnosis), "diagnosis");
  ASSERT_TRUE(test::accepted(json));
  EXPECT_EQ(text_at(*json, "verdict"), "wrong, and named");
  EXPECT_EQ(text_at(*json, "first_wrong_stage"), "weights");
}

TEST(Diagnose, WhatRoundingCanDoIsNotCalledWrong) {
  Diagnosis diagnosis;
  diagnosis.judgement = Judgement::right_by_rounding;
  StageJudgement& stage = diagnosis.stages.emplace_back();
  stage = {.name = "output", .stage = "output", .compared = 100, .wrong = 7, .used = 3.5};
  stage.first_wrong = Cell{.address = "h0.output[0,0]", .found = 1.5, .expected = 1.25};
  stage.worst_cell = Cell{.address = "h0.output[1,0]", .found = 2.5, .expected = 2};
  diagnosis.first_wrong_stage = "output";
  diagnosis.where = {"everywhere"};
  const std::string text = to_text("a table", diagnosis);
  EXPECT_NE(text.find("farther off than usual: output, everywhere"), std::string::npos) << text;
  EXPECT_EQ(text.find("wrong"), std::string::npos) << text;
  EXPECT_EQ(text.find("should be"), std::string::npos) << text;
  diagnosis.judgement = Judgement::wrong_unexplained;
  EXPECT_NE(to_text("a table", diagnosis).find("first wrong: output, everywhere"),
            std::string::npos);
}

TEST(Diagnose, WhatIsRightHasNoOtherCause) {
  Diagnosis diagnosis;
  diagnosis.judgement = Judgement::right;
  diagnosis.explanations.push_back({.distance = 0.4, .same = {"projection.key_bias_missing"}});
  const std::string text = to_text("a table", diagnosis);
  EXPECT_NE(text.find("note        the same numbers would come of projection.key_bias_missing"),
            std::string::npos)
      << text;
  for (const char* head : {"\nor ", "\nsure", "\nconsidered"}) {
    EXPECT_EQ(text.find(head), std::string::npos) << text;
  }
  const std::string page = to_html("a table", diagnosis);
  EXPECT_EQ(page.find("What else was considered"), std::string::npos) << page;
  EXPECT_NE(page.find("<li>the same numbers would come of projection.key_bias_missing</li>"),
            std::string::npos)
      << page;
}

/// Whether a table is wrong only because the one before it is: each is judged from what was dumped.
TEST(Diagnose, ExplainsTheFirstWrongLinkWhereNothingExplainsAllTables) {
  AttentionCase call = call_of(shape, 15);
  Dump dump = dump_of(call, call, {Stage::scaled, Stage::weights, Stage::output});
  Random random(15);
  for (double& x : dump.stages[0].values.elements()) {
    x = static_cast<double>(to_float_nearest(x + random.bell()));  // no scores of this call
  }
  const lab::AttentionShape& s = shape;
  for (std::int64_t n = 0; n < s.B * s.H * s.T; ++n) {
    double* const weights = dump.stages[1].values.data() + n * s.S;
    const double* const scores = dump.stages[0].values.data() + n * s.S;
    double sum = 1;  // a sink that nobody asked for
    for (std::int64_t j = 0; j < s.S; ++j) sum += std::exp(scores[j]);
    for (std::int64_t j = 0; j < s.S; ++j) {
      weights[j] = static_cast<double>(to_float_nearest(std::exp(scores[j]) / sum));
    }
    const std::int64_t b = n / (s.H * s.T), g = n / s.T % s.H / (s.H / s.G);
    for (std::int64_t e = 0; e < s.E; ++e) {
      double mix = 0;
      for (std::int64_t j = 0; j < s.S; ++j) mix += weights[j] * call.value(b, g, j, e);
      dump.stages[2].values.data()[n * s.E + e] = static_cast<double>(to_float_nearest(mix));
    }
  }
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(test::accepted(diagnosis));
  EXPECT_EQ(diagnosis->first_wrong_stage, "scaled") << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->stages[1].link, "does not follow from scaled");
  EXPECT_TRUE(explained_by(*diagnosis, "softmax.plus_one")) << told(dump, *diagnosis);
  EXPECT_EQ(diagnosis->stages[2].link, "follows from weights");
}

TEST(Diagnose, SaysTheSameForAnyOrderOfTrials) {
  AttentionCase call = call_of(shape, 13);
  AttentionCase made = call;
  made.scale = 1;
  const Dump dump = dump_of(call, made, {Stage::output});
  EXPECT_EQ(to_json(dump, *diagnose(dump)), to_json(dump, *diagnose(dump)));
}

}  // namespace
}  // namespace attest::check
