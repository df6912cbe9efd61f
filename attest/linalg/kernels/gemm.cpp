// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm.h"

#include "attest/linalg/kernels/gemm_finish.h"
#include "attest/linalg/kernels/gemm_pack.h"
#include "attest/linalg/kernels/gemm_tile.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// A panel of B of 256 depths is 32 KiB with 64-byte vectors, 16 KiB with narrower ones.
template <class T, class S>
GemmKernels kernels() noexcept {
  return {.row_width = gemm_rows,
          .col_width = gemm_cols<T>,
          .depth_step = 1,
          .depth_block = 256,
          .packed_bytes = sizeof(T),
          .pack_a = gemm_pack<T, S, gemm_rows>,
          .pack_b = gemm_pack<T, S, gemm_cols<T>>,
          .multiply = gemm_multiply<T>};
}

}  // namespace

GemmTable gemm_table() noexcept {
  return {.f32 = kernels<float, float>(),
          .f64 = kernels<double, double>(),
          .bf16 = kernels<float, std::uint16_t>(),
          .finish_f32 = gemm_finish<float>,
          .finish_f64 = gemm_finish<double>,
          .round_to_bf16 = gemm_round_to_bf16};
}

}  // namespace attest::kernels::ATTEST_ISA
