// SPDX-License-Identifier: MIT
// Random tensors of both types that the bench times.
#pragma once

#include <cstdint>
#include <utility>

#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"

namespace attest::cli {

/// Mean 0 and variance 1.
template <class T>
Tensor<T> random_tensor(Shape shape, std::uint64_t stream) {
  constexpr double root_of_three = 0x1.bb67ae8584caap0;
  Random random(1, stream);
  Tensor<T> out(std::move(shape));
  for (T& element : out.elements()) {
    element = rounded_to<T>(random.uniform(-root_of_three, root_of_three));
  }
  return out;
}

}  // namespace attest::cli
