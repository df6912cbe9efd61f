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

/// scores ← (c·tanh(scores) + bias − slope·distance)·log2 e. With a softcap the queries carry
/// scale/c, otherwise scale·log2 e. A bias of −∞ gives −∞, whatever the score.
///
/// Element (j, lane) of the N registers of rows is scores[j·ld + lane]. With `slope` the derivative of
/// the softcap, 1 − tanh², is left there.
template <int N, class T>
inline void change_scores(T* scores, int ld, const Modifiers<T>& modify, int first_row, int rows,
                          std::int64_t begin, int keys, T* slope = nullptr) {
  constexpr T log2e = T(1.44269504088896340736);
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
      if (modify.softcap != 0) {
        const Vec<T> bent = tanh_of(s);
        s = bent * broadcast(modify.softcap * log2e);
        if (slope != nullptr) {
          store<T>(slope + j * ld + v * lanes<T>, fma(-bent, bent, broadcast(T(1))));
        }
      }
      const Vec<T> add = load(extra + v * lanes<T>);
      s = fma(add, broadcast(log2e), s);
      store<T>(at, select(add == broadcast(-infinity), add, s));
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
