// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {

/// (2ʳ − 1)/r for r in [−½, ½]: degree 4, fitted for the least relative error of 2ʳ, 1.4·2⁻²⁴.
ATTEST_INLINE F32 exp2_slope(F32 r) {
  F32 q = broadcast(0x1.5bba14p-10F);
  q = fma(q, r, broadcast(0x1.3cea88p-7F));
  q = fma(q, r, broadcast(0x1.c6b752p-5F));
  q = fma(q, r, broadcast(0x1.ebf9bcp-3F));
  return fma(q, r, broadcast(0x1.62e42ap-1F));
}
/// The same in binary64: the Taylor series to r¹², whose rest is below 2⁻⁵⁷.
ATTEST_INLINE F64 exp2_slope(F64 r) {
  F64 q = broadcast(0x1.816193166d0f9p-40);         // ln2^13/13!
  q = fma(q, r, broadcast(0x1.c3bd650fc2986p-36));  // ln2^12/12!
  q = fma(q, r, broadcast(0x1.e8cac7351bb25p-32));  // ln2^11/11!
  q = fma(q, r, broadcast(0x1.e4cf5158b8ecap-28));  // ln2^10/10!
  q = fma(q, r, broadcast(0x1.b5253d395e7c4p-24));  // ln2^9/9!
  q = fma(q, r, broadcast(0x1.62c0223a5c824p-20));  // ln2^8/8!
  q = fma(q, r, broadcast(0x1.ffcbfc588b0c7p-17));  // ln2^7/7!
  q = fma(q, r, broadcast(0x1.430912f86c787p-13));  // ln2^6/6!
  q = fma(q, r, broadcast(0x1.5d87fe78a6731p-10));  // ln2^5/5!
  q = fma(q, r, broadcast(0x1.3b2ab6fba4e77p-7));   // ln2^4/4!
  q = fma(q, r, broadcast(0x1.c6b08d704a0c0p-5));   // ln2^3/3!
  q = fma(q, r, broadcast(0x1.ebfbdff82c58fp-3));   // ln2^2/2!
  q = fma(q, r, broadcast(0x1.62e42fefa39efp-1));   // ln2^1/1!
  return q;
}

/// 2ʳ·2ⁿ with 2ʳ = 1 + r·slope(r); 0 where x, which n and r stand for, is too small.
template <class V>
ATTEST_INLINE V scaled_exp2(V x, V n, V r) {
  using T = std::remove_reference_t<decltype(x[0])>;
  constexpr T least = sizeof(T) == 4 ? T(-126) : T(-1022);
  const V p = fma(exp2_slope(r), r, broadcast(T(1)));
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    const auto normal = _mm512_cmp_ps_mask(bits_as<__m512>(x), _mm512_set1_ps(least), _CMP_NLT_UQ);
    return bits_as<V>(_mm512_maskz_scalef_ps(normal, bits_as<__m512>(p), bits_as<__m512>(n)));
  } else {
    const auto normal = _mm512_cmp_pd_mask(bits_as<__m512d>(x), _mm512_set1_pd(least), _CMP_NLT_UQ);
    return bits_as<V>(_mm512_maskz_scalef_pd(normal, bits_as<__m512d>(p), bits_as<__m512d>(n)));
  }
#else
  return select(x < broadcast(least), V{}, times_power_of_two<T>(p, n));
#endif
}

/// 2ˣ for x ≤ 127 (1023), inline and without a branch.
///
///     n = round(x), r = x − n in [−½, ½] (exact), 2ʳ = 1 + r·slope(r), result = 2ʳ·2ⁿ
///
/// Accuracy      relative error ≤ 3·2⁻²⁴ (f32), 3·2⁻⁵³ (f64) where the result is normal, 2⁰ = 1
///               exactly; below 2⁻¹²⁶ (2⁻¹⁰²²) the result is +0, never subnormal.
/// Edge cases    −∞ gives 0, NaN stays NaN.
template <class V>
ATTEST_INLINE V exp2(V x) {
  using T = std::remove_reference_t<decltype(x[0])>;
  const V n = round_even<T>(x);
  const V r = x - n;
  return scaled_exp2<V>(x, n, r);
}

/// 2ᶜᵗ: the product is not rounded where the machine fuses it (else once). Otherwise as exp2.
template <class V>
ATTEST_INLINE V exp2_of_product(V t, V c) {
  using T = std::remove_reference_t<decltype(t[0])>;
  const V x = t * c;
  const V n = round_even<T>(x);
  const V r = fma(t, c, -n);
  return scaled_exp2<V>(x, n, r);
}

