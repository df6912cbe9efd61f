// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/block_mask.h"
#include "attest/attention/kernels/forward.h"
#include "attest/attention/kernels/memory.h"
#include "attest/attention/kernels/tiles.h"
#include "attest/linalg/kernels/exp2.h"

/// Few rows, many keys: the lanes are the columns of keys and values.
///
/// Bytes moved: each key and each value once for all rows that share them; that is also what bounds the
/// speed, so the sums may cost a little more than in forward.cpp.
namespace attest::kernels::ATTEST_ISA {
namespace {

constexpr int keys_at_once = 4;

template <class T>
constexpr T no_score = -__builtin_inf();

/// The keys and values of one block and the scores of the rows: [rows][decode_keys].
template <class T>
struct Part {
  std::int64_t begin = 0;
  int keys = 0;
  Rows<T> key;
  Rows<T> value;
  T* scores = nullptr;
  T* query = nullptr;  // [rows][padded D]
};

/// R rows against K keys.
template <int R, int K, class T>
ATTEST_INLINE void dots(const Part<T>& part, int D, int first_row, int at) {
  constexpr int W = lanes<T>;
  const int row = static_cast<int>(padded<T>(D));
  const T* query = part.query + first_row * row;
  Vec<T> sums[R][K];
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int k = 0; k < K; ++k) sums[r][k] = Vec<T>{};
  }
  const T* key = part.key.data + at * part.key.row;
  const auto add = [&](int d, const Vec<T>* numbers) __attribute__((always_inline)) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const Vec<T> q = load(query + r * row + d);
      ATTEST_UNROLL for (int k = 0; k < K; ++k) sums[r][k] = fma(q, numbers[k], sums[r][k]);
    }
  };
  int d = 0;
  for (; d + W <= D; d += W) {
    Vec<T> numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) numbers[k] = load(key + k * part.key.row + d);
    add(d, numbers);
  }
  if (d < D) {
    Vec<T> numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) {
      numbers[k] = load_first<T>(key + k * part.key.row + d, D - d);
    }
    add(d, numbers);
  }
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int k = 0; k < K; ++k) {
      part.scores[(first_row + r) * decode_keys + at + k] = sum_of_lanes<T>(sums[r][k]);
    }
  }
}

template <int R, class T>
void all_dots(const Part<T>& part, int D, int first_row) {
  int at = 0;
  for (; at + keys_at_once <= part.keys; at += keys_at_once) {
    dots<R, keys_at_once>(part, D, first_row, at);
  }
  for (; at < part.keys; ++at) dots<R, 1>(part, D, first_row, at);
}

