// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>
#include <vector>

#include "attest/base/result.h"

namespace attest {

/// The instruction sets that kernels are written for, each a superset of the one before.
///
///     portable     what every processor of this kind has: SSE2, NEON, or plain code
///     avx2         AVX2, FMA, F16C
///     avx512       AVX-512 F, BW, DQ, VL
///     avx512bf16   … and dot products of pairs of bfloat16
///     amx          … and matrix tiles of bfloat16
enum class Isa { portable, avx2, avx512, avx512bf16, amx };

[[nodiscard]] std::string_view name_of(Isa isa) noexcept;

/// One row of the list of instruction sets.
struct IsaState {
  Isa isa = Isa::portable;
  bool built = false;         ///< this library has kernels for it
  bool present = false;       ///< this machine and its system run them
  bool preferred = false;     ///< taken when nothing is said
  std::string_view remark{};  ///< why it is absent or passed over; empty if there is nothing to say
};

/// All of them, in the order above. Asks the processor and the system once; for AMX this asks the
/// system for permission to use the tiles, for the whole process.
[[nodiscard]] const std::vector<IsaState>& instruction_sets();

/// The instruction set of that name ("avx2").
/// Fails         bad-isa: no such name, or this machine lacks it; the sentence lists those present.
[[nodiscard]] Result<Isa> isa_of(std::string_view name);

/// What a call uses that does not say: the environment's ATTEST_ISA, else the preferred one.
/// Fails         bad-isa, as `isa_of`, if ATTEST_ISA says what cannot be had.
/// See also      Execution::isa · docs/kernels.md.
[[nodiscard]] Result<Isa> default_isa();

}  // namespace attest
