// SPDX-License-Identifier: MIT
// The laws of dropout, and every option together against the oracle and its bound.
#include "attest/base/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/bound.h"
#include "attest/lab/bound_fraction.h"
#include "attest/lab/oracle.h"
#include "attest/lab/trace.h"
#include "tests/lab/documents_support.h"
#include "tests/support/bits.h"
#include "tests/support/outcome.h"

namespace attest::lab {
namespace {

using test::back;
using test::Flow;
using test::same_bits;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

::testing::AssertionResult same_tensor(const Tensor<double>& a, const Tensor<double>& b) {
  return same_bits(a.elements(), b.elements());
}

::testing::AssertionResult same_gradients(const AttentionGradients& a,
                                          const AttentionGradients& b) {
  for (const auto part :
       {&AttentionGradients::d_query, &AttentionGradients::d_key, &AttentionGradients::d_value,
        &AttentionGradients::d_bias, &AttentionGradients::d_sink}) {
    if (auto same = same_tensor(a.*part, b.*part); !same) return same;
  }
  return ::testing::AssertionSuccess();
}

/// `documented_case`, and always some dropout.
AttentionCase dropping_case(std::uint64_t seed, const test::CaseLimits& limits = {}) {
  AttentionCase call = test::documented_case(seed, limits);
  Random random(seed, 10);
  call.dropout = {random.uniform(0.05, 0.9), random.bits()};
  return call;
}

bool is_dropped(const AttentionCase& call, std::int64_t b, std::int64_t h, std::int64_t i,
                std::int64_t j) {
  return dropped(call.dropout.seed, dropout_threshold(call.dropout.rate),
                 {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(h),
                  static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)});
}

TEST(AttentionDropout, RateZeroChangesNoBit) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    AttentionCase call = test::documented_case(seed);
    call.dropout = {};
    AttentionCase zero = call;
    zero.dropout = {.rate = 0, .seed = seed};
    const auto one = attention(call.inputs(), call.options());
    const auto other = attention(zero.inputs(), zero.options());
    ASSERT_TRUE(one && other);
    ASSERT_TRUE(same_tensor(one->output, other->output));
    ASSERT_TRUE(same_tensor(one->weights, other->weights));
    ASSERT_TRUE(same_tensor(one->log_sum_exp, other->log_sum_exp));
    const Flow flow(seed, call);
    const auto d_one = back(call, flow);
    const auto d_other = back(zero, flow);
    ASSERT_TRUE(d_one && d_other);
    ASSERT_TRUE(same_gradients(*d_one, *d_other));
  }
}

TEST(AttentionDropout, WeightsAreWhatIsKeptDividedByTheKeptShare) {
  std::size_t left_out = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const AttentionCase call = dropping_case(seed);
    SCOPED_TRACE(test::describe_documents(seed, call));
    AttentionCase without = call;
    without.dropout = {};
    const auto found = attention(call.inputs(), call.options());
    const auto softmax = attention(without.inputs(), without.options());
    ASSERT_TRUE(found && softmax);
    ASSERT_TRUE(same_tensor(found->log_sum_exp, softmax->log_sum_exp));
    const std::int64_t H = call.query.extent(1), T = call.query.extent(2), S = call.key.extent(2);
    for (std::int64_t n = 0; n < call.query.extent(0) * H * T * S; ++n) {
      const std::int64_t b = n / (H * T * S), h = n / (T * S) % H, i = n / S % T, j = n % S;
      if (std::isinf(found->log_sum_exp(b, h, i))) continue;  // the policy says what stands there
      const bool out = is_dropped(call, b, h, i, j);
      const double expected = out ? 0 : softmax->weights(b, h, i, j) / (1 - call.dropout.rate);
      ASSERT_TRUE(same_bits(found->weights(b, h, i, j), expected));
      left_out += out ? 1 : 0;
    }
  }
  EXPECT_GT(left_out, 1000U);
}

TEST(AttentionDropout, TheShareOfDroppedWeightsIsTheRateWithinFiveDeviations) {
  for (const std::uint64_t seed : {3ULL, 77ULL, 20261130ULL}) {
    for (const double rate : {0.1, 0.5}) {
      AttentionCase call;
      call.query = Tensor<double>({2, 2, 16, 1});
      call.key = call.value = Tensor<double>({2, 1, 64, 1});
      call.dropout = {.rate = rate, .seed = seed};
      const auto found = attention(call.inputs(), call.options());
      ASSERT_TRUE(found);
      const auto n = static_cast<double>(found->weights.size());
      const auto zeros = static_cast<double>(std::ranges::count(found->weights.elements(), 0.0));
      EXPECT_LE(std::fabs(zeros - n * rate), 5 * std::sqrt(n * rate * (1 - rate)))
          << "seed " << seed << ", rate " << rate;
    }
  }
}

