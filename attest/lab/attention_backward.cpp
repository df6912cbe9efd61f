// SPDX-License-Identifier: MIT
#include "attest/lab/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"

namespace attest::lab {
namespace {

std::size_t at_index(std::int64_t place) { return static_cast<std::size_t>(place); }

/// The tables of one query head; hidden places hold zero, rows that see nothing are all zero.
struct HeadTables {
  Tensor<double> weights;   // [T, S]
  Tensor<double> d_biased;  // [T, S]
  Tensor<double> d_dot;     // [T, S]
  Tensor<bool> visible;     // [T, S]
  Tensor<bool> kept;        // [T, S], visible and not dropped
};

struct Backward {
  const AttentionCall& call;
  const AttentionOutputGradients& gradients;

  [[nodiscard]] std::int64_t group_of(std::int64_t h) const {
    return h / (call.shape.H / call.shape.G);
  }

  /// 2. and 1., for one row: from d_output[i] to d_biased[i,·], d_dot[i,·] and the sink's share.
  double back_through_row(RowPlace at, const AttentionRow& row, HeadTables& head) const {
    const auto& [in, options, shape, visibility] = call;
    const std::int64_t g = group_of(at.h);
    const std::size_t keys = row.weights.size();

    // output = Σ_j weights·value:  d_weights[j] = d_output[i]·value[j]
    // weights = softmax/(1 − rate):  d_softmax = d_weights/(1 − rate), and 0 where dropped
    std::vector<double> d_softmax(keys, 0);
    for (std::size_t j = 0; j < keys; ++j) {
      if (row.hidden[j] != HiddenBy::nothing || row.dropped[j]) continue;
      const double d_weight = exact_dot(
          {&gradients.d_output(at.b, at.h, at.i, 0), gradients.d_output.strides[3]},
          {&in.value(at.b, g, static_cast<std::int64_t>(j), 0), in.value.strides[3]}, shape.E);
      d_softmax[j] = d_weight / (1 - options.dropout.rate);  // by 1, without dropout
    }
    // softmax = exp(biased − peak)/sum:  every score pulls at every weight through the sum.
    std::vector<double> terms(keys, 0);
    for (std::size_t j = 0; j < keys; ++j) terms[j] = row.softmax[j] * d_softmax[j];
    const double delta = exact_sum(terms);
    const double d_lse = gradients.d_log_sum_exp ? gradients.d_log_sum_exp(at.b, at.h, at.i) : 0;
    for (std::size_t j = 0; j < keys; ++j) {
      if (row.hidden[j] != HiddenBy::nothing) continue;
      const double parts[] = {d_softmax[j], -delta, d_lse};
      const double d_biased = row.softmax[j] * exact_sum(parts);
      // capped = c·tanh(scaled/c):  d_scaled = d_biased / cosh²(scaled/c)
      const double d_scaled =
          options.softcap ? d_biased * sech_squared(row.scaled[j] / *options.softcap) : d_biased;
      // scaled = dot/√D, or dot·scale
      const double root = std::sqrt(static_cast<double>(shape.D));
      const auto key = static_cast<std::int64_t>(j);
      head.weights(at.i, key) = row.weights[j];
      head.visible(at.i, key) = true;
      head.kept(at.i, key) = !row.dropped[j];
      head.d_biased(at.i, key) = d_biased;
      head.d_dot(at.i, key) = options.scale ? d_scaled * *options.scale : d_scaled / root;
    }
    const double sink_weight = row.sink_exp / row.sum;
    return sink_weight * (d_lse - delta);
  }

  /// dot = Σ_d query·key:  d_query[i] = Σ_j d_dot[i,j]·key[j], over the visible keys.
  void back_to_query(RowPlace at, const HeadTables& head, Tensor<double>& d_query) const {
    const std::int64_t g = group_of(at.h);
    std::vector<double> terms;
    for (std::int64_t d = 0; d < call.shape.D; ++d) {
      terms.clear();
      for (std::int64_t j = 0; j < call.shape.S; ++j) {
        if (head.visible(at.i, j))
          terms.push_back(head.d_dot(at.i, j) * call.in.key(at.b, g, j, d));
      }
      d_query(at.b, at.h, at.i, d) = exact_sum(terms);
    }
  }

