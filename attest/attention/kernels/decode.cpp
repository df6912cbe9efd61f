// SPDX-License-Identifier: MIT
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
namespace attest::kernels::ATTEST_ISA {
namespace {

template <class T>
constexpr T no_score = -__builtin_inf();

/// How the numbers of a row lie in memory, and how a register of them is read.
template <class T>
struct AsIs {
  using Number = T;
  ATTEST_INLINE static Vec<T> read(const T* from) { return load(from); }
  ATTEST_INLINE static Vec<T> read_first(const T* from, int count) {
    return load_first<T>(from, count);
  }
};
template <F32 (*widened)(const std::uint16_t*)>
struct Halves {
  using Number = std::uint16_t;
  ATTEST_INLINE static F32 read(const Number* from) { return widened(from); }
  ATTEST_INLINE static F32 read_first(const Number* from, int count) {
    Number some[lanes<float>] = {};
    for (int k = 0; k < count && k < lanes<float>; ++k) some[k] = from[k];
    return widened(some);
  }
};

/// The keys and values of one block and the scores of the rows: [rows][decode_keys].
template <class T, class Stored>
struct Part {
  using Number = typename Stored::Number;
  std::int64_t begin = 0;
  int keys = 0;
  Rows<Number> key;
  Rows<Number> value;
  T* scores = nullptr;
  T* query = nullptr;  // [rows][padded D]
};

/// Rows that will be read soon.
template <class Number>
struct Ahead {
  Rows<Number> of;
  int rows = 0;
  int columns = 0;

  /// The line of row r that holds this column, if there is one.
  ATTEST_INLINE void fetch(int r, int column) const {
    if (column < columns) __builtin_prefetch(of.data + r * of.row + column);
  }
};

/// R rows against K keys; keys beyond the block's last stand for that one.
template <int R, int K, class T, class Stored>
ATTEST_INLINE void dots(const Part<T, Stored>& part, int D, int first_row, int at,
                        const Ahead<typename Stored::Number>& ahead) {
  constexpr int W = lanes<T>;
  const int row = static_cast<int>(padded<T>(D));
  const T* query = part.query + first_row * row;
  const typename Stored::Number* key[K];
  ATTEST_UNROLL for (int k = 0; k < K; ++k) {
    const int j = at + k < part.keys ? at + k : part.keys - 1;
    key[k] = part.key.data + j * part.key.row;
  }
  Vec<T> sums[R * K] = {};
  const auto add = [&](int d, const Vec<T>* numbers) __attribute__((always_inline)) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> q = load(query + r * row + d);
      ATTEST_UNROLL for (int k = 0; k < K; ++k) {
        sums[r * K + k] = fma(q, numbers[k], sums[r * K + k]);
      }
    }
  };
  int d = 0;
  for (; d + W <= D; d += W) {
    Vec<T> numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) {
      numbers[k] = Stored::read(key[k] + d);
      ahead.fetch(at + k, d);
    }
    add(d, numbers);
  }
  if (d < D) {
    Vec<T> numbers[K];
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
ATTEST_INLINE void all_dots(const Part<T, Stored>& part, int D, int first_row,
                            const Ahead<typename Stored::Number>& ahead) {
  constexpr int K = vector_registers == 32 || R < 4 ? 4 : 2;
  for (int at = 0; at < part.keys; at += K) dots<R, K>(part, D, first_row, at, ahead);
  const int whole = (part.keys + lanes<T> - 1) / lanes<T> * lanes<T>;
  for (int r = first_row; r < first_row + R; ++r) {
    for (int j = part.keys; j < whole; ++j) part.scores[r * decode_keys + j] = no_score<T>;
  }
}

/// Softcap, bias, ALiBi and the mask of one row.
template <class T, class Stored>
void change_row(const Part<T, Stored>& part, const ForwardBlock<T>& task, int r) {
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
void drop_row(const Part<T, Stored>& part, const Modifiers<T>& modify, int r,
              const std::uint64_t* kept) {
  for (int j = 0; j < part.keys; ++j) {
    T& weight = part.scores[r * decode_keys + j];
    const bool keep = ((kept[j] >> static_cast<unsigned>(r)) & 1U) != 0;
    weight = keep ? weight * modify.dropout_scale : T(0);
  }
}

/// output[r] = output[r]·factor[r] + Σ_j weight[r, j]·value[j], for R rows and N registers of columns.
template <int R, int N, bool whole, class T, class Stored>
ATTEST_INLINE void mix_columns(const Part<T, Stored>& part, T* output, int row, const T* factor,
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
  for (int j = 0; j < part.keys; ++j) {
    const typename Stored::Number* value = part.value.data + j * part.value.row + column;
    Vec<T> numbers[N];
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      ahead.fetch(j, column + v * W);
      numbers[v] = whole ? Stored::read(value + v * W) : Stored::read_first(value, E - column);
    }
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> weight = broadcast(part.scores[(first_row + r) * decode_keys + j]);
      ATTEST_UNROLL for (int v = 0; v < N; ++v) sums[r][v] = fma(weight, numbers[v], sums[r][v]);
    }
  }
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      store<T>(output + (first_row + r) * row + column + v * W, sums[r][v]);
    }
  }
}

