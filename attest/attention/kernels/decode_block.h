// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/forward.h"
#include "attest/attention/kernels/memory.h"
#include "attest/attention/kernels/tiles.h"
#include "attest/linalg/kernels/exp2.h"
#include "attest/linalg/kernels/fold.h"

/// Few rows, many keys: the lanes are the columns of keys and values.
///
/// Bytes moved: each key and each value once for all rows that share them, which is what bounds the
/// speed. So memory must never rest: while the scores of a block are computed its values are fetched
/// into the first level of cache, and while those are summed the keys of the next block. A block is
/// small enough for both, and its rows are asked for one after another, as memory likes it; the tiles
/// that compute from it jump between rows, which would halve the speed of memory itself.
///
/// How numbers are read and multiplied is a class of its own (`Stored` below):
///
///     Number, QueryNumber     how keys and values, and queries, are stored
///     Register                what products are made of; `step` numbers of a row
///     place_query             fills a row of them, zeros beyond the last
///     rows_at                 rows of keys or values: in place, or a copy
///     read, read_first        a register of a row, or its first numbers and zeros
///     multiply(q, k, sum)     the sum plus the products, in f32 or f64
///     product_factor          of sums of products, where queries could not carry it
///     keys_at_once            rows of values that meet in one register
///     read_values<N, whole>   N registers of them; `column_of` tells what a lane holds
///     place_weights, weight   weights as `multiply` takes them, and each one again
namespace attest::kernels::ATTEST_ISA {

template <class T>
constexpr T no_score = -__builtin_inf();

/// Products of T, however the numbers are stored.
template <class T>
struct OfNumbers {
  using QueryNumber = T;
  using Register = Vec<T>;
  static constexpr int step = lanes<T>;
  static constexpr int keys_at_once = 1;
  static void place_query(T* to, const ForwardBlock<T>& task, int r) {
    for (int d = 0; d < decode_row(task.D); ++d) {
      to[d] = d < task.D ? read_number<T>(task.query[r], task.storage, d * task.query_step) *
                               task.modify.query_factor
                         : T(0);
    }
  }
  static Rows<T> rows_at(const Matrix& matrix, Storage storage, std::int64_t first, int count,
                         int columns, T* room) {
    return rows_of(matrix, storage, first, count, columns, room);
  }
  ATTEST_INLINE static Lanes<T> not_finite(Vec<T> x) { return x - x != Vec<T>{}; }
  ATTEST_INLINE static Vec<T> multiply(Vec<T> a, Vec<T> b, Vec<T> sum) { return fma(a, b, sum); }
  static T product_factor(const Modifiers<T>&) { return 1; }
  static constexpr int column_of(int place) { return place; }
  static void place_weights(T*, int) {}
  static T weight(const T* weights, int j) { return weights[j]; }
  ATTEST_INLINE static Vec<T> weights_at(const T* weights, int j) { return broadcast(weights[j]); }
};

template <class T>
struct AsIs : OfNumbers<T> {
  using Number = T;
  ATTEST_INLINE static Vec<T> read(const T* from) { return load(from); }
  ATTEST_INLINE static Vec<T> read_first(const T* from, int count) {
    return load_first<T>(from, count);
  }
  static T number(T from) { return from; }
};
template <F32 (*widened)(const std::uint16_t*)>
struct Halves : OfNumbers<float> {
  using Number = std::uint16_t;
  ATTEST_INLINE static F32 read(const Number* from) { return widened(from); }
  ATTEST_INLINE static F32 read_first(const Number* from, int count) {
    Number some[lanes<float>] = {};
    for (int k = 0; k < count && k < lanes<float>; ++k) some[k] = from[k];
    return widened(some);
  }
  static float number(Number from) { return read_first(&from, 1)[0]; }
  static Rows<Number> rows_at(const Matrix& matrix, Storage, std::int64_t first, int, int,
                              Number*) {
    return {static_cast<const Number*>(matrix.data) + first * matrix.row, matrix.row};
  }
};

/// The keys and values of one block and the scores of the rows: [rows][decode_keys].
template <class T, class Stored>
struct KeyPart {
  using Number = typename Stored::Number;
  std::int64_t begin = 0;
  int keys = 0;
  Rows<Number> key;
  Rows<Number> value;
  T* scores = nullptr;
  typename Stored::QueryNumber* query = nullptr;  // [rows][decode_row(D)]
  T product_factor = 1;
};

/// Rows that will be read soon; `columns` is 0 if there are none.
template <class Number>
struct Ahead {
  Rows<Number> of;
  int last = 0;
  int columns = 0;

