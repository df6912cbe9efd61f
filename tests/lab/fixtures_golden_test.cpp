// SPDX-License-Identifier: MIT
// Every stage of the fixtures against 40-digit arithmetic: the tests that tell mistakes apart.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/workbook.h"
#include "tests/support/bits.h"
#include "tests/support/fixtures.h"
#include "tests/support/goldens.h"
#include "tests/support/plain_attention.h"
#include "tests/support/plain_block.h"

namespace attest::lab {
namespace {

using test::same_bits;
using test::within;

constexpr double infinity = std::numeric_limits<double>::infinity();

const io::Json& goldens() {
  static const io::Json json = [] {
    auto parsed = io::parse_json(test::golden_text("fixtures.json"), "fixtures.json");
    EXPECT_TRUE(parsed);
    return parsed ? *std::move(parsed) : io::Json();
  }();
  return json;
}

/// Each number within its bound of the recorded one, which is itself rounded once.
void expect_stage(const std::vector<double>& found, const io::Json* recorded,
                  const std::vector<long double>& bounds, const std::string& which) {
  ASSERT_NE(recorded, nullptr) << which;
  const auto expected = test::golden_numbers(recorded);
  ASSERT_EQ(found.size(), expected.size()) << which;
  ASSERT_EQ(found.size(), bounds.size()) << which;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const long double bound = 1.01L * bounds[n] + test::u * std::fabs(expected[n]);
    EXPECT_TRUE(within(found[n], expected[n], std::isfinite(bound) ? bound : 0))
        << which << " element " << n;
  }
}

/// The bounds of one row's stages, from the derivation in tests/support/plain_attention.h.
class RowBounds {
 public:
  RowBounds(const AttentionRow& row, const test::PlainRow& plain, const test::PlainCall& call,
            RowPlace at)
      : row_(row), plain_(plain) {
    const std::int64_t g = call.group(at.h);
    for (std::int64_t j = 0; j < call.S(); ++j) {
      long double size = 0;
      for (std::int64_t d = 0; d < call.D(); ++d) {
        size += std::fabs(call.in.query(at.b, at.h, at.i, d) * call.in.key(at.b, g, j, d));
      }
      const long double bias = std::fabs(call.bias(at.b, at.h, at.i, j));
      dot_.push_back(2 * test::u * size);
      // Hidden keys are shown too, so the sizes are taken key by key here.
      const auto distance = static_cast<long double>(std::abs(call.position(at.b, at.i) - j));
      const long double slope =
          call.options.alibi_slopes.empty() ? 0 : call.options.alibi_slopes[place(at.h)];
      score_.push_back(9 * test::u * (size * std::fabs(call.factor()) + bias + slope * distance));
    }
  }

  [[nodiscard]] const std::vector<long double>& dot() const { return dot_; }
  [[nodiscard]] const std::vector<long double>& score() const { return score_; }
  /// Of one number that is known to a whole score: the peak.
  [[nodiscard]] std::vector<long double> peak() const { return {9 * test::u * plain_.size}; }
  [[nodiscard]] std::vector<long double> minus_peak() const {
    return std::vector<long double>(score_.size(), (9 + 9 + 2) * test::u * plain_.size);
  }
  /// Of numbers that follow from exp(minus_peak) by at most a sum, a quotient and a product.
  [[nodiscard]] std::vector<long double> relative(const std::vector<double>& values) const {
    std::vector<long double> out;
    const long double rho = (2 * 20 * plain_.size + 6) * test::u;
    for (const double x : values) out.push_back(rho * std::fabs(x) + 0x1p-1073L);
    return out;
  }
  [[nodiscard]] std::vector<long double> output() const {
    std::vector<long double> out;
    for (std::size_t e = 0; e < row_.output.size(); ++e) {
      out.push_back(plain_.output_bound(e, 0x1p-1060L));
    }
    return out;
  }

