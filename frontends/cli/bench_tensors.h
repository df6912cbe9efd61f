// SPDX-License-Identifier: MIT
// Random tensors of both types that the bench times, and their numbers in binary64.
#pragma once

#include <cstdint>
#include <utility>

#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"

namespace attest::cli {

inline void narrow(double from, float& to) { to = to_float_nearest(from); }
inline void narrow(double from, BFloat16& to) { to = to_bfloat16(from); }
inline double widened(float from) { return from; }
inline double widened(BFloat16 from) { return to_double(from); }

/// Mean 0 and variance 1.
template <class T>
Tensor<T> random_tensor(Shape shape, std::uint64_t stream) {
  constexpr double root_of_three = 0x1.bb67ae8584caap0;
  Random random(1, stream);
  Tensor<T> out(std::move(shape));
  for (T& element : out.elements()) narrow(random.uniform(-root_of_three, root_of_three), element);
  return out;
}

}  // namespace attest::cli