  /// Row r, or the last.
  [[nodiscard]] ATTEST_INLINE const Number* row(int r) const {
    return of.data + (r < last ? r : last) * of.row;
  }
  ATTEST_INLINE void fetch(const Number* row, int column) const {
    if (column < columns) __builtin_prefetch(row + column);
  }
};

/// R rows against K keys; keys beyond the block's last stand for that one.
template <int R, int K, class T, class Stored>
ATTEST_INLINE void dots(const KeyPart<T, Stored>& part, int D, int first_row, int at,
                        const Ahead<typename Stored::Number>& ahead) {
  using Register = typename Stored::Register;
  constexpr int step = Stored::step;
  const int row = static_cast<int>(decode_row(D));
  const typename Stored::QueryNumber* query = part.query + first_row * row;
  const typename Stored::Number* key[K];
  const typename Stored::Number* later[K];
  ATTEST_UNROLL for (int k = 0; k < K; ++k) {
    const int j = at + k < part.keys ? at + k : part.keys - 1;
    key[k] = part.key.data + j * part.key.row;
    later[k] = ahead.row(at + k);
  }
  Vec<T> sums[R * K] = {};
  const auto add = [&](int d, const Register* numbers) __attribute__((always_inline)) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      Register q;
      __builtin_memcpy(&q, query + r * row + d, sizeof q);
      ATTEST_UNROLL for (int k = 0; k < K; ++k) {
        sums[r * K + k] = Stored::multiply(q, numbers[k], sums[r * K + k]);
      }
    }
  };
  int d = 0;
  for (; d + step <= D; d += step) {
    Register numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) {
      numbers[k] = Stored::read(key[k] + d);
      ahead.fetch(later[k], d);
    }
    add(d, numbers);
  }
  if (d < D) {
    Register numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) numbers[k] = Stored::read_first(key[k] + d, D - d);
    add(d, numbers);
  }
  T results[R * K];
  sums_of_lanes<R * K, T>(results, sums);
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    __builtin_memcpy(part.scores + (first_row + r) * decode_keys + at, results + r * K,
                     K * sizeof(T));
  }
}

/// The scores of R rows; those of keys that the block does not have are −∞.
template <int R, class T, class Stored>
ATTEST_INLINE void all_dots(const KeyPart<T, Stored>& part, int D, int first_row,
                            const Ahead<typename Stored::Number>& ahead) {
  constexpr int K = vector_registers == 32 || R < 4 ? 4 : 2;
  for (int at = 0; at < part.keys; at += K) dots<R, K>(part, D, first_row, at, ahead);
  const int whole = (part.keys + lanes<T> - 1) / lanes<T> * lanes<T>;
  for (int r = first_row; r < first_row + R; ++r) {
    T* scores = part.scores + r * decode_keys;
    if (part.product_factor != 1) {
      for (int j = 0; j < part.keys; ++j) scores[j] *= part.product_factor;
    }
    for (int j = part.keys; j < whole; ++j) scores[j] = no_score<T>;
  }
}

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

/// N registers of columns of the values of key j (or of as many keys as meet in a register).
template <int N, bool whole, class Stored>
ATTEST_INLINE void read_values(typename Stored::Register* numbers,
                               const Rows<typename Stored::Number>& value, int j, int column,
                               int columns) {
  const typename Stored::Number* from = value.data + j * value.row + column;
  if constexpr (Stored::keys_at_once == 1) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      numbers[v] =
          whole ? Stored::read(from + v * Stored::step) : Stored::read_first(from, columns);
    }
  } else {
    ATTEST_UNROLL for (int v = 0; v < N; v += 2) {
      const auto* here = from + v / 2 * Stored::step;
      const auto even = whole ? Stored::read(here) : Stored::read_first(here, columns);
      const auto* next = here + value.row;
      const auto odd = whole ? Stored::read(next) : Stored::read_first(next, columns);
      Stored::join(numbers + v, even, odd);
    }
  }
}
/// The last of an odd number of keys.
template <int N, bool whole, class Stored>
ATTEST_INLINE void read_last_value(typename Stored::Register* numbers,
                                   const Rows<typename Stored::Number>& value, int j, int column,
                                   int columns) {
  if constexpr (Stored::keys_at_once == 2) {
    const typename Stored::Number* from = value.data + j * value.row + column;
    ATTEST_UNROLL for (int v = 0; v < N; v += 2) {
      const auto* here = from + v / 2 * Stored::step;
      const auto even = whole ? Stored::read(here) : Stored::read_first(here, columns);
      Stored::join(numbers + v, even, typename Stored::Register{});
    }
  }
}

