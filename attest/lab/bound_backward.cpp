// SPDX-License-Identifier: MIT
// The bound of attention_backward: its lines, in its order, in running error analysis.
#include <array>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/lab/bound.h"
#include "attest/lab/bound_row.h"
#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"

namespace attest::lab {
namespace detail {
namespace {

std::size_t at_index(std::int64_t place) { return static_cast<std::size_t>(place); }

/// Terms that go to the same element of a gradient, wherever they come from.
class Gathered {
 public:
  explicit Gathered(Shape shape)
      : shape_(std::move(shape)), terms_(at_index(element_count(shape_).value_or(0))) {}

  /// An axis of extent 1 gathers everything, as a broadcast bias does.
  void add(std::array<std::int64_t, 4> index, Estimate term) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
      offset = offset * shape_[axis] + (shape_[axis] == 1 ? 0 : index[axis]);
    }
    terms_[at_index(offset)].push_back(term);
  }
  [[nodiscard]] Tensor<double> bound() const {
    Tensor<double> out(shape_);
    for (std::size_t n = 0; n < terms_.size(); ++n) out.elements()[n] = published(sum(terms_[n]));
    return out;
  }

 private:
  Shape shape_;
  std::vector<std::vector<Estimate>> terms_;
};

struct BackwardBound {
  const EstimatedCall& call;
  const AttentionOutputGradients& gradients;
  Gathered d_query, d_key, d_value, d_bias, d_sink;

  [[nodiscard]] Estimate d_output(RowPlace at, std::int64_t e) const {
    return {gradients.d_output(at.b, at.h, at.i, e), 0};
  }

  /// output = Σ_j weights·value:         d_weights[j] = d_output[i]·value[j]
  /// weights = softmax/(1 − rate) or 0:  d_softmax[j] = d_weights[j]/(1 − rate) or 0
  [[nodiscard]] std::vector<Estimate> back_to_softmax(RowPlace at, const EstimatedRow& row) const {
    std::vector<Estimate> d_softmax;
    for (std::size_t k = 0; k < row.keys.size(); ++k) {
      if (row.dropped[k]) {
        d_softmax.emplace_back();
        continue;
      }
      const std::int64_t j = row.keys[k];
      std::vector<Estimate> terms;
      for (std::int64_t e = 0; e < call.shape.E; ++e) {
        terms.push_back(product(d_output(at, e), call.value({at.b, call.group_of(at.h), j}, e)));
      }
      const Estimate d_weight = sum(terms);
      d_softmax.push_back(call.drops() ? quotient(d_weight, call.kept_share()) : d_weight);
    }
    return d_softmax;
  }

  /// capped = c·tanh(scaled/c), scaled = dot/√D or dot·scale:  from d_biased to d_dot
  [[nodiscard]] Estimate back_to_dot(Estimate d_biased, Estimate capped_at) const {
    const auto& options = call.options;
    const Estimate d_scaled =
        options.softcap ? product(d_biased, sech_squared_of(capped_at)) : d_biased;
    return options.scale ? product(d_scaled, {*options.scale, 0})
                         : quotient(d_scaled, call.root_of_width());
  }

  void add_row(RowPlace at) {
    const EstimatedRow row = estimate_row(call, at);
    if (row.keys.empty()) return;
    const std::int64_t g = call.group_of(at.h);
    const bool sink = !call.options.sink.empty();
    const std::vector<Estimate> d_softmax = back_to_softmax(at, row);
    // delta is a mean of d_softmax under the softmax: what all of them share does not err.
    const Estimate delta = mean_of(row.softmax, d_softmax, sink ? Sink::present : Sink::absent);
    const Estimate d_lse{gradients.d_log_sum_exp ? gradients.d_log_sum_exp(at.b, at.h, at.i) : 0,
                         0};
    for (std::size_t k = 0; k < row.keys.size(); ++k) {
      const std::int64_t j = row.keys[k];
      const Estimate parts[] = {d_softmax[k], {-delta.value, delta.error}, d_lse};
      const Estimate d_biased = product(row.softmax[k], sum(parts));
      const Estimate d_dot = back_to_dot(d_biased, row.capped_at[k]);
      if (call.options.bias) d_bias.add({at.b, at.h, at.i, j}, d_biased);
      for (std::int64_t d = 0; d < call.shape.D; ++d) {
        d_query.add({at.b, at.h, at.i, d}, product(d_dot, call.key({at.b, g, j}, d)));
        d_key.add({at.b, g, j, d}, product(d_dot, call.query(at, d)));
      }
      for (std::int64_t e = 0; !row.dropped[k] && e < call.shape.E; ++e) {
        d_value.add({at.b, g, j, e}, product(row.weights[k], d_output(at, e)));
      }
    }
    if (sink) d_sink.add({at.h}, product(row.sink_weight, difference(d_lse, delta)));
  }
};

Result<void> check_gradients(const AttentionOutputGradients& gradients, const AttentionShape& s) {
  const auto wrong = [](const char* name, const Shape& expected) {
    return Failure{
        ErrorKind::shape, "shape-mismatch",
        sentence("[bound_attention_backward] ", name, " must have shape ", to_string(expected))};
  };
  if (!gradients.d_output || gradients.d_output.extents != std::array{s.B, s.H, s.T, s.E}) {
    return wrong("d_output", {s.B, s.H, s.T, s.E});
  }
  if (gradients.d_log_sum_exp && gradients.d_log_sum_exp.extents != std::array{s.B, s.H, s.T}) {
    return wrong("d_log_sum_exp", {s.B, s.H, s.T});
  }
  return {};
}

}  // namespace
}  // namespace detail

Result<AttentionGradientBound> bound_attention_backward(const AttentionInputs<double>& inputs,
                                                        const AttentionOptions<double>& options,
                                                        const AttentionOutputGradients& gradients) {
  using detail::Gathered;
  const ExactEnvironment environment;
  const auto shape = check_attention(inputs, options);
  if (!shape) return shape.failure();
  if (auto ok = detail::check_gradients(gradients, *shape); !ok) return ok.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  const detail::EstimatedCall call{inputs, {}, options, *shape, Visibility(options, *shape)};
  const Shape bias_shape = options.bias
                               ? Shape(options.bias.extents.begin(), options.bias.extents.end())
                               : Shape{0, 0, 0, 0};
  detail::BackwardBound back{call,
                             gradients,
                             Gathered({B, H, T, D}),
                             Gathered({B, G, S, D}),
                             Gathered({B, G, S, E}),
                             Gathered(bias_shape),
                             Gathered(Shape{options.sink.empty() ? 0 : H})};
  for (std::int64_t n = 0; n < B * H * T; ++n) back.add_row({n / (H * T), n / T % H, n % T});

  AttentionGradientBound out{
      back.d_query.bound(), back.d_key.bound(), back.d_value.bound(), {}, {}};
  if (options.bias) out.d_bias = back.d_bias.bound();
  if (!options.sink.empty()) out.d_sink = back.d_sink.bound();
  return out;
}

}  // namespace attest::lab
