// SPDX-License-Identifier: MIT
// Options beyond a type, results that share memory, extents that cannot be, and rows at the edge of
// what counts as seeing a key.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "attest/attest.h"
#include "tests/attention/engine_cases_typed.h"

namespace attest::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One head, T queries of width 4 against three keys.
struct Small {
  Tensor<float> query, key{{1, 1, 3, 4}}, value{{1, 1, 3, 4}}, output, log_sum_exp;
  explicit Small(std::int64_t T = 2)
      : query({1, 1, T, 4}), output({1, 1, T, 4}), log_sum_exp({1, 1, T}) {
    float number = 0.125F;
    for (Tensor<float>* tensor : {&query, &key, &value}) {
      for (float& x : tensor->elements()) x = number = 1 - 1.5F * number;
    }
  }
  [[nodiscard]] AttentionInputs<float> inputs() const {
    return {std::as_const(query).view<4>(), std::as_const(key).view<4>(),
            std::as_const(value).view<4>()};
  }
  [[nodiscard]] AttentionOutputs<float> outputs() {
    return {output.view<4>(), log_sum_exp.view<3>()};
  }
  [[nodiscard]] Result<void> run(const AttentionOptions<float>& options = {},
                                 const Execution& execution = {}) {
    return try_attention(outputs(), inputs(), options, execution);
  }
};

std::string id_of(const Result<void>& result) { return result ? "" : result.failure().id; }

TEST(AttentionRefusals, OptionsThatTheTypeCannotHold) {
  using Change = std::function<void(AttentionOptions<float>&)>;
  const std::vector<std::pair<const char*, Change>> refused = {
      {"scale", [](auto& o) { o.scale = 1e39; }},
      {"scale below", [](auto& o) { o.scale = -1e300; }},
      {"softcap large", [](auto& o) { o.softcap = 3e38; }},
      {"softcap small", [](auto& o) { o.softcap = 1e-38; }},
      {"scale over softcap", [](auto& o) { o.scale = 4e-25, o.softcap = 4e15; }},
      {"sink", [](auto& o) { o.sink = {1e39}; }},
      {"slope", [](auto& o) { o.alibi_slopes = {1e38}; }},
  };
  for (const auto& [name, change] : refused) {
    AttentionOptions<float> options;
    change(options);
    Small call;
    EXPECT_EQ(id_of(call.run(options)), "bad-option") << name;
  }
  const std::vector<std::pair<const char*, Change>> taken = {
      {"scale", [](auto& o) { o.scale = 1e-300; }},
      {"no scale", [](auto& o) { o.scale = 0, o.softcap = 4e15; }},
      {"softcap", [](auto& o) { o.softcap = 1e19; }},
      {"sink", [](auto& o) { o.sink = {-3e38}; }},
      {"slope", [](auto& o) { o.alibi_slopes = {1e19}; }},
  };
  for (const auto& [name, change] : taken) {
    AttentionOptions<float> options;
    change(options);
    Small call;
    EXPECT_EQ(id_of(call.run(options)), "") << name;
    for (const float x : call.output.elements()) EXPECT_TRUE(std::isfinite(x)) << name;
  }
}

TEST(AttentionRefusals, ResultsThatShareMemory) {
  Small call;
  for (std::size_t axis = 2; axis < 4; ++axis) {
    AttentionOutputs<float> onto = call.outputs();
    onto.output.strides[axis] = 0;
    EXPECT_EQ(id_of(try_attention<float, float>(onto, call.inputs(), {})), "shape-mismatch");
  }
  AttentionOutputs<float> onto = call.outputs();
  onto.output = call.query.view<4>();
  EXPECT_EQ(id_of(try_attention<float, float>(onto, call.inputs(), {})), "shape-mismatch");

  ASSERT_TRUE(call.run());
  Tensor<float> gradient({1, 1, 3, 4});
  const AttentionBackwardInputs<float> results{
      .output = std::as_const(call.output).view<4>(),
      .log_sum_exp = std::as_const(call.log_sum_exp).view<3>(),
      .d_output = std::as_const(call.output).view<4>()};
  EXPECT_EQ(id_of(try_attention_backward<float, float>(
                {.d_key = gradient.view<4>(), .d_value = gradient.view<4>()}, call.inputs(),
                results, {})),
            "shape-mismatch");
  EXPECT_EQ(id_of(try_attention_backward<float, float>({.d_key = gradient.view<4>()}, call.inputs(),
                                                       results, {})),
            "");
}

TEST(AttentionRefusals, ExtentsThatCannotBe) {
  Small call;
  AttentionInputs<float> in = call.inputs();
  in.query.extents[2] = -3;
  const auto negative = try_attention<float, float>(call.outputs(), in, {});
  ASSERT_EQ(id_of(negative), "shape-mismatch");
  EXPECT_NE(negative.failure().message.find("negative"), std::string::npos);
  in = call.inputs();
  in.key.extents[2] = in.value.extents[2] = std::int64_t{1} << 62U;
  in.key.strides = in.value.strides = {0, 0, 0, 1};
  EXPECT_EQ(id_of(try_attention<float, float>(call.outputs(), in, {})), "too-large");
  // No memory is needed where there is no element.
  const View<const float, 4> nothing{nullptr, {1, 1, 0, 4}, {0, 0, 4, 1}};
  EXPECT_EQ(attention(nothing, call.inputs().key, call.inputs().value).memory.size(), 0U);
}

