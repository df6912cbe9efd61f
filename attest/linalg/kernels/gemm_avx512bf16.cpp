// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm_pairs.h"
#include "attest/linalg/kernels/gemm_thin.h"
#include "attest/linalg/kernels/gemm_tile.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// Two depths at a time: sum += a₂ₖ₊₁·b₂ₖ₊₁ + a₂ₖ·b₂ₖ with two roundings.
struct GemmPairs {
  using Sum = float;
  using Word = std::uint32_t;
  ATTEST_INLINE static F32 row(const std::uint32_t* b) {
    F32 out;
    __builtin_memcpy(&out, b, sizeof out);
    return out;
  }
  ATTEST_INLINE static F32 spread(const std::uint32_t* a) {
    return bits_as<F32>(_mm512_set1_epi32(static_cast<int>(*a)));
  }
  ATTEST_INLINE static F32 multiply_add(F32 a, F32 b, F32 sum) {
    return bits_as<F32>(
        _mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(a), bits_as<__m512bh>(b)));
  }
};

struct ThinPairs : GemmPairs {
  static constexpr int per_word = 2;
  using Stored = std::uint16_t;
  ATTEST_INLINE static F32 along(const std::uint16_t* from) {
    F32 out;
    __builtin_memcpy(&out, from, sizeof out);
    return out;
  }
  ATTEST_INLINE static F32 across(const std::uint16_t* from, std::int64_t stride,
                                  std::int64_t left) {
    const U32 even = bits_as<U32>(load_bf16(from)) >> 16U;
    return left < 2 ? bits_as<F32>(even)
                    : bits_as<F32>(even | bits_as<U32>(load_bf16(from + stride)));
  }
  ATTEST_INLINE static std::uint32_t word(const std::uint16_t* from, std::int64_t stride,
                                          std::int64_t left) {
    const std::uint32_t even = *from;
    return left < 2 ? even : even | (static_cast<std::uint32_t>(from[stride]) << 16U);
  }
};

constexpr int block = 512;  // two roundings a pair: the bound knows no longer block

}  // namespace

GemmKernels gemm_bf16() noexcept {
  return {.row_width = gemm_rows,
          .col_width = gemm_cols<float>,
          .depth_step = 2,
          .depth_block = block,
          .packed_bytes = 2,
          .pack_a = gemm_pack_pairs<gemm_rows, 2>,
          .pack_b = gemm_pack_pairs<gemm_cols<float>, 2>,
          .multiply = gemm_multiply<GemmPairs, 2>,
          .pack_thin = gemm_pack_thin<ThinPairs>,
          .thin = gemm_thin<ThinPairs, block>};
}

}  // namespace attest::kernels::ATTEST_ISA