/// The first `count` entries of one axis of a [.., .., .., ..].
Tensor<double> first_of(const Tensor<double>& from, std::size_t axis, std::int64_t count) {
  Shape shape = from.shape();
  shape[axis] = count;
  Tensor<double> out(shape);
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) {
        for (std::int64_t c = 0; c < shape[3]; ++c) out(b, h, i, c) = from(b, h, i, c);
      }
    }
  }
  return out;
}

TEST(AttentionDropout, AWeightsFateIsItsPlacesHoweverTheCallIsCut) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed, 11);
    AttentionCase call;
    call.query = test::random_tensor(random, {3, 4, 6, 2});
    call.key = test::random_tensor(random, {3, 2, 5, 2});
    call.value = test::random_tensor(random, {3, 2, 5, 3});
    call.dropout = {.rate = 0.4, .seed = random.bits()};
    const auto whole = attention(call.inputs(), call.options());
    ASSERT_TRUE(whole);
    AttentionCase batches = call;
    for (auto* tensor : {&batches.query, &batches.key, &batches.value}) {
      *tensor = first_of(*tensor, 0, 2);
    }
    AttentionCase queries = call;
    queries.query = first_of(call.query, 2, 3);
    const auto of_batches = attention(batches.inputs(), batches.options());
    const auto of_queries = attention(queries.inputs(), queries.options());
    ASSERT_TRUE(of_batches && of_queries);
    EXPECT_TRUE(same_tensor(of_batches->weights, first_of(whole->weights, 0, 2)));
    EXPECT_TRUE(same_tensor(of_batches->output, first_of(whole->output, 0, 2)));
    EXPECT_TRUE(same_tensor(of_queries->weights, first_of(whole->weights, 2, 3)));
    EXPECT_TRUE(same_tensor(of_queries->output, first_of(whole->output, 2, 3)));
    const auto row = attention_row(call.inputs(), call.options(), {2, 3, 5});  // one row alone
    ASSERT_TRUE(row);
    EXPECT_TRUE(same_bits(row->weights, {&whole->weights(2, 3, 5, 0), 5}));
    EXPECT_TRUE(same_bits(row->output, {&whole->output(2, 3, 5, 0), 3}));
  }
}

TEST(AttentionDropout, TheValueOfADroppedWeightIsNeverRead) {
  int poisoned = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(sentence("seed ", seed));
    Random random(seed, 12);
    AttentionCase call;  // one query, so that a dropped weight is all that reads its value
    call.query = test::random_tensor(random, {1, 1, 1, 2});
    call.key = test::random_tensor(random, {1, 1, 6, 2});
    call.value = test::random_tensor(random, {1, 1, 6, 3});
    call.dropout = {.rate = 0.5, .seed = random.bits()};
    AttentionCase bad = call;
    for (std::int64_t j = 0; j < 6; ++j) {
      if (!is_dropped(call, 0, 0, 0, j)) continue;
      ++poisoned;
      for (std::int64_t e = 0; e < 3; ++e) bad.value(0, 0, j, e) = not_a_number;
    }
    const Flow flow(seed, call);
    const auto clean = attention(call.inputs(), call.options());
    const auto found = attention(bad.inputs(), bad.options());
    const auto d_clean = back(call, flow);
    const auto d_found = back(bad, flow);
    ASSERT_TRUE(clean && found && d_clean && d_found);
    ASSERT_TRUE(same_tensor(found->output, clean->output));
    ASSERT_TRUE(same_gradients(*d_found, *d_clean));
    EXPECT_TRUE(oracle::attention(bad.inputs(), bad.options()));
    const auto row = attention_row(bad.inputs(), bad.options(), {0, 0, 0});
    ASSERT_TRUE(row);
    for (const double part : row->mix) ASSERT_FALSE(std::isnan(part));
    const auto bound = bound_attention(bad.inputs(), bad.options());
    ASSERT_TRUE(bound);
    for (const double x : bound->output.elements()) ASSERT_TRUE(std::isfinite(x));
  }
  EXPECT_GT(poisoned, 400);
}

