// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_thin_words.h"

/// Products of few rows (gemm_thin.h) where columns of B lie in memory, or nothing beside anything.
namespace attest::kernels::ATTEST_ISA {

/// What will be read next where columns of B lie in memory: asked for column by column, as a whole
/// lies there, some lines for each square that is worked on.
template <class How>
struct ThinAhead {
  using S = typename How::Stored;
  static constexpr int W = lanes<typename How::Sum>;
  static constexpr int lines = (W * W * How::per_word * static_cast<int>(sizeof(S)) + 63) / 64;

  const S* from = nullptr;
  std::int64_t col_stride = 0;
  std::int64_t cols = 0;
  std::int64_t depth = 0;
  std::int64_t at = 0;  // in the first of the columns that are left

  ATTEST_INLINE void ask() {
    if (cols == 0) return;
    constexpr std::int64_t step = 64 / std::int64_t{sizeof(S)};
#pragma GCC unroll 16
    for (int line = 0; line < lines; ++line) prefetch<2>(from, at + line * step);
    at += lines * step;
    if (at < depth) return;
    at = 0;
    from += col_stride;
    --cols;
  }
};

/// Squares of W columns that are worked on together: so many sums hide the latency of an addition.
inline constexpr int thin_squares = 2;

/// The sums of a square's columns += Σ of its words, in their order.
template <class How>
ATTEST_INLINE void thin_square_add(const GemmThin& thin, const ThinPlace<How>& at,
                                   std::int64_t word,
                                   const Vec<typename How::Sum> (&line)[lanes<typename How::Sum>],
                                   typename How::Sum* sums) {
  const typename How::Word* a = at.a + word;
  for (std::int64_t r = 0; r < thin.rows; ++r, a += at.a_stride, sums += at.sums_stride) {
    auto sum = load(sums);
#pragma GCC unroll 16
    for (int k = 0; k < lanes<typename How::Sum>; ++k) {
      sum = How::multiply_add(How::spread(a + k), line[k], sum);
    }
    store<typename How::Sum>(sums, sum);
  }
}

/// Columns of B lie in memory, or nothing lies beside anything: `cols` of them, at most
/// thin_squares·W.
template <class How>
[[gnu::noinline]] void thin_cols(const GemmThin& thin, const ThinPlace<How>& at, int cols,
                                 ThinAhead<How> ahead) noexcept {
  using T = typename How::Sum;
  constexpr int W = lanes<T>;
  const typename How::Stored* place[thin_squares * W];
  for (int col = 0; col < thin_squares * W; ++col) {  // those that are not there repeat the last
    place[col] = at.b + (col < cols ? col : cols - 1) * thin.b_col_stride;
  }
  std::int64_t depth = 0;
  if (thin.b_depth_stride == 1) {
    for (; depth + W * How::per_word <= at.depth; depth += W * How::per_word) {
      for (int begin = 0; begin < cols; begin += W) {
        Vec<T> line[W];
        ahead.ask();
#pragma GCC unroll 16
        for (int n = 0; n < W; ++n) line[n] = How::along(place[begin + n] + depth);
        transpose<T>(line);
        thin_square_add<How>(thin, at, depth / How::per_word, line, at.sums + begin);
      }
    }
  }
  for (; depth < at.depth; depth += How::per_word) {  // word by word
    for (int begin = 0; begin < cols; begin += W) {
      typename How::Word words[W];
      for (int n = 0; n < W; ++n) {
        words[n] = How::word(place[begin + n] + depth * thin.b_depth_stride, thin.b_depth_stride,
                             at.depth - depth);
      }
      for (std::int64_t r = 0; r < thin.rows; ++r) {
        T* const sums = at.sums + r * at.sums_stride + begin;
        const auto a = How::spread(at.a + r * at.a_stride + depth / How::per_word);
        store<T>(sums, How::multiply_add(a, How::row(words), load(sums)));
      }
    }
  }
}

/// What `thin_cols` will be asked for next: the block below in the same columns, or else the first
/// block of the columns beside them.
template <class How, int depth_block>
ATTEST_INLINE ThinAhead<How> thin_next(const GemmThin& thin, std::int64_t begin,
                                       std::int64_t from) {
  constexpr std::int64_t width = thin_squares * lanes<typename How::Sum>;
  const bool below = from + depth_block < thin.depth;
  if (!below) begin += width;
  from = below ? from + depth_block : 0;
  if (thin.b_depth_stride != 1 || begin >= thin.cols) return {};
  return {
      .from = static_cast<const typename How::Stored*>(thin.b) + begin * thin.b_col_stride + from,
      .col_stride = thin.b_col_stride,
      .cols = thin.cols - begin < width ? thin.cols - begin : width,
      .depth = thin.depth - from < depth_block ? thin.depth - from : depth_block};
}

}  // namespace attest::kernels::ATTEST_ISA
