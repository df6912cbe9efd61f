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

/// Where the sums of a tile go, `rows` by `cols` of them; `add`: onto what is there.
template <class T>
struct GemmTarget {
  T* c = nullptr;
  std::int64_t stride = 0;
  int rows = 0;
  int cols = 0;
  bool add = false;
};

/// What a tile asks the cache for meanwhile: `lines` lines of 64 bytes for every 8 of its depths.
struct GemmAhead {
  const char* from = nullptr;
  int lines = 0;
};

/// The lines of C that a tile will read and write: asked for before its sums begin, they have come
/// when the sums are done. Lines of 64 bytes may begin anywhere in a row.
template <class T, int R, int N>
ATTEST_INLINE void gemm_await(const GemmTarget<T>& target) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    if (r >= target.rows) break;
    const T* const row = target.c + r * target.stride;
    __builtin_prefetch(row, 1);
    if (N > 1 && target.cols > lanes<T>) __builtin_prefetch(row + lanes<T>, 1);
    __builtin_prefetch(row + (target.cols - 1), 1);
  }
}

template <class T, int R, int N>
ATTEST_INLINE void gemm_write(const Vec<T> (&sum)[R][N], const GemmTarget<T>& target) {
  constexpr int W = lanes<T>;
  const int last = target.cols - (N - 1) * W;
  const bool add = target.add;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    if (r >= target.rows) break;
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

/// How a tile of numbers multiplies. `Word` is what lies in a panel.
template <class T>
struct GemmNumbers {
  using Sum = T;
  using Word = T;
  ATTEST_INLINE static Vec<T> row(const T* b) { return load(b); }
  ATTEST_INLINE static Vec<T> spread(const T* a) { return broadcast(*a); }
  ATTEST_INLINE static Vec<T> multiply_add(Vec<T> a, Vec<T> b, Vec<T> sum) {
    return fma(a, b, sum);
  }
};

/// One depth: one column of A times one row of B.
template <class How, int R, int N>
ATTEST_INLINE void gemm_depth(const typename How::Word* a, const typename How::Word* b,
                              Vec<typename How::Sum> (&sum)[R][N]) {
  using V = Vec<typename How::Sum>;
  V row[N];
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) row[v] = How::row(b + v * lanes<typename How::Sum>);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const V number = How::spread(a + r);
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sum[r][v] = How::multiply_add(number, row[v], sum[r][v]);
  }
}

/// One tile, in the order of the depths; rows beyond the target's are summed and dropped.
/// Bytes moved per depth: R + N·W numbers read from the first-level cache for 2·R·N·W flops.
///
/// Not inlined: clang's analysis of branches is quadratic in the exits of a loop, of which sanitizers
/// give every access one.
template <class How, int R, int N>
[[gnu::noinline]] void gemm_tile(const typename How::Word* a, const typename How::Word* b,
                                 std::int64_t words, const GemmTarget<typename How::Sum>& target,
                                 GemmAhead ahead) noexcept {
  using T = typename How::Sum;
  constexpr int together = 8;
  Vec<T> sum[R][N] = {};
  gemm_await<T, R, N>(target);
  std::int64_t k = 0;
  for (; k + together <= words; k += together) {
    for (int line = 0; line < ahead.lines; ++line, ahead.from += 64) {
      __builtin_prefetch(ahead.from, 0, 2);
    }
    for (int step = 0; step < together; ++step, a += gemm_rows, b += gemm_cols<T>) {
      gemm_depth<How, R, N>(a, b, sum);
    }
  }
  for (; k < words; ++k, a += gemm_rows, b += gemm_cols<T>) gemm_depth<How, R, N>(a, b, sum);
  gemm_write<T, R, N>(sum, target);
}

/// The tile that is just high enough for the target's rows: sums are the same in each.
template <class How, int R>
ATTEST_INLINE void gemm_tile_of(const typename How::Word* a, const typename How::Word* b,
                                std::int64_t words, const GemmTarget<typename How::Sum>& target,
                                GemmAhead ahead) {
  constexpr int less = R - gemm_rows / 3;
  if constexpr (less > 0) {
    if (target.rows <= less) return gemm_tile_of<How, less>(a, b, words, target, ahead);
  }
  if (target.cols > lanes<typename How::Sum>) {
    gemm_tile<How, R, gemm_vectors>(a, b, words, target, ahead);
  } else {
    gemm_tile<How, R, 1>(a, b, words, target, ahead);
  }
}

/// Every tile of a block; a word holds `depth_step` depths. A panel of A stays in the first-level cache
/// while all of B, from the second level, passes by; meanwhile the next panel of A is asked for.
template <class How, int depth_step>
inline void gemm_multiply(const GemmBlock& block) noexcept {
  using T = typename How::Sum;
  using Word = typename How::Word;
  const auto* const a = static_cast<const Word*>(block.a);
  const auto* const b = static_cast<const Word*>(block.b);
  auto* const c = static_cast<T*>(block.c);
  const std::int64_t words = (block.depth + depth_step - 1) / depth_step;
  const std::int64_t tiles = (block.cols + gemm_cols<T> - 1) / gemm_cols<T>;
  const std::int64_t panel_lines = words * gemm_rows * std::int64_t{sizeof(Word)} / 64;
  const std::int64_t turns = tiles * (words / 8);
  const int lines = turns > 0 ? static_cast<int>((panel_lines + turns - 1) / turns) : 0;
  for (std::int64_t i = 0; i < block.rows; i += gemm_rows) {
    const std::int64_t below = block.rows - i;
    const int rows = below < gemm_rows ? static_cast<int>(below) : gemm_rows;
    const bool last = below <= gemm_rows;
    const auto* next = reinterpret_cast<const char*>(a + (last ? i : i + gemm_rows) * words);
    for (std::int64_t j = 0; j < block.cols; j += gemm_cols<T>) {
      const std::int64_t left = block.cols - j;
      const int cols = left < gemm_cols<T> ? static_cast<int>(left) : gemm_cols<T>;
      gemm_tile_of<How, gemm_rows>(
          a + i * words, b + j * words, words,
          {c + i * block.c_stride + j, block.c_stride, rows, cols, block.add},
          {next, last ? 0 : lines});
      if (!last) next += (words / 8) * lines * 64;
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
