// SPDX-License-Identifier: MIT
#pragma once

#include "tests/attention/engine_cases_typed.h"

/// The engine's gradients on a case.
namespace attest::test {

struct Flows {
  Tensor<double> d_output{};       // [B, H, T, E]
  Tensor<double> d_log_sum_exp{};  // [B, H, T]
};

inline Flows flows_for(const EngineCase& c) {
  Random random(c.seed, 78);
  const Shape rows{c.query.extent(0), c.query.extent(1), c.query.extent(2)};
  const DType sums = c.storage == DType::f64 ? DType::f64 : DType::f32;
  Flows out{stored_tensor(random, c.output_shape(), 2, c.storage),
            stored_tensor(random, rows, 2, sums)};
  if (one_in(random, 2)) {
    for (double& x : out.d_log_sum_exp.elements()) x = 0;
  }
  return out;
}

struct EngineGradients {
  std::optional<Failure> failure{};
  Tensor<double> d_query{};  // [B, H, T, D]
  Tensor<double> d_key{};    // [B, G, S, D]
  Tensor<double> d_value{};  // [B, G, S, E]
  Tensor<double> d_bias{};   // the bias's own shape
  Tensor<double> d_sink{};   // [H]
};

/// Forward, then backward with its results, on one instruction set.
inline EngineGradients run_engine_backward(const EngineCase& c, const Flows& flows,
                                           const Execution& execution = {}) {
  return with_types(c, [&]<class T, class Bias>() {
    using Acc = AccumulatorOf<T>;
    const TypedCase<T, Bias> typed(c);
    EngineGradients out;
    Placed<T, 4> output = place_for<T>(c.output_shape(), c.layout);
    Tensor<Acc> sums(flows.d_log_sum_exp.shape()), flow(flows.d_log_sum_exp.shape());
    for (std::size_t n = 0; n < flow.size(); ++n) {
      flow.elements()[n] = static_cast<Acc>(flows.d_log_sum_exp.elements()[n]);
    }
    const AttentionOutputs<T> outputs{output.view, sums.template view<3>()};
    if (const auto done = try_attention(outputs, typed.inputs(), typed.options, execution); !done) {
      out.failure = done.failure();
      return out;
    }
    const Placed<T, 4> d_output = placed<T>(flows.d_output, c.layout);
    AttentionBackwardInputs<T> results;
    results.output = output.view;
    results.log_sum_exp = std::as_const(sums).template view<3>();
    results.d_output = d_output.view;
    results.d_log_sum_exp = std::as_const(flow).template view<3>();
    Placed<T, 4> query = place_for<T>(c.query.shape(), c.layout);
    Placed<T, 4> key = place_for<T>(c.key.shape(), c.layout);
    Placed<T, 4> value = place_for<T>(c.value.shape(), c.layout);
    Tensor<Acc> bias(c.bias ? c.bias->shape() : Shape{0, 0, 0, 0});
    Tensor<Acc> sink(Shape{static_cast<std::int64_t>(c.chosen.sink.size())});
    AttentionGradientOutputs<T> gradients{query.view, key.view, value.view};
    if (c.bias) gradients.d_bias = bias.template view<4>();
    if (!c.chosen.sink.empty()) gradients.d_sink = sink.template view<1>();
    const auto done =
        try_attention_backward(gradients, typed.inputs(), results, typed.options, execution);
    if (!done) out.failure = done.failure();
    EXPECT_TRUE(query.gaps_are_untouched() && key.gaps_are_untouched() &&
                value.gaps_are_untouched());
    const auto wide = [](const View<const T, 4>& view) { return widened_tensor(view); };
    out.d_query = wide(query.view);
    out.d_key = wide(key.view);
    out.d_value = wide(value.view);
    out.d_bias = c.bias ? widened_tensor(bias) : Tensor<double>();
    out.d_sink = widened_tensor(sink);
    return out;
  });
}

inline ::testing::AssertionResult same_bits(const EngineGradients& a, const EngineGradients& b) {
  const std::pair<const char*, Tensor<double> EngineGradients::*> parts[] = {
      {"d_query", &EngineGradients::d_query},
      {"d_key", &EngineGradients::d_key},
      {"d_value", &EngineGradients::d_value},
      {"d_bias", &EngineGradients::d_bias},
      {"d_sink", &EngineGradients::d_sink}};
  for (const auto& [name, part] : parts) {
    if (auto same = same_bits((a.*part).elements(), (b.*part).elements()); !same) {
      return same << " of " << name;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace attest::test
