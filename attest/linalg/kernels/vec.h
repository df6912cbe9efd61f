// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/registers.h"

/// A thin vector layer: one register of numbers, as wide as the instruction set allows.
///
/// A kernel's body is written once against this file and compiled once per instruction set, with
/// other flags and with ATTEST_ISA naming the namespace; docs/kernels.md tells the whole scheme.
/// The compilers' own vector types do the plain arithmetic (+ − * / and comparisons), so a new
/// machine needs nothing; only what they cannot say (fused multiply-add, rounding, masked access)
/// is spelled out below for each set. Nothing of the standard library may be called in such a file:
/// its inline functions would be compiled for the widest set and might be linked into code for a
/// narrower one.
namespace attest::kernels::ATTEST_ISA {

/// a·b + c, rounded once where the machine can, else twice.
ATTEST_INLINE F32 fma(F32 a, F32 b, F32 c) {
#if defined(__AVX512F__)
  return bits_as<F32>(_mm512_fmadd_ps(bits_as<__m512>(a), bits_as<__m512>(b), bits_as<__m512>(c)));
#elif defined(__AVX2__)
  return bits_as<F32>(_mm256_fmadd_ps(bits_as<__m256>(a), bits_as<__m256>(b), bits_as<__m256>(c)));
#elif defined(__ARM_NEON)
  return bits_as<F32>(
      vfmaq_f32(bits_as<float32x4_t>(c), bits_as<float32x4_t>(a), bits_as<float32x4_t>(b)));
#else
  return a * b + c;
#endif
}
ATTEST_INLINE F64 fma(F64 a, F64 b, F64 c) {
#if defined(__AVX512F__)
  return bits_as<F64>(
      _mm512_fmadd_pd(bits_as<__m512d>(a), bits_as<__m512d>(b), bits_as<__m512d>(c)));
#elif defined(__AVX2__)
  return bits_as<F64>(
      _mm256_fmadd_pd(bits_as<__m256d>(a), bits_as<__m256d>(b), bits_as<__m256d>(c)));
#elif defined(__ARM_NEON) && defined(__aarch64__)
  return bits_as<F64>(
      vfmaq_f64(bits_as<float64x2_t>(c), bits_as<float64x2_t>(a), bits_as<float64x2_t>(b)));
#else
  return a * b + c;
#endif
}

/// The larger number; `b` if either is NaN.
template <class V>
ATTEST_INLINE V larger(V a, V b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == 4) {
    return bits_as<V>(_mm512_max_ps(bits_as<__m512>(a), bits_as<__m512>(b)));
  } else {
    return bits_as<V>(_mm512_max_pd(bits_as<__m512d>(a), bits_as<__m512d>(b)));
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(a[0]) == 4) {
    return bits_as<V>(_mm256_max_ps(bits_as<__m256>(a), bits_as<__m256>(b)));
  } else {
    return bits_as<V>(_mm256_max_pd(bits_as<__m256d>(a), bits_as<__m256d>(b)));
  }
#else
  return a > b ? a : b;
#endif
}

/// To the nearest whole number, ties to even, for |x| < 2²² (2⁵¹); NaN stays.
template <class T>
ATTEST_INLINE Vec<T> round_even(Vec<T> x) {
#if defined(__AVX512F__)
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  if constexpr (sizeof(T) == 4) {
    return bits_as<Vec<T>>(_mm512_roundscale_ps(bits_as<__m512>(x), nearest));
  } else {
    return bits_as<Vec<T>>(_mm512_roundscale_pd(bits_as<__m512d>(x), nearest));
  }
#elif defined(__AVX2__)
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  if constexpr (sizeof(T) == 4) {
    return bits_as<Vec<T>>(_mm256_round_ps(bits_as<__m256>(x), nearest));
  } else {
    return bits_as<Vec<T>>(_mm256_round_pd(bits_as<__m256d>(x), nearest));
  }
#else
  constexpr T magic = sizeof(T) == 4 ? T(0x1.8p23) : T(0x1.8p52);
  return (x + magic) - magic;
#endif
}

/// x·2ⁿ for whole n, where x is about 1 and the product is normal; below −126 (−1022) the caller
/// selects 0 himself.
template <class T>
ATTEST_INLINE Vec<T> times_power_of_two(Vec<T> x, Vec<T> n) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return bits_as<Vec<T>>(_mm512_scalef_ps(bits_as<__m512>(x), bits_as<__m512>(n)));
  } else {
    return bits_as<Vec<T>>(_mm512_scalef_pd(bits_as<__m512d>(x), bits_as<__m512d>(n)));
  }
#else
  // The low bits of n + 1.5·2²³ are n; shifted into the exponent's place they are added to it.
  constexpr T magic = sizeof(T) == 4 ? T(0x1.8p23) : T(0x1.8p52);
  constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
  return bits_as<Vec<T>>(bits_as<Lanes<T>>(x) + (bits_as<Lanes<T>>(n + magic) << mantissa));
#endif
}

template <class M>
ATTEST_INLINE bool any(M mask) {
#if defined(__AVX512F__)
  if constexpr (sizeof(mask[0]) == 4) {
    return _mm512_test_epi32_mask(bits_as<__m512i>(mask), bits_as<__m512i>(mask)) != 0;
  } else {
    return _mm512_test_epi64_mask(bits_as<__m512i>(mask), bits_as<__m512i>(mask)) != 0;
  }
#elif defined(__AVX2__)
  return _mm256_testz_si256(bits_as<__m256i>(mask), bits_as<__m256i>(mask)) == 0;
#else
  const auto words = bits_as<I64>(mask);
  return (words[0] | words[1]) != 0;
#endif
}

/// The first `count` numbers at an address, zeros beyond; nothing beyond is read.
template <class T>
ATTEST_INLINE Vec<T> load_first(const T* from, int count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return bits_as<Vec<T>>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1U), from));
  } else {
    return bits_as<Vec<T>>(_mm512_maskz_loadu_pd(static_cast<__mmask8>((1U << count) - 1U), from));
  }
#else
  Vec<T> out{};
  for (int lane = 0; lane < count && lane < lanes<T>; ++lane) out[lane] = from[lane];
  return out;
#endif
}
template <class T>
ATTEST_INLINE void store_first(T* to, Vec<T> what, int count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1U), bits_as<__m512>(what));
  } else {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>((1U << count) - 1U), bits_as<__m512d>(what));
  }
#else
  for (int lane = 0; lane < count && lane < lanes<T>; ++lane) to[lane] = what[lane];
#endif
}

/// The sum of the lanes, halves folded onto each other: a fixed order, the same for every width's
/// own set.
template <class T>
ATTEST_INLINE T sum_of_lanes(Vec<T> x) {
#if defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
#if defined(__AVX512F__)
    const __m512 z = bits_as<__m512>(x);
    const __m256 y = _mm256_add_ps(_mm512_castps512_ps256(z), _mm512_extractf32x8_ps(z, 1));
#else
    const __m256 y = bits_as<__m256>(x);
#endif
    __m128 w = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    w = _mm_add_ps(w, _mm_movehl_ps(w, w));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_shuffle_ps(w, w, 1)));
  }
#endif
  T part[lanes<T>];
  __builtin_memcpy(part, &x, sizeof x);
  for (int half = lanes<T> / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) part[lane] += part[lane + half];
  }
  return part[0];
}

}  // namespace attest::kernels::ATTEST_ISA