/// Softcap, bias, ALiBi and the mask of one row.
template <class T>
void change_row(const Part<T>& part, const ForwardBlock<T>& task, int r) {
  const Modifiers<T>& modify = task.modify;
  for (int j = 0; j < decode_keys; ++j) {
    T& score = part.scores[r * decode_keys + j];
    const std::int64_t key = part.begin + j;
    bool seen = j < part.keys && key >= task.first_key[r] && key < task.last_key[r];
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

/// Scores of one row become weights; gives the factor of what was summed before.
template <class T>
T weigh_row(T* scores, T exponent, T& peak, T& sum) {
  constexpr int W = lanes<T>;
  Vec<T> most = broadcast(no_score<T>);
  for (int j = 0; j < decode_keys; j += W) most = larger(load(scores + j), most);
  T top = peak;
  for (int lane = 0; lane < W; ++lane) top = most[lane] > top ? most[lane] : top;
  const T base = top == no_score<T> ? T(0) : top;
  const T factor = exp2_of_product(broadcast(peak - base), broadcast(exponent))[0];
  Vec<T> total{};
  for (int j = 0; j < decode_keys; j += W) {
    const Vec<T> weight = exp2_of_product(load(scores + j) - broadcast(base), broadcast(exponent));
    total += weight;
    store<T>(scores + j, weight);
  }
  peak = top;
  sum = sum * factor + sum_of_lanes<T>(total);
  return factor;
}

template <class T>
void drop_row(const Part<T>& part, const Modifiers<T>& modify, int r, std::uint64_t* kept) {
  for (int j = 0; j < part.keys; ++j) {
    T& weight = part.scores[r * decode_keys + j];
    const bool keep = ((kept[j] >> static_cast<unsigned>(r)) & 1U) != 0;
    weight = keep ? weight * modify.dropout_scale : T(0);
  }
}

/// output[r] = output[r]·factor[r] + Σ_j weight[r, j]·value[j], for R rows and N registers of columns.
template <int R, int N, bool whole, class T>
ATTEST_INLINE void mix_columns(const Part<T>& part, T* output, int row, const T* factor,
                               int first_row, int column, int E) {
  constexpr int W = lanes<T>;
  Vec<T> sums[R][N];
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      sums[r][v] =
          load(output + (first_row + r) * row + column + v * W) * broadcast(factor[first_row + r]);
    }
  }
  for (int j = 0; j < part.keys; ++j) {
    const T* value = part.value.data + j * part.value.row + column;
    Vec<T> numbers[N];
    ATTEST_UNROLL for (int v = 0; v < N; ++v) {
      numbers[v] = whole ? load(value + v * W) : load_first<T>(value, E - column);
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

template <int R, class T>
void mix(const Part<T>& part, T* output, const T* factor, int first_row, int E) {
  constexpr int W = lanes<T>;
  constexpr int N = most_vectors;
  const int row = static_cast<int>(padded<T>(E));
  int column = 0;
  for (; column + N * W <= E; column += N * W) {
    mix_columns<R, N, true>(part, output, row, factor, first_row, column, E);
  }
  for (; column + W <= E; column += W) {
    mix_columns<R, 1, true>(part, output, row, factor, first_row, column, E);
  }
  if (column < E) mix_columns<R, 1, false>(part, output, row, factor, first_row, column, E);
}

/// As mix, leaving out products with a weight of 0, so that hidden values never matter.
template <class T>
void mix_carefully(const Part<T>& part, T* output, const T* factor, int rows, int E) {
  const int row = static_cast<int>(padded<T>(E));
  for (int r = 0; r < rows; ++r) {
    for (int e = 0; e < E; ++e) {
      T sum = output[r * row + e] * factor[r];
      for (int j = 0; j < part.keys; ++j) {
        const T weight = part.scores[r * decode_keys + j];
        if (weight == 0) continue;
        sum = fma(broadcast(weight), broadcast(part.value.data[j * part.value.row + e]),
                  broadcast(sum))[0];
      }
      output[r * row + e] = sum;
    }
  }
}

template <class T>
bool finite_values(const Part<T>& part, int E) {
  for (int j = 0; j < part.keys; ++j) {
    T zero = 0;
    for (int e = 0; e < E; ++e) zero += part.value.data[j * part.value.row + e] * T(0);
    if (!(zero == 0)) return false;
  }
  return true;
}

template <class T>
void one_part(const Part<T>& part, const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  int r = 0;
  for (; r + 4 <= task.rows; r += 4) all_dots<4>(part, task.D, r);
  for (; r + 2 <= task.rows; r += 2) all_dots<2>(part, task.D, r);
  if (r < task.rows) all_dots<1>(part, task.D, r);

  const Modifiers<T>& modify = task.modify;
  bool plain = part.keys == decode_keys && modify.visible == nullptr &&
               modify.query_id == nullptr && modify.bias == nullptr &&
               modify.alibi_slope == nullptr && modify.softcap == 0;
  for (r = 0; r < task.rows; ++r) {
    plain &= task.first_key[r] <= part.begin && task.last_key[r] >= part.begin + part.keys;
  }
  std::uint64_t kept[block_keys];
  if (modify.dropout != nullptr) kept_weights(kept, modify, task.rows, part.begin, part.keys);
  T factor[decode_rows];
  for (r = 0; r < task.rows; ++r) {
    if (!plain) change_row(part, task, r);
    factor[r] =
        weigh_row(part.scores + r * decode_keys, modify.exponent, block.peak[r], block.sum[r]);
    if (modify.dropout != nullptr) drop_row(part, modify, r, kept);
  }
  const bool hides = !plain || modify.dropout != nullptr;
  if (hides && !finite_values(part, task.E)) {
    mix_carefully(part, block.output, factor, task.rows, task.E);
    return;
  }
  r = 0;
  for (; r + 4 <= task.rows; r += 4) mix<4>(part, block.output, factor, r, task.E);
  for (; r + 2 <= task.rows; r += 2) mix<2>(part, block.output, factor, r, task.E);
  if (r < task.rows) mix<1>(part, block.output, factor, r, task.E);
}

template <class T>
void decode(const DecodeBlock<T>& block) {
  const ForwardBlock<T>& task = *block.rows;
  const int d_row = static_cast<int>(padded<T>(task.D));
  Part<T> part;
  part.query = task.scratch;
  part.scores = part.query + decode_rows * d_row;
  T* key_room = part.scores + decode_rows * decode_keys;
  T* value_room = key_room + decode_keys * task.D;
  for (int r = 0; r < task.rows; ++r) {
    for (int d = 0; d < d_row; ++d) {
      part.query[r * d_row + d] =
          d < task.D ? read_number<T>(task.query[r], task.storage, d * task.query_step) *
                           task.modify.query_factor
                     : T(0);
    }
    block.peak[r] = no_score<T>;
    block.sum[r] = 0;
    for (int e = 0; e < padded<T>(task.E); ++e) block.output[r * padded<T>(task.E) + e] = 0;
  }
  KeySpan span{block.begin, block.end};
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, decode_keys);
    part.begin = next.begin;
    part.keys = next.keys;
    part.key = rows_of(task.key, task.storage, part.begin, part.keys, task.D, key_room);
    part.value = rows_of(task.value, task.storage, part.begin, part.keys, task.E, value_room);
    one_part(part, block);
  }
}

}  // namespace

DecodeTable decode_table() { return {.f32 = decode<float>, .f64 = decode<double>}; }

}  // namespace attest::kernels::ATTEST_ISA