 private:
  static std::size_t place(std::int64_t n) { return static_cast<std::size_t>(n); }
  const AttentionRow& row_;
  const test::PlainRow& plain_;
  std::vector<long double> dot_;
  std::vector<long double> score_;
};

void expect_row(const AttentionRow& row, const RowBounds& bounds, const test::PlainRow& plain,
                const io::Json& recorded, const std::string& which) {
  const auto stage = [&](const char* name, const std::vector<double>& found,
                         const std::vector<long double>& bound) {
    expect_stage(found, recorded.find(name), bound, which + " " + name);
  };
  const std::vector<long double> exact(row.products.size(), 0);
  stage("products", row.products, exact);  // the inputs are short: products are exact
  stage("dot", row.dot, bounds.dot());
  stage("scaled", row.scaled, bounds.score());
  stage("capped", row.capped, bounds.score());
  stage("biased", row.biased, bounds.score());
  stage("masked", row.masked, bounds.score());
  stage("weights", row.weights, bounds.relative(row.weights));
  stage("output", row.output, bounds.output());
  stage("log_sum_exp", {row.log_sum_exp}, {plain.lse_bound()});
  ASSERT_EQ(row.empty, *recorded.find("empty")->boolean_if()) << which;
  if (row.empty) return;
  stage("peak", {row.peak}, bounds.peak());
  stage("minus_peak", row.minus_peak, bounds.minus_peak());
  stage("exp", row.exp, bounds.relative(row.exp));
  stage("sink_exp", {row.sink_exp}, bounds.relative({row.sink_exp}));
  stage("sum", {row.sum}, bounds.relative({row.sum}));
  stage("mix", row.mix, bounds.relative(row.mix));
}

void expect_call(const std::string& name, const AttentionCase& call) {
  const io::Json* recorded = goldens().find("calls")->find(name);
  ASSERT_NE(recorded, nullptr) << name;
  for (const auto& [part, tensor] : {std::pair("query", &call.query), std::pair("key", &call.key),
                                     std::pair("value", &call.value)}) {
    ASSERT_TRUE(same_bits(tensor->elements(), test::golden_numbers(recorded->find(part))))
        << name << ": the fixture's " << part << " and the generator's are not the same";
  }
  const auto inputs = call.inputs();
  const auto options = call.options();
  const test::PlainCall plain{inputs, options};
  const auto whole = attention(inputs, options);
  ASSERT_TRUE(whole) << name << ": " << whole.failure().message;
  const auto rows = recorded->find("rows")->items();
  ASSERT_EQ(rows.size(), whole->log_sum_exp.size()) << name;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const auto at_n = static_cast<std::int64_t>(n);
    const RowPlace at{at_n / (plain.H() * plain.T()), at_n / plain.T() % plain.H(),
                      at_n % plain.T()};
    const auto row = attention_row(inputs, options, at);
    ASSERT_TRUE(row) << name;
    const test::PlainRow plain_row = test::plain_row(plain, at.b, at.h, at.i);
    expect_row(*row, RowBounds(*row, plain_row, plain, at), plain_row, rows[n],
               name + " row " + std::to_string(n));
    const auto E = static_cast<std::size_t>(plain.E()), S = static_cast<std::size_t>(plain.S());
    EXPECT_TRUE(same_bits(whole->output.elements().subspan(n * E, E), row->output)) << name;
    EXPECT_TRUE(same_bits(whole->weights.elements().subspan(n * S, S), row->weights)) << name;
  }
}

class AttentionFixture : public ::testing::TestWithParam<std::string> {};

