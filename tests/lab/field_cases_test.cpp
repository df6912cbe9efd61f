// SPDX-License-Identifier: MIT
// Mistakes that people met in the field, as small inputs: the right numbers are reproduced, and
// each wrong reading's numbers are what that reading gives, and not what we give. The numbers of
// each case were computed with 60 digits; 17 of them are written here.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/dtype.h"
#include "attest/lab/attention.h"
#include "attest/lab/oracle.h"
#include "attest/lab/positions.h"
#include "attest/lab/softmax.h"
#include "tests/support/bits.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"
#include "tests/support/plain_attention.h"

namespace attest::lab {
namespace {

using test::mask_of;
using test::one_head;
using test::Rows;
using test::within;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The written digits are off by half a unit in the seventeenth at most.
constexpr long double written = 0.5e-16L * 10;

AttentionCase call_of(const Rows& query, const Rows& key, const Rows& value) {
  AttentionCase out;
  out.query = one_head(query);
  out.key = one_head(key);
  out.value = one_head(value);
  out.empty_row = EmptyRow::zero;
  return out;
}

AttentionResult run(const AttentionCase& call) {
  EXPECT_EQ(test::failure_message(attention(call.inputs(), call.options())), "(no failure)");
  return test::run_or_nan(call);
}

/// Whether the outputs of head h are these: the exact tier's within the derived bound of
/// tests/support, the oracle's to the digits that are written.
::testing::AssertionResult gives(const AttentionCase& call, const Rows& expected,
                                 std::int64_t h = 0) {
  const auto inputs = call.inputs();
  const auto options = call.options();
  const test::PlainCall plain{inputs, options};
  const auto found = attention(inputs, options);
  if (!found) return ::testing::AssertionFailure() << found.failure().message;
  const auto oracle = oracle::attention(inputs, options);
  if (!oracle) return ::testing::AssertionFailure() << oracle.failure().message;
  for (std::int64_t i = 0; i < plain.T(); ++i) {
    const test::PlainRow row = test::plain_row(plain, 0, h, i);
    for (std::int64_t e = 0; e < plain.E(); ++e) {
      const double right = expected[static_cast<std::size_t>(i)][static_cast<std::size_t>(e)];
      const long double bound = row.output_bound(static_cast<std::size_t>(e), 0) +
                                written * row.output_size[static_cast<std::size_t>(e)];
      auto ok = within(found->output(0, h, i, e), right, bound);
      if (!ok) return ok << " at output[" << i << "," << e << "]";
      // The oracle must give the written digits, but for the last rounding of both to binary64.
      const double truth = oracle::nearest_double(oracle->output(0, h, i, e));
      ok = within(truth, right,
                  (written + 2 * test::u) * row.output_size[static_cast<std::size_t>(e)]);
      if (!ok) return ok << " at the oracle's output[" << i << "," << e << "]";
    }
  }
  return ::testing::AssertionSuccess();
}

Rows column(const std::vector<double>& values) {
  Rows out;
  for (const double x : values) out.push_back({x});
  return out;
}

const Rows query1{{1, 0}, {0, 1}};
const Rows key1{{1, 0}, {0, 1}, {1, 1}};
const Rows value1{{1, 2}, {3, 4}, {5, 6}};
const std::vector<double> powers{1, 10, 100, 1000, 10000};

TEST(FieldCases, A01AFullyMaskedRowIsNeverNaNUnlessAskedFor) {
  AttentionCase call = call_of(query1, key1, value1);
  call.visible = mask_of({"TFT", "FFF"});
  EXPECT_TRUE(gives(call, {{3, 4}, {0, 0}}));
  const AttentionResult found = run(call);
  const std::vector<double> weights{.5, 0, .5, 0, 0, 0};
  EXPECT_TRUE(test::same_bits(found.weights.elements(), weights));
  // log(2·exp(1/√2)): two exps, a sum, a log and the peak's addition round; 6u covers all.
  EXPECT_TRUE(within(found.log_sum_exp(0, 0, 0), 1.4002539617464928L,
                     1.4002539617464928L * (6 * test::u + written)));
  EXPECT_EQ(found.log_sum_exp(0, 0, 1), -infinity);
  call.empty_row = EmptyRow::nan;
  EXPECT_TRUE(std::isnan(run(call).output(0, 0, 1, 0)));
  EXPECT_EQ(run(call).output(0, 0, 0, 0), 3);
  call.empty_row = EmptyRow::error;
  EXPECT_EQ(test::failure_id(attention(call.inputs(), call.options())), "no-visible-key");
}

TEST(FieldCases, A03AFiniteSentinelWouldGiveTheMeanOfTheValues) {
  AttentionCase call = call_of(query1, key1, value1);
  call.visible = mask_of({"TFT", "FFF"});
  EXPECT_EQ(run(call).output(0, 0, 1, 0), 0);
  // The mistake, made on purpose: −1e30 added instead of a mask.
  call.visible.reset();
  call.bias = one_head({{0, -1e30, 0}, {-1e30, -1e30, -1e30}});
  const AttentionResult wrong = run(call);
  EXPECT_TRUE(within(wrong.output(0, 0, 1, 0), 3, 4 * 3 * test::u));
  EXPECT_TRUE(within(wrong.output(0, 0, 1, 1), 4, 4 * 4 * test::u));
  // A bias of −∞ is a mask, and not a sentinel.
  call.bias = one_head({{0, -infinity, 0}, {-infinity, -infinity, -infinity}});
  EXPECT_TRUE(gives(call, {{3, 4}, {0, 0}}));
}

TEST(FieldCases, A05TheCornerOfTheCausalMaskIsSaid) {
  AttentionCase call = call_of(column({0, 0}), Rows(5, {0.0}), column(powers));
  call.mask = Mask::causal_bottom_right();
  EXPECT_TRUE(gives(call, {{277.75}, {2222.2}}));
  EXPECT_FALSE(gives(call, {{1}, {5.5}}));
  call.mask = Mask::causal_top_left();
  EXPECT_TRUE(gives(call, {{1}, {5.5}}));
  call.mask = Mask::causal();
  EXPECT_EQ(test::failure_id(attention(call.inputs(), call.options())), "causal-needs-square");
}

TEST(FieldCases, A06OneTokenSeesTheHistoryAndNoStaleSlots) {
  Rows values = column({1, 2, 3, 4});
  values.resize(8, {not_a_number});
  Rows keys(4, {0.0});
  keys.resize(8, {not_a_number});
  AttentionCase call = call_of({{0}}, keys, values);
  call.mask = Mask::causal_bottom_right();
  call.mask.key_lengths = {4};
  EXPECT_TRUE(gives(call, {{2.5}}));
  call.mask = Mask::causal_top_left();
  EXPECT_TRUE(gives(call, {{1}}));
  call.mask = {};
  EXPECT_TRUE(std::isnan(run(call).output(0, 0, 0, 0)));
  AttentionCase zeros = call_of({{0}}, Rows(8, {0.0}), column({1, 2, 3, 4, 0, 0, 0, 0}));
  EXPECT_TRUE(gives(zeros, {{1.25}}));
}

TEST(FieldCases, A08TrueMeansMaySee) {
  AttentionCase call = call_of(Rows(3, {0.0}), Rows(3, {0.0}), column({1, 10, 100}));
  call.visible = mask_of({"TFF", "TTF", "TTT"});
  EXPECT_TRUE(gives(call, {{1}, {5.5}, {37}}));
  EXPECT_FALSE(gives(call, {{55}, {100}, {0}}));
  call.visible = mask_of({"FTT", "FFT", "FFF"});
  EXPECT_TRUE(gives(call, {{55}, {100}, {0}}));
}

TEST(FieldCases, A10ScoresBeyondHalfPrecisionAreNoTrouble) {
  const AttentionCase call =
      call_of({std::vector<double>(64, 48)},
              {std::vector<double>(64, 48), std::vector<double>(64, 47.96875)}, {{0}, {1}});
  const AttentionResult found = run(call);
  // Scores are exact here (18432 and 18420), so only exp, sum, quotient and mix round: 4u.
  const long double right = 6.1441746022147178e-06L;
  EXPECT_TRUE(within(found.output(0, 0, 0, 0), right, right * (4 * test::u + written)));
  EXPECT_EQ(to_double(to_half(found.output(0, 0, 0, 0))), 6.139278411865234e-06);
  EXPECT_FALSE(std::isnan(found.output(0, 0, 0, 0)));
  EXPECT_NE(found.output(0, 0, 0, 0), 0.5);
}

TEST(FieldCases, A11WhatIsHiddenIsNotMultipliedByZero) {
  Rows keys = key1;
  Rows values = value1;
  keys[2] = {infinity, not_a_number};
  values[2] = {not_a_number, -infinity};
  AttentionCase call = call_of(query1, keys, values);
  call.visible = mask_of({"TTF", "TFF"});
  EXPECT_TRUE(gives(call, {{1.6604769013466861, 2.6604769013466861}, {1, 2}}));
  const AttentionResult found = run(call);
  EXPECT_TRUE(within(found.weights(0, 0, 0, 0), 0.66976154932665693L, 21 * test::u + written));
  EXPECT_TRUE(within(found.weights(0, 0, 0, 1), 0.33023845067334307L, 21 * test::u + written));
  EXPECT_TRUE(test::same_bits(found.weights(0, 0, 0, 2), 0.0));
}

std::vector<double> heads_of(std::int64_t H, std::int64_t G) {
  AttentionCase call;
  call.query = Tensor<double>({1, H, 1, 1});
  call.key = Tensor<double>({1, G, 1, 1});
  call.value = Tensor<double>({1, G, 1, 1});
  for (std::int64_t g = 0; g < G; ++g) call.value(0, g, 0, 0) = static_cast<double>(10 * (g + 1));
  const AttentionResult found = run(call);
  return {found.output.elements().begin(), found.output.elements().end()};
}

TEST(FieldCases, A12KeyHeadsAreRepeatedNotTiled) {
  EXPECT_EQ(heads_of(4, 2), (std::vector<double>{10, 10, 20, 20}));
  EXPECT_EQ(heads_of(6, 2), (std::vector<double>{10, 10, 10, 20, 20, 20}));
  EXPECT_EQ(heads_of(6, 3), (std::vector<double>{10, 10, 20, 20, 30, 30}));
  EXPECT_NE(heads_of(4, 2), (std::vector<double>{10, 20, 10, 20}));
  AttentionCase odd;
  odd.query = Tensor<double>({1, 5, 1, 1});
  odd.key = Tensor<double>({1, 2, 1, 1});
  odd.value = Tensor<double>({1, 2, 1, 1});
  EXPECT_EQ(test::failure_id(attention(odd.inputs())), "shape-mismatch");
}

TEST(FieldCases, A13AWindowOfTwoCountsTheQueryItself) {
  AttentionCase call = call_of(Rows(5, {0.0}), Rows(5, {0.0}), column(powers));
  call.mask = Mask::causal();
  call.mask.window.left = 1;  // the key itself and one beside it: what others call a window of 2
  EXPECT_TRUE(gives(call, {{1}, {5.5}, {55}, {550}, {5500}}));
  EXPECT_FALSE(gives(call, {{1}, {5.5}, {37}, {370}, {3700}}));
  EXPECT_FALSE(gives(call, {{5.5}, {37}, {370}, {3700}, {5500}}));
  call.mask.window.left = 2;
  EXPECT_TRUE(gives(call, {{1}, {5.5}, {37}, {370}, {3700}}));
  call.mask = {};
  call.mask.window = {.left = 1, .right = 1};
  EXPECT_TRUE(gives(call, {{5.5}, {37}, {370}, {3700}, {5500}}));
  AttentionCase decode = call_of({{0}}, Rows(5, {0.0}), column(powers));
  decode.mask = Mask::causal_bottom_right();
  decode.mask.window.left = 1;
  EXPECT_TRUE(gives(decode, {{5500}}));
}

TEST(FieldCases, A16LogSumExpIsNaturalAndBlocksMerge) {
  AttentionCase call = call_of({{0}}, Rows(3, {0.0}), column({1, 3, 10}));
  call.scale = 1;
  call.bias = one_head({{0, 0, std::log(4.0)}});
  EXPECT_TRUE(gives(call, {{7.3333333333333333}}));
  const auto lse_of = [](const AttentionCase& part) { return run(part).log_sum_exp(0, 0, 0); };
  // ln 4 is given as a double, within u of itself; then exp, sum, log and one addition: 8u in all.
  const long double slack = 8 * test::u + written;
  EXPECT_TRUE(within(lse_of(call), 1.791759469228055L, 1.8L * slack));
  EXPECT_FALSE(within(lse_of(call), 2.5849625007211562L, 2.6L * slack));
  AttentionCase first = call_of({{0}}, Rows(2, {0.0}), column({1, 3}));
  AttentionCase second = call_of({{0}}, Rows(1, {0.0}), column({10}));
  second.bias = one_head({{std::log(4.0)}});
  EXPECT_TRUE(within(lse_of(first), .69314718055994531L, slack));
  EXPECT_TRUE(within(lse_of(second), 1.3862943611198906L, 1.4L * slack));
  const auto merged = [](double lse1, double out1, double lse2, double out2) {
    const double w1 = std::exp(lse1), w2 = std::exp(lse2);
    return (w1 * out1 + w2 * out2) / (w1 + w2);
  };
  const double out1 = run(first).output(0, 0, 0, 0), out2 = run(second).output(0, 0, 0, 0);
  EXPECT_TRUE(within(merged(lse_of(first), out1, lse_of(second), out2), 22 / 3.0L,
                     22 / 3.0L * 16 * test::u));
  const double base2 = 1 / std::numbers::ln2;
  EXPECT_TRUE(within(merged(lse_of(first) * base2, out1, lse_of(second) * base2, out2),
                     7.848468629040039L, 7.85L * (16 * test::u + written)));
  AttentionCase empty = second;
  empty.visible = mask_of({"F"});
  EXPECT_EQ(merged(lse_of(empty), run(empty).output(0, 0, 0, 0), lse_of(second), out2), 10);
}

TEST(FieldCases, A18SlopesForHeadCountsThatAreNoPowerOfTwo) {
  EXPECT_EQ(alibi_slopes(6), (std::vector<double>{.25, .0625, .015625, .00390625, .5, .125}));
  EXPECT_EQ(alibi_slopes(3), (std::vector<double>{.0625, .00390625, .25}));
  EXPECT_EQ(alibi_slopes(4), (std::vector<double>{.25, .0625, .015625, .00390625}));
  EXPECT_TRUE(alibi_slopes(0).empty());
  const auto twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  for (int h = 0; h < 8; ++h)
    EXPECT_EQ(twelve[static_cast<std::size_t>(h)], std::ldexp(1.0, -1 - h));
  // 2^−½, 2^−1½, …: the IEEE root of a power of two is the correctly rounded slope.
  for (int h = 0; h < 4; ++h) {
    EXPECT_EQ(twelve[static_cast<std::size_t>(8 + h)], std::sqrt(std::ldexp(1.0, -1 - 2 * h)));
  }
  EXPECT_NE(alibi_slopes(8)[0], 1);  // exponents count from one
  // Heads 0 and 4 of six.
  AttentionCase call;
  call.query = Tensor<double>({1, 6, 3, 1});
  call.key = Tensor<double>({1, 1, 3, 1});
  call.value = one_head(column({1, 10, 100}));
  call.mask = Mask::causal();
  call.alibi_slopes = alibi_slopes(6);
  EXPECT_TRUE(gives(call, {{1}, {6.0595885079721829}, {45.442128731558603}}, 0));
  EXPECT_TRUE(gives(call, {{1}, {6.6021339808166911}, {53.906321685976234}}, 4));
}

TEST(FieldCases, A19ViewsAreReadByTheirOwnStrides) {
  std::vector<double> fused(36);
  for (std::size_t n = 0; n < fused.size(); ++n) fused[n] = static_cast<double>(n + 1) / 8;
  // [position 3][q, k, v][head 2][2]
  const auto part = [&](std::size_t which) {
    return View<const double, 4>(fused.data() + 4 * which, {1, 2, 3, 2}, {36, 2, 12, 1});
  };
  AttentionOptions<double> options;
  options.mask = Mask::causal();
  const auto found = attention({part(0), part(1), part(2)}, options);
  ASSERT_TRUE(found);
  const double right[2][3][2] = {{{1.125, 1.25},
                                  {2.5843096612007801, 2.7093096612007801},
                                  {4.1232621204871039, 4.2482621204871039}},
                                 {{1.375, 1.5},
                                  {2.8507870276063675, 2.9757870276063675},
                                  {4.3739778978004074, 4.4989778978004074}}};
  const AttentionInputs<double> inputs{part(0), part(1), part(2)};
  const test::PlainCall plain{inputs, options};
  for (std::int64_t n = 0; n < 12; ++n) {
    const std::int64_t h = n / 6, i = n / 2 % 3, e = n % 2;
    const test::PlainRow row = test::plain_row(plain, 0, h, i);
    EXPECT_TRUE(within(found->output(0, h, i, e), right[h][i][e],
                       row.output_bound(static_cast<std::size_t>(e), 0) + 5 * written));
  }
  // V read as if it were dense would begin with these.
  EXPECT_GT(std::fabs(found->output(0, 0, 1, 0) - 1.3682182768667967), 1);
  EXPECT_NE(found->output(0, 1, 0, 0), 1.875);
  // A key expanded with stride 0 is the same key at every position.
  auto expanded = inputs;
  expanded.key.strides[2] = 0;
  const auto uniform = attention(expanded, options);
  ASSERT_TRUE(uniform);
  EXPECT_EQ(uniform->weights(0, 0, 0, 0), 1);
  EXPECT_EQ(uniform->weights(0, 0, 1, 0), .5);
  EXPECT_EQ(uniform->weights(0, 0, 2, 1), 1.0 / 3);
}

TEST(FieldCases, A21TheScaleComesFromTheTrueHeadSize) {
  const std::vector<std::pair<std::size_t, double>> right{
      {1, .73105857863000488},  {3, .84967455308983857}, {5, .90344199375317724},
      {7, .9337486414889455},   {9, .95257412682243322}, {80, .99986953458479691},
      {100, .99995460213129757}};
  for (const auto& [d, expected] : right) {
    AttentionCase call =
        call_of({std::vector<double>(d, 1)}, {std::vector<double>(d, 1), std::vector<double>(d, 0)},
                {{1}, {0}});
    EXPECT_TRUE(gives(call, {{expected}})) << "D " << d;
    if (d != 5) continue;
    EXPECT_FALSE(gives(call, {{.85417975000638069}}));
    call.scale = 1 / std::sqrt(8.0);
    EXPECT_TRUE(gives(call, {{.85417975000638069}}));
  }
}

TEST(FieldCases, A22SequencesWithoutQueriesOrKeys) {
  EXPECT_TRUE(gives(call_of({{0}, {0}}, Rows(3, {0.0}), column({1, 2, 6})), {{3}, {3}}));
  AttentionCase no_query = call_of({{0}}, Rows(4, {0.0}), Rows(4, {1.0}));
  no_query.query = Tensor<double>({1, 1, 0, 1});
  EXPECT_EQ(run(no_query).output.size(), 0U);
  AttentionCase no_key = call_of({{0}}, {{0}}, {{1}});
  no_key.key = Tensor<double>({1, 1, 0, 1});
  no_key.value = Tensor<double>({1, 1, 0, 1});
  EXPECT_EQ(run(no_key).output(0, 0, 0, 0), 0);
  EXPECT_EQ(run(no_key).log_sum_exp(0, 0, 0), -infinity);
  // In one padded batch, the neighbours stay where they are.
  AttentionCase batch;
  batch.query = Tensor<double>({3, 1, 2, 1});
  batch.key = Tensor<double>({3, 1, 4, 1});
  batch.value =
      Tensor<double>({3, 1, 4, 1}, std::vector<double>{1, 2, 6, 9, 1, 1, 1, 1, 9, 9, 9, 9});
  batch.mask.key_lengths = {3, 4, 0};
  batch.empty_row = EmptyRow::zero;
  const AttentionResult found = run(batch);
  EXPECT_TRUE(within(found.output(0, 0, 1, 0), 3, 4 * 3 * test::u));
  EXPECT_EQ(found.output(2, 0, 0, 0), 0);
  EXPECT_EQ(found.log_sum_exp(2, 0, 1), -infinity);
}

TEST(FieldCases, A24ThereIsNoDropoutInEvaluation) {
  const AttentionCase call = call_of({{0}}, Rows(4, {0.0}), column({1, 2, 3, 4}));
  for (int n = 0; n < 10; ++n) EXPECT_EQ(run(call).output(0, 0, 0, 0), 2.5);
}

TEST(FieldCases, A26EachWrongScaleIsAnotherNumber) {
  AttentionCase call =
      call_of({std::vector<double>(16, 2)},
              {std::vector<double>(16, .5), std::vector<double>(16, 0)}, {{1}, {0}});
  EXPECT_TRUE(gives(call, {{.98201379003790844}}));
  const std::vector<std::pair<double, double>> wrong{{1.0 / 8, .88079707797788244},
                                                     {1.0 / 16, .73105857863000488},
                                                     {4, 1},
                                                     {1, .99999988746483794}};
  for (const auto& [scale, out] : wrong) {
    AttentionCase other = call;
    other.scale = scale;
    EXPECT_TRUE(gives(other, {{out}})) << scale;
    EXPECT_FALSE(gives(call, {{out}})) << scale;
  }
}

TEST(FieldCases, A28SoftmaxRunsOverKeys) {
  AttentionCase call = call_of({{0}, {0}}, {{0}, {0}}, {{0}, {1}});
  call.bias = one_head({{0, std::log(3.0)}, {0, 0}});
  EXPECT_TRUE(gives(call, {{.75}, {.5}}));
  EXPECT_FALSE(gives(call, {{.75}, {.25}}));
  const AttentionResult found = run(call);
  const double rows[] = {.25, .75, .5, .5};
  const double columns[] = {.5, .75, .5, .25};
  bool all_columns = true;
  for (std::size_t n = 0; n < 4; ++n) {
    const double w = found.weights.elements()[n];
    EXPECT_TRUE(within(w, rows[n], 8 * test::u)) << n;
    all_columns = all_columns && within(w, columns[n], 8 * test::u);
  }
  EXPECT_FALSE(all_columns);
}

}  // namespace
}  // namespace attest::lab
