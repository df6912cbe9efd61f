// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_thin_cols.h"
#include "attest/linalg/kernels/gemm_thin_rows.h"

/// Products of few rows, as in decoding: there the time goes into reading B, so B is read once,
/// where it lies, and nothing of it is written. Each element is summed as the packed kernels do it,
/// block by block and depth by depth, so that a row's bits do not depend on which of the two it
/// met.
///
/// Bytes moved: those of B, for 2·rows flops a number.
namespace attest::kernels::ATTEST_ISA {

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

/// Columns that are summed together: their sums, for all rows, and one register more, fill a third
/// of the room.
template <class T>
ATTEST_INLINE std::int64_t thin_chunk(std::int64_t rows) {
  constexpr std::int64_t W = lanes<T>;
  const std::int64_t each = gemm_thin_room / 3 / std::int64_t{sizeof(T)} / rows;
  return each / (2 * W) * (2 * W);
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
