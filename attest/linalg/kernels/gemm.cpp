// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm.h"

#include "attest/linalg/kernels/gemm_finish.h"
#include "attest/linalg/kernels/gemm_pack.h"
#include "attest/linalg/kernels/gemm_thin.h"
#include "attest/linalg/kernels/gemm_tile.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// A panel of A of this depth is 24 KiB with 32 registers, 12 KiB with 16.
template <class T>
inline constexpr int block_of = 2048 / static_cast<int>(sizeof(T));

template <class T, class S>
GemmKernels kernels() noexcept {
  using How = ThinNumbers<T, S>;
  return {.row_width = gemm_rows,
          .col_width = gemm_cols<T>,
          .depth_step = 1,
          .depth_block = block_of<T>,
          .packed_bytes = sizeof(T),
          .pack_a = gemm_pack<T, S, gemm_rows>,
          .pack_b = gemm_pack<T, S, gemm_cols<T>>,
          .multiply = gemm_multiply<GemmNumbers<T>, 1>,
          .pack_thin = gemm_pack_thin<How>,
          .thin = gemm_thin<How, block_of<T>>};
}

}  // namespace

GemmTable gemm_table() noexcept {
  return {.f32 = kernels<float, float>(),
          .f64 = kernels<double, double>(),
          .f16 = kernels<float, StoredF16>(),
          .bf16 = kernels<float, StoredBf16>(),
          .finish_f32 = gemm_finish<float>,
          .finish_f64 = gemm_finish<double>,
          .round_to_f16 = gemm_round<StoredF16>,
          .round_to_bf16 = gemm_round<StoredBf16>};
}

}  // namespace attest::kernels::ATTEST_ISA
