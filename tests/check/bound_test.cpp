// SPDX-License-Identifier: MIT
#include "attest/lab/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "attest/base/text.h"
#include "attest/check/verify_cases.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/bound_fraction.h"
#include "attest/lab/bound_row.h"
#include "attest/lab/oracle.h"

namespace attest {
namespace {

using check::VerifyCase;
using lab::oracle::OracleTensor;
using lab::oracle::Real;

constexpr std::uint64_t seed = 20260612;
constexpr std::int64_t cases = 1500;  // of each family

/// Calls `law` with every random case, and its name and seed in every failure.
template <class Law>
void for_each_case(std::int64_t count, Law law) {
  for (std::int64_t n = 0; n < count; ++n) {
    for (const VerifyCase& c : {check::workbook_case(seed, n), check::general_case(seed, n)}) {
      SCOPED_TRACE(sentence("seed ", seed, ", ", c.name));
      law(c);
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// The largest and the middle used fraction, and how many numbers were compared.
class Fractions {
 public:
  void compare(const Tensor<double>& found, const OracleTensor& expected,
               const Tensor<double>& bound, const char* name) {
    ASSERT_EQ(found.shape(), expected.shape) << name;
    ASSERT_EQ(found.shape(), bound.shape()) << name;
    for (std::size_t n = 0; n < found.size(); ++n) {
      const double used =
          lab::used_fraction(found.elements()[n], expected.values[n], bound.elements()[n]);
      ASSERT_LE(used, 1) << name << " #" << n << ": found " << found.elements()[n] << ", bound "
                         << bound.elements()[n];
      all_.push_back(used);
    }
  }
  [[nodiscard]] double largest() const {
    return all_.empty() ? 0 : *std::ranges::max_element(all_);
  }
  [[nodiscard]] std::size_t count() const { return all_.size(); }

 private:
  std::vector<double> all_;
};

/// The oracle is exact to fifty digits of its largest term; a log_sum_exp near 0 has no digits
/// left.
Tensor<double> with_oracle_error(Tensor<double> bound) {
  for (double& x : bound.elements()) x += x > 0 ? 1e-50 : 0;
  return bound;
}

bool sees_everything_somewhere(const OracleTensor& log_sum_exp) {
  return std::ranges::all_of(log_sum_exp.values,
                             [](const Real& x) { return lab::oracle::is_finite(x); });
}

TEST(Bound, ContainsTheErrorOfOutputsWeightsAndLogSumExp) {
  Fractions outputs, weights, sums;
  for_each_case(cases, [&](const VerifyCase& c) {
    const auto in = c.call.inputs();
    const auto options = c.call.options();
    const auto found = lab::attention(in, options);
    const auto expected = lab::oracle::attention(in, options);
    const auto bound = lab::bound_attention(in, options);
    ASSERT_TRUE(found && expected && bound);
    outputs.compare(found->output, expected->output, bound->output, "output");
    weights.compare(found->weights, expected->weights, bound->weights, "weights");
    // Of rows that see nothing the two contracts say different things.
    if (!sees_everything_somewhere(expected->log_sum_exp)) return;
    sums.compare(found->log_sum_exp, expected->log_sum_exp, with_oracle_error(bound->log_sum_exp),
                 "log_sum_exp");
  });
  for (const Fractions* each : {&outputs, &weights, &sums}) {
    EXPECT_GT(each->count(), 10000U);
    EXPECT_GT(each->largest(), 0.05) << "the bound would be vacuous";
  }
}

TEST(Bound, ContainsTheErrorOfScoresOfTenToTheTwelve) {
  Random random(seed, 99);
  double largest_error = 0;
  for (int n = 0; n < 200; ++n) {
    SCOPED_TRACE(sentence("seed ", seed, ", try ", n));
    AttentionCase call;
    call.query = check::random_tensor(random, {1, 1, 2, 16}, 1e6);
    call.key = check::random_tensor(random, {1, 1, 3, 16}, 1e6);
    for (auto* tensor : {&call.query, &call.key}) {  // of one sign, so that dot comes near 10^13
      for (double& x : tensor->elements()) x = std::abs(x);
    }
    call.value = check::random_tensor(random, {1, 1, 3, 1}, 1);
    const auto row = lab::attention_row(call.inputs(), call.options(), {0, 0, 0});
    const auto expected = lab::oracle::attention(call.inputs(), call.options());
    const auto bound = lab::bound_attention(call.inputs(), call.options());
    ASSERT_TRUE(row && expected && bound);
    for (std::int64_t j = 0; j < 3; ++j) {
      const Real& score = expected->scores(0, 0, 0, j);
      const double found = row->biased[static_cast<std::size_t>(j)];
      ASSERT_LE(lab::used_fraction(found, score, bound->scores(0, 0, 0, j)), 1);
      largest_error =
          std::max(largest_error, lab::oracle::nearest_double(abs(Real(found) - score)));
      ASSERT_LT(bound->scores(0, 0, 0, j), 0.02) << "16 products of 10^12";
    }
  }
  EXPECT_GT(largest_error, 1e-4) << "at this size a score is only known to some ten-thousandths";
}

TEST(Bound, ContainsTheErrorOfEveryGradient) {
  Fractions query, key, value, bias, sink;
  for_each_case(cases, [&](const VerifyCase& c) {
    const auto in = c.call.inputs();
    const auto options = c.call.options();
    const lab::AttentionOutputGradients back{c.d_output.view<4>(), c.d_log_sum_exp.view<3>()};
    const auto found = lab::attention_backward(in, options, back);
    const auto expected =
        lab::oracle::attention_backward(in, options, back.d_output, back.d_log_sum_exp);
    const auto bound = lab::bound_attention_backward(in, options, back);
    ASSERT_TRUE(found && expected && bound);
    query.compare(found->d_query, expected->d_query, bound->d_query, "d_query");
    key.compare(found->d_key, expected->d_key, bound->d_key, "d_key");
    value.compare(found->d_value, expected->d_value, bound->d_value, "d_value");
    if (options.bias) bias.compare(found->d_bias, expected->d_bias, bound->d_bias, "d_bias");
    if (!options.sink.empty())
      sink.compare(found->d_sink, expected->d_sink, bound->d_sink, "d_sink");
  });
  for (const Fractions* each : {&query, &key, &value, &bias, &sink}) {
    EXPECT_GT(each->count(), 500U);
    EXPECT_GT(each->largest(), 0.05) << "the bound would be vacuous";
  }
}

TEST(Bound, ContainsTheErrorOfTheWorkbooksBlock) {
  Fractions outputs;
  for (std::uint64_t n = 0; n < 300; ++n) {
    SCOPED_TRACE(sentence("seed ", seed, ", block ", n));
    Random random(seed, 1000 + n);
    const auto x = check::random_tensor(random, {random.between(1, 5), 4}, 2);
    lab::workbook::BlockParameters p;
    for (auto* m : {&p.P1, &p.P2, &p.WO, &p.W1, &p.W2}) {
      if (n % 2 == 0) *m = check::random_tensor(random, m->shape(), 1);
    }
    const bool causal = n % 3 == 0;
    const auto found = lab::workbook::transformer_block(x, p, {.causal = causal});
    const auto expected =
        lab::oracle::workbook_block(x, {p.P1, p.P2, p.WO, p.W1, p.W2, p.epsilon, causal});
    const auto bound = lab::bound_block(x, p, {.causal = causal});
    ASSERT_TRUE(found && expected && bound);
    outputs.compare(found->output, expected->output, bound->output, "output");
    if (HasFailure()) return;
  }
  // Pessimistic by fifty: it cannot see that a row's mean and its numbers err together, twice.
  EXPECT_GT(outputs.largest(), 0.01) << "the bound would be vacuous";
}

TEST(Bound, RefusesAResultThatIsOffByFourBounds) {
  std::int64_t tried = 0;
  for_each_case(100, [&](const VerifyCase& c) {
    const auto in = c.call.inputs();
    const auto found = lab::attention(in, c.call.options());
    const auto expected = lab::oracle::attention(in, c.call.options());
    const auto bound = lab::bound_attention(in, c.call.options());
    ASSERT_TRUE(found && expected && bound);
    for (std::size_t n = 0; n < found->output.size(); ++n) {
      const double allowed = bound->output.elements()[n];
      const double moved = found->output.elements()[n] + 4 * allowed;
      if (allowed == 0 || moved == found->output.elements()[n]) continue;
      EXPECT_GT(lab::used_fraction(moved, expected->output.values[n], allowed), 1);
      ++tried;
    }
  });
  EXPECT_GT(tried, 500);
}

/// The bound repeats the exact tier's steps by itself: if the two ever part, it bounds another
/// thing.
TEST(Bound, RepeatsTheExactTierBitForBit) {
  for_each_case(300, [&](const VerifyCase& c) {
    const auto in = c.call.inputs();
    const auto options = c.call.options();
    const auto shape = lab::check_attention(in, options);
    ASSERT_TRUE(shape);
    const lab::detail::EstimatedCall call{
        in, {}, options, *shape, lab::Visibility(options, *shape)};
    for (std::int64_t n = 0; n < shape->B * shape->H * shape->T; ++n) {
      const lab::RowPlace at{n / (shape->H * shape->T), n / shape->T % shape->H, n % shape->T};
      const auto row = lab::attention_row(in, options, at);
      ASSERT_TRUE(row);
      const auto estimated = lab::detail::estimate_row(call, at);
      ASSERT_EQ(estimated.keys.empty(), row->empty);
      if (row->empty) continue;
      for (std::size_t k = 0; k < estimated.keys.size(); ++k) {
        const auto j = static_cast<std::size_t>(estimated.keys[k]);
        ASSERT_EQ(estimated.scores[k].value, row->biased[j]);
        ASSERT_EQ(estimated.weights[k].value, row->weights[j]);
      }
      for (std::size_t e = 0; e < row->output.size(); ++e) {
        ASSERT_EQ(estimated.output[e].value, row->output[e]);
      }
      ASSERT_EQ(estimated.log_sum_exp.value, row->log_sum_exp);
    }
  });
}

TEST(Bound, IsZeroForHiddenKeysAndForALoneVisibleKey) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 2, 1}, std::array{0.3, 0.7});
  call.key = Tensor<double>({1, 1, 2, 1}, std::array{0.1, 0.9});
  call.value = Tensor<double>({1, 1, 2, 1}, std::array{0.1, 0.2});
  call.mask = Mask::causal();
  const auto bound = lab::bound_attention(call.inputs(), call.options());
  ASSERT_TRUE(bound);
  EXPECT_EQ(bound->weights(0, 0, 0, 0), 0) << "the lone key";
  EXPECT_EQ(bound->weights(0, 0, 0, 1), 0) << "hidden";
  EXPECT_EQ(bound->output(0, 0, 0, 0), 0);
  EXPECT_GT(bound->weights(0, 0, 1, 0), 0);
  EXPECT_GT(bound->output(0, 0, 1, 0), 0);
}

TEST(Bound, IsInfiniteWhereAStageOverflows) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 1, 1}, std::array{1e300});
  call.key = Tensor<double>({1, 1, 2, 1}, std::array{1e300, 1.0});
  call.value = Tensor<double>({1, 1, 2, 1}, std::array{1.0, 2.0});
  const auto bound = lab::bound_attention(call.inputs(), call.options());
  ASSERT_TRUE(bound);
  EXPECT_TRUE(std::isinf(bound->output(0, 0, 0, 0)));
}

TEST(UsedFraction, NeverPassesANaN) {
  const double nan = std::nan("");
  EXPECT_GT(lab::used_fraction(nan, Real(1), 1e300), 1);
  EXPECT_GT(lab::used_fraction(1, Real(nan), 1e300), 1);
  EXPECT_GT(lab::used_fraction(1, Real(2), nan), 1);
  EXPECT_GT(lab::used_fraction(1, Real(2), 0), 1);
  EXPECT_EQ(lab::used_fraction(1, Real(1), 0), 0);
  EXPECT_EQ(lab::used_fraction(2, Real(1), 4), 0.25);
}

}  // namespace
}  // namespace attest
