// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/decode_products.h"
#include "attest/attention/kernels/forward.h"
#include "attest/linalg/kernels/exp2.h"

/// Few rows, many keys: the lanes are the columns of keys and values.
///
/// Bytes moved: each key and each value once for all rows that share them, which is what bounds the
/// speed. So memory must never rest: while the scores of a block are computed its values are fetched
/// into the first level of cache, and while those are summed the keys of the next block. A block is
/// small enough for both, and its rows are asked for one after another, as memory likes it; the tiles
/// that compute from it jump between rows, which would halve the speed of memory itself.
namespace attest::kernels::ATTEST_ISA {

/// Softcap, bias, ALiBi and the mask of one row.
template <class T, class Stored>
void change_row(const KeyPart<T, Stored>& part, const ForwardBlock<T>& task, int r) {
  const Modifiers<T>& modify = task.modify;
  for (int j = 0; j < part.keys; ++j) {
    T& score = part.scores[r * decode_keys + j];
    const std::int64_t key = part.begin + j;
    bool seen = key >= task.first_key[r] && key < task.last_key[r];
    if (seen && modify.visible != nullptr) seen = modify.visible[r][key * modify.visible_step];
    if (seen && modify.query_id != nullptr) seen = modify.key_id[key] == modify.query_id[r];
    T extra = 0;
    if (seen && modify.bias != nullptr) {
      extra = read_number<T>(modify.bias[r], modify.bias_storage, key * modify.bias_step);
      seen = !(extra == no_score<T>);
    }
    if (!seen) {
      score = no_score<T>;
      continue;
    }
    if (modify.alibi_slope != nullptr) {
      const std::int64_t distance = key - modify.position[r];
      extra -= modify.alibi_slope[r] * static_cast<T>(distance < 0 ? -distance : distance);
    }
    if (modify.softcap != 0) {
      score = tanh_of(broadcast(score * modify.capped_scale))[0] * modify.softcap;
    } else if (modify.bias != nullptr || modify.alibi_slope != nullptr) {
      score *= modify.scale;
    }
    score += extra;
  }
}

/// What is kept of a row from block to block, besides its output.
template <class T>
struct RowState {
  T peak = no_score<T>;
  Vec<T> sums{};  // of the weights, lane by lane
};

/// Scores of R rows become weights; gives the factors of what was summed before.
template <int R, class T>
ATTEST_INLINE void weigh(T* scores, int keys, T exponent, RowState<T>* rows, T* factor) {
  constexpr int W = lanes<T>;
  Vec<T> most[R];
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    most[r] = broadcast(rows[r].peak);
    for (int j = 0; j < keys; j += W) most[r] = larger(load(scores + r * decode_keys + j), most[r]);
  }
  T top[R];
  ATTEST_UNROLL for (int r = 0; r < R; ++r) top[r] = largest_lane<T>(most[r]);
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    const Vec<T> base = broadcast(top[r] == no_score<T> ? T(0) : top[r]);
    factor[r] = 1;
    if (top[r] != rows[r].peak) {
      factor[r] = exp2_of_product(broadcast(rows[r].peak) - base, broadcast(exponent))[0];
      rows[r].sums *= factor[r];
      rows[r].peak = top[r];
    }
    for (int j = 0; j < keys; j += W) {
      const Vec<T> weight =
          exp2_of_product(load(scores + r * decode_keys + j) - base, broadcast(exponent));
      rows[r].sums += weight;
      store<T>(scores + r * decode_keys + j, weight);
    }
  }
}

template <class T, class Stored>
void drop_row(const KeyPart<T, Stored>& part, const Modifiers<T>& modify, int r,
              const std::uint64_t* kept) {
  for (int j = 0; j < part.keys; ++j) {
    T& weight = part.scores[r * decode_keys + j];
    const bool keep = ((kept[j] >> static_cast<unsigned>(r)) & 1U) != 0;
    weight = keep ? weight * modify.dropout_scale : T(0);
  }
}

/// Calls body with 4, 2 or 1 and the first row of as many, until all rows have had their turn.
template <class Body>
ATTEST_INLINE void for_rows(int rows, Body body) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) body.template operator()<4>(r);
  if (r + 2 <= rows) {
    body.template operator()<2>(r);
    r += 2;
  }
  if (r < rows) body.template operator()<1>(r);
}

