// SPDX-License-Identifier: MIT
#include "attest/check/compare_tiers.h"

#include <gtest/gtest.h>

#include <limits>

#include "attest/base/random.h"
#include "attest/io/json.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Tensor<double> numbers_of(DType dtype, Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = 2 * random.bell();
  return AnyTensor::from_f64(out, dtype).to_f64("numbers").value();
}

AttentionCase call_in(DType dtype, const Shape& query, const Shape& key, const Shape& value) {
  AttentionCase call;
  call.query = numbers_of(dtype, query, 1);
  call.key = numbers_of(dtype, key, 2);
  call.value = numbers_of(dtype, value, 3);
  return call;
}

std::size_t sets_here() {
  std::size_t out = 0;
  for (const IsaState& state : instruction_sets()) out += state.present ? 1 : 0;
  return out;
}

/// The id of a failure, or "" where there is none.
std::string failure_of(const AttentionCase& call, const CompareTiersOptions& options) {
  const auto report = compare_tiers(call, options);
  return report ? std::string() : report.failure().id;
}

std::string nowhere() { return "there"; }

TEST(CompareTiers, EveryTypeAndOptionKeepsItsBound) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    AttentionCase call = call_in(dtype, {2, 4, 9, 7}, {2, 2, 11, 7}, {2, 2, 11, 5});
    call.mask = Mask::causal_bottom_right();
    call.bias = numbers_of(dtype, {1, 4, 1, 11}, 4);
    call.softcap = 8;
    call.sink = {0, 1, -1, 0.5};
    call.dropout = {0.25, 7};
    const auto report = compare_tiers(call, {.storage = dtype, .threads = 3}).value();
    EXPECT_EQ(report.verdict(), Verdict::match) << to_text(report);
    ASSERT_EQ(report.runs.size(), 2 + sets_here());
    EXPECT_EQ(report.rows_compared, 2 * 4 * 9);
    for (const TierRun& run : report.runs) {
      ASSERT_EQ(run.fits.size(), run.judged ? 2U : 1U) << run.skipped;
      EXPECT_EQ(run.fits[0].numbers, 2 * 4 * 9 * 5);
      EXPECT_EQ(run.fits.back().numbers, run.judged ? 2 * 4 * 9 : 2 * 4 * 9 * 5);
      EXPECT_GT(run.fits[0].used, 0) << run.name;
      EXPECT_LE(run.fits[0].used, 1) << run.name;  // the plain loop too, in so tame a call
      EXPECT_EQ(run.same_bits.has_value(), run.name.starts_with("engine")) << run.name;
      EXPECT_TRUE(run.same_bits.value_or(true)) << run.name;
    }
  }
}

TEST(CompareTiers, ANumberBeyondItsBoundIsBroken) {
  TierFit fit{.stage = "output"};
  fit.add(1, 1, 0, nowhere);
  fit.add(1.5, 1, 1, nowhere);
  fit.add(nan, nan, 1, nowhere);
  EXPECT_EQ(fit.broken, 0);
  EXPECT_EQ(fit.used, 0.5);
  EXPECT_EQ(fit.bound_there, 1);
  fit.add(3, 1, 1, nowhere);
  EXPECT_EQ(fit.broken, 1);
  fit.add(1 + 0x1p-52, 1, 0, nowhere);
  EXPECT_EQ(fit.broken, 2);
  EXPECT_EQ(fit.used, infinity);
  EXPECT_EQ(fit.largest_error, 2);
  fit.add(nan, 1, 1, nowhere);
  fit.add(1, nan, 1, nowhere);
  fit.add(infinity, 1, 1e300, nowhere);
  fit.add(1, 2, nan, nowhere);
  EXPECT_EQ(fit.broken, 6);
  EXPECT_EQ(fit.largest_error, infinity);
  TierFit only_nan{.stage = "output"};
  only_nan.add(nan, 1, 1, nowhere);
  EXPECT_EQ(only_nan.used, infinity);
  EXPECT_EQ(only_nan.error_at, "there");
  fit.add(5, 1, infinity, nowhere);
  fit.add(nan, 1, infinity, nowhere);
  fit.add(nan, nan, infinity, nowhere);
  EXPECT_EQ(fit.unpromised, 3);
  EXPECT_EQ(fit.nan_apart, 1);
  EXPECT_EQ(fit.broken, 6);
  EXPECT_EQ(fit.numbers, 12);
}

