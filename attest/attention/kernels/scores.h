// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/memory.h"
#include "attest/linalg/kernels/exp2.h"

/// Softcap, bias and ALiBi on a block of scores that lies with rows in lanes.
namespace attest::kernels::ATTEST_ISA {

template <class T>
ATTEST_INLINE bool changes_scores(const Modifiers<T>& modify) {
  return modify.softcap != 0 || modify.bias != nullptr || modify.alibi_slope != nullptr;
}

/// scores ← c·tanh(scale/c·scores) + bias − slope·distance, or scale·scores + … without a softcap. A
/// bias of −∞ gives −∞, whatever the score.
///
/// Element (j, lane) of the N registers of rows is scores[j·ld + lane]. With `slope` the derivative of
/// the softcap, 1 − tanh², is left there.
template <int N, class T>
inline void change_scores(T* scores, int ld, const Modifiers<T>& modify, int first_row, int rows,
                          std::int64_t begin, int keys, T* slope = nullptr) {
  constexpr int width = N * lanes<T>;
  const T infinity = T(__builtin_inf());
  T extra[width];
  for (int j = 0; j < keys; ++j) {
    for (int lane = 0; lane < width; ++lane) {
      const int row = first_row + lane;
      T sum = 0;
      if (row < rows && modify.bias != nullptr) {
        sum = read_number<T>(modify.bias[row], modify.bias_storage, (begin + j) * modify.bias_step);
      }
      if (row < rows && modify.alibi_slope != nullptr) {
        const std::int64_t distance = begin + j - modify.position[row];
        sum -= modify.alibi_slope[row] * static_cast<T>(distance < 0 ? -distance : distance);
      }
      extra[lane] = sum;
    }
    for (int v = 0; v < N; ++v) {
      T* at = scores + j * ld + v * lanes<T>;
      Vec<T> s = load(at);
      Vec<T> factor = broadcast(modify.scale);
      if (modify.softcap != 0) {
        const Vec<T> bent = tanh_of(s * broadcast(modify.capped_scale));
        s = bent;
        factor = broadcast(modify.softcap);
        if (slope != nullptr) {
          store<T>(slope + j * ld + v * lanes<T>, fma(-bent, bent, broadcast(T(1))));
        }
      }
      const Vec<T> add = load(extra + v * lanes<T>);
      s = fma(s, factor, add);
      store<T>(at, select(add == broadcast(-infinity), add, s));
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
