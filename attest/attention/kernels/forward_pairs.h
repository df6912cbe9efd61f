// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward_block.h"

/// What forward passes in pairs of bfloat16 share.
namespace attest::kernels::ATTEST_ISA {

/// Rows of bfloat16 with their columns side by side.
struct PairRows {
  const std::uint16_t* data = nullptr;
  std::int64_t row = 0;
};

/// Some rows of a matrix: those in memory if their columns lie side by side, else a copy.
inline PairRows pair_rows(const Matrix& matrix, std::int64_t first, int count, int columns,
                          std::uint16_t* room) {
  const auto* from = static_cast<const std::uint16_t*>(matrix.data) + first * matrix.row;
  if (matrix.column == 1) return {from, matrix.row};
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < columns; ++c)
      room[r * columns + c] = from[r * matrix.row + c * matrix.column];
  }
  return {room, columns};
}

/// Replaces numbers that are not finite by zeros, in a copy. Gives whether there were any.
inline bool take_out_infinite(PairRows& rows, int count, int columns, std::uint16_t* room) {
  constexpr std::uint16_t exponent = 0x7F80;
  std::uint32_t found = 0;
  for (int r = 0; r < count; ++r) {
    const std::uint16_t* row = rows.data + r * rows.row;
    for (int c = 0; c < columns; ++c) found |= (row[c] & exponent) == exponent ? 1U : 0U;
  }
  if (found == 0) return false;
  for (int r = 0; r < count; ++r) {
    for (int c = 0; c < columns; ++c) {
      const std::uint16_t number = rows.data[r * rows.row + c];
      room[r * columns + c] = (number & exponent) == exponent ? std::uint16_t{0} : number;
    }
  }
  rows = {room, columns};
  return true;
}

/// Rows, wherever each lies, into lanes: to[p·ld + row] holds columns 2p and 2p + 1 as one word, zeros
/// beyond the rows and columns that are there.
inline void pairs_into_lanes(std::uint32_t* to, int ld, const void* const* from, std::int64_t step,
                             int rows, int columns, int words) {
  constexpr int W = lanes<float>;
  for (int r = 0; r < ld; r += W) {
    int p = 0;
    if (step == 1) {  // the words are there already, and are turned as if they were floats
      turn_rows<float, float>(
          from + r, rows - r < W ? rows - r : W,
          columns / 2, [&](int c, F32 word) __attribute__((always_inline)) {
            __builtin_memcpy(to + c * ld + r, &word, sizeof word);
          });
      p = columns / 2;
    }
    for (; p < words; ++p) {
      for (int i = r; i < r + W; ++i) {
        std::uint32_t word = 0;
        if (i < rows) {
          const auto* row = static_cast<const std::uint16_t*>(from[i]);
          if (2 * p < columns) word = row[2 * p * step];
          if (2 * p + 1 < columns)
            word |= static_cast<std::uint32_t>(row[(2 * p + 1) * step]) << 16U;
        }
        to[p * ld + i] = word;
      }
    }
  }
}

/// Scores of keys that are not there.
inline void hide_rows(float* scores, int ld, int keys, int padded) {
  for (int k = keys * ld; k < padded * ld; ++k) scores[k] = minus_infinity<float>;
}

/// Weights of two keys, rounded to nearest even, one word a lane; a NaN stays one.
ATTEST_INLINE F32 pairs_of(F32 even, F32 odd) {
  const auto halves =
      bits_as<__m512i>(_mm512_cvtne2ps_pbh(bits_as<__m512>(odd), bits_as<__m512>(even)));
  using Places = std::uint16_t __attribute__((vector_size(vector_bytes)));
  constexpr Places place = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                            8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return bits_as<F32>(_mm512_permutexvar_epi16(bits_as<__m512i>(place), halves));
}

/// The weight of key j, from words that took the place of the scores of two keys.
ATTEST_INLINE float weight_in_pairs(const float* scores, int ld, int j, int lane) {
  std::uint16_t half[2];
  __builtin_memcpy(half, scores + (j - j % 2) * ld + lane, sizeof half);
  return from_bf16(half[j % 2]);
}

}  // namespace attest::kernels::ATTEST_ISA
