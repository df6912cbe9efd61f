// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/exp2.h"

/// Elementary functions of registers over the whole range of their arguments, for the layers. u is
/// 2⁻²⁴ for float, 2⁻⁵³ for double. NaN gives NaN. Where the constants of an error are stated, they
/// are for machines without fused multiply-add, which round once more.
namespace attest::kernels::ATTEST_ISA {

template <class T>
ATTEST_INLINE Vec<T> absolute(Vec<T> x) {
  return bits_as<Vec<T>>(bits_as<Lanes<T>>(x) & ~bits_as<Lanes<T>>(broadcast(T(-0.0))));
}

/// x held between two limits; NaN stays.
template <class T>
ATTEST_INLINE Vec<T> held(Vec<T> x, T low, T high) {
  const Vec<T> above = select(x < broadcast(low), broadcast(low), x);
  return select(above > broadcast(high), broadcast(high), above);
}

/// What eˣ is computed with. ln 2 is cut after 11 (28) bits, so that its multiples by whole numbers up to 2¹² (2²³) are exact. The series is Taylor's: its rest is below 2⁻²⁷ (2⁻⁵⁷).
template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float ln2_high = 0x1.62cp-1F;
  static constexpr float ln2_low = 0x1.217f7ep-12F;
  static constexpr float least = -104;  // half the smallest subnormal is greater than e^least
  static constexpr float most = 89;
  static constexpr int terms = 7;
};
template <>
struct ExpConstants<double> {
  static constexpr double ln2_high = 0x1.62e42fep-1;
  static constexpr double ln2_low = 0x1.f473de6af278fp-30;
  static constexpr double least = -746;
  static constexpr double most = 710;
  static constexpr int terms = 13;
};

/// 1/n!
template <class T>
constexpr T one_over_factorial(int n) {
  double product = 1;
  for (int k = 2; k <= n; ++k) product *= k;
  return static_cast<T>(1 / product);
}

template <class T>
struct ExpParts {
  Vec<T> size;      // e^r for |r| ≤ ½·ln 2
  Vec<T> exponent;  // n
};

/// n = round(x·log2 e), r = x − n·ln 2, e^r = 1 + (r + r²·series).
template <class T>
ATTEST_INLINE ExpParts<T> exp_parts(Vec<T> x) {
  using C = ExpConstants<T>;
  const Vec<T> n = round_even<T>(x * broadcast(T(1.44269504088896340736)));
  const Vec<T> r = fma(n, broadcast(-C::ln2_low), fma(n, broadcast(-C::ln2_high), x));
  Vec<T> series = broadcast(one_over_factorial<T>(C::terms));
#pragma GCC unroll 16
  for (int k = C::terms - 1; k >= 2; --k) {
    series = fma(series, r, broadcast(one_over_factorial<T>(k)));
  }
  return {broadcast(T(1)) + fma(r * r, series, r), n};
}

/// eˣ for any x. Accuracy: relative error ≤ 3u, and half the smallest subnormal.
template <class T>
ATTEST_INLINE Vec<T> exp_of(Vec<T> given) {
  const Vec<T> x = held<T>(given, ExpConstants<T>::least, ExpConstants<T>::most);
  const ExpParts<T> e = exp_parts<T>(x);
#if defined(__AVX512F__)
  return times_power_of_two<T>(e.size, e.exponent);
#else
  // In two steps: 2ⁿ alone may be subnormal, or more than any number.
  const Vec<T> half = round_even<T>(e.exponent * broadcast(T(0.5)));
  const Vec<T> rest = times_power_of_two<T>(broadcast(T(1)), e.exponent - half);
  const Vec<T> out = times_power_of_two<T>(e.size, half) * rest;
  return select(given == given, out, given);
#endif
}

/// ln x for x ≥ 1; NaN and what is near the end of the range come back as they are, since
/// `log2_positive` reads bits. Accuracy: |error| ≤ 5·2⁻⁵³·max(1, ln x).
ATTEST_INLINE double log_of_sum(double x) {
  if (!(x < 0x1p1000)) return x;
  return log2_positive<F64>(broadcast(x))[0] * 0.693147180559945309417;
}

/// σ(z) = 1/(1 + e^−z) and σ(−z), both without cancellation: from e^−|z|, which cannot overflow.
/// Accuracy: relative error ≤ 5u each, and 2⁻¹⁴⁹ (2⁻¹⁰⁷⁴).
template <class T>
struct Sigmoid {
  Vec<T> here;
  Vec<T> opposite;
  Vec<T> smaller;  // of the two
};
template <class T>
ATTEST_INLINE Sigmoid<T> sigmoid_of(Vec<T> z) {
  const Vec<T> e = exp_of<T>(-absolute<T>(z));
  const Vec<T> larger_one = broadcast(T(1)) / (broadcast(T(1)) + e);
  const Vec<T> smaller_one = e / (broadcast(T(1)) + e);
  const auto negative = z < Vec<T>{};
  return {select(negative, smaller_one, larger_one), select(negative, larger_one, smaller_one),
          smaller_one};
}

