// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attest/attention/attention.h"
#include "attest/attention/call.h"
#include "attest/base/dropout.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace engine {
namespace {

template <class Sum>
Sum number_at(const Tensor4& tensor, std::int64_t offset) {
  switch (tensor.storage) {
    case kernels::Storage::f32:
      return static_cast<Sum>(static_cast<const float*>(tensor.data)[offset]);
    case kernels::Storage::f64:
      return static_cast<Sum>(static_cast<const double*>(tensor.data)[offset]);
    case kernels::Storage::bf16:
      return static_cast<Sum>(to_float(static_cast<const BFloat16*>(tensor.data)[offset]));
    case kernels::Storage::f16:
      return static_cast<Sum>(to_double(static_cast<const Half*>(tensor.data)[offset]));
  }
  return 0;
}

/// One row of a call, its scores computed one by one.
template <class Sum>
struct WeightRow {
  const Call& call;
  const Ranges& ranges;
  std::int64_t b, h, i;

  [[nodiscard]] std::int64_t start(const Tensor4& tensor, std::int64_t head,
                                   std::int64_t place) const {
    return b * tensor.strides[0] + head * tensor.strides[1] + place * tensor.strides[2];
  }

  [[nodiscard]] Sum score(std::int64_t j) const {
    const std::int64_t g = h / call.shape.heads_per_group();
    const std::int64_t query = start(call.query, h, i);
    const std::int64_t key = start(call.key, g, j);
    Sum dot = 0;
    for (std::int64_t d = 0; d < call.shape.D; ++d) {
      dot += number_at<Sum>(call.query, query + d * call.query.strides[3]) *
             number_at<Sum>(call.key, key + d * call.key.strides[3]);
    }
    const auto cap = static_cast<Sum>(call.softcap);
    const Sum scaled = dot * static_cast<Sum>(call.scale);
    return cap == 0 ? scaled : cap * std::tanh(scaled / cap);
  }

  /// The weight of a key inside the row's range.
  [[nodiscard]] Sum weight(std::int64_t j, std::int64_t position, Sum log_sum_exp) const {
    if (call.visible && !call.visible(b, h, i, j)) return 0;
    if (ranges.ids_scattered() && ranges.key_ids(b)[j] != ranges.query_id(b, i)) return 0;
    Sum bias = 0;
    if (call.bias.data != nullptr) {
      bias = number_at<Sum>(call.bias, start(call.bias, h, i) + j * call.bias.strides[3]);
      if (bias == -std::numeric_limits<Sum>::infinity()) return 0;
    }
    if (call.alibi_slopes != nullptr) {
      const Sum distance = static_cast<Sum>(std::abs(j - position));
      bias -= static_cast<Sum>((*call.alibi_slopes)[static_cast<std::size_t>(h)]) * distance;
    }
    const Sum out = std::exp(score(j) + bias - log_sum_exp);
    if (call.dropout.rate == 0) return out;
    const WeightPlace place{static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(h),
                            static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)};
    if (dropped(call.dropout.seed, dropout_threshold(call.dropout.rate), place)) return 0;
    return out * static_cast<Sum>(1 / (1 - call.dropout.rate));
  }

  void write(Sum* row, Sum log_sum_exp) const {
    std::fill_n(row, call.shape.S, Sum{0});
    if (log_sum_exp == -std::numeric_limits<Sum>::infinity()) {
      if (call.empty_row != EmptyRow::nan) return;
      std::fill_n(row, call.shape.S, std::numeric_limits<Sum>::quiet_NaN());
      return;
    }
    const RowRange range = ranges.of(b, i);
    const std::int64_t end = std::min(range.last, call.shape.S);
    for (std::int64_t j = std::max<std::int64_t>(range.first, 0); j < end; ++j) {
      row[j] = weight(j, range.position, log_sum_exp);
    }
  }
};

Result<void> check_choice(const WeightsChoice& c, const Shape& s) {
  const bool there = c.b >= 0 && c.b < s.B && c.h >= 0 && c.h < s.H && c.first_query >= 0 &&
                     c.queries >= 0 && c.first_query <= s.T - c.queries;
  if (there) return {};
  return Failure{ErrorKind::value, "bad-option",
                 sentence("[attention_weights] batch ", c.b, ", head ", c.h, ", queries ",
                          c.first_query, " to ", c.first_query + c.queries,
                          " are not all there; B = ", s.B, ", H = ", s.H, ", T = ", s.T)};
}

}  // namespace
}  // namespace engine

template <class T, class Bias>
Tensor<AccumulatorOf<T>> attention_weights(const AttentionInputs<T>& inputs,
                                           const AttentionOptions<Bias>& options,
                                           View<const AccumulatorOf<T>, 3> log_sum_exp,
                                           const WeightsChoice& choice,
                                           const Execution& execution) {
  using Sum = AccumulatorOf<T>;
  const engine::Call call = engine::checked_call(inputs, options).value();
  const engine::Shape& s = call.shape;
  engine::check_choice(choice, s).value();
  if (log_sum_exp.extents != std::array<std::int64_t, 3>{s.B, s.H, s.T}) {
    throw_failure({ErrorKind::shape, "shape-mismatch",
                   sentence("[attention_weights] log_sum_exp must have shape ",
                            to_string(attest::Shape{s.B, s.H, s.T}), "; it has ",
                            to_string(log_sum_exp.extents))});
  }
  Tensor<Sum> out({choice.queries, s.S});
  const engine::Ranges ranges(call);
  ThreadPool& pool = threads_for(execution);
  pool.run(choice.queries, [&](std::int64_t k) {
    const std::int64_t i = choice.first_query + k;
    const engine::WeightRow<Sum> row{call, ranges, choice.b, choice.h, i};
    row.write(out.data() + k * s.S, log_sum_exp(choice.b, choice.h, i));
  });
  return out;
}

#define ATTEST_INSTANTIATE(T, Bias)                                                             \
  template Tensor<AccumulatorOf<T>> attention_weights<T, Bias>(/* NOLINT */                     \
                                                               const AttentionInputs<T>&,       \
                                                               const AttentionOptions<Bias>&,   \
                                                               View<const AccumulatorOf<T>, 3>, \
                                                               const WeightsChoice&,            \
                                                               const Execution&);
ATTEST_INSTANTIATE(float, float)
ATTEST_INSTANTIATE(float, BFloat16)
ATTEST_INSTANTIATE(double, double)
ATTEST_INSTANTIATE(BFloat16, float)
ATTEST_INSTANTIATE(BFloat16, BFloat16)
ATTEST_INSTANTIATE(Half, float)
ATTEST_INSTANTIATE(Half, BFloat16)
#undef ATTEST_INSTANTIATE

}  // namespace attest
