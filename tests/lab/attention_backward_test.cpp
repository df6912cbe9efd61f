// SPDX-License-Identifier: MIT
#include "attest/lab/attention_backward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/oracle.h"
#include "tests/support/bits.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"
#include "tests/support/plain_attention.h"
#include "tests/support/plain_backward.h"
#include "tests/support/random_case.h"

namespace attest::lab {
namespace {

using test::Judged;
using test::one_head;
using test::PlainCall;
using test::same_bits;
using test::within;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// What flows back: random numbers for every output, and for log_sum_exp in every other case.
struct Flow {
  Tensor<double> d_output;
  Tensor<double> d_log_sum_exp;
  bool with_lse = false;

  Flow(std::uint64_t seed, const AttentionCase& call) : with_lse(seed % 2 == 0) {
    Random random(seed, 3);
    const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
    d_output = test::random_tensor(random, {B, H, T, call.value.extent(3)});
    d_log_sum_exp = test::random_tensor(random, {B, H, T});
  }
  [[nodiscard]] AttentionOutputGradients views() const {
    AttentionOutputGradients out;
    out.d_output = d_output.view<4>();
    if (with_lse) out.d_log_sum_exp = d_log_sum_exp.view<3>();
    return out;
  }
  [[nodiscard]] const Tensor<double>* lse() const { return with_lse ? &d_log_sum_exp : nullptr; }
};

Result<AttentionGradients> run(const AttentionCase& call, const Flow& flow) {
  return attention_backward(call.inputs(), call.options(), flow.views());
}

::testing::AssertionResult same_gradients(const AttentionGradients& a,
                                          const AttentionGradients& b) {
  const auto parts = [](const AttentionGradients& g) {
    return std::array{&g.d_query, &g.d_key, &g.d_value, &g.d_bias, &g.d_sink};
  };
  for (std::size_t n = 0; n < 5; ++n) {
    auto same = same_bits(parts(a)[n]->elements(), parts(b)[n]->elements());
    if (!same) return same << " in gradient " << n;
  }
  return ::testing::AssertionSuccess();
}

void expect_judged(const Tensor<double>& found, const Judged& expected, const std::string& which) {
  ASSERT_EQ(found.size(), expected.value.size()) << which;
  for (std::size_t n = 0; n < found.size(); ++n) {
    ASSERT_TRUE(within(found.elements()[n], expected.value[n], expected.bound[n]))
        << which << " element " << n;
  }
}

TEST(AttentionBackward, StaysWithinItsBoundOfThePlainLoopWithEveryOption) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    const AttentionCase call = test::random_case(seed);
    const Flow flow(seed, call);
    const auto found = run(call, flow);
    const std::string which = test::describe(seed, call);
    ASSERT_TRUE(found) << which;
    const auto inputs = call.inputs();
    const auto options = call.options();
    const PlainCall plain{inputs, options};
    const auto expected = test::PlainBackward(plain, flow.d_output, flow.lse()).gradients();
    expect_judged(found->d_query, expected.d_query, which + " d_query");
    expect_judged(found->d_key, expected.d_key, which + " d_key");
    expect_judged(found->d_value, expected.d_value, which + " d_value");
    expect_judged(found->d_bias, expected.d_bias, which + " d_bias");
    expect_judged(found->d_sink, expected.d_sink, which + " d_sink");
    if (HasFatalFailure()) return;
  }
}

/// The oracle's digits within the plain loop's bounds: two references that share nothing.
void expect_near_oracle(const Tensor<double>& found, const oracle::OracleTensor& expected,
                        const Judged& bounds, const std::string& which) {
  ASSERT_EQ(found.size(), expected.values.size()) << which;
  for (std::size_t n = 0; n < found.size(); ++n) {
    ASSERT_TRUE(
        within(found.elements()[n], expected.values[n].convert_to<long double>(), bounds.bound[n]))
        << which << " element " << n;
  }
}

TEST(AttentionBackward, StaysWithinItsBoundOfTheOracle) {
  for (std::uint64_t seed = 2001; seed <= 2060; ++seed) {
    const AttentionCase call = test::random_case(seed, {.longest = 4, .widest = 3, .size = 3});
    const Flow flow(seed, call);
    const auto found = run(call, flow);
    const std::string which = test::describe(seed, call);
    ASSERT_TRUE(found) << which;
    const auto exact = oracle::attention_backward(
        call.inputs(), call.options(), flow.views().d_output, flow.views().d_log_sum_exp);
    ASSERT_TRUE(exact) << which << ": " << exact.failure().message;
    const auto inputs = call.inputs();
    const auto options = call.options();
    const PlainCall plain{inputs, options};
    const auto bounds = test::PlainBackward(plain, flow.d_output, flow.lse()).gradients();
    expect_near_oracle(found->d_query, exact->d_query, bounds.d_query, which + " d_query");
    expect_near_oracle(found->d_key, exact->d_key, bounds.d_key, which + " d_key");
    expect_near_oracle(found->d_value, exact->d_value, bounds.d_value, which + " d_value");
    if (call.bias) {
      expect_near_oracle(found->d_bias, exact->d_bias, bounds.d_bias, which + " d_bias");
    }
    if (!call.sink.empty()) {
      expect_near_oracle(found->d_sink, exact->d_sink, bounds.d_sink, which + " d_sink");
    }
    if (HasFatalFailure()) return;
  }
}

