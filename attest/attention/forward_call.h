// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/attention.h"
#include "attest/attention/empty_row.h"
#include "attest/attention/row_block.h"
#include "attest/attention/scratch.h"
#include "attest/linalg/flush.h"

/// A call by blocks of rows, each a piece that any thread may take. Not public.
namespace attest::engine {

template <class T>
struct ForwardCall {
  using Sum = AccumulatorOf<T>;
  const Call& call;
  const Ranges& ranges;
  const AttentionOutputs<T>& outputs;
  kernels::ForwardKernel<Sum> kernel;
  const RowBlocks& blocks;
  FirstEmptyRow& empty;

  [[nodiscard]] std::int64_t pieces() const {
    return call.shape.B * call.shape.G * blocks.per_head();
  }

  void piece(std::int64_t number) const {
    // The last blocks come first: under a causal mask they are the longest.
    const std::int64_t count = blocks.per_head();
    const BlockPlace place = blocks.place(number / count, count - 1 - number % count);
    if (place.rows > 0) run(place);
  }

  void run(const BlockPlace& place) const {
    RowBlock<Sum> rows;
    gather(rows, call, ranges, place);
    void* output[kernels::block_rows];
    Sum log_sum_exp[kernels::block_rows];
    for (int r = 0; r < place.rows; ++r) {
      output[r] = &outputs.output(place.b, rows.head[r], rows.query[r], 0);
    }
    const Shape& s = call.shape;
    const auto size = static_cast<std::size_t>(kernels::forward_scratch(s.D, s.E)) * sizeof(Sum);
    const kernels::ForwardBlock<Sum> task{.rows = place.rows,
                                          .D = static_cast<int>(s.D),
                                          .E = static_cast<int>(s.E),
                                          .storage = call.query.storage,
                                          .query = rows.query_data,
                                          .query_step = call.query.strides[3],
                                          .output = output,
                                          .output_step = outputs.output.strides[3],
                                          .log_sum_exp = log_sum_exp,
                                          .key = head_of(call.key, place.b, place.g),
                                          .value = head_of(call.value, place.b, place.g),
                                          .first_key = rows.first_key,
                                          .last_key = rows.last_key,
                                          .sink = call.sink != nullptr ? rows.sink : nullptr,
                                          .nan_if_empty = call.empty_row == EmptyRow::nan,
                                          .modify = rows.modify,
                                          .scratch = reinterpret_cast<Sum*>(scratch(size))};
    const FlushSubnormals flush;
    const std::uint64_t saw_nothing = kernel(task);
    for (int r = 0; r < place.rows; ++r) {
      if (outputs.log_sum_exp) {
        outputs.log_sum_exp(place.b, rows.head[r], rows.query[r]) = log_sum_exp[r];
      }
      if (((saw_nothing >> static_cast<unsigned>(r)) & 1U) != 0) {
        if (sees_a_key(call, ranges, place.b, rows.head[r], rows.query[r])) {
          write_scores_of_minus_infinity(call, outputs, place.b, rows.head[r], rows.query[r]);
        } else {
          empty.found(place.b, rows.head[r], rows.query[r]);
        }
      }
    }
  }
};

}  // namespace attest::engine
