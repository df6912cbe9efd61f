// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm_pairs.h"
#include "attest/linalg/kernels/gemm_tile.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// As gemm_tile, two depths at a time: sum += a₂ₖ₊₁·b₂ₖ₊₁ + a₂ₖ·b₂ₖ with two roundings.
template <int R, int N>
ATTEST_INLINE void pairs_tile(const std::uint32_t* a, const std::uint32_t* b, std::int64_t words,
                              const GemmTarget<float>& target) {
  constexpr int W = lanes<float>;
  F32 sum[R][N] = {};
  for (std::int64_t k = 0; k < words; ++k) {
    __m512i row[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) row[v] = _mm512_loadu_si512(b + v * W);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512i pair = _mm512_set1_epi32(static_cast<int>(a[r]));
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) {
        sum[r][v] = bits_as<F32>(_mm512_dpbf16_ps(
            bits_as<__m512>(sum[r][v]), bits_as<__m512bh>(pair), bits_as<__m512bh>(row[v])));
      }
    }
    a += gemm_rows;
    b += gemm_cols<float>;
  }
  gemm_write<float, R, N>(sum, target);
}

template <int R>
ATTEST_INLINE void pairs_tile_of(int rows, const std::uint32_t* a, const std::uint32_t* b,
                                 std::int64_t words, const GemmTarget<float>& target) {
  if constexpr (R > 0) {
    if (rows != R) return pairs_tile_of<R - 1>(rows, a, b, words, target);
    if (target.cols > lanes<float>) {
      pairs_tile<R, gemm_vectors>(a, b, words, target);
    } else {
      pairs_tile<R, 1>(a, b, words, target);
    }
  }
}

void multiply(const GemmBlock& block) noexcept {
  const auto* const a = static_cast<const std::uint32_t*>(block.a);
  const auto* const b = static_cast<const std::uint32_t*>(block.b);
  auto* const c = static_cast<float*>(block.c);
  const std::int64_t words = (block.depth + 1) / 2;
  for (std::int64_t j = 0; j < block.cols; j += gemm_cols<float>) {
    const std::int64_t left = block.cols - j;
    const int cols = left < gemm_cols<float> ? static_cast<int>(left) : gemm_cols<float>;
    for (std::int64_t i = 0; i < block.rows; i += gemm_rows) {
      const std::int64_t below = block.rows - i;
      const int rows = below < gemm_rows ? static_cast<int>(below) : gemm_rows;
      pairs_tile_of<gemm_rows>(rows, a + i * words, b + j * words, words,
                               {c + i * block.c_stride + j, block.c_stride, cols, block.add});
    }
  }
}

}  // namespace

GemmKernels gemm_bf16() noexcept {
  return {.row_width = gemm_rows,
          .col_width = gemm_cols<float>,
          .depth_step = 2,
          .depth_block = 512,
          .packed_bytes = 2,
          .pack_a = gemm_pack_pairs<gemm_rows, 2>,
          .pack_b = gemm_pack_pairs<gemm_cols<float>, 2>,
          .multiply = multiply};
}

}  // namespace attest::kernels::ATTEST_ISA
