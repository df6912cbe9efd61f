// SPDX-License-Identifier: MIT
// Wrong answers that people reported, each with the numbers of the report: the catalogue's mistake of
// that name gives them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "attest/check/mistakes/catalogue.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

using Numbers = std::vector<double>;

Tensor<double> tensor(Shape shape, const Numbers& numbers) {
  return {std::move(shape), std::span<const double>(numbers)};
}

/// One batch, one head.
Dump dump_of(std::int64_t T, std::int64_t S, const Numbers& query, const Numbers& key,
             const Numbers& value) {
  const auto D = static_cast<std::int64_t>(query.size()) / T;
  const auto E = static_cast<std::int64_t>(value.size()) / S;
  Dump out;
  out.claim.shape = {.B = 1, .H = 1, .G = 1, .T = T, .S = S, .D = D, .E = E};
  out.claim.call.query = tensor({1, 1, T, D}, query);
  out.claim.call.key = tensor({1, 1, S, D}, key);
  out.claim.call.value = tensor({1, 1, S, E}, value);
  out.claim.call.empty_row = EmptyRow::zero;
  return out;
}
Dump zero_scores(std::int64_t T, const Numbers& value) {
  const std::size_t S = value.size();
  return dump_of(T, static_cast<std::int64_t>(S), Numbers(static_cast<std::size_t>(T), 0.0),
                 Numbers(S, 0.0), value);
}

Tensor<bool> mask(std::int64_t T, std::int64_t S, std::initializer_list<bool> visible) {
  Tensor<bool> out({1, 1, T, S});
  std::copy(visible.begin(), visible.end(), out.data());
  return out;
}

struct Wrong {
  std::string_view name;
  double value = 0;
};
Recipe recipe_of(const Dump& dump, std::initializer_list<Wrong> mistakes) {
  Recipe out;
  for (const Wrong& wrong : mistakes) {
    const Mistake* const mistake = find_mistake(wrong.name);
    EXPECT_NE(mistake, nullptr) << wrong.name;
    EXPECT_TRUE(mistake != nullptr && mistake->make(out, dump.claim, wrong.value)) << wrong.name;
  }
  return out;
}

/// All rows of all heads, one after the other.
Numbers output_of(const Dump& dump, std::initializer_list<Wrong> mistakes = {}) {
  auto evaluation = Evaluation::make(dump, recipe_of(dump, mistakes));
  Numbers out;
  if (!evaluation) return out;
  const lab::AttentionShape& s = dump.claim.shape;
  for (std::int64_t row = 0; row < s.B * s.H * s.T; ++row) {
    const auto& numbers = evaluation->row({row / (s.H * s.T), row / s.T % s.H, row % s.T}).output;
    out.insert(out.end(), numbers.begin(), numbers.end());
  }
  return out;
}

void expect_numbers(const Numbers& found, const Numbers& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t n = 0; n < found.size(); ++n) {
    if (std::isnan(wanted[n])) {
      EXPECT_TRUE(std::isnan(found[n])) << n << ": " << found[n];
    } else {
      EXPECT_NEAR(found[n], wanted[n], 1e-10 * std::fabs(wanted[n])) << n;  // as they are printed
    }
  }
}

Dump empty_row_case() {
  Dump out = dump_of(2, 3, {1, 0, 0, 1}, {1, 0, 0, 1, 1, 1}, {1, 2, 3, 4, 5, 6});
  out.claim.call.visible = mask(2, 3, {true, false, true, false, false, false});
  return out;
}

TEST(MistakesCases, A01EmptyRow) {
  const Dump dump = empty_row_case();
  expect_numbers(output_of(dump), {3, 4, 0, 0});
  expect_numbers(output_of(dump, {{"empty_rows.nan"}}), {3, 4, nan, nan});
  auto evaluation = Evaluation::make(dump, {});
  EXPECT_NEAR(evaluation->row({0, 0, 0}).log_sum_exp, 1.4002539617464928, 1e-15);
  EXPECT_EQ(evaluation->row({0, 0, 1}).log_sum_exp, -infinity);
}

TEST(MistakesCases, A03FiniteMinusInfinity) {
  expect_numbers(output_of(empty_row_case(), {{"mask.finite_fill", -1e30}}), {3, 4, 3, 4});
  expect_numbers(output_of(empty_row_case(), {{"mask.fill_added", -1e30}}), {3, 4, 3, 4});
  expect_numbers(output_of(empty_row_case(), {{"empty_rows.uniform"}}), {3, 4, 3, 4});
  // Small enough to leave the scores their differences, the added number drops out again.
  const Numbers unmasked = output_of(empty_row_case(), {{"mask.ignored"}});
  const Numbers added = output_of(empty_row_case(), {{"mask.fill_added", -100.0}});
  EXPECT_NEAR(added[2], unmasked[2], 1e-4);
}

