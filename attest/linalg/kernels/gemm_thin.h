// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_pack.h"
#include "attest/linalg/kernels/gemm_tile.h"

/// Products of few rows, as in decoding: there the time goes into reading B, so B is read once, where it
/// lies, and nothing of it is written. Each element is summed as the packed kernels do it, block by block
/// and depth by depth, so that a row's bits do not depend on which of the two it met.
///
/// Bytes moved: those of B, for 2·rows flops a number.
namespace attest::kernels::ATTEST_ISA {

/// How numbers S of B become words of T.
template <class T, class S>
struct ThinNumbers : GemmNumbers<T> {
  static constexpr int per_word = 1;
  using Stored = S;
  /// W words of one column, beside each other in memory.
  ATTEST_INLINE static Vec<T> along(const S* from) { return load_widened<T>(from); }
  /// One word of each of W columns, beside each other in memory.
  ATTEST_INLINE static Vec<T> across(const S* from, std::int64_t, std::int64_t) {
    return load_widened<T>(from);
  }
  /// One word; `left` depths are there.
  ATTEST_INLINE static T word(const S* from, std::int64_t, std::int64_t) { return widened(*from); }
};

template <class How>
struct ThinPlace {
  using T = typename How::Sum;
  using Word = typename How::Word;
  using S = typename How::Stored;
  const Word* a = nullptr;  // row 0, at the block's first word
  std::int64_t a_stride = 0;
  const S* b = nullptr;  // column 0, at the block's first depth
  std::int64_t depth = 0;
  T* sums = nullptr;  // [rows, columns of the chunk], zeros before
  std::int64_t sums_stride = 0;
};

struct Columns {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The rows of A, one after the other, as words.
template <class How>
inline void gemm_pack_thin(const GemmPack& pack) noexcept {
  using Word = typename How::Word;
  using S = typename How::Stored;
  constexpr int W = lanes<typename How::Sum>;
  const std::int64_t words = (pack.depth + How::per_word - 1) / How::per_word;
  auto* to = static_cast<Word*>(pack.to);
  for (std::int64_t r = 0; r < pack.lines; ++r, to += words) {
    const S* const line = static_cast<const S*>(pack.from) + r * pack.line_stride;
    std::int64_t k = 0;
    if (pack.depth_stride == 1) {
      for (; (k + W) * How::per_word <= pack.depth; k += W) {
        const auto some = How::along(line + k * How::per_word);
        __builtin_memcpy(to + k, &some, sizeof some);
      }
    }
    for (; k < words; ++k) {
      const std::int64_t depth = k * How::per_word;
      to[k] = How::word(line + depth * pack.depth_stride, pack.depth_stride, pack.depth - depth);
    }
  }
}

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

/// What will be read next where columns of B lie in memory: asked for column by column, as a whole lies
/// there, some lines for each square that is worked on.
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

/// A block's sums, into C.
template <class T>
inline void thin_write(const GemmThin& thin, const T* sums, std::int64_t sums_stride,
                       std::int64_t begin, std::int64_t cols, bool add) {
  constexpr int W = lanes<T>;
  for (std::int64_t r = 0; r < thin.rows; ++r, sums += sums_stride) {
    T* const c = static_cast<T*>(thin.c) + r * thin.c_stride + begin;
    std::int64_t j = 0;
    for (; j + W <= cols; j += W) {
      store<T>(c + j, add ? load(c + j) + load(sums + j) : load(sums + j));
    }
    for (; j < cols; ++j) c[j] = add ? c[j] + sums[j] : sums[j];
  }
}

/// Columns that are summed together: their sums, for all rows, and one register more, fill a third of the room.
template <class T>
ATTEST_INLINE std::int64_t thin_chunk(std::int64_t rows) {
  constexpr std::int64_t W = lanes<T>;
  const std::int64_t each = gemm_thin_room / 3 / std::int64_t{sizeof(T)} / rows;
  return each / (2 * W) * (2 * W);
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

template <class How, int depth_block>
inline void gemm_thin(const GemmThin& thin) noexcept {
  using T = typename How::Sum;
  using S = typename How::Stored;
  constexpr int W = lanes<T>;
  constexpr int together = 4;
  const bool in_rows = thin.b_col_stride == 1 && !(thin.cols == 1 && thin.b_depth_stride == 1);
  const std::int64_t chunk = in_rows ? thin_chunk<T>(thin.rows) : thin_squares * W;
  const auto* const b = static_cast<const S*>(thin.b);
  ThinPlace<How> at{.a_stride = (thin.depth + How::per_word - 1) / How::per_word,
                    .sums = static_cast<T*>(thin.room),
                    .sums_stride = chunk + W};
  for (std::int64_t begin = 0; begin < thin.cols; begin += chunk) {
    const std::int64_t cols = thin.cols - begin < chunk ? thin.cols - begin : chunk;
    for (std::int64_t from = 0; from == 0 || from < thin.depth; from += depth_block) {
      at.depth = thin.depth - from < depth_block ? thin.depth - from : depth_block;
      at.a = static_cast<const typename How::Word*>(thin.a) + from / How::per_word;
      at.b = at.depth == 0 ? b : b + from * thin.b_depth_stride + begin * thin.b_col_stride;
      __builtin_memset(at.sums, 0,
                       static_cast<std::size_t>(thin.rows * at.sums_stride) * sizeof(T));
      if (in_rows) {
        const std::int64_t words = (at.depth + How::per_word - 1) / How::per_word;
        std::int64_t word = 0;
        for (; (word + together) * How::per_word <= at.depth; word += together) {
          thin_rows_of<How, together>(thin, at, cols, word);
        }
        for (; word < words; ++word) thin_rows_of<How, 1>(thin, at, cols, word);
      } else {
        thin_cols<How>(thin, at, static_cast<int>(cols),
                       thin_next<How, depth_block>(thin, begin, from));
      }
      thin_write<T>(thin, at.sums, at.sums_stride, begin, cols, thin.add || from > 0);
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
