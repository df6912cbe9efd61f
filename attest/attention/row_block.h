// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/attention/call.h"
#include "attest/attention/kernels/forward.h"
#include "attest/attention/row_blocks.h"
#include "attest/base/dropout.h"

/// The rows of one block, gathered for a kernel. Not public.
namespace attest::engine {

/// A key/value head's matrix.
[[nodiscard]] inline kernels::Matrix head_of(const Tensor4& tensor, std::int64_t b,
                                             std::int64_t g) {
  return {at(tensor, b, g, 0), tensor.strides[2], tensor.strides[3]};
}

/// What kernels want for each row, in arrays.
template <class T>
struct RowBlock {
  static constexpr std::size_t most = kernels::block_rows;
  std::int64_t head[most];
  std::int64_t query[most];
  const void* query_data[most];
  std::int64_t first_key[most];
  std::int64_t last_key[most];
  std::int64_t position[most];
  const void* bias[most];
  const bool* visible[most];
  std::int64_t id[most];
  T slope[most];
  T sink[most];
  kernels::DropoutPlace place[most];
  kernels::Modifiers<T> modify;
};

/// How products become scores, each constant rounded once.
template <class T>
void set_scale(kernels::Modifiers<T>& modify, const Call& call) {
  constexpr double log2e = 1.44269504088896340736;
  modify.scale = static_cast<T>(call.scale);
  if (call.softcap != 0) {
    modify.softcap = static_cast<T>(call.softcap);
    modify.capped_scale = static_cast<T>(call.scale / call.softcap);
  }
  if (call.softcap != 0 || call.bias.data != nullptr || call.alibi_slopes != nullptr) return;
  const double size = std::abs(call.scale);
  // A scale that would take products out of range goes with the queries; the sink's units want it.
  if (call.sink != nullptr || !(size > 0x1p-60 && size < 0x1p60)) {
    modify.query_factor = modify.scale;
    return;
  }
  modify.query_factor = call.scale < 0 ? T(-1) : T(1);
  modify.exponent = static_cast<T>(size * log2e);
  modify.peak_factor = static_cast<T>(size);
}

/// All about the `rows` rows whose head and query are set, of batch b.
template <class T>
void gather_chosen(RowBlock<T>& block, const Call& call, const Ranges& ranges, std::int64_t b,
                   int rows) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(rows); ++k) {
    const std::int64_t h = block.head[k];
    const std::int64_t i = block.query[k];
    block.query_data[k] = at(call.query, b, h, i);
    const RowRange range = ranges.of(b, i);
    block.first_key[k] = std::max<std::int64_t>(range.first, 0);
    block.last_key[k] = std::min(range.last, call.shape.S);
    block.position[k] = range.position;
    if (call.bias.data != nullptr) block.bias[k] = at(call.bias, b, h, i);
    if (call.visible) block.visible[k] = &call.visible(b, h, i, 0);
    if (ranges.ids_scattered()) block.id[k] = ranges.query_id(b, i);
    const auto head = static_cast<std::size_t>(h);
    if (call.alibi_slopes != nullptr) block.slope[k] = static_cast<T>((*call.alibi_slopes)[head]);
    if (call.sink != nullptr) block.sink[k] = static_cast<T>((*call.sink)[head]);
    block.place[k] = {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(h),
                      static_cast<std::uint32_t>(i)};
  }
  kernels::Modifiers<T>& modify = block.modify;
  if (call.alibi_slopes != nullptr) modify.alibi_slope = block.slope;
  modify.position = block.position;
  if (call.bias.data != nullptr) {
    modify.bias = block.bias;
    modify.bias_step = call.bias.strides[3];
    modify.bias_storage = call.bias.storage;
  }
  if (call.visible) {
    modify.visible = block.visible;
    modify.visible_step = call.visible.strides[3];
  }
  if (ranges.ids_scattered()) {
    modify.query_id = block.id;
    modify.key_id = ranges.key_ids(b);
  }
  if (call.dropout.rate > 0) {
    modify.dropout = block.place;
    modify.seed = call.dropout.seed;
    modify.dropout_threshold = dropout_threshold(call.dropout.rate);
    modify.dropout_scale = static_cast<T>(1 / (1 - call.dropout.rate));
  }
  set_scale(modify, call);
  modify.value_guard = call.bias.data != nullptr || call.dropout.rate > 0;
}

template <class T>
void gather(RowBlock<T>& block, const Call& call, const Ranges& ranges, const BlockPlace& place) {
  const std::int64_t group = call.shape.heads_per_group();
  for (int r = 0; r < place.rows; ++r) {
    const auto k = static_cast<std::size_t>(r);
    const std::int64_t row = place.first_row + r;
    block.head[k] = place.g * group + row % group;
    block.query[k] = row / group;
  }
  gather_chosen(block, call, ranges, place.b, place.rows);
}

/// The keys that some row of a block may see by its range: from the first to before the second.
template <class T>
[[nodiscard]] std::pair<std::int64_t, std::int64_t> keys_of(const RowBlock<T>& block, int rows) {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    if (block.first_key[r] >= block.last_key[r]) continue;
    begin = std::min(begin, block.first_key[r]);
    end = std::max(end, block.last_key[r]);
  }
  return {begin, end};
}

}  // namespace attest::engine
