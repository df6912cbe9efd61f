// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_thin_words.h"

/// Products of few rows (gemm_thin.h) where rows of B lie in memory.
namespace attest::kernels::ATTEST_ISA {

struct Columns {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Sums of W columns of some rows += Σ of `words` words, in their order.
template <class How, int rows, int words>
ATTEST_INLINE void thin_add(const Vec<typename How::Sum> (&a)[rows][words],
                            const Vec<typename How::Sum> (&b)[words], typename How::Sum* sums,
                            std::int64_t stride) {
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    auto sum = load(sums + r * stride);
#pragma GCC unroll 8
    for (int k = 0; k < words; ++k) sum = How::multiply_add(a[r][k], b[k], sum);
    store<typename How::Sum>(sums + r * stride, sum);
  }
}

/// Rows of B lie in memory: some of A, from `row`, against `words` of them, from `word`, in columns
/// `from` to `to`.
template <class How, int rows, int words>
[[gnu::noinline]] void thin_rows(const GemmThin& thin, const ThinPlace<How>& at, std::int64_t row,
                                 std::int64_t word, Columns columns) noexcept {
  using T = typename How::Sum;
  constexpr int W = lanes<T>;
  constexpr int depths = words * How::per_word;
  const std::int64_t stride = thin.b_depth_stride;
  const auto* const first = at.b + word * How::per_word * stride;
  const std::int64_t there = at.depth - word * How::per_word;
  Vec<T> a[rows][words];
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int k = 0; k < words; ++k) {
      a[r][k] = How::spread(at.a + (row + r) * at.a_stride + word + k);
    }
  }
  T* const sums = at.sums + row * at.sums_stride;
  std::int64_t j = columns.begin;
  for (; j + W <= columns.end; j += W) {
    if (row == 0) {  // the first to read these asks for those that follow
#pragma GCC unroll 16
      for (int k = 0; k < depths; ++k) prefetch<2>(first + k * stride + j, depths * stride);
    }
    Vec<T> b[words];
#pragma GCC unroll 8
    for (int k = 0; k < words; ++k) {
      b[k] = How::across(first + k * How::per_word * stride + j, stride, there - k * How::per_word);
    }
    thin_add<How, rows, words>(a, b, sums + j, at.sums_stride);
  }
  if (j == columns.end) return;
  typename How::Word rest[words][W] = {};
  Vec<T> b[words];
  for (int k = 0; k < words; ++k) {
    for (std::int64_t n = 0; n < columns.end - j; ++n) {
      rest[k][n] =
          How::word(first + k * How::per_word * stride + j + n, stride, there - k * How::per_word);
    }
    b[k] = How::row(rest[k]);
  }
  thin_add<How, rows, words>(a, b, sums + j, at.sums_stride);
}

/// All rows of A against `words` words of B, which stay in the first-level cache meanwhile.
template <class How, int words>
ATTEST_INLINE void thin_rows_of(const GemmThin& thin, const ThinPlace<How>& at, std::int64_t cols,
                                std::int64_t word) {
  constexpr std::int64_t together = 2048 / std::int64_t{sizeof(typename How::Sum)};
  constexpr int most = vector_registers == 32 ? 4 : 2;
  for (std::int64_t begin = 0; begin < cols; begin += together) {
    const Columns columns{begin, begin + together < cols ? begin + together : cols};
    std::int64_t row = 0;
    for (; row + most <= thin.rows; row += most)
      thin_rows<How, most, words>(thin, at, row, word, columns);
    if (most > 2 && row + 2 <= thin.rows) {
      thin_rows<How, 2, words>(thin, at, row, word, columns);
      row += 2;
    }
    if (row < thin.rows) thin_rows<How, 1, words>(thin, at, row, word, columns);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