TEST(AttentionDropout, ADroppedWeightSendsNothingToItsValueNotEvenNaN) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 1});
  call.key = call.value = Tensor<double>({1, 1, 2, 1});
  call.dropout.rate = 0.5;
  while (!is_dropped(call, 0, 0, 0, 0) || is_dropped(call, 0, 0, 0, 1)) ++call.dropout.seed;
  Flow flow(1, call);
  flow.d_output(0, 0, 0, 0) = not_a_number;
  const auto found = back(call, flow);
  const auto bound = bound_attention_backward(call.inputs(), call.options(), flow.views());
  ASSERT_TRUE(found && bound);
  EXPECT_TRUE(same_bits(found->d_value(0, 0, 0, 0), 0.0));
  EXPECT_TRUE(std::isnan(found->d_value(0, 0, 1, 0)));
  EXPECT_TRUE(same_bits(bound->d_value(0, 0, 0, 0), 0.0));
}

TEST(AttentionDropout, ARowOfWhichNothingIsLeftIsZeroAndNotEmpty) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 1});
  call.key = call.value = Tensor<double>({1, 1, 1, 1});
  call.value(0, 0, 0, 0) = 3;
  call.dropout.rate = 0.9;
  while (!is_dropped(call, 0, 0, 0, 0)) ++call.dropout.seed;
  const auto found = attention(call.inputs(), call.options());
  ASSERT_TRUE(found) << "EmptyRow::error does not mean this row";
  EXPECT_TRUE(same_bits(found->output(0, 0, 0, 0), 0.0));
  EXPECT_TRUE(same_bits(found->log_sum_exp(0, 0, 0), 0.0));
}

TEST(AttentionDropout, GradientsByHand) {
  // Two keys scoring 0, so a softmax of ½ ½; rate ½, the first is dropped: weights 0 1. Values 7 and
  // 4, d_output 1: d_softmax 0 8, delta 4, d_bias ½·(0 − 4) = −2 and ½·(8 − 4) = 2, d_value 0 1.
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 1});
  call.key = Tensor<double>({1, 1, 2, 1});
  call.value = test::one_head({{7}, {4}});
  call.bias = test::one_head({{0, 0}});
  call.dropout.rate = 0.5;
  while (!is_dropped(call, 0, 0, 0, 0) || is_dropped(call, 0, 0, 0, 1)) ++call.dropout.seed;
  Flow flow(1, call);
  flow.d_output(0, 0, 0, 0) = 1;
  flow.d_log_sum_exp(0, 0, 0) = 0;
  const auto found = attention(call.inputs(), call.options());
  const auto d = back(call, flow);
  ASSERT_TRUE(found && d);
  EXPECT_EQ(found->output(0, 0, 0, 0), 4);
  EXPECT_EQ(d->d_bias(0, 0, 0, 0), -2);
  EXPECT_EQ(d->d_bias(0, 0, 0, 1), 2);
  EXPECT_TRUE(same_bits(d->d_value(0, 0, 0, 0), 0.0));
  EXPECT_EQ(d->d_value(0, 0, 1, 0), 1);
}

/// The largest used fraction of a bound; fails above 1. `slack` is the oracle's own last digit.
class Judge {
 public:
  void compare(const Tensor<double>& found, const oracle::OracleTensor& expected,
               const Tensor<double>& bound, const char* name) {
    ASSERT_EQ(found.size(), expected.values.size()) << name;
    for (std::size_t n = 0; n < found.size(); ++n) {
      if (!oracle::is_finite(expected.values[n])) continue;  // a row that sees nothing
      const double room = bound.elements()[n] > 0 ? bound.elements()[n] + 1e-50 : 0;
      const double used = used_fraction(found.elements()[n], expected.values[n], room);
      ASSERT_LE(used, 1) << name << " #" << n << ": " << found.elements()[n];
      largest_ = std::max(largest_, used);
    }
  }
  [[nodiscard]] double largest() const { return largest_; }

 private:
  double largest_ = 0;
};

TEST(AttentionDropout, TheOracleAgreesWithinTheBoundWithEveryOption) {
  Judge outputs, weights, sums;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    AttentionCase call = test::documented_case(seed, {.longest = 7});
    call.empty_row = EmptyRow::zero;
    SCOPED_TRACE(test::describe_documents(seed, call));
    const auto found = attention(call.inputs(), call.options());
    const auto exact = oracle::attention(call.inputs(), call.options());
    const auto bound = bound_attention(call.inputs(), call.options());
    ASSERT_TRUE(found && exact && bound) << test::failure_message(exact);
    outputs.compare(found->output, exact->output, bound->output, "output");
    weights.compare(found->weights, exact->weights, bound->weights, "weights");
    sums.compare(found->log_sum_exp, exact->log_sum_exp, bound->log_sum_exp, "log_sum_exp");
    if (HasFatalFailure()) return;
  }
  for (const Judge* each : {&outputs, &weights, &sums}) {
    EXPECT_GT(each->largest(), 0.05) << "the bound would be vacuous";
  }
}

