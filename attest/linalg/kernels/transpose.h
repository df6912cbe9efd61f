// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// Squares of W × W numbers in W registers, turned without touching memory.
namespace attest::kernels::ATTEST_ISA {

/// The lower (upper) halves of two registers, lane by lane in turn.
template <class V, int... Lane>
struct Zip {
  static constexpr int W = sizeof...(Lane);
  ATTEST_INLINE static V low(V a, V b) {
    return __builtin_shufflevector(a, b, (Lane / 2 + (Lane % 2) * W)...);
  }
  ATTEST_INLINE static V high(V a, V b) {
    return __builtin_shufflevector(a, b, (W / 2 + Lane / 2 + (Lane % 2) * W)...);
  }
};
template <class V, int N>
struct ZipOf;
template <class V>
struct ZipOf<V, 2> : Zip<V, 0, 1> {};
template <class V>
struct ZipOf<V, 4> : Zip<V, 0, 1, 2, 3> {};
template <class V>
struct ZipOf<V, 8> : Zip<V, 0, 1, 2, 3, 4, 5, 6, 7> {};
template <class V>
struct ZipOf<V, 16> : Zip<V, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15> {};

/// Transposes a square of numbers: zipping line i with line i + W/2, log₂ W times, turns the bits of
/// (line, lane) round until they have changed places.
template <class T>
ATTEST_INLINE void transpose(Vec<T> (&line)[lanes<T>]) {
  constexpr int W = lanes<T>;
#pragma GCC unroll 4
  for (int round = 1; round < W; round *= 2) {
    Vec<T> next[W];
#pragma GCC unroll 16
    for (int i = 0; i < W / 2; ++i) {
      next[2 * i] = ZipOf<Vec<T>, W>::low(line[i], line[i + W / 2]);
      next[2 * i + 1] = ZipOf<Vec<T>, W>::high(line[i], line[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) line[i] = next[i];
  }
}

}  // namespace attest::kernels::ATTEST_ISA
