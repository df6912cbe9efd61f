// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm.h"
#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {

/// The register tile: 12 rows by 2 vectors fill 24 of 32 registers (6 by 2: 12 of 16) with sums, which
/// hides the latency of a multiply-add four times over.
inline constexpr int gemm_rows = vector_registers == 32 ? 12 : 6;
inline constexpr int gemm_vectors = 2;
template <class T>
inline constexpr int gemm_cols = gemm_vectors* lanes<T>;

/// Where the sums of a tile go, `cols` in each row; `add`: onto what is there.
template <class T>
struct GemmTarget {
  T* c = nullptr;
  std::int64_t stride = 0;
  int cols = 0;
  bool add = false;
};

template <class T, int R, int N>
ATTEST_INLINE void gemm_write(const Vec<T> (&sum)[R][N], const GemmTarget<T>& target) {
  constexpr int W = lanes<T>;
  const int last = target.cols - (N - 1) * W;
  const bool add = target.add;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    T* const row = target.c + r * target.stride;
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) {
      if (v < N - 1 || last == W) {
        const Vec<T> old = add ? load(row + v * W) : Vec<T>{};
        store<T>(row + v * W, add ? old + sum[r][v] : sum[r][v]);
      } else {
        const Vec<T> old = add ? load_first(row + v * W, last) : Vec<T>{};
        store_first<T>(row + v * W, add ? old + sum[r][v] : sum[r][v], last);
      }
    }
  }
}

/// One tile: for each depth one column of A times one row of B, in the order of the depths.
/// Bytes moved per depth: R + N·W numbers read from the first-level cache for 2·R·N·W flops.
template <class T, int R, int N>
ATTEST_INLINE void gemm_tile(const T* a, const T* b, std::int64_t depth,
                             const GemmTarget<T>& target) {
  constexpr int W = lanes<T>;
  Vec<T> sum[R][N] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vec<T> row[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) row[v] = load(b + v * W);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec<T> number = broadcast(a[r]);
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sum[r][v] = fma(number, row[v], sum[r][v]);
    }
    a += gemm_rows;
    b += gemm_cols<T>;
  }
  gemm_write<T, R, N>(sum, target);
}

/// The tile for the last `rows` < R + 1 rows: fewer sums, the same order.
template <class T, int R>
ATTEST_INLINE void gemm_tile_of(int rows, const T* a, const T* b, std::int64_t depth,
                                const GemmTarget<T>& target) {
  if constexpr (R > 0) {
    if (rows != R) return gemm_tile_of<T, R - 1>(rows, a, b, depth, target);
    if (target.cols > lanes<T>) {
      gemm_tile<T, R, gemm_vectors>(a, b, depth, target);
    } else {
      gemm_tile<T, R, 1>(a, b, depth, target);
    }
  }
}

/// Every tile of a block. A panel of B stays in the first-level cache while all of A passes by.
template <class T>
inline void gemm_multiply(const GemmBlock& block) noexcept {
  const auto* const a = static_cast<const T*>(block.a);
  const auto* const b = static_cast<const T*>(block.b);
  auto* const c = static_cast<T*>(block.c);
  for (std::int64_t j = 0; j < block.cols; j += gemm_cols<T>) {
    const std::int64_t left = block.cols - j;
    const int cols = left < gemm_cols<T> ? static_cast<int>(left) : gemm_cols<T>;
    for (std::int64_t i = 0; i < block.rows; i += gemm_rows) {
      const std::int64_t below = block.rows - i;
      const int rows = below < gemm_rows ? static_cast<int>(below) : gemm_rows;
      gemm_tile_of<T, gemm_rows>(rows, a + i * block.depth, b + j * block.depth, block.depth,
                                 {c + i * block.c_stride + j, block.c_stride, cols, block.add});
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
