// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/forward_amx.h"

#include "attest/linalg/kernels/amx_tile.h"

namespace attest::kernels::ATTEST_ISA {

ForwardKernel<float> forward_bf16() { return forward<TileProducts<HardwareTile>>; }

}  // namespace attest::kernels::ATTEST_ISA
