// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/convert.h"
#include "attest/linalg/kernels/exp2.h"
#include "attest/linalg/kernels/gemm.h"

/// What a matrix product does to its sums before it hands them over.
namespace attest::kernels::ATTEST_ISA {

/// eˣ for x ≤ 0; relative error ≤ (|x| + 4)·u, 0 below the smallest normal number.
template <class T>
ATTEST_INLINE Vec<T> exp_of_negative(Vec<T> x) {
  return exp2(x * broadcast(T(1.44269504088896340736)));
}

template <class T>
ATTEST_INLINE Vec<T> size_of_lanes(Vec<T> x) {
  return bits_as<Vec<T>>(bits_as<Lanes<T>>(x) & ~bits_as<Lanes<T>>(broadcast(T(-0.0))));
}

/// x where it is at least −most: below, f(x) is 0 for each f here, and −∞·0 would be NaN.
template <class T>
ATTEST_INLINE Vec<T> not_below(Vec<T> x, T most) {
  return select(x < broadcast(-most), broadcast(-most), x);
}

/// x·σ(z) with σ from e^−|z|, which cannot overflow: 1/(1 + e) or e/(1 + e).
template <class T>
ATTEST_INLINE Vec<T> times_sigmoid(Vec<T> x, Vec<T> z) {
  const Vec<T> one = broadcast(T(1));
  const Vec<T> e = exp_of_negative<T>(-size_of_lanes<T>(z));
  return x * select(z < Vec<T>{}, e, one) / (one + e);
}

/// Coefficients of G(s) in 2s − 1, highest first: interpolated at Chebyshev nodes with 60 digits,
/// relative error 2⁻²⁷·⁷ (t ≤ 14) and 2⁻⁵⁷·⁷ (t ≤ 40).
template <class T>
struct NormalTail;
template <>
struct NormalTail<float> {
  static constexpr float terms[] = {
      -0x1.56a92ep-15F, 0x1.467640p-14F, 0x1.2609dap-12F, -0x1.2b1d12p-11F, -0x1.3d9be0p-9F,
      0x1.dc1c22p-10F,  0x1.c6d2f6p-6F,  0x1.6281f0p-4F,  0x1.510f0ep-3F,   0x1.c69888p-3F};
};
template <>
struct NormalTail<double> {
  static constexpr double terms[] = {
      0x1.67132ed889f6cp-32,  -0x1.283264055e971p-30, -0x1.87875af83dfa2p-31,
      0x1.000c7ff5cbf27p-27,  -0x1.f04e2e12a65b5p-28, -0x1.663f1f23daa4ap-26,
      0x1.f7b41fcb305c3p-25,  -0x1.254282b2c9d2bp-28, -0x1.ef5d103a7eea6p-23,
      0x1.785144c0c50e5p-22,  0x1.1634b7ad544bep-21,  -0x1.2dc2a70ab3dddp-19,
      0x1.06ad7bbf2df0ap-22,  0x1.6811505305913p-17,  -0x1.755016aa2d8a4p-17,
      -0x1.a14d4c81bf9dep-15, 0x1.7a13012d94494p-14,  0x1.296a33d3bc136p-12,
      -0x1.2dcd6e41f8b94p-11, -0x1.3db478ccc50adp-9,  0x1.dc59eb41a1a6dp-10,
      0x1.c6d36975697a5p-6,   0x1.6281df6316537p-4,   0x1.510f0c6df0e40p-3,
      0x1.c6988778bc47ep-3};
};

/// x·Φ(x), with the tail Φ(−t) = exp(−t²/2)·s·G(s), s = 1/(1 + 0.3·t), for t = |x|: no digit is lost
/// where 1 + erf would cancel.
template <class T>
ATTEST_INLINE Vec<T> gelu_erf(Vec<T> given) {
  const Vec<T> x = not_below<T>(given, T(40));
  const Vec<T> t = size_of_lanes<T>(x);
  const Vec<T> one = broadcast(T(1));
  const Vec<T> s = one / fma(broadcast(T(0.3)), t, one);
  const Vec<T> place = s + s - one;
  Vec<T> g = broadcast(NormalTail<T>::terms[0]);
  constexpr int count = sizeof(NormalTail<T>::terms) / sizeof(T);
  for (int n = 1; n < count; ++n) g = fma(g, place, broadcast(NormalTail<T>::terms[n]));
  const Vec<T> tail = exp_of_negative<T>(broadcast(T(-0.5)) * t * t) * s * g;
  return x * select(x < Vec<T>{}, tail, one - tail);
}

template <class T>
ATTEST_INLINE Vec<T> gelu_tanh(Vec<T> given) {
  const Vec<T> x = not_below<T>(given, T(40));
  constexpr T linear = T(1.59576912160573071176);  // 2·√(2/π)
  constexpr T cubic = T(1.59576912160573071176 * 0.044715);
  return times_sigmoid<T>(x, x * fma(x * x, broadcast(cubic), broadcast(linear)));
}

template <class T>
ATTEST_INLINE Vec<T> silu(Vec<T> given) {
  const Vec<T> x = not_below<T>(given, T(1000));
  return times_sigmoid<T>(x, x);
}

template <class T, GemmActivation activation>
ATTEST_INLINE Vec<T> activated(Vec<T> x) {
  if constexpr (activation == GemmActivation::relu) {
    return select(x <= Vec<T>{}, Vec<T>{}, x);  // NaN stays
  } else if constexpr (activation == GemmActivation::gelu_erf) {
    return gelu_erf<T>(x);
  } else if constexpr (activation == GemmActivation::gelu_tanh) {
    return gelu_tanh<T>(x);
  } else if constexpr (activation == GemmActivation::silu) {
    return silu<T>(x);
  } else {
    return x;
  }
}

template <class T, GemmActivation activation>
inline void finish_rows(const GemmFinish& finish) {
  constexpr int W = lanes<T>;
  const auto* const bias = static_cast<const T*>(finish.bias);
  for (std::int64_t i = 0; i < finish.rows; ++i) {
    T* const row = static_cast<T*>(finish.c) + i * finish.c_stride;
    std::int64_t j = 0;
    for (; j + W <= finish.cols; j += W) {
      const Vec<T> sum = bias != nullptr ? load(row + j) + load(bias + j) : load(row + j);
      store<T>(row + j, activated<T, activation>(sum));
    }
    if (j == finish.cols) continue;
    const int rest = static_cast<int>(finish.cols - j);
    Vec<T> sum = load_first(row + j, rest);
    if (bias != nullptr) sum += load_first(bias + j, rest);
    store_first<T>(row + j, activated<T, activation>(sum), rest);
  }
}

template <class T>
inline void gemm_finish(const GemmFinish& finish) noexcept {
  switch (finish.activation) {
    case GemmActivation::none:
      return finish_rows<T, GemmActivation::none>(finish);
    case GemmActivation::relu:
      return finish_rows<T, GemmActivation::relu>(finish);
    case GemmActivation::gelu_erf:
      return finish_rows<T, GemmActivation::gelu_erf>(finish);
    case GemmActivation::gelu_tanh:
      return finish_rows<T, GemmActivation::gelu_tanh>(finish);
    case GemmActivation::silu:
      return finish_rows<T, GemmActivation::silu>(finish);
  }
}

inline void gemm_round_to_bf16(const float* from, std::uint16_t* to, std::int64_t count) noexcept {
  constexpr int W = lanes<float>;
  std::int64_t j = 0;
  for (; j + W <= count; j += W) {
    const F32 number = load(from + j);
    const U32 bits = bits_as<U32>(number);
    const U32 nearest = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    const U32 chosen = number == number ? nearest : (bits >> 16U) | 0x40U;
    const U16Half half = __builtin_convertvector(chosen, U16Half);
    __builtin_memcpy(to + j, &half, sizeof half);
  }
  for (; j < count; ++j) to[j] = to_bf16(from[j]);
}

}  // namespace attest::kernels::ATTEST_ISA
