// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "attest/linalg/kernels/vec.h"

/// A square of W × W numbers in W registers, turned without touching memory.
namespace attest::kernels::ATTEST_ISA {

/// Lanes with bit `half` clear come from a, those with it set from b, `half` lanes before; or the other
/// way about.
template <int half, bool upper, class V, int... lane>
ATTEST_INLINE V exchange(V a, V b, std::integer_sequence<int, lane...>) {
  constexpr int W = sizeof...(lane);
  if constexpr (upper) {
    return __builtin_shufflevector(a, b, ((lane & half) == 0 ? lane + half : W + lane)...);
  } else {
    return __builtin_shufflevector(a, b, ((lane & half) == 0 ? lane : W + lane - half)...);
  }
}

/// One stage: squares of `half` × `half` on either side of the diagonal change places.
template <int half, class T>
ATTEST_INLINE void transpose_stage(Vec<T>* row) {
  constexpr int W = lanes<T>;
  constexpr auto all = std::make_integer_sequence<int, W>{};
#pragma GCC unroll 16
  for (int r = 0; r < W; ++r) {
    if ((r & half) != 0) continue;
    const Vec<T> a = row[r];
    const Vec<T> b = row[r + half];
    row[r] = exchange<half, false>(a, b, all);
    row[r + half] = exchange<half, true>(a, b, all);
  }
}

/// row[r][lane] and row[lane][r] change places. W·log2 W shuffles.
template <class T>
ATTEST_INLINE void transpose(Vec<T>* row) {
  constexpr int W = lanes<T>;
  if constexpr (W == 16) transpose_stage<8, T>(row);
  if constexpr (W >= 8) transpose_stage<4, T>(row);
  if constexpr (W >= 4) transpose_stage<2, T>(row);
  transpose_stage<1, T>(row);
}

}  // namespace attest::kernels::ATTEST_ISA