template <class T, class Stored>
void one_part(const KeyPart<T, Stored>& part, const DecodeBlock<T>& block, RowState<T>* rows,
              const Ahead<typename Stored::Number>& next_keys) {
  using Later = Ahead<typename Stored::Number>;
  const ForwardBlock<T>& task = *block.rows;
  const Later values{part.value, part.keys - 1, task.E};
  for_rows(
      task.rows, [&]<int R>(int r) __attribute__((always_inline)) {
        all_dots<R>(part, task.D, r, r == 0 ? values : Later{});
      });

  const Modifiers<T>& modify = task.modify;
  bool plain = modify.visible == nullptr && modify.query_id == nullptr && modify.bias == nullptr &&
               modify.alibi_slope == nullptr && modify.softcap == 0;
  for (int r = 0; r < task.rows; ++r) {
    plain &= task.first_key[r] <= part.begin && task.last_key[r] >= part.begin + part.keys;
  }
  if (!plain) {
    for (int r = 0; r < task.rows; ++r) change_row(part, task, r);
  }
  T factor[decode_rows];
  for_rows(
      task.rows, [&]<int R>(int r) __attribute__((always_inline)) {
        weigh<R>(part.scores + r * decode_keys, part.keys, modify.exponent, rows + r, factor + r);
      });
  if (modify.dropout != nullptr) {
    std::uint64_t kept[block_keys];
    kept_weights(kept, modify, task.rows, part.begin, part.keys);
    for (int r = 0; r < task.rows; ++r) drop_row(part, modify, r, kept);
  }
  for (int r = 0; r < task.rows; ++r) {
    Stored::place_weights(part.scores + r * decode_keys, part.keys);
  }
  const bool hides = !plain || modify.dropout != nullptr;
  if (hides && !finite_values(part, task.E)) {
    mix_carefully(part, block.output, factor, task.rows, task.E);
    return;
  }
  for_rows(
      task.rows, [&]<int R>(int r) __attribute__((always_inline)) {
        mix<R>(part, block.output, factor, r, task.E, r == 0 ? next_keys : Later{});
      });
}

/// Keys of a block: about 16 KiB of keys and as much of values, which the first level of cache holds.
template <class Number>
constexpr std::int64_t keys_of_block(std::int64_t columns) {
  constexpr std::int64_t wanted = 16384 / static_cast<std::int64_t>(sizeof(Number));
  std::int64_t keys = 16;
  while (keys < decode_keys && keys * columns < wanted) keys *= 2;
  return keys;
}

template <class T, class Stored>
void decode_part(const DecodeBlock<T>& block, KeyPart<T, Stored> part, RowState<T>* rows) {
  using Number = typename Stored::Number;
  const ForwardBlock<T>& task = *block.rows;
  auto* const key_room = reinterpret_cast<Number*>(part.scores + decode_rows * decode_keys);
  Number* const value_room = key_room + decode_keys * task.D;
  const auto keys_at = [&](std::int64_t first, int count) {
    return Stored::rows_at(task.key, task.storage, first, count, task.D, key_room);
  };
  const std::int64_t most = keys_of_block<Number>(task.D > task.E ? task.D : task.E);
  // Which keys meet in a register must not depend on the rows that share the block.
  KeySpan span{block.begin - block.begin % Stored::keys_at_once, block.end};
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, most);
    part.begin = next.begin;
    part.keys = next.keys;
    part.key = keys_at(part.begin, part.keys);
    part.value =
        Stored::rows_at(task.value, task.storage, part.begin, part.keys, task.E, value_room);
    const std::int64_t left = span.end - span.begin;
    Ahead<Number> ahead;
    if (left > 0 && part.key.data != key_room) {
      const int count = static_cast<int>(left < most ? left : most);
      ahead = {keys_at(span.begin, count), count - 1, task.D};
    }
    one_part(part, block, rows, ahead);
  }
}

template <class Stored, class T>
void decode_as(const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  const int d_row = static_cast<int>(decode_row(task.D));
  const int e_row = static_cast<int>(decode_row(task.E));
  KeyPart<T, Stored> part;
  part.query = reinterpret_cast<typename Stored::QueryNumber*>(task.scratch);
  part.scores = task.scratch + decode_rows * d_row;
  part.product_factor = Stored::product_factor(task.modify);
  for (int r = 0; r < task.rows; ++r) Stored::place_query(part.query + r * d_row, task, r);
  for (int k = 0; k < task.rows * e_row; ++k) block.output[k] = 0;
  RowState<T> rows[decode_rows];
  decode_part(block, part, rows);
  for (int r = 0; r < task.rows; ++r) {
    block.peak[r] = rows[r].peak;
    block.sum[r] = sum_of_lanes<T>(rows[r].sums);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