/// Σ d_output·output + Σ d_lse·lse by the plain forward loop; `size` sums what was added, in size.
long double loss(const AttentionCase& call, const Flow& flow, long double& size) {
  const auto inputs = call.inputs();
  const auto options = call.options();
  const PlainCall plain{inputs, options};
  long double total = 0;
  size = 0;
  for (std::int64_t n = 0; n < plain.B() * plain.H() * plain.T(); ++n) {
    const std::int64_t b = n / (plain.H() * plain.T()), h = n / plain.T() % plain.H();
    const std::int64_t i = n % plain.T();
    const test::PlainRow row = test::plain_row(plain, b, h, i);
    if (row.seen.empty()) continue;
    for (std::int64_t e = 0; e < plain.E(); ++e) {
      const auto place = static_cast<std::size_t>(e);
      total += flow.d_output(b, h, i, e) * row.output[place];
      // The row's scores are known to about (M + n)·2⁻⁶⁴, and the output with them.
      size += std::fabs(flow.d_output(b, h, i, e)) * row.output_size[place] * (2 * row.size + 20);
    }
    if (flow.with_lse) {
      total += flow.d_log_sum_exp(b, h, i) * row.log_sum_exp;
      size += std::fabs(flow.d_log_sum_exp(b, h, i)) * (2 * row.size + 20);
    }
  }
  return total;
}

/// Central differences of the forward loop with steps h and h/2. Their error is c·h² + …, so the
/// difference of the two is 3/4 of the first one's error: twice it bounds the second one's
/// amply. What rounding adds is the loss's own uncertainty, divided by the step.
void expect_slope(AttentionCase& call, const Flow& flow, double& x, double found,
                  const std::string& which) {
  const double kept = x;
  long double size = 0;
  const auto slope = [&](double step) {
    x = kept + step;
    const long double above = x;
    const long double high = loss(call, flow, size);
    x = kept - step;
    const long double below = x;
    const long double low = loss(call, flow, size);
    x = kept;
    return (high - low) / (above - below);
  };
  constexpr double step = 0x1p-13;
  const long double coarse = slope(step);
  const long double fine = slope(step / 2);
  const long double rounding = size * 0x1p-64L * 2 / step;
  ASSERT_TRUE(within(found, fine, 2 * std::fabs(coarse - fine) + rounding)) << which;
}

TEST(AttentionBackward, IsTheSlopeOfTheForwardCall) {
  for (std::uint64_t seed = 3001; seed <= 3040; ++seed) {
    AttentionCase call = test::random_case(seed, {.longest = 3, .widest = 3, .size = 2});
    const Flow flow(seed, call);
    const auto found = run(call, flow);
    const std::string which = test::describe(seed, call);
    ASSERT_TRUE(found) << which;
    const auto every = [&](Tensor<double>& input, const Tensor<double>& gradient,
                           const std::string& name) {
      for (std::size_t n = 0; n < input.size(); ++n) {
        if (std::isinf(input.elements()[n])) continue;  // a bias that hides
        expect_slope(call, flow, input.elements()[n], gradient.elements()[n],
                     sentence(which, " ", name, " element ", n));
      }
    };
    every(call.query, found->d_query, "d_query");
    every(call.key, found->d_key, "d_key");
    every(call.value, found->d_value, "d_value");
    if (call.bias) every(*call.bias, found->d_bias, "d_bias");
    for (std::size_t h = 0; h < call.sink.size(); ++h) {
      expect_slope(call, flow, call.sink[h], found->d_sink.elements()[h], which + " d_sink");
    }
    if (HasFatalFailure()) return;
  }
}