template <int R, class T, class Stored>
ATTEST_INLINE void mix(const Part<T, Stored>& part, T* output, const T* factor, int first_row,
                       int E, const Ahead<typename Stored::Number>& ahead) {
  constexpr int W = lanes<T>;
  constexpr int N = R == 4 ? most_vectors : 2 * most_vectors;
  const int row = static_cast<int>(padded<T>(E));
  int column = 0;
  for (; column + N * W <= E; column += N * W) {
    mix_columns<R, N, true>(part, output, row, factor, first_row, column, E, ahead);
  }
  for (; column + W <= E; column += W) {
    mix_columns<R, 1, true>(part, output, row, factor, first_row, column, E, ahead);
  }
  if (column < E) mix_columns<R, 1, false>(part, output, row, factor, first_row, column, E, ahead);
}

/// As mix, leaving out products with a weight of 0, so that hidden values never matter.
template <class T, class Stored>
void mix_carefully(const Part<T, Stored>& part, T* output, const T* factor, int rows, int E) {
  const int row = static_cast<int>(padded<T>(E));
  for (int r = 0; r < rows; ++r) {
    for (int e = 0; e < E; ++e) {
      T sum = output[r * row + e] * factor[r];
      for (int j = 0; j < part.keys; ++j) {
        const T weight = part.scores[r * decode_keys + j];
        if (weight == 0) continue;
        const Vec<T> number = Stored::read_first(part.value.data + j * part.value.row + e, 1);
        sum = fma(broadcast(weight), number, broadcast(sum))[0];
      }
      output[r * row + e] = sum;
    }
  }
}

