// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {

/// Philox4x32-10 as attest/base/random.h states it, for kernels.
/// Source        Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
ATTEST_INLINE void philox(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d,
                          std::uint64_t seed, std::uint32_t* out) {
  auto low = static_cast<std::uint32_t>(seed);
  auto high = static_cast<std::uint32_t>(seed >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53U} * a;
    const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c;
    a = static_cast<std::uint32_t>(second >> 32U) ^ b ^ low;
    b = static_cast<std::uint32_t>(second);
    c = static_cast<std::uint32_t>(first >> 32U) ^ d ^ high;
    d = static_cast<std::uint32_t>(first);
    low += 0x9E3779B9U;
    high += 0xBB67AE85U;
  }
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
}

}  // namespace attest::kernels::ATTEST_ISA
