// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/// Registers of numbers as the compilers' own vector types have them: how wide the instruction set
/// makes them, what lies in their lanes, and how they come from memory and go there. vec.h adds
/// what those types cannot say; kernels include that.
#if !defined(ATTEST_ISA)
#error "kernels are compiled with ATTEST_ISA naming their instruction set"
#endif
#define ATTEST_INLINE [[gnu::always_inline]] inline

namespace attest::kernels::ATTEST_ISA {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
inline constexpr int vector_registers = 32;
#elif defined(__AVX2__)
inline constexpr int vector_bytes = 32;
inline constexpr int vector_registers = 16;
#elif defined(__ARM_NEON)
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_bytes = 16;
inline constexpr int vector_registers = 16;
#endif

using F32 = float __attribute__((vector_size(vector_bytes)));
using F64 = double __attribute__((vector_size(vector_bytes)));
using I32 = std::int32_t __attribute__((vector_size(vector_bytes)));
using I64 = std::int64_t __attribute__((vector_size(vector_bytes)));
using U32 = std::uint32_t __attribute__((vector_size(vector_bytes)));
using U64 = std::uint64_t __attribute__((vector_size(vector_bytes)));
using U16Half = std::uint16_t __attribute__((vector_size(vector_bytes / 2)));

template <class T>
struct VecTypes;
template <>
struct VecTypes<float> {
  using Vector = F32;
  using Integers = I32;
  using Integer = std::int32_t;
};
template <>
struct VecTypes<double> {
  using Vector = F64;
  using Integers = I64;
  using Integer = std::int64_t;
};

/// A register of T: float or double. Comparisons give `Lanes<T>`, −1 where true.
template <class T>
using Vec = typename VecTypes<T>::Vector;
template <class T>
using Lanes = typename VecTypes<T>::Integers;
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <class V, class S>
ATTEST_INLINE V bits_as(S source) {
  return __builtin_bit_cast(V, source);
}

template <class T>
ATTEST_INLINE Vec<T> broadcast(T number) {
  return number - Vec<T>{};  // x − 0 is x, also for −0 and NaN
}
template <class T>
ATTEST_INLINE Lanes<T> broadcast_integer(typename VecTypes<T>::Integer number) {
  return number + Lanes<T>{};
}

/// 0, 1, 2 … in the lanes.
template <class T>
ATTEST_INLINE Lanes<T> lane_numbers() {
  Lanes<T> out{};
  for (int lane = 0; lane < lanes<T>; ++lane) out[lane] = lane;
  return out;
}

/// Access at any address.
template <class T>
ATTEST_INLINE Vec<T> load(const T* from) {
  Vec<T> out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}
template <class T>
ATTEST_INLINE void store(T* to, Vec<T> what) {
  __builtin_memcpy(to, &what, sizeof what);
}
template <class T>
ATTEST_INLINE Lanes<T> load_integers(const typename VecTypes<T>::Integer* from) {
  Lanes<T> out;
  __builtin_memcpy(&out, from, sizeof out);
  return out;
}

template <class V, class M>
ATTEST_INLINE V select(M mask, V yes, V no) {
  return mask ? yes : no;
}

}  // namespace attest::kernels::ATTEST_ISA
