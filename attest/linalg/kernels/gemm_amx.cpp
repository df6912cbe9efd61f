// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/gemm_amx.h"

#include "attest/linalg/kernels/amx_tile.h"

namespace attest::kernels::ATTEST_ISA {

GemmKernels gemm_bf16() noexcept { return gemm_tiles_kernels<HardwareTile>(); }

}  // namespace attest::kernels::ATTEST_ISA
