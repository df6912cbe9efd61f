// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward_block.h"

/// The frame of a forward pass: the loop over blocks of keys, and the division at the end.
namespace attest::kernels::ATTEST_ISA {

/// The end of a group: the sink joins, sums divide, results leave. Gives the rows that saw nothing.
template <class P, class T = typename P::Number>
std::uint64_t finish(const Group<P>& group, const ForwardBlock<T>& task) {
  constexpr int W = lanes<T>;
  constexpr T ln2 = T(0.69314718055994530942);
  const Vec<T> exponent = broadcast(task.modify.exponent);
  const int ld = group.vectors * W;
  std::uint64_t empty = 0;
  for (int v = 0; v < group.vectors; ++v) {
    Vec<T> peak = load(group.peak + v * W);
    Vec<T> sum = load(group.sum + v * W);
    const auto nothing = (peak == broadcast(minus_infinity<T>)) & (sum == Vec<T>{});
    Vec<T> factor = broadcast(T(1));
    if (task.sink != nullptr) {
      Vec<T> sink{};
      for (int lane = 0; lane < W && group.first_row + v * W + lane < task.rows; ++lane) {
        sink[lane] = task.sink[group.first_row + v * W + lane];
      }
      const Vec<T> top = larger(peak, sink);
      factor = exp2_of_product(peak - top, exponent);
      sum = fma(sum, factor, exp2_of_product(sink - top, exponent));
      peak = top;
    }
    const Vec<T> denominator = select(nothing, broadcast(T(1)), sum);
    const Vec<T> inverse = factor / denominator;
    const T filler = task.nan_if_empty ? T(__builtin_nan("")) : T(0);
    for (int e = 0; e < task.E; ++e) {
      T* at = group.output + e * ld + v * W;
      store<T>(at, select(nothing, broadcast(filler), load(at) * inverse));
    }
    Vec<T> lse =
        fma(log2_positive(denominator), broadcast(ln2), peak * broadcast(task.modify.peak_factor));
    // log2_positive takes numbers alone: a sum that is none decides by itself.
    lse = select((denominator - denominator) == Vec<T>{}, lse, denominator);
    store<T>(group.peak + v * W, select(nothing, broadcast(minus_infinity<T>), lse));
    for (int lane = 0; lane < W && group.first_row + v * W + lane < task.rows; ++lane) {
      if (nothing[lane] == 0) continue;
      empty |= std::uint64_t{1} << static_cast<unsigned>(group.first_row + v * W + lane);
    }
  }
  const int rows = task.rows - group.first_row < ld ? task.rows - group.first_row : ld;
  for (int lane = 0; task.log_sum_exp != nullptr && lane < rows; ++lane) {
    task.log_sum_exp[group.first_row + lane] = group.peak[lane];
  }
  lanes_into_rows<T>(task.output + group.first_row, task.storage, task.output_step, group.output,
                     ld, rows, task.E, T(1));
  return empty;
}

/// A whole block of rows. Gives those that saw nothing, as bits.
template <class P, class T = typename P::Number>
std::uint64_t forward(const ForwardBlock<T>& task) {
  P::begin();
  Group<P> groups[block_rows / lanes<T> / P::group_vectors + 1];
  const int count = make_groups(groups, task, task.scratch);
  T* const room = task.scratch + block_rows * (P::query_numbers(task.D) +
                                               P::output_numbers(task.E) + 2 + block_keys);
  KeySpan span = span_of(task);
  if (span.begin < span.end) span.begin -= span.begin % P::key_step;
  for_each_key_block(task, span, block_keys, [&](const VisibleKeys& visible) {
    KeyBlock<P> block{visible};
    block.hides = block.mask != nullptr || task.modify.value_guard;
    block.operands = P::prepare(block, task, room);
    P::all_groups(groups, count, block, task);
  });
  std::uint64_t empty = 0;
  for (int g = 0; g < count; ++g) empty |= finish(groups[g], task);
  P::end();
  return empty;
}

}  // namespace attest::kernels::ATTEST_ISA
