// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/decode_products.h"
#include "attest/attention/kernels/forward.h"
#include "attest/linalg/kernels/exp2.h"

/// Few rows, many keys: the lanes are the columns of keys and values.
///
/// Bytes moved: each key and each value once for all rows that share them, which is what bounds the
/// speed. So memory must never rest, and never change its pace: the scores of a block are computed while
/// the values of the block before it are summed, four keys of the one and four of the other in turn, each
/// asking ahead in its own stream.
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

/// The scores of `now` and the sums of `before`, of which either may be absent.
template <class T, class Stored>
void both_products(const DecodeRows<T, Stored>& rows, int count, const KeyPart<T, Stored>* now,
                   const KeyPart<T, Stored>* before) {
  const int scored = now == nullptr ? 0 : now->keys;
  const int summed = before == nullptr ? 0 : before->keys;
  for (int at = 0; at < scored || at < summed; at += rows.turn) {
    if (at < scored) {
      for_rows(
          count, [&]<int R>(int r) __attribute__((always_inline)) {
            dots_of_turn<R>(rows, *now, r, at, r == 0);
          });
    }
    if (at < summed) {
      for_rows(
          count, [&]<int R>(int r) __attribute__((always_inline)) {
            mix_of_turn<R>(rows, *before, r, at, r == 0);
          });
    }
  }
}

/// Scores become weights, and the outputs so far are multiplied by what new peaks ask for. True if the
/// block hides something from a row.
template <class T, class Stored>
bool weigh_block(const DecodeRows<T, Stored>& rows, const ForwardBlock<T>& task,
                 const KeyPart<T, Stored>& part, RowState<T>* states) {
  const Modifiers<T>& modify = task.modify;
  finish_dots(part, task.rows, rows.product_factor);
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
        weigh<R>(part.scores + r * decode_keys, part.keys, modify.exponent, states + r, factor + r);
      });
  constexpr int W = lanes<T>;
  for (int r = 0; r < task.rows; ++r) {
    if (factor[r] == 1) continue;
    for_registers(task.rows, r, task.E, W, [&](int, int place) {
      store<T>(rows.output + place, load(rows.output + place) * broadcast(factor[r]));
    });
  }
  if (modify.dropout != nullptr) {
    std::uint64_t kept[block_keys];
    kept_weights(kept, modify, task.rows, part.begin, part.keys);
    for (int r = 0; r < task.rows; ++r) drop_row(part, modify, r, kept);
  }
  for (int r = 0; r < task.rows; ++r) {
    Stored::place_weights(part.scores + r * decode_keys, part.keys);
  }
  return !plain || modify.dropout != nullptr;
}

/// The sums of a block without the products of weights of 0.
template <class T, class Stored>
void mix_carefully(const DecodeRows<T, Stored>& rows, int count, const KeyPart<T, Stored>& part) {
  for (int r = 0; r < count; ++r) {
    for_registers(count, r, rows.E, lanes<T>, [&](int column, int place) {
      mix_carefully(part, r, rows.output + place, column, rows.E);
    });
  }
}

/// Rooms in the scratch memory, one behind the other.
template <class T, class Stored>
struct DecodeRooms {
  T* scores[2];
  typename Stored::Number* keys;
  typename Stored::Number* values;
};

template <class T, class Stored>
void decode_part(const DecodeBlock<T>& block, const DecodeRows<T, Stored>& rows,
                 const DecodeRooms<T, Stored>& rooms, RowState<T>* states) {
  using Number = typename Stored::Number;
  const ForwardBlock<T>& task = *block.rows;
  const std::int64_t most = keys_of_block<Number>(task.D > task.E ? task.D : task.E);
  // Which keys meet in a register must not depend on the rows that share the block.
  KeySpan span{block.begin - block.begin % Stored::keys_at_once, block.end};
  KeyPart<T, Stored> parts[2];
  const KeyPart<T, Stored>* before = nullptr;  // what is still to be summed
  for (int turn = 0; span.begin < span.end; turn ^= 1) {
    KeyPart<T, Stored>& part = parts[turn];
    const NextKeys next = take_keys(span, most);
    part.begin = next.begin;
    part.keys = next.keys;
    part.scores = rooms.scores[turn];
    part.key = Stored::rows_at(task.key, task.storage, part.begin, part.keys, task.D, rooms.keys);
    const bool in_place = part.key.data != rooms.keys;
    part.last = in_place ? static_cast<int>(block.end - 1 - part.begin) : part.keys - 1;
    both_products(rows, task.rows, &part, before);
    part.value =
        Stored::rows_at(task.value, task.storage, part.begin, part.keys, task.E, rooms.values);
    const bool hides = weigh_block(rows, task, part, states);
    before = &part;
    if (hides && !finite_values(part, task.E)) {
      mix_carefully(rows, task.rows, part);
      before = nullptr;
    }
  }
  both_products<T, Stored>(rows, task.rows, nullptr, before);
}

template <class Stored, class T>
void decode_as(const DecodeBlock<T>& block) {
  using Number = typename Stored::Number;
  using QueryNumber = typename Stored::QueryNumber;
  const ForwardBlock<T>& task = *block.rows;
  const int d_row = static_cast<int>(decode_row(task.D));
  const int e_row = static_cast<int>(decode_row(task.E));
  DecodeRows<T, Stored> rows;
  rows.query = reinterpret_cast<QueryNumber*>(task.scratch);
  // Sums that come and go with every turn: in the caller's memory they could lie across lines of cache.
  rows.output = task.scratch + decode_rows * d_row;
  rows.product_factor = Stored::product_factor(task.modify);
  rows.D = task.D;
  rows.E = task.E;
  rows.key_distance = rows_ahead<Number>(task.D);
  rows.value_distance = rows_ahead<Number>(task.E);
  rows.turn = keys_of_turn<Number>(task.D > task.E ? task.D : task.E);
  T* const scores = rows.output + decode_rows * e_row;
  auto* const key_room = reinterpret_cast<Number*>(scores + 2 * decode_rows * decode_keys);
  const DecodeRooms<T, Stored> rooms{
      {scores, scores + decode_rows * decode_keys}, key_room, key_room + decode_keys * task.D};

  auto* const one = reinterpret_cast<QueryNumber*>(key_room);
  for (int r = 0; r < task.rows; ++r) {
    Stored::place_query(one, task, r);
    for_registers(task.rows, r, task.D, Stored::step, [&](int column, int place) {
      __builtin_memcpy(rows.query + place, one + column, Stored::step * sizeof(QueryNumber));
    });
  }
  for (int k = 0; k < task.rows * e_row; ++k) rows.output[k] = 0;
  RowState<T> states[decode_rows];
  decode_part(block, rows, rooms, states);
  for (int r = 0; r < task.rows; ++r) {
    for_registers(task.rows, r, task.E, lanes<T>, [&](int column, int place) {
      store<T>(block.output + r * e_row + column, load(rows.output + place));
    });
    block.peak[r] = states[r].peak;
    block.sum[r] = sum_of_lanes<T>(states[r].sums);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