/// t² as a sum of two numbers, the first being the rounded square. For |t| < 2²⁰.
template <class T>
struct Square {
  Vec<T> high;
  Vec<T> low;
};
template <class T>
ATTEST_INLINE Square<T> square_of(Vec<T> t) {
  const Vec<T> high = t * t;
#if defined(__AVX2__) || defined(__AVX512F__)
  return {high, fma(t, t, -high)};
#else
  // Veltkamp and Dekker: the halves have so few bits that their products are exact.
  const Vec<T> scaled = t * broadcast(sizeof(T) == 4 ? T(0x1.002p12) : T(0x1.000002p27));
  const Vec<T> upper = scaled - (scaled - t);
  const Vec<T> lower = t - upper;
  const Vec<T> cross = upper * lower;
  return {high, ((upper * upper - high) + (cross + cross)) + lower * lower};
#endif
}

/// Coefficients of G(v) = (t + k)·Φ(−t)·exp(t²/2), highest first: interpolated at the Chebyshev nodes
/// of 0 ≤ t ≤ most with 40 digits; relative error 2⁻²⁹ (2⁻⁶⁰). Beyond `most`, x·Φ(−x) rounds to 0.
template <class T>
struct NormalTailFit;
template <>
struct NormalTailFit<float> {
  static constexpr float middle = 4.5F;
  static constexpr float most = 15;
  static constexpr float terms[] = {0x1.4de768p-14F, -0x1.2e03fp-15F, -0x1.db89c4p-11F,
                                    0x1.d11032p-10F, 0x1.14d358p-8F,  -0x1.15859ap-5F,
                                    0x1.c838acp-4F,  -0x1.033776p-2F, 0x1.c92adcp-2F,
                                    -0x1.47cfdep-1F, 0x1.86c626p-1F};
};
template <>
struct NormalTailFit<double> {
  static constexpr double middle = 5;
  static constexpr double most = 39;
  static constexpr double terms[] = {
      -0x1.a397ed7719499p-32, -0x1.3f1a1f1afa304p-30, 0x1.313b2a0d09987p-29, 0x1.72fe74371fc82p-27,
      -0x1.25f8b412cdb42p-27, -0x1.2d422be3e72a3p-24, 0x1.592046569c07ep-25, 0x1.d4772f5151200p-22,
      -0x1.673ef5ca91651p-22, -0x1.73e13a7eebb7bp-19, 0x1.0b14870d680c8p-18, 0x1.17df18b48c12bp-16,
      -0x1.a1700f97933d8p-15, -0x1.f214934cc2997p-15, 0x1.1daf1ad402a68p-11, -0x1.a2503777d193ep-11,
      -0x1.88590e97fa725p-9,  0x1.54b4d4f48a95dp-6,   -0x1.1b1c254ca42c5p-4, 0x1.51f6329f01ba3p-3,
      -0x1.410ed5f875946p-2,  0x1.fb31653876f89p-2,   -0x1.54ad03f27ca18p-1, 0x1.89d3abe1f95aep-1};
};

/// The normal distribution's lower tail and its bell at t ≥ 0.
template <class T>
struct NormalParts {
  Vec<T> tail;  // Φ(−t)
  Vec<T> bell;  // exp(−t²/2)
};

/// Φ(−t) = exp(−t²/2)·G(v)/(t + k), v = (t − k)/(t + k), for 0 ≤ t ≤ most: no digit is lost where
/// 1 + erf would cancel. exp sees both halves of t², or its error would be t²/2 times as large.
/// Accuracy: relative error ≤ 10u (tail), 4u (bell), and 2⁻¹⁴⁹ (2⁻¹⁰⁷⁴).
template <class T>
ATTEST_INLINE NormalParts<T> normal_parts(Vec<T> t) {
  using C = NormalTailFit<T>;
  const Square<T> square = square_of<T>(t);
  const Vec<T> rough = exp_of<T>(broadcast(T(-0.5)) * square.high);
  const Vec<T> bell = fma(rough, broadcast(T(-0.5)) * square.low, rough);
  const Vec<T> share = broadcast(T(1)) / (t + broadcast(C::middle));
  const Vec<T> v = (t - broadcast(C::middle)) * share;
  Vec<T> g = broadcast(C::terms[0]);
  constexpr int count = static_cast<int>(sizeof(C::terms) / sizeof(T));
#pragma GCC unroll 32
  for (int k = 1; k < count; ++k) g = fma(g, v, broadcast(C::terms[k]));
  return {bell * g * share, bell};
}

/// (−1)ᵏ/(2ᵏ·k!·(2k + 1)·√(2π)): the Taylor series of (Φ(x) − ½)/x in x².
template <class T>
constexpr T normal_middle_term(int k) {
  double term = 0.398942280401432677940;
  for (int n = 1; n <= k; ++n) term /= -2 * n;
  return static_cast<T>(term / (2 * k + 1));
}

/// Φ(x) for |x| ≤ 1, where the tail's error, relative to itself, is more than need be. The series is
/// cut where its rest is below 2⁻³⁰ (2⁻⁵⁹). Accuracy: |error| ≤ 2u.
template <class T>
ATTEST_INLINE Vec<T> normal_middle(Vec<T> x) {
  constexpr int last = sizeof(T) == 4 ? 8 : 14;
  const Vec<T> square = x * x;
  Vec<T> series = broadcast(normal_middle_term<T>(last));
#pragma GCC unroll 16
  for (int k = last - 1; k >= 0; --k) {
    series = fma(series, square, broadcast(normal_middle_term<T>(k)));
  }
  return fma(x, series, broadcast(T(0.5)));
}

}  // namespace attest::kernels::ATTEST_ISA