TEST(AttentionBackward, UniformRowsGiveNumbersByHand) {
  // Two keys scoring 0, values 0 and 4, d_output 1, D = 4 so that the root is 2. weights ½ ½,
  // d_weights 0 4, delta 2, d_biased ½(0 − 2) = −1 and ½(4 − 2) = 1, d_dot −½ ½.
  AttentionCase call;
  call.query = one_head({{0, 0, 0, 0}});
  call.key = one_head({{1, 2, 0, 0}, {5, 0, 0, 8}});
  call.value = one_head({{0}, {4}});
  call.bias = one_head({{0, 0}});
  Flow flow(1, call);
  flow.d_output(0, 0, 0, 0) = 1;
  const auto found = run(call, flow);
  ASSERT_TRUE(found);
  const auto numbers = [](const Tensor<double>& t) {
    return std::vector<double>(t.elements().begin(), t.elements().end());
  };
  EXPECT_EQ(numbers(found->d_bias), (std::vector<double>{-1, 1}));
  EXPECT_EQ(numbers(found->d_query), (std::vector<double>{2, -1, 0, 4}));
  EXPECT_EQ(numbers(found->d_value), (std::vector<double>{.5, .5}));
  for (const double x : found->d_key.elements()) EXPECT_EQ(x, 0);
  EXPECT_EQ(found->d_sink.size(), 0U);
}

TEST(AttentionBackward, GradientOfLogSumExpIsTheWeights) {
  AttentionCase call = test::random_case(11);
  call.mask = {};
  call.visible.reset();
  const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  call.bias = Tensor<double>({B, H, T, call.key.extent(2)});
  Flow flow(2, call);
  for (double& x : flow.d_output.elements()) x = 0;
  for (double& x : flow.d_log_sum_exp.elements()) x = 1;
  const auto found = run(call, flow);
  const auto forward = attention(call.inputs(), call.options());
  ASSERT_TRUE(found && forward);
  EXPECT_TRUE(same_bits(found->d_bias.elements(), forward->weights.elements()));
}

TEST(AttentionBackward, HiddenNaNNeverLeaks) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    AttentionCase call = test::random_case(seed);
    const auto S = call.key.extent(2);
    call.visible = Tensor<bool>({1, 1, 1, S});
    Random random(seed, 4);
    for (bool& seen : call.visible->elements()) seen = random.between(0, 1) == 0;
    AttentionCase poisoned = call;
    for (std::int64_t n = 0; n < call.key.extent(0) * call.key.extent(1) * S; ++n) {
      if (call.visible->elements()[static_cast<std::size_t>(n % S)]) continue;
      const auto D = call.key.extent(3), E = call.value.extent(3);
      for (std::int64_t d = 0; d < D; ++d) poisoned.key.data()[n * D + d] = not_a_number;
      for (std::int64_t e = 0; e < E; ++e) poisoned.value.data()[n * E + e] = infinity;
    }
    const Flow flow(seed, call);
    const auto expected = run(call, flow);
    const auto found = run(poisoned, flow);
    ASSERT_TRUE(expected && found);
    ASSERT_TRUE(same_gradients(*expected, *found)) << test::describe(seed, call);
    // And what is hidden from all gets exactly nothing.
    for (std::size_t n = 0; n < found->d_key.size(); ++n) {
      const auto row = static_cast<std::int64_t>(n) / call.key.extent(3);
      if (call.visible->elements()[static_cast<std::size_t>(row % S)]) continue;
      ASSERT_TRUE(same_bits(found->d_key.elements()[n], 0.0)) << test::describe(seed, call);
    }
  }
}

TEST(AttentionBackward, EmptyRowsGiveZero) {
  AttentionCase call = test::random_case(5);
  const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  call.visible = Tensor<bool>({B, H, T, 1});  // nobody sees anything
  const auto S = call.key.extent(2);
  call.bias = Tensor<double>({1, 1, 1, S});
  call.sink.assign(static_cast<std::size_t>(H), 0.5);
  const Flow flow(4, call);
  for (const EmptyRow policy : {EmptyRow::zero, EmptyRow::nan}) {
    call.empty_row = policy;
    const auto found = run(call, flow);
    ASSERT_TRUE(found);
    for (const auto* part :
         {&found->d_query, &found->d_key, &found->d_value, &found->d_bias, &found->d_sink}) {
      EXPECT_GT(part->size(), 0U);
      for (const double x : part->elements()) EXPECT_TRUE(same_bits(x, 0.0));
    }
  }
  call.empty_row = EmptyRow::error;
  EXPECT_EQ(test::failure_id(run(call, flow)), "no-visible-key");
}