/// log2(x) for normal positive x: 2·atanh(z)/ln 2 with z = (f − 1)/(f + 1), f in [√½, √2).
/// Accuracy      |error| ≤ 4u·max(1, |log2 x|).
template <class V>
ATTEST_INLINE V log2_positive(V x) {
  using T = std::remove_reference_t<decltype(x[0])>;
  using I = Lanes<T>;
  constexpr int mantissa = sizeof(T) == 4 ? 23 : 52;
  // Adding the distance from √½ to 1 makes the exponent field that of the nearest power below √2·x.
  constexpr T root_half = T(0.70710678118654752440);
  const I shift = bits_as<I>(broadcast(T(1))) - bits_as<I>(broadcast(root_half));
  const I exponent = ((bits_as<I>(x) + shift) >> mantissa) - (sizeof(T) == 4 ? 127 : 1023);
  const V f = bits_as<V>(bits_as<I>(x) - (exponent << mantissa));
  const V z = (f - T(1)) / (f + T(1));
  const V zz = z * z;
  constexpr int terms = sizeof(T) == 4 ? 5 : 11;
  V series = broadcast(T(1) / T(2 * terms - 1));
  for (int k = terms - 2; k >= 0; --k) series = fma(series, zz, broadcast(T(1) / T(2 * k + 1)));
  constexpr T two_over_ln2 = T(2.88539008177792681472);
  const V whole = __builtin_convertvector(exponent, V);
  return fma(z * series, broadcast(two_over_ln2), whole);
}

/// (tanh(x)/x − 1)/z with z = x² ≤ ¼: Chebyshev's series, off by 2⁻²⁷ (2⁻⁵⁴).
ATTEST_INLINE F32 tanh_bend(F32 z) {
  F32 q = broadcast(-0x1.c7033cp-8F);
  q = fma(q, z, broadcast(0x1.5fc692p-6F));
  q = fma(q, z, broadcast(-0x1.b9d2aep-5F));
  q = fma(q, z, broadcast(0x1.11108p-3F));
  return fma(q, z, broadcast(-0x1.555554p-2F));
}
ATTEST_INLINE F64 tanh_bend(F64 z) {
  F64 q = broadcast(0x1.f2ddeb9a07da7p-15);
  q = fma(q, z, broadcast(-0x1.cf9f3fe656023p-13));
  q = fma(q, z, broadcast(0x1.32b0b92ad1a40p-11));
  q = fma(q, z, broadcast(-0x1.7d68abe445c4bp-10));
  q = fma(q, z, broadcast(0x1.d6d0a485132ebp-9));
  q = fma(q, z, broadcast(-0x1.226e27ed0ac68p-7));
  q = fma(q, z, broadcast(0x1.664f484114832p-6));
  q = fma(q, z, broadcast(-0x1.ba1ba1b9783d6p-5));
  q = fma(q, z, broadcast(0x1.1111111110c21p-3));
  return fma(q, z, broadcast(-0x1.5555555555555p-2));
}

/// tanh(x) = x + x³·bend(x²) for |x| ≤ ½; beyond, 1 − 2/(2ʸ + 1) with y = 2·|x|·log2 e, where what rounds
/// grows smaller beside the 1.
/// Accuracy      relative error ≤ 7u; of all floats the worst is off by 4.3u.
template <class V>
ATTEST_INLINE V tanh_of(V x) {
  using T = std::remove_reference_t<decltype(x[0])>;
  using I = Lanes<T>;
  constexpr T most = sizeof(T) == 4 ? T(60) : T(120);  // there tanh rounds to 1
  const I sign = bits_as<I>(x) & bits_as<I>(broadcast(T(-0.0)));
  const V size = bits_as<V>(bits_as<I>(x) ^ sign);
  V y = size * broadcast(T(2.88539008177792681472));
  y = select(y > broadcast(most), broadcast(most), y);
  const V far = T(1) - T(2) / (exp2(y) + T(1));
  const V z = size * size;
  const V near = fma(size * z, tanh_bend(z), size);
  const V out = select(size > broadcast(T(0.5)), far, near);
  return bits_as<V>(bits_as<I>(out) | sign);
}

}  // namespace attest::kernels::ATTEST_ISA
