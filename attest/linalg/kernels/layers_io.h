// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/convert.h"

/// Rows of stored numbers, read and written a register at a time.
namespace attest::kernels::ATTEST_ISA {

/// A register full of a row's numbers, or the first few of one: the row's end.
template <class T>
struct Whole {
  ATTEST_INLINE Vec<T> kept(Vec<T> x, T) const { return x; }
};
template <class T>
struct Part {
  int count;
  /// x in the lanes that belong to the row, `other` beyond.
  ATTEST_INLINE Vec<T> kept(Vec<T> x, T other) const {
    const auto last = broadcast_integer<T>(static_cast<typename VecTypes<T>::Integer>(count));
    return select(lane_numbers<T>() < last, x, broadcast(other));
  }
};

/// Reading and writing storage type S; T is what is calculated with.
template <class S>
struct Io {
  using T = S;
  static constexpr bool exact = true;  // what is written can be read again without loss
  ATTEST_INLINE static Vec<T> get(const S* from, Whole<T>) { return load(from); }
  ATTEST_INLINE static Vec<T> get(const S* from, Part<T> part) {
    return load_first(from, part.count);
  }
  ATTEST_INLINE static void put(S* to, Vec<T> what, Whole<T>) { store<T>(to, what); }
  ATTEST_INLINE static void put(S* to, Vec<T> what, Part<T> part) {
    store_first<T>(to, what, part.count);
  }
};

template <class S>
struct HalfIo {
  using T = float;
  static constexpr bool exact = false;
  static constexpr bool brain = __is_same(S, StoredBf16);

  ATTEST_INLINE static F32 get(const S* from, Whole<T>) {
    std::uint16_t bits[lanes<T>];
    __builtin_memcpy(bits, from, sizeof bits);
    return widened(bits);
  }
  ATTEST_INLINE static F32 get(const S* from, Part<T> part) {
    std::uint16_t bits[lanes<T>] = {};
    for (int lane = 0; lane < part.count && lane < lanes<T>; ++lane) bits[lane] = from[lane].bits;
    return widened(bits);
  }
  ATTEST_INLINE static void put(S* to, F32 what, Whole<T>) {
    std::uint16_t bits[lanes<T>];
    narrowed(bits, what);
    __builtin_memcpy(to, bits, sizeof bits);
  }
  ATTEST_INLINE static void put(S* to, F32 what, Part<T> part) {
    std::uint16_t bits[lanes<T>];
    narrowed(bits, what);
    for (int lane = 0; lane < part.count && lane < lanes<T>; ++lane) to[lane].bits = bits[lane];
  }

 private:
  ATTEST_INLINE static F32 widened(const std::uint16_t* bits) {
    if constexpr (brain) {
      return load_bf16(bits);
    } else {
      return load_f16(bits);
    }
  }
  ATTEST_INLINE static void narrowed(std::uint16_t* bits, F32 what) {
    if constexpr (brain) {
      const U32 given = bits_as<U32>(what);
      const U32 nearest = (given + 0x7FFFU + ((given >> 16U) & 1U)) >> 16U;
      const U32 chosen = select(what == what, nearest, (given >> 16U) | 0x40U);
      const U16Half half = __builtin_convertvector(chosen, U16Half);
      __builtin_memcpy(bits, &half, sizeof half);
    } else {
#if defined(__AVX512F__)
      const __m256i half = _mm512_cvtps_ph(bits_as<__m512>(what), _MM_FROUND_TO_NEAREST_INT);
      __builtin_memcpy(bits, &half, sizeof half);
#elif defined(__AVX2__)
      const __m128i half = _mm256_cvtps_ph(bits_as<__m256>(what), _MM_FROUND_TO_NEAREST_INT);
      __builtin_memcpy(bits, &half, sizeof half);
#else
      for (int lane = 0; lane < lanes<T>; ++lane) bits[lane] = to_f16(what[lane]);
#endif
    }
  }
};
template <>
struct Io<StoredF16> : HalfIo<StoredF16> {};
template <>
struct Io<StoredBf16> : HalfIo<StoredBf16> {};

template <class S>
using Calculated = typename Io<S>::T;

/// How many sums a row is added up in at once, each W numbers wide: enough to hide the latency of an
/// addition, and so few that short rows use them all.
inline constexpr int chains = 4;

/// body(place, which, chain) for a row of `count` numbers, `which` saying Whole or Part: registers in
/// order, those of one chain 4·W numbers apart. The order depends on `count` alone.
template <class T, class Body>
ATTEST_INLINE void sweep(std::int64_t count, const Body& body) {
  constexpr int W = lanes<T>;
  std::int64_t at = 0;
  for (; at + chains * W <= count; at += chains * W) {
#pragma GCC unroll 4
    for (int chain = 0; chain < chains; ++chain) body(at + chain * W, Whole<T>{}, chain);
  }
  int chain = 0;
#pragma GCC unroll 4
  for (; chain < chains; ++chain) {
    if (at + W > count) break;
    body(at, Whole<T>{}, chain);
    at += W;
  }
  if (at < count) body(at, Part<T>{static_cast<int>(count - at)}, chain);
}

/// The chains of a sum. A number of a row of C passes through at most C/8 + 8 additions.
template <class T>
struct Chains {
  Vec<T> part[chains] = {};
  ATTEST_INLINE T sum() const {
    const Vec<T> all = (part[0] + part[1]) + (part[2] + part[3]);
    T lane[lanes<T>];
    __builtin_memcpy(lane, &all, sizeof all);
    for (int half = lanes<T> / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
    }
    return lane[0];
  }
};

}  // namespace attest::kernels::ATTEST_ISA
