// SPDX-License-Identifier: MIT
// Gradients of random calls against the exact tier's, and against central differences of the engine.
#include <gtest/gtest.h>

#include "attest/lab/attention_backward.h"
#include "tests/attention/engine_cases_gradients.h"
#include "tests/attention/engine_cases_judge.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20261001;
constexpr std::int64_t cases = 60;  // of each type

struct Used {
  double query = 0, key = 0, value = 0, bias = 0, sink = 0;
};

void judge_gradients(const EngineCase& c, Isa isa, Used& used) {
  SCOPED_TRACE(name_of_case(c, isa));
  const Flows flows = flows_for(c);
  const lab::AttentionOutputGradients back{flows.d_output.view<4>(), flows.d_log_sum_exp.view<3>()};
  const auto exact = lab::attention_backward(c.inputs(), c.options(), back);
  ASSERT_TRUE(exact) << exact.failure().message;
  const auto bound = check::engine_gradient_bound(c.inputs(), c.options(), back, {c.storage, isa});
  ASSERT_TRUE(bound) << bound.failure().message;
  const EngineGradients found = run_engine_backward(c, flows, {.isa = isa});
  ASSERT_FALSE(found.failure) << found.failure->message;
  EXPECT_TRUE(within_bound(found.d_query, exact->d_query, bound->d_query, used.query)) << "d_query";
  EXPECT_TRUE(within_bound(found.d_key, exact->d_key, bound->d_key, used.key)) << "d_key";
  EXPECT_TRUE(within_bound(found.d_value, exact->d_value, bound->d_value, used.value)) << "d_value";
  if (c.bias) {
    EXPECT_TRUE(within_bound(found.d_bias, exact->d_bias, bound->d_bias, used.bias)) << "d_bias";
  }
  if (!c.chosen.sink.empty()) {
    EXPECT_TRUE(within_bound(found.d_sink, exact->d_sink, bound->d_sink, used.sink)) << "d_sink";
  }
}

void judge_gradients_of(DType storage) {
  const EngineLimits limits{.longest = 24, .crossing = 280, .widest = 24};
  for (const Isa isa : present_isas()) {
    Used used;
    for (std::uint64_t n = 0; n < cases; ++n) {
      judge_gradients(engine_case(seed + n, storage, limits), isa, used);
      if (::testing::Test::HasFailure()) return;
    }
    std::cout << name_of(storage) << ", " << name_of(isa) << ": used of the bound: d_query "
              << used.query << ", d_key " << used.key << ", d_value " << used.value << ", d_bias "
              << used.bias << ", d_sink " << used.sink << "\n";
    EXPECT_GT(std::min({used.query, used.key, used.value}), 0.002) << "the bound would be vacuous";
  }
}

TEST(AttentionBackwardLaw, FloatGradientsStayWithinTheirBound) { judge_gradients_of(DType::f32); }
TEST(AttentionBackwardLaw, BFloat16GradientsStayWithinTheirBound) {
  judge_gradients_of(DType::bf16);
}
TEST(AttentionBackwardLaw, HalfGradientsStayWithinTheirBound) { judge_gradients_of(DType::f16); }
TEST(AttentionBackwardLaw, DoubleGradientsStayWithinTheirBound) { judge_gradients_of(DType::f64); }

/// Σ output·d_output + Σ log_sum_exp·d_log_sum_exp, of the engine.
double loss_of(const EngineCase& c, const Flows& flows) {
  const EngineForward found = run_engine(c);
  EXPECT_FALSE(found.failure);
  double sum = 0;
  for (std::size_t n = 0; n < found.output.size(); ++n) {
    sum += found.output.elements()[n] * flows.d_output.elements()[n];
  }
  for (std::size_t n = 0; n < found.log_sum_exp.size(); ++n) {
    if (std::isinf(found.log_sum_exp.elements()[n])) continue;  // an empty row
    sum += found.log_sum_exp.elements()[n] * flows.d_log_sum_exp.elements()[n];
  }
  return sum;
}

/// Central differences at h and h/2: their difference estimates three times what the finer one still
/// misses (its error falls by four). The loss is known to the engine's bound: its bracket of constants
/// times u, for these widths, lengths and sizes below 1024·u of each term.
void expect_slope(const EngineCase& c, Tensor<double> EngineCase::*which, const Flows& flows,
                  std::size_t n, double gradient) {
  const auto slope = [&](double h) {
    EngineCase moved = c;
    double& x = (moved.*which).elements()[n];
    const double x0 = x, up = x0 + h, down = x0 - h;
    x = up;
    const double above = loss_of(moved, flows);
    x = down;
    return (above - loss_of(moved, flows)) / (up - down);
  };
  constexpr double h = 0x1p-12;
  const double coarse = slope(h), fine = slope(h / 2);
  double terms =
      0;  // bounds Σ|output·d_output| + …: values and flows are at most 8·2, lse moderate
  for (const double x : flows.d_output.elements()) terms += 16 * std::fabs(x);
  for (const double x : flows.d_log_sum_exp.elements()) terms += 64 * std::fabs(x);
  const double rounding = terms * 0x1p-53 * 1024 / h;
  EXPECT_NEAR(gradient, fine, std::fabs(fine - coarse) + rounding) << "element " << n;
}

TEST(AttentionBackwardLaw, DoubleGradientsAreTheSlopesOfTheEngine) {
  const EngineLimits limits{.longest = 7, .crossing = 7, .widest = 5};
  for (std::uint64_t s = 0; s < 40; ++s) {
    EngineCase c = engine_case(seed + 500 + s, DType::f64, limits);
    c.chosen.scale.reset();
    c.chosen.empty_row = EmptyRow::zero;
    if (c.query.extent(3) > 8 || c.value.extent(3) > 8) continue;  // the wide ones take long
    SCOPED_TRACE(name_of_case(c, Isa::portable));
    const Flows flows = flows_for(c);
    const EngineGradients found = run_engine_backward(c, flows);
    ASSERT_FALSE(found.failure) << found.failure->message;
    Random random(seed + s, 3);
    for (int draw = 0; draw < 4; ++draw) {
      const auto pick = [&](const Tensor<double>& t) {
        return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(t.size()) - 1));
      };
      const std::size_t q = pick(c.query), k = pick(c.key), v = pick(c.value);
      expect_slope(c, &EngineCase::query, flows, q, found.d_query.elements()[q]);
      expect_slope(c, &EngineCase::key, flows, k, found.d_key.elements()[k]);
      expect_slope(c, &EngineCase::value, flows, v, found.d_value.elements()[v]);
    }
  }
}

}  // namespace
}  // namespace attest::test
