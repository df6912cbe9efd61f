// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/decode_numbers.h"
#include "attest/attention/kernels/tiles.h"
#include "attest/linalg/kernels/fold.h"

/// Few rows, many keys: the two products, with the lanes along the columns of keys and values.
///
/// Each result is one chain of multiply-adds a lane; lanes of a score are folded at the end. While one
/// block is worked on the rows of the next are asked for, a line at a time between the multiply-adds.
namespace attest::kernels::ATTEST_ISA {

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

}  // namespace attest::kernels::ATTEST_ISA