TEST(AttentionBackward, BroadcastBiasGathersTheSumOfItsPlaces) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    // Whole numbers and powers of two keep d_biased exact: all queries 0, so that weights are
    // equal, with four keys of which all are seen.
    Random random(seed);
    AttentionCase call;
    call.query = Tensor<double>({2, 4, 3, 1});
    call.key = test::random_whole_tensor(random, {2, 2, 4, 1}, 5);
    call.value = test::random_whole_tensor(random, {2, 2, 4, 2}, 8);
    call.bias = Tensor<double>({2, 4, 3, 4});
    Flow flow(1, call);
    flow.d_output = test::random_whole_tensor(random, {2, 4, 3, 2}, 8);
    const auto whole = run(call, flow);
    ASSERT_TRUE(whole);
    const Shape shape = test::broadcast_shape(random, {2, 4, 3, 4});
    Tensor<double> expected(shape);
    for (std::int64_t n = 0; n < 2 * 4 * 3 * 4; ++n) {
      const auto along = [&](std::size_t axis, std::int64_t at) {
        return shape[axis] == 1 ? 0 : at;
      };
      expected(along(0, n / 48), along(1, n / 12 % 4), along(2, n / 4 % 3), along(3, n % 4)) +=
          whole->d_bias.elements()[static_cast<std::size_t>(n)];
    }
    call.bias = Tensor<double>(shape);
    const auto gathered = run(call, flow);
    ASSERT_TRUE(gathered);
    EXPECT_EQ(gathered->d_bias.shape(), shape);
    ASSERT_TRUE(same_bits(gathered->d_bias.elements(), expected.elements())) << "seed " << seed;
  }
}

TEST(AttentionBackward, GroupedHeadsAddUp) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    AttentionCase grouped;
    grouped.query = Tensor<double>({1, 4, 3, 1});  // zeros: exact weights of ¼
    grouped.key = test::random_whole_tensor(random, {1, 2, 4, 1}, 5);
    grouped.value = test::random_whole_tensor(random, {1, 2, 4, 2}, 8);
    AttentionCase repeated = grouped;
    repeated.key = Tensor<double>({1, 4, 4, 1});
    repeated.value = Tensor<double>({1, 4, 4, 2});
    for (std::int64_t n = 0; n < 16; ++n)
      repeated.key.data()[n] = grouped.key.data()[n / 8 * 4 + n % 4];
    for (std::int64_t n = 0; n < 32; ++n) {
      repeated.value.data()[n] = grouped.value.data()[n / 16 * 8 + n % 8];
    }
    Flow flow(1, grouped);
    flow.d_output = test::random_whole_tensor(random, {1, 4, 3, 2}, 8);
    for (double& x : grouped.query.elements()) x = 0;
    const auto one = run(grouped, flow);
    const auto other = run(repeated, flow);
    ASSERT_TRUE(one && other);
    EXPECT_TRUE(same_bits(one->d_query.elements(), other->d_query.elements()));
    for (std::int64_t n = 0; n < 16; ++n) {
      const std::int64_t g = n / 8, inside = n % 8;
      const double sum =
          other->d_value.data()[g * 16 + inside] + other->d_value.data()[g * 16 + 8 + inside];
      ASSERT_EQ(one->d_value.data()[n], sum) << "seed " << seed;
    }
  }
}

TEST(AttentionBackward, StridesOfTheIncomingGradientsDoNotMatter) {
  for (std::uint64_t seed = 2; seed <= 60; seed += 2) {
    const AttentionCase call = test::random_case(seed);
    const Flow flow(seed, call);
    const auto expected = run(call, flow);
    std::vector<double> output(flow.d_output.elements().rbegin(), flow.d_output.elements().rend());
    std::vector<double> lse(flow.d_log_sum_exp.elements().rbegin(),
                            flow.d_log_sum_exp.elements().rend());
    AttentionOutputGradients views = flow.views();
    views.d_output.data = output.data() + output.size() - 1;
    for (auto& stride : views.d_output.strides) stride = -stride;
    views.d_log_sum_exp.data = lse.data() + lse.size() - 1;
    for (auto& stride : views.d_log_sum_exp.strides) stride = -stride;
    const auto found = attention_backward(call.inputs(), call.options(), views);
    ASSERT_TRUE(expected && found);
    ASSERT_TRUE(same_gradients(*expected, *found)) << test::describe(seed, call);
  }
}

TEST(AttentionBackward, IncomingShapesAreCheckedAndBothAreNamed) {
  const AttentionCase call = test::random_case(9);
  Flow flow(2, call);
  const auto T = call.query.extent(2);
  AttentionOutputGradients views = flow.views();
  views.d_output.extents[2] = T + 1;
  auto refused = attention_backward(call.inputs(), call.options(), views);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().id, "shape-mismatch");
  EXPECT_NE(refused.failure().message.find(to_string(flow.d_output.shape())), std::string::npos);
  EXPECT_NE(refused.failure().message.find(to_string(views.d_output.extents)), std::string::npos);
  views = flow.views();
  views.d_log_sum_exp.extents[0] += 1;
  refused = attention_backward(call.inputs(), call.options(), views);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().message.find("d_log_sum_exp"), std::string::npos);
  EXPECT_FALSE(attention_backward(call.inputs(), call.options(), {}));
}

}  // namespace
}  // namespace attest::lab
