// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/forward.h"

/// What a backward kernel is told: pointers, strides and sizes only.
namespace attest::kernels {

/// Keys are cut at absolute multiples of this many.
inline constexpr int backward_keys = 64;

/// One block of rows against one key/value head: writes d_query of its rows and adds to d_key and
/// d_value. Blocks that share a key add to it in turn, in the order of their rows.
template <class T>
struct BackwardBlock {
  int rows = 0;  ///< ≤ block_rows
  int D = 0;
  int E = 0;
  Storage storage = Storage::f32;
  const void* const* query = nullptr;  ///< [rows]
  std::int64_t query_step = 1;
  const void* const* output = nullptr;  ///< [rows], of the forward pass
  std::int64_t output_step = 1;
  const void* const* d_output = nullptr;  ///< [rows]
  std::int64_t d_output_step = 1;
  const T* log_sum_exp = nullptr;           ///< [rows], natural
  const T* d_log_sum_exp = nullptr;         ///< [rows]; absent: zero
  Matrix key;                               // [S, D]
  Matrix value;                             // [S, E]
  const std::int64_t* first_key = nullptr;  ///< [rows]
  const std::int64_t* last_key = nullptr;   ///< [rows]
  const T* sink = nullptr;                  ///< [rows]
  void* const* d_query = nullptr;           ///< [rows], overwritten
  std::int64_t d_query_step = 1;
  T* d_key = nullptr;  ///< [S, d_key_row], added to; columns padded
  std::int64_t d_key_row = 0;
  T* d_value = nullptr;  ///< [S, d_value_row], added to; columns padded
  std::int64_t d_value_row = 0;
  T* const* d_bias = nullptr;  ///< [rows], each for key 0, added to; absent: not wanted
  std::int64_t d_bias_step = 0;
  T* d_sink = nullptr;  ///< [rows], overwritten; absent: not wanted
  Modifiers<T> modify;
  /// Before the gradients of keys begin … end − 1 change.
  void (*await_turn)(void* context, std::int64_t begin, std::int64_t end) = nullptr;
  /// Those of keys below end will not change again.
  void (*give_turn)(void* context, std::int64_t end) = nullptr;
  void* context = nullptr;
  T* scratch = nullptr;  ///< backward_scratch<T>(D, E) numbers, 64-byte aligned
};

template <class T>
constexpr std::int64_t backward_scratch(std::int64_t D, std::int64_t E) {
  return block_rows * (2 * D + E + padded<T>(D) + padded<T>(E) + 3 * backward_keys + 4) +
         backward_keys * (D + E);
}

template <class T>
using BackwardKernel = void (*)(const BackwardBlock<T>&);

struct BackwardTable {
  BackwardKernel<float> f32 = nullptr;
  BackwardKernel<double> f64 = nullptr;
};

namespace portable {
BackwardTable backward_table();
}
namespace avx2 {
BackwardTable backward_table();
}
namespace avx512 {
BackwardTable backward_table();
}

}  // namespace attest::kernels