TEST(AttentionDropout, TheOraclesGradientsAgreeWithinTheBoundWithEveryOption) {
  Judge query, key, value, bias, sink;
  for (std::uint64_t seed = 1001; seed <= 1300; ++seed) {
    AttentionCase call = test::documented_case(seed, {.longest = 5, .widest = 3});
    call.empty_row = EmptyRow::zero;
    SCOPED_TRACE(test::describe_documents(seed, call));
    const Flow flow(seed, call);
    const auto found = back(call, flow);
    const auto exact = oracle::attention_backward(
        call.inputs(), call.options(), flow.views().d_output, flow.views().d_log_sum_exp);
    const auto bound = bound_attention_backward(call.inputs(), call.options(), flow.views());
    ASSERT_TRUE(found && exact && bound) << test::failure_message(exact);
    query.compare(found->d_query, exact->d_query, bound->d_query, "d_query");
    key.compare(found->d_key, exact->d_key, bound->d_key, "d_key");
    value.compare(found->d_value, exact->d_value, bound->d_value, "d_value");
    if (call.bias) bias.compare(found->d_bias, exact->d_bias, bound->d_bias, "d_bias");
    if (!call.sink.empty()) sink.compare(found->d_sink, exact->d_sink, bound->d_sink, "d_sink");
    if (HasFatalFailure()) return;
  }
  for (const Judge* each : {&query, &key, &value, &bias, &sink}) {
    EXPECT_GT(each->largest(), 0.05) << "the bound would be vacuous";
  }
}

TEST(AttentionDropout, TheTraceShowsTheSoftmaxAndWhatIsLeftOfIt) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 1});
  call.key = Tensor<double>({1, 1, 2, 1});
  call.value = test::one_head({{7}, {4}});
  call.dropout.rate = 0.5;
  while (!is_dropped(call, 0, 0, 0, 0) || is_dropped(call, 0, 0, 0, 1)) ++call.dropout.seed;
  const auto trace = Trace::of(call);
  ASSERT_TRUE(trace);
  const auto text = [&](const char* address) {
    const auto parsed = parse_address(address);
    if (!parsed) return parsed.failure().message;
    const auto why = trace->why(*parsed);
    return why ? why->with_addresses() + "; " + why->note : why.failure().message;
  };
  EXPECT_EQ(text("softmax[0,1]"), "exp[0,1] / sum[0]; ");
  EXPECT_EQ(text("weights[0,0]"), "0; dropped");
  EXPECT_EQ(text("weights[0,1]"), "softmax[0,1] / (1 - 0.5); ");
  EXPECT_EQ(text("mix[0,0,0]"), "0; the weight is dropped, and its value not read");
  EXPECT_EQ(text("mix[0,1,0]"), "weights[0,1] * value[1,0]; ");
  EXPECT_TRUE(trace->dropped("", 0, 0));
  EXPECT_FALSE(trace->dropped("", 0, 1));
  call.dropout.rate = 0;
  const auto without = Trace::of(call);
  ASSERT_TRUE(without);
  EXPECT_EQ(without->find("softmax"), nullptr);
}

TEST(AttentionDropout, RatesOutsideZeroToOneAreRefused) {
  for (const double rate :
       {-0.1, 1.0, 1.5, not_a_number, -std::numeric_limits<double>::infinity()}) {
    AttentionCase call;
    call.query = Tensor<double>({1, 1, 2, 1});
    call.key = call.value = Tensor<double>({1, 1, 2, 1});
    call.dropout.rate = rate;
    EXPECT_EQ(test::failure_id(attention(call.inputs(), call.options())), "bad-option") << rate;
    EXPECT_EQ(test::failure_id(oracle::attention(call.inputs(), call.options())), "bad-option")
        << rate;
  }
}

TEST(AttentionDropout, PlacesThatDoNotFitTheirCounterAreRefused) {
  const double zero = 0;
  View<const double, 4> huge;  // 2^32 queries that are one number
  huge.data = &zero;
  huge.extents = {1, 1, std::int64_t{1} << 32U, 1};
  View<const double, 4> one = huge;
  one.extents = {1, 1, 1, 1};
  AttentionOptions<double> options;
  options.dropout.rate = 0.5;
  EXPECT_EQ(test::failure_id(check_attention({huge, one, one}, options)), "bad-option");
  EXPECT_EQ(test::failure_id(check_attention({one, huge, huge}, options)), "bad-option");
  options.dropout.rate = 0;
  EXPECT_TRUE(check_attention({huge, one, one}, options));
}

}  // namespace
}  // namespace attest::lab
