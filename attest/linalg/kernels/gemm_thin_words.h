// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_pack.h"
#include "attest/linalg/kernels/gemm_tile.h"

/// Products of few rows (gemm_thin.h): how numbers become words, and the rows of A as such.
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

}  // namespace attest::kernels::ATTEST_ISA
