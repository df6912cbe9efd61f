// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <limits>

#include "attest/attention/attention.h"
#include "attest/attention/call.h"
#include "attest/attention/dispatch.h"
#include "attest/attention/row_block.h"
#include "attest/attention/scratch.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/linalg/flush.h"

namespace attest {
namespace engine {
namespace {

template <class Sum>
struct WeightsCall {
  const Call& call;
  const Ranges& ranges;
  const WeightsChoice& choice;
  View<const Sum, 3> log_sum_exp;  // [B, H, T]
  kernels::WeightsKernel<Sum> kernel;
  Sum* out;  // [queries, S], zeros

  [[nodiscard]] std::int64_t pieces() const {
    return (choice.queries + kernels::block_rows - 1) / kernels::block_rows;
  }

  void piece(std::int64_t number) const {
    const std::int64_t first = number * kernels::block_rows;
    const auto rows =
        static_cast<int>(std::min<std::int64_t>(kernels::block_rows, choice.queries - first));
    const Shape& s = call.shape;
    RowBlock<Sum> block;
    std::array<Sum, kernels::block_rows> sums;
    std::array<Sum*, kernels::block_rows> weights;
    for (int r = 0; r < rows; ++r) {
      const auto k = static_cast<std::size_t>(r);
      block.head[k] = choice.h;
      block.query[k] = choice.first_query + first + r;
      sums[k] = log_sum_exp(choice.b, choice.h, block.query[k]);
      weights[k] = out + (first + r) * s.S;
    }
    gather_chosen(block, call, ranges, choice.b, rows);
    const auto size = static_cast<std::size_t>(kernels::weights_scratch(s.D)) * sizeof(Sum);
    const kernels::WeightsBlock<Sum> task{
        .rows = rows,
        .D = static_cast<int>(s.D),
        .storage = call.query.storage,
        .query = block.query_data,
        .query_step = call.query.strides[3],
        .log_sum_exp = sums.data(),
        .key = head_of(call.key, choice.b, choice.h / s.heads_per_group()),
        .first_key = block.first_key,
        .last_key = block.last_key,
        .modify = block.modify,
        .weights = weights.data(),
        .scratch = reinterpret_cast<Sum*>(scratch(size))};
    const FlushSubnormals flush;
    kernel(task);
    for (int r = 0; r < rows && call.empty_row == EmptyRow::nan; ++r) {
      const auto k = static_cast<std::size_t>(r);
      if (sums[k] != -std::numeric_limits<Sum>::infinity()) continue;
      std::fill_n(weights[k], s.S, std::numeric_limits<Sum>::quiet_NaN());
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

template <class T, BiasFor<T> Bias>
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
  const auto table = engine::kernel_table(execution);
  if (!table) throw_failure(table.failure());
  Tensor<Sum> out({choice.queries, s.S});
  if (choice.queries == 0) return out;
  const engine::Ranges ranges(call);
  const engine::WeightsCall<Sum> weights{
      call, ranges, choice, log_sum_exp, engine::weights_kernel<Sum>(**table), out.data()};
  threads_for(execution).run(weights.pieces(), [&](std::int64_t piece) { weights.piece(piece); });
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
