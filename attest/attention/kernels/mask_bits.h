// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// Yes and no of rows, keys and lanes, as bits of a word.
namespace attest::kernels::ATTEST_ISA {

ATTEST_INLINE std::uint64_t first_bits(int count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << static_cast<unsigned>(count)) - 1;
}

/// bit[r] of word j and bit[j] of word r change places: sixty-four words as a square of bits,
/// halved again and again.
ATTEST_INLINE void turn_bits(std::uint64_t* word) {
  constexpr std::uint64_t kept[6] = {0x00000000FFFFFFFF, 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF,
                                     0x0F0F0F0F0F0F0F0F, 0x3333333333333333, 0x5555555555555555};
#pragma GCC unroll 6
  for (int stage = 0; stage < 6; ++stage) {
    const int half = 32 >> stage;
    const auto shift = static_cast<unsigned>(half);
    for (int start = 0; start < 64; start += 2 * half) {
      for (int r = start; r < start + half; ++r) {
        const std::uint64_t change = ((word[r] >> shift) ^ word[r + half]) & kept[stage];
        word[r] ^= change << shift;
        word[r + half] ^= change;
      }
    }
  }
}

/// Bit k says that byte k of up to 64 is not 0.
ATTEST_INLINE std::uint64_t bits_of_bytes(const bool* from, int count) {
#if defined(__AVX512BW__)
  const __m512i bytes = _mm512_maskz_loadu_epi8(first_bits(count), from);
  return _mm512_test_epi8_mask(bytes, bytes);
#else
  unsigned char bytes[64] = {};
  __builtin_memcpy(bytes, from, static_cast<std::size_t>(count));
  std::uint64_t bits = 0;
#if defined(__AVX2__)
  for (int at = 0; at < 64; at += 32) {
    __m256i part;
    __builtin_memcpy(&part, bytes + at, sizeof part);
    const auto zero = static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, _mm256_setzero_si256())));
    bits |= std::uint64_t{~zero} << static_cast<unsigned>(at);
  }
#else
  for (int at = 0; at < 64; ++at) {
    bits |= std::uint64_t{bytes[at] != 0 ? 1U : 0U} << static_cast<unsigned>(at);
  }
#endif
  return bits;
#endif
}

/// Lanes that are set (−1), as bits.
template <class T>
ATTEST_INLINE std::uint64_t bits_of_lanes(Lanes<T> mask) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_movepi32_mask(bits_as<__m512i>(mask));
  } else {
    return _mm512_movepi64_mask(bits_as<__m512i>(mask));
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return static_cast<std::uint64_t>(_mm256_movemask_ps(bits_as<__m256>(mask)));
  } else {
    return static_cast<std::uint64_t>(_mm256_movemask_pd(bits_as<__m256d>(mask)));
  }
#else
  std::uint64_t bits = 0;
  for (int lane = 0; lane < lanes<T>; ++lane) {
    bits |= std::uint64_t{mask[lane] != 0 ? 1U : 0U} << static_cast<unsigned>(lane);
  }
  return bits;
#endif
}

/// Lanes whose bit is set.
template <class T>
ATTEST_INLINE Lanes<T> lanes_of_bits(std::uint64_t bits) {
  using Integer = typename VecTypes<T>::Integer;
  const Lanes<T> one = broadcast_integer<T>(1) << lane_numbers<T>();
  return (broadcast_integer<T>(static_cast<Integer>(bits & first_bits(lanes<T>))) & one) != 0;
}

}  // namespace attest::kernels::ATTEST_ISA
