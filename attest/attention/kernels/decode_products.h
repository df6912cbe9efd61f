// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/decode_rows.h"
#include "attest/attention/kernels/tiles.h"
#include "attest/linalg/kernels/fold.h"

/// Few rows, many keys: the two products, with the lanes along the columns of keys and values.
///
/// Each result is one chain of multiply-adds a lane; lanes of a score are folded at the end. Both are
/// computed for some keys in a turn, by functions of their own: inlined, the addresses of all their tiles
/// would be computed once for every turn and kept in memory.
namespace attest::kernels::ATTEST_ISA {

/// R rows against K keys. `whole`: the block has them all; else those beyond its last stand for that one.
template <int R, int K, bool whole, class T, class Stored>
ATTEST_INLINE void dots(const typename Stored::QueryNumber* query, const KeyPart<T, Stored>& part,
                        int D, int at, T* scores, const Ahead& ahead) {
  using Number = typename Stored::Number;
  using Register = typename Stored::Register;
  constexpr int step = Stored::step;
  constexpr std::uintptr_t bytes = step * sizeof(Number);
  const Number* key[K];
  std::uintptr_t later[K];
  const std::uintptr_t apart = ahead.close ? bytes : ahead.row;
  const std::uintptr_t onward = ahead.close ? K * bytes : bytes;
  ATTEST_UNROLL for (int k = 0; k < K; ++k) {
    const int j = whole || at + k < part.keys ? at + k : part.keys - 1;
    key[k] = part.key.data + j * part.key.row;
    later[k] = ahead.begin + static_cast<std::uintptr_t>(k) * apart;
  }
  Vec<T> sums[R * K] = {};
  std::uintptr_t further = 0;
  const auto add = [&](const Register* numbers) __attribute__((always_inline)) {
    ATTEST_UNROLL for (int k = 0; k < K; ++k) fetch<static_cast<int>(bytes)>(later[k] + further);
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      Register q;
      __builtin_memcpy(&q, query + r * step, sizeof q);
      ATTEST_UNROLL for (int k = 0; k < K; ++k) {
        sums[r * K + k] = Stored::multiply(q, numbers[k], sums[r * K + k]);
      }
    }
    query += R * step;
    further += onward;
  };
  int d = 0;
  for (; d + step <= D; d += step) {
    Register numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) numbers[k] = Stored::read(key[k] + d);
    add(numbers);
  }
  if (d < D) {
    Register numbers[K];
    ATTEST_UNROLL for (int k = 0; k < K; ++k) numbers[k] = Stored::read_first(key[k] + d, D - d);
    add(numbers);
  }
  T results[R * K];
  sums_of_lanes<R * K, T>(results, sums);
  ATTEST_UNROLL for (int r = 0; r < R; ++r) {
    __builtin_memcpy(scores + r * decode_keys + at, results + r * K, K * sizeof(T));
  }
}

/// The scores of R rows for the keys of the turn that begins at `at`; `asks` if keys of a later one are
/// to be asked for.
template <int R, class T, class Stored>
[[gnu::noinline]] void dots_of_turn(const DecodeRows<T, Stored>& rows,
                                    const KeyPart<T, Stored>& part, int first_row, int at,
                                    bool asks) {
  constexpr int K = vector_registers == 32 || R < 4 ? 4 : 2;
  const auto* query = rows.query + first_row * decode_row(rows.D);
  T* scores = part.scores + first_row * decode_keys;
  const int end = at + rows.turn < part.keys ? at + rows.turn : part.keys;
  Ahead ahead(part.key, at + (asks ? rows.key_distance : 0), part.last, rows.D);
  for (; at + K <= end; at += K) {
    dots<R, K, true>(query, part, rows.D, at, scores, ahead);
    ahead.begin += K * ahead.row;
  }
  if (at < end) dots<R, K, false>(query, part, rows.D, at, scores, ahead);
}