TEST(CompareTiers, TheVerdictIsThatOfTheWorstNumber) {
  TierComparison report;
  EXPECT_EQ(report.verdict(), Verdict::undecided);
  report.runs = {{.name = "engine avx2", .against = "exact"}};
  report.runs[0].fits = {{.stage = "output"}, {.stage = "log_sum_exp"}};
  report.runs[0].fits[0].add(5, 1, infinity, nowhere);
  EXPECT_EQ(report.verdict(), Verdict::undecided);
  report.runs[0].fits[1].add(1, 1, 0, nowhere);
  report.runs[0].same_bits = true;
  EXPECT_EQ(report.verdict(), Verdict::match);
  EXPECT_NE(to_text(report).find("nothing promised"), std::string::npos);
  report.runs[0].same_bits = false;
  EXPECT_EQ(report.verdict(), Verdict::differs);
  EXPECT_NE(to_text(report).find("BITS DIFFER"), std::string::npos);
  report.runs[0].same_bits = true;
  report.runs[0].fits[1].add(2, 1, 0.5, nowhere);
  EXPECT_EQ(report.verdict(), Verdict::differs);
  EXPECT_NE(to_text(report).find("BROKEN by 1 of 2"), std::string::npos) << to_text(report);
  EXPECT_TRUE(io::parse_json(to_json(report), "report"));
  report.runs[0].judged = false;  // what promises nothing breaks nothing
  EXPECT_EQ(report.verdict(), Verdict::undecided);
  EXPECT_NE(to_text(report).find("promises nothing"), std::string::npos);
}

TEST(CompareTiers, LargeCallsAreSampledEvenly) {
  const AttentionCase call = call_in(DType::f32, {1, 1, 4096, 1}, {1, 1, 4096, 1}, {1, 1, 4096, 1});
  ASSERT_GT(exact_work({1, 1, 1, 4096, 4096, 1, 1}), much_exact_work);
  CompareTiersOptions options{.isas = {Isa::portable}};
  const auto some = compare_tiers(call, options).value();
  EXPECT_LT(some.rows_compared, 4096);
  EXPECT_GT(some.rows_compared, 3000);
  EXPECT_EQ(some.runs[2].fits[1].numbers, some.rows_compared);
  EXPECT_NE(some.runs[0].skipped, "");
  options.rows = 3;
  const auto three = compare_tiers(call, options).value();
  EXPECT_EQ(three.runs[2].fits[0].numbers, 3);
  EXPECT_EQ(three.verdict(), Verdict::match) << to_text(three);
}

TEST(CompareTiers, WhereTheEngineAloneWouldBeJudgedNothingIs) {
  // Too much for the oracle, and heads too wide for the engine: the plain loop promises nothing.
  const AttentionCase call = call_in(DType::f32, {1, 1, 32, 513}, {1, 1, 33, 513}, {1, 1, 33, 513});
  ASSERT_GT(exact_work({1, 1, 1, 32, 33, 513, 513}), much_oracle_work);
  const auto report = compare_tiers(call, {.isas = {Isa::portable}}).value();
  EXPECT_EQ(report.verdict(), Verdict::undecided) << to_text(report);
  EXPECT_NE(to_text(report).find("undecided: no tier that promises anything was run"),
            std::string::npos)
      << to_text(report);
  ASSERT_EQ(report.runs.size(), 3U);
  EXPECT_EQ(report.runs[1].fits[0].numbers, 32 * 513);
  EXPECT_NE(report.runs[2].skipped, "");
}

TEST(CompareTiers, NoMoreRowsThanThereAre) {
  const AttentionCase call = call_in(DType::f32, {1, 2, 4, 1}, {1, 2, 4, 1}, {1, 2, 4, 1});
  EXPECT_EQ(compare_tiers(call, {.rows = 1000000}).value().rows_compared, 8);
}