  /// d_key[j] = Σ d_dot[i,j]·query[i] and d_value[j] = Σ weights[i,j]·d_output[i], each one sum over
  /// all rows i and all query heads of the group.
  void back_to_keys(std::int64_t b, std::int64_t g, const std::vector<HeadTables>& heads,
                    AttentionGradients& out) const {
    const AttentionShape& shape = call.shape;
    const AttentionInputs<double>& in = call.in;
    const std::int64_t first_head = g * (shape.H / shape.G);
    std::vector<double> terms;
    const auto sum_over_rows = [&](const auto& term) {
      terms.clear();
      for (std::size_t n = 0; n < heads.size(); ++n) {
        for (std::int64_t i = 0; i < shape.T; ++i) {
          term(heads[n], first_head + static_cast<std::int64_t>(n), i);
        }
      }
      return exact_sum(terms);
    };
    for (std::int64_t j = 0; j < shape.S; ++j) {
      for (std::int64_t d = 0; d < shape.D; ++d) {
        out.d_key(b, g, j, d) =
            sum_over_rows([&](const HeadTables& head, std::int64_t h, std::int64_t i) {
              if (head.visible(i, j)) terms.push_back(head.d_dot(i, j) * in.query(b, h, i, d));
            });
      }
      for (std::int64_t e = 0; e < shape.E; ++e) {
        out.d_value(b, g, j, e) =
            sum_over_rows([&](const HeadTables& head, std::int64_t h, std::int64_t i) {
              if (head.kept(i, j)) {
                terms.push_back(head.weights(i, j) * gradients.d_output(b, h, i, e));
              }
            });
      }
    }
  }
};

/// Sums that go to the same place, gathered exactly: d_bias over broadcast axes, d_sink over rows.
class BroadcastSums {
 public:
  explicit BroadcastSums(Shape shape) : shape_(std::move(shape)) {
    sums_.resize(at_index(element_count(shape_).value_or(0)));
  }
  void add(std::int64_t index, double value) { sums_[at_index(index)].add(value); }

  /// Where [b, h, i, j] of the whole falls: an axis of extent 1 gathers everything.
  [[nodiscard]] std::int64_t place(std::array<std::int64_t, 4> index) const {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      offset = offset * shape_[axis] + (shape_[axis] == 1 ? 0 : index[axis]);
    }
    return offset;
  }
  [[nodiscard]] Tensor<double> rounded() const {
    Tensor<double> out(shape_);
    for (std::size_t n = 0; n < sums_.size(); ++n) out.elements()[n] = sums_[n].rounded();
    return out;
  }

 private:
  Shape shape_;
  std::vector<ExactAccumulator> sums_;
};

Result<void> check_gradients(const AttentionOutputGradients& gradients, const AttentionShape& s) {
  const auto wrong = [](const char* name, const Shape& expected,
                        std::span<const std::int64_t> found) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[attention_backward] ", name, " must have shape ", to_string(expected),
                            "; it has ", to_string(found))};
  };
  const Shape output{s.B, s.H, s.T, s.E};
  if (!gradients.d_output) return wrong("d_output", output, Shape{});
  if (!std::ranges::equal(gradients.d_output.extents, output)) {
    return wrong("d_output", output, gradients.d_output.extents);
  }
  const Shape rows{s.B, s.H, s.T};
  if (gradients.d_log_sum_exp && !std::ranges::equal(gradients.d_log_sum_exp.extents, rows)) {
    return wrong("d_log_sum_exp", rows, gradients.d_log_sum_exp.extents);
  }
  return {};
}

}  // namespace

Result<AttentionGradients> attention_backward(const AttentionInputs<double>& inputs,
                                              const AttentionOptions<double>& options,
                                              const AttentionOutputGradients& gradients) {
  const ExactEnvironment environment;
  const auto shape = check_attention(inputs, options);
  if (!shape) return shape.failure();
  if (auto ok = check_gradients(gradients, *shape); !ok) return ok.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  const AttentionCall call{inputs, options, *shape, Visibility(options, *shape)};
  const Backward back{call, gradients};

  AttentionGradients out{Tensor<double>({B, H, T, D}),
                         Tensor<double>({B, G, S, D}),
                         Tensor<double>({B, G, S, E}),
                         {},
                         {}};
  BroadcastSums d_bias(options.bias
                           ? Shape(options.bias.extents.begin(), options.bias.extents.end())
                           : Shape{0, 0, 0, 0});
  BroadcastSums d_sink(Shape{options.sink.empty() ? 0 : H});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t g = 0; g < G; ++g) {
      std::vector<HeadTables> heads;
      for (std::int64_t h = g * (H / G); h < (g + 1) * (H / G); ++h) {
        HeadTables& head = heads.emplace_back(
            HeadTables{Tensor<double>({T, S}), Tensor<double>({T, S}), Tensor<double>({T, S}),
                       Tensor<bool>({T, S}), Tensor<bool>({T, S})});
        for (std::int64_t i = 0; i < T; ++i) {
          const RowPlace at{b, h, i};
          const AttentionRow row = compute_row(call, at, Record::result);
          if (row.empty && options.empty_row == EmptyRow::error) return no_visible_key(at);
          if (row.empty) continue;
          const double d_sink_row = back.back_through_row(at, row, head);
          if (!options.sink.empty()) d_sink.add(h, d_sink_row);
          for (std::int64_t j = 0; options.bias && j < S; ++j) {
            d_bias.add(d_bias.place({b, h, i, j}), head.d_biased(i, j));
          }
          back.back_to_query(at, head, out.d_query);
        }
      }
      back.back_to_keys(b, g, heads, out);
    }
  }
  if (options.bias) out.d_bias = d_bias.rounded();
  if (!options.sink.empty()) out.d_sink = d_sink.rounded();
  return out;
}

}  // namespace attest::lab