TEST(MistakesCases, A05Corner) {
  Dump dump = zero_scores(2, {1, 10, 100, 1000, 10000});
  dump.claim.call.mask = Mask::causal_bottom_right();
  expect_numbers(output_of(dump), {277.75, 2222.2});
  expect_numbers(output_of(dump, {{"causal.top_left"}}), {1, 5.5});
  dump.claim.call.mask = Mask::causal_top_left();
  expect_numbers(output_of(dump, {{"causal.bottom_right"}}), {277.75, 2222.2});
  expect_numbers(output_of(dump, {{"causal.last_row_open"}}), {1, 2222.2});
}

TEST(MistakesCases, A06DecodeAndStaleSlots) {
  Dump dump = dump_of(1, 8, {0}, Numbers(8, 0.0), {1, 2, 3, 4, 0, 0, 0, 0});
  dump.claim.call.mask.key_lengths = {4};
  dump.claim.call.mask.future_hidden = true;
  dump.claim.call.mask.corner = Corner::bottom_right;
  for (std::int64_t j = 4; j < 8; ++j) {
    dump.claim.call.key(0, 0, j, 0) = nan;
    dump.claim.call.value(0, 0, j, 0) = nan;
  }
  expect_numbers(output_of(dump), {2.5});
  expect_numbers(output_of(dump, {{"causal.top_left"}}), {1});
  dump.claim.call.mask = Mask{.key_lengths = {4}};
  expect_numbers(output_of(dump, {{"mask.ignored"}}), {nan});
  for (std::int64_t j = 4; j < 8; ++j) {
    dump.claim.call.key(0, 0, j, 0) = 0;
    dump.claim.call.value(0, 0, j, 0) = 0;
  }
  expect_numbers(output_of(dump, {{"mask.ignored"}}), {1.25});
}

TEST(MistakesCases, A08Polarity) {
  Dump dump = zero_scores(3, {1, 10, 100});
  dump.claim.call.visible = mask(3, 3, {true, false, false, true, true, false, true, true, true});
  expect_numbers(output_of(dump), {1, 5.5, 37});
  expect_numbers(output_of(dump, {{"mask.inverted"}}), {55, 100, 0});
  expect_numbers(output_of(dump, {{"mask.inverted"}, {"empty_rows.nan"}}), {55, 100, nan});
}

TEST(MistakesCases, A10OverflowBeforeTheScale) {
  Numbers key(128, 48);
  std::fill(key.begin() + 64, key.end(), 47.96875);
  Dump dump = dump_of(1, 2, Numbers(64, 48), key, {0, 1});
  dump.claim.precision = Precision::f16;
  expect_numbers(output_of(dump), {6.1441746022147178e-06});
  expect_numbers(output_of(dump, {{"num.dot_f16_overflow"}}), {nan});
  expect_numbers(output_of(dump, {{"num.dot_f16_clipped"}}), {0.5});
}

TEST(MistakesCases, A11NanBehindTheMask) {
  Dump dump =
      dump_of(2, 3, {1, 0, 0, 1}, {1, 0, 0, 1, infinity, nan}, {1, 2, 3, 4, nan, -infinity});
  dump.claim.call.visible = mask(2, 3, {true, true, false, true, false, false});
  expect_numbers(output_of(dump), {1.6604769013466861, 2.6604769013466861, 1, 2});
  expect_numbers(output_of(dump, {{"mask.nan_behind_leaks"}}), {nan, nan, nan, nan});
  expect_numbers(output_of(dump, {{"mask.fill_added", -1e9}}), {nan, nan, nan, nan});
}

TEST(MistakesCases, A13Window) {
  Dump dump = zero_scores(5, {1, 10, 100, 1000, 10000});
  dump.claim.call.mask = Mask::causal();
  dump.claim.call.mask.window.left = 1;
  expect_numbers(output_of(dump), {1, 5.5, 55, 550, 5500});
  expect_numbers(output_of(dump, {{"window.W+1_keys"}}), {1, 5.5, 37, 370, 3700});
  expect_numbers(output_of(dump, {{"window.symmetric"}}), {5.5, 37, 370, 3700, 5500});
  expect_numbers(output_of(dump, {{"window.W-1_keys"}}), {1, 10, 100, 1000, 10000});
}

TEST(MistakesCases, A16BaseOfLogSumExp) {
  Dump dump = dump_of(1, 3, {1}, {0, 0, std::log(4.0)}, {1, 3, 10});
  dump.stages.push_back({.stage = Stage::log_sum_exp, .values = Tensor<double>({1, 1, 1})});
  expect_numbers(output_of(dump), {7.3333333333333333});
  expect_numbers(output_of(dump, {{"split.lse_base", 2}}), {7.848468629040039});
  auto natural = Evaluation::make(dump, {});
  EXPECT_NEAR(natural->row({0, 0, 0}).log_sum_exp, 1.791759469228055, 1e-15);
  auto base2 = Evaluation::make(dump, recipe_of(dump, {{"label.lse_base2"}}));
  EXPECT_NEAR(base2->row({0, 0, 0}).log_sum_exp, 2.5849625007211562, 1e-15);
}