TEST(CompareTiers, TheFirstAndTheLastRowAreAmongTheSample) {
  // A value that is not finite leaves nothing to promise, and each query sees its own key alone.
  AttentionCase call = call_in(DType::f32, {1, 2, 8, 2}, {1, 2, 8, 2}, {1, 2, 8, 2});
  call.mask = Mask::causal();
  call.mask.window = {0, 0};
  call.value(0, 0, 0, 1) = infinity;
  call.value(0, 1, 7, 0) = infinity;
  const auto report = compare_tiers(call, {.isas = {Isa::portable}, .rows = 2}).value();
  EXPECT_EQ(report.rows_compared, 2);
  EXPECT_EQ(report.runs[2].fits[0].unpromised, 2) << to_text(report);
}

TEST(CompareTiers, NothingIsRoundedFirst) {
  AttentionCase call = call_in(DType::f32, {1, 1, 2, 2}, {1, 1, 2, 2}, {1, 1, 2, 2});
  call.key(0, 0, 1, 1) = 0.1;
  EXPECT_EQ(failure_of(call, {.storage = DType::f32}), "bad-option");
  EXPECT_EQ(compare_tiers(call, {.storage = DType::f64}).value().verdict(), Verdict::match);
  call.key(0, 0, 1, 1) = 0.5;
  call.bias = Tensor<double>({1, 1, 1, 2});
  call.bias->elements()[0] = 0.1;
  EXPECT_EQ(failure_of(call, {.storage = DType::bf16}), "bad-option");
  EXPECT_EQ(failure_of(call, {.storage = DType::i32}), "bad-option");
  call.bias->elements()[0] = -infinity;
  EXPECT_EQ(compare_tiers(call, {.storage = DType::f32}).value().verdict(), Verdict::match);
  EXPECT_EQ(failure_of(call, {.rows = 0}), "bad-option");
}

TEST(CompareTiers, AnEmptyRowFailsUnlessThePolicyIsChosen) {
  AttentionCase call = call_in(DType::f32, {1, 1, 3, 2}, {1, 1, 3, 2}, {1, 1, 3, 2});
  call.mask = Mask::causal_at(-1);
  EXPECT_EQ(failure_of(call, {}), "no-visible-key");
  for (const EmptyRow policy : {EmptyRow::zero, EmptyRow::nan}) {
    call.empty_row = policy;
    const auto report = compare_tiers(call, {}).value();
    EXPECT_EQ(report.verdict(), Verdict::match) << to_text(report);
  }
}

TEST(CompareTiers, WhatIsNotFiniteIsNotPromised) {
  AttentionCase call = call_in(DType::f32, {1, 1, 3, 2}, {1, 1, 3, 2}, {1, 1, 3, 2});
  for (double& x : call.query.elements()) x = nan;
  const auto report = compare_tiers(call, {}).value();
  EXPECT_EQ(report.verdict(), Verdict::undecided) << to_text(report);
  EXPECT_NE(report.runs[0].skipped, "");
}

TEST(CompareTiers, ATierThatPromisesNothingLeavesItUndecided) {
  // Scores beyond binary32: the exact tier keeps its bound, the engine has none.
  AttentionCase call = call_in(DType::f32, {1, 1, 1, 2}, {1, 1, 2, 2}, {1, 1, 2, 1});
  for (auto* tensor : {&call.query, &call.key}) tensor->elements()[0] = 0x1p100;
  const auto report = compare_tiers(call, {}).value();
  EXPECT_EQ(report.verdict(), Verdict::undecided) << to_text(report);
  EXPECT_EQ(report.runs[0].fits[1].unpromised, 0) << to_text(report);
}

TEST(CompareTiers, ThePlainLoopIsPlain) {
  // One query, two keys, powers of two: every step can be done by head.
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 4}, std::vector<double>{2, 0, 0, 0});
  call.key = Tensor<double>({1, 1, 2, 4}, std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0});
  call.value = Tensor<double>({1, 1, 2, 1}, std::vector<double>{8, 16});
  const auto report = compare_tiers(call, {.isas = {Isa::portable}}).value();
  EXPECT_EQ(report.runs[1].name, "plain loop");
  EXPECT_EQ(report.runs[1].fits[0].largest_error, 0) << to_text(report);
}

TEST(CompareTiers, CallsWithoutRowsAreUndecided) {
  const AttentionCase call = call_in(DType::f32, {1, 1, 0, 2}, {1, 1, 3, 2}, {1, 1, 3, 2});
  EXPECT_EQ(compare_tiers(call, {}).value().verdict(), Verdict::undecided);
}

}  // namespace
}  // namespace attest::check