TEST_P(AttentionFixture, EveryStageIsTheRecordedOne) {
  for (const auto& [name, call] : test::fixture::attention_calls()) {
    if (name == GetParam()) expect_call(name, call);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionFixture,
                         ::testing::Values("asym", "asym_causal", "cross", "cache", "pad", "huge",
                                           "empty", "group", "options"),
                         [](const auto& fixture) { return fixture.param; });

TEST(AttentionFixtures, AsymThroughTheWorkbooksDoorIsTheSame) {
  const AttentionCase call = test::fixture::asym();
  const auto flat = [](const Tensor<double>& t) {
    return Tensor<double>({t.extent(2), t.extent(3)}, t.elements());
  };
  const Tensor<bool> allow({3, 3}, call.visible->elements());
  const auto found = workbook::attention(flat(call.query), flat(call.key), flat(call.value),
                                         {.causal = false, .allow = allow});
  const auto expected = attention(call.inputs(), call.options());
  ASSERT_TRUE(found && expected);
  EXPECT_TRUE(same_bits(found->output.elements(), expected->output.elements()));
  EXPECT_TRUE(same_bits(found->weights.elements(), expected->weights.elements()));
}

TEST(AttentionFixtures, HugeScoresNeedThePeak) {
  const AttentionCase call = test::fixture::huge();
  const auto row = attention_row(call.inputs(), call.options(), {});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->dot, (std::vector<double>{10000, -10000, 9999.21875}));
  EXPECT_EQ(row->peak, 10000);
  EXPECT_EQ(row->minus_peak, (std::vector<double>{0, -20000, -0.78125}));
  EXPECT_EQ(row->exp[0], 1);
  EXPECT_EQ(row->exp[1], 0);
}

TEST(AttentionFixtures, EmptyFailsByDefaultAndNamesTheRow) {
  AttentionCase call = test::fixture::empty();
  call.empty_row = EmptyRow::error;
  const auto refused = attention(call.inputs(), call.options());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().id, "no-visible-key");
  EXPECT_NE(refused.failure().message.find("query 1"), std::string::npos);
  call.empty_row = EmptyRow::nan;
  const auto row = attention_row(call.inputs(), call.options(), {.i = 1});
  ASSERT_TRUE(row);
  EXPECT_TRUE(row->empty);
  EXPECT_TRUE(std::isnan(row->output[0]));
  EXPECT_EQ(row->log_sum_exp, -infinity);
}

TEST(AttentionFixtures, HiddenKeysSayWhy) {
  const AttentionCase call = test::fixture::options();
  const auto row = attention_row(call.inputs(), call.options(), {.i = 2});
  ASSERT_TRUE(row);
  using By = HiddenBy;
  EXPECT_EQ(row->hidden, (std::vector<By>{By::window, By::nothing, By::nothing, By::nothing}));
  const auto first = attention_row(call.inputs(), call.options(), {});
  ASSERT_TRUE(first);
  EXPECT_EQ(first->hidden, (std::vector<By>{By::nothing, By::nothing, By::future, By::future}));
  const AttentionCase pad = test::fixture::pad();
  const auto padded = attention_row(pad.inputs(), pad.options(), {.b = 2, .h = 0, .i = 1});
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->hidden, (std::vector<By>{By::nothing, By::nothing, By::nothing, By::future}));
  EXPECT_EQ(reason(By::future), "causal");
  EXPECT_EQ(reason(By::window), "window");
  EXPECT_EQ(reason(By::key_length), "length");
  EXPECT_EQ(reason(By::mask), "mask");
  EXPECT_EQ(reason(By::bias), "bias -inf");
  EXPECT_EQ(reason(By::nothing), "");
}

// ---- The workbook's block and its normalisation.