TEST(MistakesCases, A18AlibiSlopes) {
  Dump dump;
  dump.claim.shape = {.B = 1, .H = 6, .G = 6, .T = 3, .S = 3, .D = 1, .E = 1};
  dump.claim.call.query = Tensor<double>({1, 6, 3, 1});
  dump.claim.call.key = Tensor<double>({1, 6, 3, 1});
  Numbers values;
  for (int h = 0; h < 6; ++h) values.insert(values.end(), {1, 10, 100});
  dump.claim.call.value = tensor({1, 6, 3, 1}, values);
  dump.claim.call.mask = Mask::causal();
  dump.claim.call.alibi_slopes = {.25, .0625, .015625, .00390625, .5, .125};
  const Numbers right = output_of(dump);
  expect_numbers({right[0], right[1], right[2]}, {1, 6.0595885079721829, 45.442128731558603});
  expect_numbers({right[12], right[13], right[14]}, {1, 6.6021339808166911, 53.906321685976234});
  const Recipe geometric = recipe_of(dump, {{"alibi.geometric_non_pow2"}});
  EXPECT_NEAR(geometric.scoring.alibi.slopes->at(0), .396850263, 1e-9);
  EXPECT_NEAR(geometric.scoring.alibi.slopes->at(1), .1574901312, 1e-9);
  EXPECT_EQ(recipe_of(dump, {{"alibi.exponent_off_by_one"}}).scoring.alibi.slopes->at(0), 1);
  // The published slopes are the claim's: nothing to make.
  Recipe none;
  EXPECT_FALSE(find_mistake("alibi.published_slopes")->make(none, dump.claim, 0));
}

TEST(MistakesCases, A21PaddedHeadSize) {
  Numbers key(10, 0);
  std::fill_n(key.begin(), 5, 1.0);
  const Dump dump = dump_of(1, 2, Numbers(5, 1), key, {1, 0});
  expect_numbers(output_of(dump), {.90344199375317724});
  expect_numbers(output_of(dump, {{"scale.padded_head_dim", 8}}), {.85417975000638069});
}

TEST(MistakesCases, A22EmptySequences) {
  Dump dump = dump_of(3, 7, {0, 0, 0}, Numbers(7, 0.0), {1, 2, 6, 9, 9, 9, 9});
  dump.claim.call.mask.packing = {.query_starts = {0, 2, 2, 3}, .key_starts = {0, 3, 7, 7}};
  expect_numbers(output_of(dump), {3, 3, 0});
  expect_numbers(output_of(dump, {{"empty_rows.nan"}}), {3, 3, nan});
  expect_numbers(output_of(dump, {{"varlen.documents_leak"}}), {45. / 7, 45. / 7, 45. / 7});
}

TEST(MistakesCases, A24Dropout) {
  const Dump dump = zero_scores(1, {1, 2, 3, 4});
  expect_numbers(output_of(dump), {2.5});
  expect_numbers(output_of(dump, {{"dropout.scale_only", 0.5}}), {5});
}

TEST(MistakesCases, A26Scale) {
  Numbers key(32, 0);
  std::fill_n(key.begin(), 16, 0.5);
  Dump dump = dump_of(1, 2, Numbers(16, 2), key, {1, 0});
  expect_numbers(output_of(dump), {.98201379003790844});
  expect_numbers(output_of(dump, {{"scale.twice"}}), {.73105857863000488});
  expect_numbers(output_of(dump, {{"scale.multiplied"}}), {1});
  expect_numbers(output_of(dump, {{"scale.none"}}), {.99999988746483794});
  dump.claim.shape.H = dump.claim.shape.G = 4;  // the width of the model is 64
  EXPECT_NEAR(*recipe_of(dump, {{"scale.sqrt_d_model"}}).scoring.scale, 1. / 8, 1e-16);
}

TEST(MistakesCases, A28Axis) {
  const Dump dump = dump_of(2, 2, {1, 0}, {0, std::log(3.0)}, {0, 1});
  expect_numbers(output_of(dump), {.75, .5});
  expect_numbers(output_of(dump, {{"softmax.over_queries"}}), {.75, .25});
}

TEST(MistakesCases, E10WeightsOfTheMeanHead) {
  Dump dump;
  const double ln3 = std::log(3.0);
  dump.claim.shape = {.B = 1, .H = 2, .G = 2, .T = 1, .S = 2, .D = 1, .E = 1};
  dump.claim.call.query = tensor({1, 2, 1, 1}, {1, 1});
  dump.claim.call.key = tensor({1, 2, 2, 1}, {0, ln3, ln3, 0});
  dump.claim.call.value = tensor({1, 2, 2, 1}, {0, 1, 0, 1});
  dump.stages.push_back({.stage = Stage::weights, .values = Tensor<double>({1, 2, 1, 2})});
  auto mean = Evaluation::make(dump, recipe_of(dump, {{"label.weights_head_mean"}}));
  expect_numbers(mean->row({0, 0, 0}).weights, {.5, .5});
  expect_numbers(mean->row({0, 1, 0}).weights, {.5, .5});
  expect_numbers(mean->row({0, 1, 0}).output, {.25});
}

}  // namespace
}  // namespace attest::check
