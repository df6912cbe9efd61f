// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "attest/linalg/kernels/vec.h"

/// Sums across the lanes of many registers at once.
///
/// One register alone takes log2 W folds (lane l meets lane l + W/2, and so on) for one result. Of M
/// registers the first fold brings two together, the next four: M − 1 folds for M results, and every
/// result is added up in the same order as by `sum_of_lanes`.
namespace attest::kernels::ATTEST_ISA {

/// In each group of 2·half lanes: the lanes of `a` folded onto the first half, those of `b` onto the
/// second.
template <int half, class V, int... lane>
ATTEST_INLINE V fold_two(V a, V b, std::integer_sequence<int, lane...>) {
  constexpr int W = sizeof...(lane);
  const V low =
      __builtin_shufflevector(a, b, (lane % (2 * half) < half ? lane : W + lane - half)...);
  const V high =
      __builtin_shufflevector(a, b, (lane % (2 * half) < half ? lane + half : W + lane)...);
  return low + high;
}
/// Lane l and lane l xor half exchanged.
template <int half, class V, int... lane>
ATTEST_INLINE V halves_exchanged(V a, std::integer_sequence<int, lane...>) {
  return __builtin_shufflevector(a, a, (lane ^ half)...);
}

/// Folds M registers into one, `half` being the width of the next fold.
template <int M, int half, class T>
ATTEST_INLINE Vec<T> folded(const Vec<T>* numbers) {
  constexpr std::make_integer_sequence<int, lanes<T>> all{};
  if constexpr (half == 0) {
    return numbers[0];
  } else if constexpr (M == 1) {
    const Vec<T> once = numbers[0] + halves_exchanged<half>(numbers[0], all);
    return folded<1, half / 2, T>(&once);
  } else {
    Vec<T> next[M / 2];
#pragma GCC unroll 16
    for (int k = 0; k < M / 2; ++k) next[k] = fold_two<half>(numbers[k], numbers[k + M / 2], all);
    return folded<M / 2, half / 2, T>(next);
  }
}

/// results[m] = the sum of the lanes of numbers[m]; M a power of two.
template <int M, class T>
ATTEST_INLINE void sums_of_lanes(T* results, const Vec<T>* numbers) {
  constexpr int W = lanes<T>;
  if constexpr (M > W) {
    sums_of_lanes<M / 2, T>(results, numbers);
    sums_of_lanes<M / 2, T>(results + M / 2, numbers + M / 2);
  } else {
    const Vec<T> sums = folded<M, W / 2, T>(numbers);
    if constexpr (M == W) {
      store<T>(results, sums);
    } else {
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m) results[m] = sums[m * (W / M)];
    }
  }
}

/// The largest lane, none being NaN.
template <class T>
ATTEST_INLINE T largest_lane(Vec<T> x) {
  constexpr std::make_integer_sequence<int, lanes<T>> all{};
  if constexpr (lanes < T >> 8) x = larger(x, halves_exchanged<8>(x, all));
  if constexpr (lanes < T >> 4) x = larger(x, halves_exchanged<4>(x, all));
  if constexpr (lanes < T >> 2) x = larger(x, halves_exchanged<2>(x, all));
  return larger(x, halves_exchanged<1>(x, all))[0];
}

}  // namespace attest::kernels::ATTEST_ISA
