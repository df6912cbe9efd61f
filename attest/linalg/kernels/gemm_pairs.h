// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_pack.h"

/// Packing of bfloat16 for machines that multiply pairs: the numbers of depths 2k and 2k + 1 lie
/// beside each other, as one word of 32 bits.
namespace attest::kernels::ATTEST_ISA {

/// One word by hand: lines and depths that are not there are zeros.
inline std::uint32_t pair_at(const GemmPack& pack, const std::uint16_t* line, std::int64_t k) {
  std::uint32_t word = 0;
  if (k < pack.depth) word = line[k * pack.depth_stride];
  if (k + 1 < pack.depth) {
    word |= static_cast<std::uint32_t>(line[(k + 1) * pack.depth_stride]) << 16U;
  }
  return word;
}

/// One panel, any strides, words from `begin` to `words`: slow.
template <int P>
inline void pack_pairs_plainly(const GemmPack& pack, const std::uint16_t* from, int lines,
                               std::int64_t begin, std::int64_t words, std::uint32_t* to) {
  for (std::int64_t k = begin; k < words; ++k) {
    for (int i = 0; i < P; ++i) {
      to[k * P + i] = i < lines ? pair_at(pack, from + i * pack.line_stride, 2 * k) : 0U;
    }
  }
}

/// One panel whose lines lie in memory depth by depth: words are there already, and are transposed
/// as if they were floats (moved, never computed with).
template <int P>
inline void pack_pairs_along_depth(const GemmPack& pack, const std::uint16_t* from, int lines,
                                   std::int64_t words, std::uint32_t* to) {
  constexpr int W = lanes<float>;
  constexpr int squares = (P + W - 1) / W;
  std::int64_t k = 0;
  for (; 2 * (k + W) <= pack.depth; k += W) {
    F32 line[squares][W];
#pragma GCC unroll 4
    for (int s = 0; s < squares; ++s) {
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        const int number = s * W + i;
        line[s][i] = F32{};
        if (number < P && number < lines) {
          const std::uint16_t* const place = from + number * pack.line_stride + 2 * k;
          prefetch(place, 256);
          __builtin_memcpy(&line[s][i], place, sizeof(F32));
        }
      }
      transpose<float>(line[s]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) {
#pragma GCC unroll 4
      for (int s = 0; s < squares; ++s) {
        std::uint32_t* const place = to + (k + i) * P + s * W;
        // What is written too far, the next depth overwrites; beyond the panel is another's.
        if (P % W == 0 || s + 1 < squares || i + 1 < W) {
          __builtin_memcpy(place, &line[s][i], sizeof(F32));
        } else {
          __builtin_memcpy(place, &line[s][i], (P % W) * sizeof(std::uint32_t));
        }
      }
    }
  }
  pack_pairs_plainly<P>(pack, from, lines, k, words, to);
}

/// One word of each of P lines that lie beside each other, from two rows of numbers.
template <int P>
ATTEST_INLINE void zip_lines(const std::uint16_t* even, const std::uint16_t* odd,
                             std::uint32_t* to) {
  constexpr int W = lanes<float>;
  if constexpr (P % W == 0) {
#pragma GCC unroll 4
    for (int i = 0; i < P; i += W) {
      const U32 low = bits_as<U32>(load_bf16(even + i)) >> 16U;
      const U32 high = bits_as<U32>(load_bf16(odd + i));
      const U32 both = low | high;
      __builtin_memcpy(to + i, &both, sizeof both);
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < P; ++i) to[i] = even[i] | (static_cast<std::uint32_t>(odd[i]) << 16U);
  }
}

/// All panels, each P lines wide; depths are padded with zeros to a multiple of `step`.
template <int P, int step>
inline void gemm_pack_pairs(const GemmPack& pack) noexcept {
  if (pack.depth == 0) return;  // then there may be no memory to point into
  const auto* const from = static_cast<const std::uint16_t*>(pack.from);
  auto* const to = static_cast<std::uint32_t*>(pack.to);
  const std::int64_t words = (pack.depth + step - 1) / step * step / 2;
  const std::int64_t full = pack.lines / P * P;
  std::int64_t done = 0;  // lines
  if (pack.line_stride == 1) {
    // Depth by depth through all panels, so that memory is read as it lies.
    const std::int64_t whole = pack.depth / 2;
    for (std::int64_t k = 0; k < whole; ++k) {
      const std::uint16_t* const even = from + 2 * k * pack.depth_stride;
      for (std::int64_t i = 0; i < full; i += P) {
        prefetch(even + i, 8 * pack.depth_stride);
        prefetch(even + i, 9 * pack.depth_stride);
        zip_lines<P>(even + i, even + pack.depth_stride + i, to + i * words + k * P);
      }
    }
    for (std::int64_t i = 0; i < full; i += P) {
      pack_pairs_plainly<P>(pack, from + i, P, whole, words, to + i * words);
    }
    done = full;
  }
  for (; done < pack.lines; done += P) {
    const int lines = done < full ? P : static_cast<int>(pack.lines - full);
    const std::uint16_t* const line = from + done * pack.line_stride;
    if (pack.depth_stride == 1) {
      pack_pairs_along_depth<P>(pack, line, lines, words, to + done * words);
    } else {
      pack_pairs_plainly<P>(pack, line, lines, 0, words, to + done * words);
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
