// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/activate.h"
#include "attest/linalg/kernels/gemm.h"
#include "attest/linalg/kernels/layers_io.h"

/// What a matrix product does to its sums before it hands them over.
namespace attest::kernels::ATTEST_ISA {

struct NoActivation {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return x;
  }
};

template <class T, class Activation>
[[gnu::noinline]] void finish_rows(const GemmFinish& finish) noexcept {
  constexpr int W = lanes<T>;
  const auto* const bias = static_cast<const T*>(finish.bias);
  for (std::int64_t i = 0; i < finish.rows; ++i) {
    T* const row = static_cast<T*>(finish.c) + i * finish.c_stride;
    std::int64_t j = 0;
    for (; j + W <= finish.cols; j += W) {
      const Vec<T> sum = bias != nullptr ? load(row + j) + load(bias + j) : load(row + j);
      store<T>(row + j, Activation::template value<T>(sum));
    }
    if (j == finish.cols) continue;
    const int rest = static_cast<int>(finish.cols - j);
    Vec<T> sum = load_first(row + j, rest);
    if (bias != nullptr) sum += load_first(bias + j, rest);
    store_first<T>(row + j, Activation::template value<T>(sum), rest);
  }
}

template <class T>
inline void gemm_finish(const GemmFinish& finish) noexcept {
  switch (finish.activation) {
    case GemmActivation::none:
      return finish_rows<T, NoActivation>(finish);
    case GemmActivation::relu:
      return finish_rows<T, Relu>(finish);
    case GemmActivation::gelu_erf:
      return finish_rows<T, GeluErf>(finish);
    case GemmActivation::gelu_tanh:
      return finish_rows<T, GeluTanh>(finish);
    case GemmActivation::silu:
      return finish_rows<T, Silu>(finish);
  }
}

/// Floats to 16 bits, to nearest even.
template <class S>
inline void gemm_round(const float* from, std::uint16_t* to, std::int64_t count) noexcept {
  constexpr int W = lanes<float>;
  auto* const out = reinterpret_cast<S*>(to);
  std::int64_t j = 0;
  for (; j + W <= count; j += W) Io<S>::put(out + j, load(from + j), Whole<float>{});
  if (j == count) return;
  const int rest = static_cast<int>(count - j);
  Io<S>::put(out + j, load_first(from + j, rest), Part<float>{rest});
}

}  // namespace attest::kernels::ATTEST_ISA