void expect_block(const std::string& name, const test::fixture::Block& block) {
  const io::Json* recorded = goldens().find("blocks")->find(name);
  ASSERT_NE(recorded, nullptr);
  const auto& p = block.parameters;
  for (const auto& [part, matrix] :
       {std::pair("rows", &block.rows), std::pair("P1", &p.P1), std::pair("P2", &p.P2),
        std::pair("WO", &p.WO), std::pair("W1", &p.W1), std::pair("W2", &p.W2)}) {
    ASSERT_TRUE(same_bits(matrix->elements(), test::golden_numbers(recorded->find(part))))
        << name << ": the fixture's " << part << " and the generator's are not the same";
  }
  const auto found = workbook::transformer_block(block.rows, p, {.causal = block.causal});
  ASSERT_TRUE(found) << name << ": " << found.failure().message;
  const test::BoundedStages plain = test::plain_block(block);
  const io::Json& stages = *recorded->find("stages");
  EXPECT_EQ(found->stages.size(), stages.members().size()) << name;
  for (const Stage& stage : found->stages) {
    ASSERT_EQ(plain.count(stage.name), 1U) << stage.name;
    std::vector<long double> bounds;
    for (const auto& row : plain.at(stage.name)) {
      for (const test::Bounded& x : row) bounds.push_back(x.error);
    }
    const std::vector<double> values(stage.values.elements().begin(),
                                     stage.values.elements().end());
    expect_stage(values, stages.find(stage.name), bounds, name + " " + stage.name);
  }
  EXPECT_TRUE(same_bits(found->output.elements(), found->stages.back().values.elements()));
  ASSERT_EQ(found->maps.size(), 2U);
  EXPECT_TRUE(same_bits(found->maps[0].elements(), found->stages[1].values.elements()));
  EXPECT_TRUE(same_bits(found->maps[1].elements(), found->stages[4].values.elements()));
}

TEST(BlockFixtures, EveryStageOfTheBlockIsTheRecordedOne) {
  expect_block("block", test::fixture::block());
}

TEST(BlockFixtures, EveryStageOfTheWideBlockIsTheRecordedOne) {
  expect_block("wide_block", test::fixture::wide_block());
}

TEST(BlockFixtures, StagesComeInTheOrderOfComputation) {
  const auto block = test::fixture::block();
  const auto found =
      workbook::transformer_block(block.rows, block.parameters, {.causal = block.causal});
  ASSERT_TRUE(found);
  std::vector<std::string> names;
  for (const Stage& stage : found->stages) names.push_back(stage.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "h0.projection", "h0.weights", "h0.output", "h1.projection", "h1.weights",
                       "h1.output", "concat", "output_projection", "residual1", "norm1.mean",
                       "norm1.variance", "norm1", "ffn.up", "ffn.relu", "ffn.down", "residual2",
                       "norm2.mean", "norm2.variance", "norm2"}));
}

TEST(BlockFixtures, NormaliseIsTheRecordedOneForSmallAndLargeEpsilon) {
  const Tensor<double> rows = test::fixture::norm_rows();
  ASSERT_TRUE(same_bits(rows.elements(), test::golden_numbers(goldens().find("norm_rows"))));
  const auto norms = goldens().find("norms")->items();
  ASSERT_EQ(norms.size(), 2U);
  for (const io::Json& recorded : norms) {
    const double epsilon = test::golden_number(*recorded.find("epsilon"));
    const auto found = workbook::normalise(rows, epsilon);
    test::BoundedStages plain;
    test::normalise(test::bounded(rows), epsilon, "values", plain);
    const auto check = [&](const char* name, const Tensor<double>& values) {
      std::vector<long double> bounds;
      for (const auto& row : plain.at(name)) {
        for (const test::Bounded& x : row) bounds.push_back(x.error);
      }
      expect_stage({values.elements().begin(), values.elements().end()}, recorded.find(name),
                   bounds, name);
    };
    check("values.mean", found.mean);
    check("values.variance", found.variance);
    check("values", found.values);
  }
  // F-norm by hand: (1, 0, 0, 0) has mean ¼ and population variance 3/16, exactly.
  const auto norm = workbook::normalise(rows);
  EXPECT_EQ(norm.mean(0), 0.25);
  EXPECT_EQ(norm.variance(0), 0.1875);
}

}  // namespace
}  // namespace attest::lab
