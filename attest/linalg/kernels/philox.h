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

/// Products of the lower halves of 64-bit lanes, whose upper halves are 0.
ATTEST_INLINE U64 multiply_halves(U64 a, U64 b) {
#if defined(__AVX512F__)
  return bits_as<U64>(_mm512_mul_epu32(bits_as<__m512i>(a), bits_as<__m512i>(b)));
#elif defined(__AVX2__)
  return bits_as<U64>(_mm256_mul_epu32(bits_as<__m256i>(a), bits_as<__m256i>(b)));
#else
  return a * b;
#endif
}

/// number·factor in 64 bits, lane by lane: even and odd lanes one after the other.
ATTEST_INLINE void multiply_wide(U32 number, std::uint32_t factor, U32& high, U32& low) {
  const U64 by = std::uint64_t{factor} + U64{};
  const U64 lower_half = std::uint64_t{0xFFFFFFFFU} + U64{};
  const U64 even = multiply_halves(bits_as<U64>(number) & lower_half, by);
  const U64 odd = multiply_halves(bits_as<U64>(number) >> 32U, by);
  high = bits_as<U32>((even >> 32U) | (odd & ~lower_half));
  low = bits_as<U32>((even & lower_half) | (odd << 32U));
}

/// One counter in each lane: counter[0 … 3] become the random words.
ATTEST_INLINE void philox(U32* counter, std::uint64_t seed) {
  auto low_key = static_cast<std::uint32_t>(seed);
  auto high_key = static_cast<std::uint32_t>(seed >> 32U);
  for (int round = 0; round < 10; ++round) {
    U32 first_high, first_low, second_high, second_low;
    multiply_wide(counter[0], 0xD2511F53U, first_high, first_low);
    multiply_wide(counter[2], 0xCD9E8D57U, second_high, second_low);
    counter[0] = second_high ^ counter[1] ^ low_key;
    counter[1] = second_low;
    counter[2] = first_high ^ counter[3] ^ high_key;
    counter[3] = first_low;
    low_key += 0x9E3779B9U;
    high_key += 0xBB67AE85U;
  }
}

}  // namespace attest::kernels::ATTEST_ISA
