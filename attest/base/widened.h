// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "attest/base/dtype.h"

namespace attest {

/// The number in binary64, which has every number of f32, bf16 and f16.
template <class T>
[[nodiscard]] double widened(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<double>(value);
  } else {
    return to_double(value);
  }
}

}  // namespace attest
