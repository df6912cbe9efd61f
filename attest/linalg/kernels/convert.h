// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// 16-bit numbers in memory to registers of f32 and back.
namespace attest::kernels::ATTEST_ISA {

/// How 16-bit numbers lie in memory.
struct StoredF16 {
  std::uint16_t bits;
};
struct StoredBf16 {
  std::uint16_t bits;
};

/// Exact: a bfloat16 is the upper half of a float.
ATTEST_INLINE F32 load_bf16(const std::uint16_t* from) {
  U16Half half;
  __builtin_memcpy(&half, from, sizeof half);
  return bits_as<F32>(__builtin_convertvector(half, U32) << 16);
}

ATTEST_INLINE float from_bf16(std::uint16_t bits) {
  return bits_as<float>(static_cast<std::uint32_t>(bits) << 16U);
}

/// Exact, with plain integer arithmetic: every set of instructions gives the same.
ATTEST_INLINE float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 31U;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 31) return bits_as<float>(sign | 0x7F800000U | (fraction << 13U));
  if (exponent != 0) return bits_as<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;  // subnormal there, normal here
  return bits_as<float>(sign | bits_as<std::uint32_t>(tiny));
}

ATTEST_INLINE F32 load_f16(const std::uint16_t* from) {
#if defined(__AVX512F__)
  __m256i half;
  __builtin_memcpy(&half, from, sizeof half);
  return bits_as<F32>(_mm512_cvtph_ps(half));
#elif defined(__AVX2__)
  __m128i half;
  __builtin_memcpy(&half, from, sizeof half);
  return bits_as<F32>(_mm256_cvtph_ps(half));
#else
  F32 out{};
  for (int lane = 0; lane < lanes<float>; ++lane) out[lane] = from_f16(from[lane]);
  return out;
#endif
}

/// To nearest even; a NaN stays a NaN, made quiet.
ATTEST_INLINE std::uint16_t to_bf16(float number) {
  const auto bits = bits_as<std::uint32_t>(number);
  if (number != number) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// To nearest even: out of range becomes infinity, tiny numbers subnormal or zero.
ATTEST_INLINE std::uint16_t to_f16(float number) {
  const auto bits = bits_as<std::uint32_t>(number);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  if (size > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);
  if (size >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // ≥ 65520
  if (size < 0x38800000U) {
    // Below 2⁻¹⁴: adding ½ leaves the multiple of 2⁻²⁴ in the low bits, rounded by the addition.
    const float shifted = bits_as<float>(size) + 0.5F;
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(shifted) - 0x3F000000U));
  }
  const std::uint32_t rounded = size + 0xFFFU + ((size >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13U));
}

}  // namespace attest::kernels::ATTEST_ISA
