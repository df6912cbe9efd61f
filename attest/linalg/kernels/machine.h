// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// Loops that do nothing but reach a limit of the machine.
namespace attest::kernels {

/// What each loop does in one round, and what it leaves behind so that it cannot be left out.
struct MachineKernels {
  /// Rounds of multiply-adds on chains that start at their fixed point 2, so that the sum of all lanes
  /// of all chains, which is the result, equals the flops of one round: tests demand it.
  float (*multiply_add)(std::int64_t rounds);
  double multiply_add_flops;  ///< of one round

  /// The sum of the first ⌊count/step⌋·step numbers.
  float (*read)(const float* from, std::int64_t count);
  std::int64_t read_step;
};

/// Rounds of bfloat16 products, each of 1 and 1; the result is the mean over lanes and chains of a
/// pair's sum, 2·rounds (up to 2²³ rounds: f32 then counts no further).
struct Bf16Kernels {
  float (*multiply_add)(std::int64_t rounds);
  double multiply_add_flops;
};

namespace portable {
extern const MachineKernels machine;
}
namespace avx2 {
extern const MachineKernels machine;
}
namespace avx512 {
extern const MachineKernels machine;
}
namespace avx512bf16 {
extern const Bf16Kernels machine_bf16;
}
namespace amx {
extern const Bf16Kernels machine_bf16;
}

}  // namespace attest::kernels
