// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// The two small products that attention is made of, and their shape in registers.
///
/// Lanes are rows (queries). Both products broadcast one number of the keys' or values' memory
/// against registers of rows:
///
///     scores[j, row]  = Σ_d key[j, d] · query[d, row]        key read in place
///     output[e, row] += Σ_j value[j, e] · weights[j, row]    value read in place
///
/// so that neither keys nor values are ever transposed or padded, D and E may be any numbers, and the
/// softmax between them works straight down the lanes. Each number of the result is one chain of
/// multiply-adds in the order of the index, whatever the tile's shape.
///
/// Bytes moved: a tile of R×N registers reads N registers and R numbers for R·N multiply-adds.
namespace attest::kernels::ATTEST_ISA {

/// Registers of rows that are worked on together, and results per tile for N of them: as many
/// accumulators as fit, eight chains at least.
inline constexpr int most_vectors = vector_registers == 32 ? 4 : 2;
template <int N>
inline constexpr int tile_results = vector_registers == 32 ? (N == 4 ? 6 : 8) : (N == 2 ? 5 : 8);

#define ATTEST_UNROLL _Pragma("GCC unroll 16")

/// sums[r][v] += Σ_k left(r, k) · right[k·ld + v·W …], k from 0 to count − 1.
template <int R, int N, class T>
struct Tile {
  Vec<T> sums[R][N];

  ATTEST_INLINE void clear() {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      ATTEST_UNROLL for (int v = 0; v < N; ++v) sums[r][v] = Vec<T>{};
    }
  }
  /// From memory, each row of lanes times a factor.
  ATTEST_INLINE void load_scaled(const T* from, int ld, const Vec<T>* factor) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        sums[r][v] = kernels::ATTEST_ISA::load(from + r * ld + v * lanes<T>) * factor[v];
      }
    }
  }
  ATTEST_INLINE void load(const T* from, std::int64_t ld) {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        sums[r][v] = kernels::ATTEST_ISA::load(from + r * ld + v * lanes<T>);
      }
    }
  }
  ATTEST_INLINE void save(T* to, std::int64_t ld) const {
    ATTEST_UNROLL for (int r = 0; r < R; ++r) {
      ATTEST_UNROLL for (int v = 0; v < N; ++v) store<T>(to + r * ld + v * lanes<T>, sums[r][v]);
    }
  }
  /// left[r·row + k·column]
  ATTEST_INLINE void multiply(const T* left, std::int64_t row, std::int64_t column, const T* right,
                              int ld, int count) {
    const T* of_row[R];
    ATTEST_UNROLL for (int r = 0; r < R; ++r) of_row[r] = left + r * row;
    for (int k = 0; k < count; ++k) {
      Vec<T> lane[N];
      ATTEST_UNROLL for (int v = 0; v < N; ++v) {
        lane[v] = kernels::ATTEST_ISA::load(right + k * ld + v * lanes<T>);
      }
      ATTEST_UNROLL for (int r = 0; r < R; ++r) {
        const Vec<T> number = broadcast(of_row[r][k * column]);
        ATTEST_UNROLL for (int v = 0; v < N; ++v) sums[r][v] = fma(number, lane[v], sums[r][v]);
      }
    }
  }
};

/// Calls body with the sizes of the tiles that `count` results fall into, largest first.
template <int N, class Body>
ATTEST_INLINE void for_each_tile(int count, Body body) {
  constexpr int R = tile_results<N>;
  int at = 0;
  for (; at + R <= count; at += R) body.template operator()<R>(at);
  if constexpr (R > 4) {
    if (at + 4 <= count) {
      body.template operator()<4>(at);
      at += 4;
    }
  }
  if (at + 2 <= count) {
    body.template operator()<2>(at);
    at += 2;
  }
  if (at < count) body.template operator()<1>(at);
}

/// Calls body<N>(first) for the groups of registers that ld lanes make.
template <class T, class Body>
ATTEST_INLINE void for_each_group(int ld, Body body) {
  constexpr int W = lanes<T>;
  int first = 0;
  for (; first + most_vectors * W <= ld; first += most_vectors * W) {
    body.template operator()<most_vectors>(first);
  }
  const int rest = (ld - first) / W;
  if constexpr (most_vectors == 4) {
    if (rest == 3) body.template operator()<3>(first);
    if (rest == 2) body.template operator()<2>(first);
  }
  if (rest == 1) body.template operator()<1>(first);
}

}  // namespace attest::kernels::ATTEST_ISA
