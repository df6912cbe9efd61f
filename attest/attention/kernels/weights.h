// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward.h"

/// What a kernel of weights is told: pointers, strides and sizes only.
namespace attest::kernels {

/// Keys are cut at absolute multiples of this many.
inline constexpr int weights_keys = 64;

/// One block of rows against one key/value head: writes the weights of the keys that a row may see, and
/// zeros beside them; what no row of the block sees is left as it is.
template <class T>
struct WeightsBlock {
  int rows = 0;  ///< ≤ block_rows
  int D = 0;
  Storage storage = Storage::f32;
  const void* const* query = nullptr;       ///< [rows]
  std::int64_t query_step = 1;              ///< from one d to the next
  const T* log_sum_exp = nullptr;           ///< [rows], natural
  Matrix key;                               // [S, D]
  const std::int64_t* first_key = nullptr;  ///< [rows], the visible range of each
  const std::int64_t* last_key = nullptr;   ///< [rows], one past it
  Modifiers<T> modify;
  T* const* weights = nullptr;  ///< [rows], each for key 0
  T* scratch = nullptr;         ///< weights_scratch(D) numbers, 64-byte aligned
};

constexpr std::int64_t weights_scratch(std::int64_t D) {
  return block_rows * (D + weights_keys) + weights_keys * D;
}

template <class T>
using WeightsKernel = void (*)(const WeightsBlock<T>&);

struct WeightsTable {
  WeightsKernel<float> f32 = nullptr;
  WeightsKernel<double> f64 = nullptr;
};

namespace portable {
WeightsTable weights_table();
}
namespace avx2 {
WeightsTable weights_table();
}
namespace avx512 {
WeightsTable weights_table();
}

}  // namespace attest::kernels