/// −∞ as a score is not the same as a key that is hidden: the exact tier says NaN.
TEST(AttentionRefusals, ScoresOfMinusInfinityAreNoEmptyRow) {
  for (const std::int64_t T : {1, 20}) {
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of(isa));
      Small call(T);
      for (float& x : call.query.elements()) x = 1e20F;
      for (float& x : call.key.elements()) x = -1e20F;
      ASSERT_TRUE(call.run({}, {.isa = isa}));
      for (const float x : call.output.elements()) EXPECT_TRUE(std::isnan(x));
      for (const float x : call.log_sum_exp.elements()) EXPECT_TRUE(std::isnan(x));
      AttentionOptions<float> options;
      options.sink = {0.5};
      ASSERT_TRUE(call.run(options, {.isa = isa}));
      for (const float x : call.output.elements()) EXPECT_EQ(x, 0);
      for (const float x : call.log_sum_exp.elements()) EXPECT_EQ(x, 0.5F);
      options.mask.key_lengths = {0};
      EXPECT_EQ(id_of(call.run(options, {.isa = isa})), "no-visible-key");
    }
  }
}

/// A row that is NaN has no gradient for a key that its bias hides, and no weight on it.
TEST(AttentionRefusals, ABiasHidesAlsoInARowOfNaN) {
  for (const Isa isa : present_isas()) {
    SCOPED_TRACE(name_of(isa));
    Small call(1);
    call.query(0, 0, 0, 0) = std::numeric_limits<float>::quiet_NaN();
    Tensor<float> bias({1, 1, 1, 3});
    bias(0, 0, 0, 1) = static_cast<float>(-infinity);
    AttentionOptions<float> options;
    options.bias = std::as_const(bias).view<4>();
    ASSERT_TRUE(call.run(options, {.isa = isa}));
    Tensor<float> d_value({1, 1, 3, 4}), d_output({1, 1, 1, 4});
    const AttentionBackwardInputs<float> results{
        .output = std::as_const(call.output).view<4>(),
        .log_sum_exp = std::as_const(call.log_sum_exp).view<3>(),
        .d_output = std::as_const(d_output).view<4>()};
    ASSERT_TRUE((try_attention_backward<float, float>({.d_value = d_value.view<4>()}, call.inputs(),
                                                      results, options, {.isa = isa})));
    const Tensor<float> weights = attention_weights<float, float>(
        call.inputs(), options, std::as_const(call.log_sum_exp).view<3>(), {.queries = 1},
        {.isa = isa});
    EXPECT_EQ(weights(0, 1), 0);
    EXPECT_TRUE(std::isnan(weights(0, 0)));
    for (std::int64_t e = 0; e < 4; ++e) EXPECT_EQ(d_value(0, 0, 1, e), 0);
  }
}

// ---- a bias's type, at compile time. What would not link must not compile either.

template <class T>
using Sums = View<const AccumulatorOf<T>, 3>;

template <class T, class Bias>
concept ForwardTakes = requires(View<const T, 4> x, const AttentionOptions<Bias>& options) {
  attention(x, x, x, options);
};
template <class T, class Bias>
concept IntoTakes = requires(const AttentionOutputs<T>& out, const AttentionInputs<T>& in,
                             const AttentionOptions<Bias>& options) {
  attention_into(out, in, options);
};
template <class T, class Bias>
concept TryTakes = requires(const AttentionOutputs<T>& out, const AttentionInputs<T>& in,
                            const AttentionOptions<Bias>& options) {
  try_attention(out, in, options);
};
template <class T, class Bias>
concept WeightsTake = requires(const AttentionInputs<T>& in, Sums<T> sums,
                               const AttentionOptions<Bias>& options) {
  attention_weights(in, options, sums, WeightsChoice{});
};
template <class T, class Bias>
concept BackwardTakes = requires(const AttentionInputs<T>& in,
                                 const AttentionBackwardInputs<T>& results,
                                 const AttentionOptions<Bias>& options) {
  attention_backward(in, results, options);
};
template <class T, class Bias>
concept BackwardIntoTakes = requires(const AttentionGradientOutputs<T>& out,
                                     const AttentionInputs<T>& in,
                                     const AttentionBackwardInputs<T>& results,
                                     const AttentionOptions<Bias>& options) {
  attention_backward_into(out, in, results, options);
};
template <class T, class Bias>
concept TryBackwardTakes = requires(const AttentionGradientOutputs<T>& out,
                                    const AttentionInputs<T>& in,
                                    const AttentionBackwardInputs<T>& results,
                                    const AttentionOptions<Bias>& options) {
  try_attention_backward(out, in, results, options);
};

/// How many of the seven calls take that bias beside tensors of T.
template <class T, class Bias>
constexpr int calls_that_take =
    int{ForwardTakes<T, Bias>} + int{IntoTakes<T, Bias>} + int{TryTakes<T, Bias>} +
    int{WeightsTake<T, Bias>} + int{BackwardTakes<T, Bias>} + int{BackwardIntoTakes<T, Bias>} +
    int{TryBackwardTakes<T, Bias>};

template <class T>
void expect_biases_in_single() {
  EXPECT_EQ((calls_that_take<T, float>), 7);
  EXPECT_EQ((calls_that_take<T, BFloat16>), 7);
  EXPECT_EQ((calls_that_take<T, double>), 0);
  EXPECT_EQ((calls_that_take<T, Half>), 0);
}

TEST(AttentionRefusals, ABiasOfAnotherTypeDoesNotCompile) {
  expect_biases_in_single<float>();
  expect_biases_in_single<BFloat16>();
  expect_biases_in_single<Half>();
  EXPECT_EQ((calls_that_take<double, double>), 7);
  EXPECT_EQ((calls_that_take<double, float>), 0);
  EXPECT_EQ((calls_that_take<double, BFloat16>), 0);
  EXPECT_EQ((calls_that_take<double, Half>), 0);
}

}  // namespace
}  // namespace attest::test
