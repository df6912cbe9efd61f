// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "attest/attention/kernels/backward.h"
#include "attest/attention/kernels/forward.h"
#include "attest/attention/kernels/weights.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/linalg/execution.h"

namespace attest::engine {

/// The kernels that calls use under one instruction set.
struct KernelTable {
  kernels::ForwardTable forward;
  kernels::DecodeTable decode;
  kernels::BackwardTable backward;
  kernels::WeightsTable weights;
};

/// Fails with bad-isa if this machine lacks the set. Starts as the portable kernels, which each set
/// that is present replaces by its own.
[[nodiscard]] Result<const KernelTable*> kernel_table(const Execution& execution);

/// The kernel of calls whose tensors are of T.
template <class T>
[[nodiscard]] kernels::ForwardKernel<AccumulatorOf<T>> forward_kernel(const KernelTable& table) {
  if constexpr (std::is_same_v<T, double>) {
    return table.forward.f64;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return table.forward.bf16;
  } else {
    return table.forward.f32;
  }
}

template <class T>
[[nodiscard]] kernels::DecodeKernel<AccumulatorOf<T>> decode_kernel(const KernelTable& table) {
  if constexpr (std::is_same_v<T, double>) {
    return table.decode.f64;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return table.decode.bf16;
  } else {
    return table.decode.f32;
  }
}
template <class T>
[[nodiscard]] kernels::BackwardKernel<T> backward_kernel(const KernelTable& table) {
  if constexpr (std::is_same_v<T, double>) {
    return table.backward.f64;
  } else {
    return table.backward.f32;
  }
}
template <class T>
[[nodiscard]] kernels::WeightsKernel<T> weights_kernel(const KernelTable& table) {
  if constexpr (std::is_same_v<T, double>) {
    return table.weights.f64;
  } else {
    return table.weights.f32;
  }
}

}  // namespace attest::engine