template <class T, class Stored>
bool finite_values(const Part<T, Stored>& part, int E) {
  Vec<T> zero{};
  for (int j = 0; j < part.keys; ++j) {
    const typename Stored::Number* value = part.value.data + j * part.value.row;
    int e = 0;
    for (; e + lanes<T> <= E; e += lanes<T>) zero += Stored::read(value + e) * T(0);
    if (e < E) zero += Stored::read_first(value + e, E - e) * T(0);
  }
  return !any(zero != Vec<T>{});
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
void one_part(const Part<T, Stored>& part, const DecodeBlock<T>& block, RowState<T>* rows,
              const Ahead<typename Stored::Number>& next_keys) {
  using Later = Ahead<typename Stored::Number>;
  const ForwardBlock<T>& task = *block.rows;
  const Later values{part.value, part.keys, task.E};
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

/// The queries times the scale, in rows padded with zeros; nothing is summed yet.
template <class T>
void begin_rows(const DecodeBlock<T>& block, T* query) {
  const ForwardBlock<T>& task = *block.rows;
  const int d_row = static_cast<int>(padded<T>(task.D));
  for (int r = 0; r < task.rows; ++r) {
    for (int d = 0; d < d_row; ++d) {
      query[r * d_row + d] =
          d < task.D ? read_number<T>(task.query[r], task.storage, d * task.query_step) *
                           task.modify.query_factor
                     : T(0);
    }
    for (int e = 0; e < padded<T>(task.E); ++e) block.output[r * padded<T>(task.E) + e] = 0;
  }
}

/// Keys of a block: about 16 KiB of keys and as much of values, which the first level of cache holds.
template <class Number>
constexpr std::int64_t keys_of_block(std::int64_t columns) {
  constexpr std::int64_t wanted = 16384 / static_cast<std::int64_t>(sizeof(Number));
  std::int64_t keys = 16;
  while (keys < decode_keys && keys * columns < wanted) keys *= 2;
  return keys;
}

/// Where keys and values are read in place.
template <class T, class Stored>
void decode_in_place(const DecodeBlock<T>& block, Part<T, Stored> part, RowState<T>* rows) {
  using Number = typename Stored::Number;
  const ForwardBlock<T>& task = *block.rows;
  const auto rows_from = [](const Matrix& matrix, std::int64_t first) -> Rows<Number> {
    return {static_cast<const Number*>(matrix.data) + first * matrix.row, matrix.row};
  };
  const std::int64_t most = keys_of_block<Number>(task.D > task.E ? task.D : task.E);
  KeySpan span{block.begin, block.end};
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, most);
    part.begin = next.begin;
    part.keys = next.keys;
    part.key = rows_from(task.key, part.begin);
    part.value = rows_from(task.value, part.begin);
    const std::int64_t left = span.end - span.begin;
    Ahead<Number> ahead;
    if (left > 0) {
      ahead = {rows_from(task.key, span.begin), static_cast<int>(left < most ? left : most),
               task.D};
    }
    one_part(part, block, rows, ahead);
  }
}

/// Where the columns of keys or values do not lie side by side: from copies.
template <class T>
void decode_copies(const DecodeBlock<T>& block, Part<T, AsIs<T>> part, RowState<T>* rows) {
  const ForwardBlock<T>& task = *block.rows;
  T* key_room = part.scores + decode_rows * decode_keys;
  T* value_room = key_room + decode_keys * task.D;
  KeySpan span{block.begin, block.end};
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, decode_keys);
    part.begin = next.begin;
    part.keys = next.keys;
    part.key = rows_of(task.key, task.storage, part.begin, part.keys, task.D, key_room);
    part.value = rows_of(task.value, task.storage, part.begin, part.keys, task.E, value_room);
    one_part(part, block, rows, {});
  }
}

template <class T>
void decode(const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  T* const query = task.scratch;
  T* const scores = query + decode_rows * padded<T>(task.D);
  begin_rows(block, query);
  const auto part_of = [&]<class Stored>(Stored) {
    Part<T, Stored> part;
    part.query = query;
    part.scores = scores;
    return part;
  };
  RowState<T> rows[decode_rows];
  const bool side_by_side = task.key.column == 1 && task.value.column == 1;
  if (side_by_side && task.storage == storage_of<T>) {
    decode_in_place(block, part_of(AsIs<T>{}), rows);
  } else if (sizeof(T) == 4 && side_by_side && task.storage == Storage::bf16) {
    if constexpr (sizeof(T) == 4) decode_in_place(block, part_of(Halves<load_bf16>{}), rows);
  } else if (sizeof(T) == 4 && side_by_side && task.storage == Storage::f16) {
    if constexpr (sizeof(T) == 4) decode_in_place(block, part_of(Halves<load_f16>{}), rows);
  } else {
    decode_copies(block, part_of(AsIs<T>{}), rows);
  }
  for (int r = 0; r < task.rows; ++r) {
    block.peak[r] = rows[r].peak;
    block.sum[r] = sum_of_lanes<T>(rows[r].sums);
  }
}

}  // namespace

DecodeTable decode_table() { return {.f32 = decode<float>, .f64 = decode<double>}; }

}  // namespace attest::kernels::ATTEST_ISA