/// The factor that queries do not carry; scores of keys that the block does not have are −∞.
template <class T, class Stored>
void finish_dots(const KeyPart<T, Stored>& part, int rows, T product_factor) {
  const int whole = (part.keys + lanes<T> - 1) / lanes<T> * lanes<T>;
  for (int r = 0; r < rows; ++r) {
    T* scores = part.scores + r * decode_keys;
    if (product_factor != 1) {
      for (int j = 0; j < part.keys; ++j) scores[j] *= product_factor;
    }
    for (int j = part.keys; j < whole; ++j) scores[j] = no_score<T>;
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

/// output[r] += Σ_j weight[r, j]·value[j] for keys from `at` to `end`: R rows, N registers of columns.
/// `in_fours`: as many keys as go together, or a multiple; `whole`: all the registers' columns exist.
template <int R, int N, bool in_fours, bool whole, class T, class Stored>
ATTEST_INLINE void mix_columns(const Rows<typename Stored::Number>& value, const T* weights, int at,
                               int end, T* output, int column, int columns, std::uintptr_t later,
                               std::uintptr_t apart) {
  constexpr int W = lanes<T>;
  constexpr int together = Stored::keys_at_once;
  constexpr int bytes = N * Stored::step * static_cast<int>(sizeof(typename Stored::Number));
  Vec<T> sums[R][N];
  ATTEST_UNROLL for (int v = 0; v < N; ++v) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) sums[r][v] = load(output + (v * R + r) * W);
  }
  const auto add = [&](int j, const typename Stored::Register* numbers)
      __attribute__((always_inline)) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      const auto weight = Stored::weights_at(weights + r * decode_keys, j);
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        sums[r][v] = Stored::multiply(weight, numbers[v], sums[r][v]);
      }
    }
  };
  const auto add_values = [&](int j) __attribute__((always_inline)) {
    fetch<bytes>(later);
    later += apart;
    typename Stored::Register numbers[N];
    read_values<N, whole, Stored>(numbers, value, j, column, columns);
    add(j, numbers);
  };
  _Pragma("GCC unroll 1") for (; at + together <= end; at += together) add_values(at);
  if constexpr (!in_fours) {
    if (at < end) {
      typename Stored::Register numbers[N];
      read_last_value<N, whole, Stored>(numbers, value, at, column, columns);
      add(at, numbers);
    }
  }
  ATTEST_UNROLL for (int v = 0; v < N; ++v) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) store<T>(output + (v * R + r) * W, sums[r][v]);
  }
}

/// The same for all columns and the keys of the turn that begins at `at`.
template <int R, class T, class Stored>
[[gnu::noinline]] void mix_of_turn(const DecodeRows<T, Stored>& rows,
                                   const KeyPart<T, Stored>& part, int first_row, int at,
                                   bool asks) {
  constexpr int W = lanes<T>;
  constexpr int N = R == 4 ? most_vectors : 2 * most_vectors;
  constexpr int least = Stored::keys_at_once;  // registers whose columns lie together
  constexpr std::uintptr_t bytes =
      Stored::step * sizeof(typename Stored::Number);  // of one register
  const int E = rows.E;
  const int end = at + rows.turn < part.keys ? at + rows.turn : part.keys;
  T* output = rows.output + first_row * decode_row(E);
  const T* weights = part.scores + first_row * decode_keys;
  const auto value = part.value;
  const Ahead ahead(value, at + (asks ? rows.value_distance : 0), part.last, E);
  const auto steps = static_cast<std::uintptr_t>(rows.turn / least);
  std::uintptr_t later = ahead.begin;
  int column = 0;
  if ((end - at) % keys_together == 0) {
    const std::uintptr_t apart = ahead.close ? N * bytes : least * ahead.row;
    const std::uintptr_t onward = ahead.close ? steps * N * bytes : N / least * bytes;
    for (; column + N * W <= E; column += N * W) {
      mix_columns<R, N, true, true, T, Stored>(value, weights, at, end, output + column * R, column,
                                               E, later, apart);
      later += onward;
    }
  }
  const std::uintptr_t apart = ahead.close ? least * bytes : least * ahead.row;
  const std::uintptr_t onward = ahead.close ? steps * least * bytes : bytes;
  for (; column + least * W <= E; column += least * W) {
    mix_columns<R, least, false, true, T, Stored>(value, weights, at, end, output + column * R,
                                                  column, E, later, apart);
    later += onward;
  }
  if (column < E) {
    mix_columns<R, least, false, false, T, Stored>(value, weights, at, end, output + column * R,
                                                   column, E - column, later, apart);
  }
}

/// One register of a row's sums over a whole block, leaving out products with a weight of 0, so that hidden
/// values never matter.
template <class T, class Stored>
void mix_carefully(const KeyPart<T, Stored>& part, int r, T* output, int column, int E) {
  for (int lane = 0; lane < lanes<T>; ++lane) {
    const int e = Stored::column_of(column + lane);
    if (e >= E) continue;
    T& sum = output[lane];
    for (int j = 0; j < part.keys; ++j) {
      const T weight = Stored::weight(part.scores + r * decode_keys, j);
      if (weight == 0) continue;
      const T number = Stored::number(part.value.data[j * part.value.row + e]);
      sum = fma(broadcast(weight), broadcast(number), broadcast(sum))[0];
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

}  // namespace attest::kernels::ATTEST_ISA