/// output[r] = output[r]·factor[r] + Σ_j weight[r, j]·value[j], for R rows and N registers of columns.
template <int R, int N, bool whole, class T, class Stored>
ATTEST_INLINE void mix_columns(const KeyPart<T, Stored>& part, T* output, int row, const T* factor,
                               int first_row, int column, int E,
                               const Ahead<typename Stored::Number>& ahead) {
  constexpr int W = lanes<T>;
  Vec<T> sums[R][N];
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      sums[r][v] =
          load(output + (first_row + r) * row + column + v * W) * broadcast(factor[first_row + r]);
    }
  }
  const auto add = [&](int j, const typename Stored::Register* numbers)
      __attribute__((always_inline)) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const auto weight = Stored::weights_at(part.scores + (first_row + r) * decode_keys, j);
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        sums[r][v] = Stored::multiply(weight, numbers[v], sums[r][v]);
      }
    }
  };
  constexpr int together = Stored::keys_at_once;
  const int columns = E - column;
  int j = 0;
  for (; j + together <= part.keys; j += together) {
    ATTEST_UNROLL for (int k = 0; k < together; ++k) {
      const auto* later = ahead.row(j + k);
      ATTEST_UNROLL for (int v = 0; v < N; v += together) ahead.fetch(later, column + v * W);
    }
    typename Stored::Register numbers[N];
    read_values<N, whole, Stored>(numbers, part.value, j, column, columns);
    add(j, numbers);
  }
  if (j < part.keys) {
    typename Stored::Register numbers[N];
    read_last_value<N, whole, Stored>(numbers, part.value, j, column, columns);
    add(j, numbers);
  }
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      store<T>(output + (first_row + r) * row + column + v * W, sums[r][v]);
    }
  }
}

template <int R, class T, class Stored>
ATTEST_INLINE void mix(const KeyPart<T, Stored>& part, T* output, const T* factor, int first_row,
                       int E, const Ahead<typename Stored::Number>& ahead) {
  constexpr int W = lanes<T>;
  constexpr int N = R == 4 ? most_vectors : 2 * most_vectors;
  constexpr int least = Stored::keys_at_once;  // registers whose columns lie together
  const int row = static_cast<int>(decode_row(E));
  int column = 0;
  for (; column + N * W <= E; column += N * W) {
    mix_columns<R, N, true>(part, output, row, factor, first_row, column, E, ahead);
  }
  for (; column + least * W <= E; column += least * W) {
    mix_columns<R, least, true>(part, output, row, factor, first_row, column, E, ahead);
  }
  if (column < E) {
    mix_columns<R, least, false>(part, output, row, factor, first_row, column, E, ahead);
  }
}

/// As mix, leaving out products with a weight of 0, so that hidden values never matter.
template <class T, class Stored>
void mix_carefully(const KeyPart<T, Stored>& part, T* output, const T* factor, int rows, int E) {
  const int row = static_cast<int>(decode_row(E));
  for (int r = 0; r < rows; ++r) {
    for (int place = 0; place < row; ++place) {
      const int e = Stored::column_of(place);
      if (e >= E) continue;
      T sum = output[r * row + place] * factor[r];
      for (int j = 0; j < part.keys; ++j) {
        const T weight = Stored::weight(part.scores + r * decode_keys, j);
        if (weight == 0) continue;
        const T number = Stored::number(part.value.data[j * part.value.row + e]);
        sum = fma(broadcast(weight), broadcast(number), broadcast(sum))[0];
      }
      output[r * row + place] = sum;
    }
  }
}

template <class T, class Stored>
bool finite_values(const KeyPart<T, Stored>& part, int E) {
  Lanes<T> worst{};
  for (int j = 0; j < part.keys; ++j) {
    const typename Stored::Number* value = part.value.data + j * part.value.row;
    int e = 0;
    for (; e + Stored::step <= E; e += Stored::step) {
      worst |= Stored::not_finite(Stored::read(value + e));
    }
    if (e < E) worst |= Stored::not_finite(Stored::read_first(value + e, E - e));
  }
  return !any(worst);
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
