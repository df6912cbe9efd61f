// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace attest::check {

/// A place that is known not to be negative, as the standard containers want it.
[[nodiscard]] constexpr std::size_t at_index(std::int64_t place) noexcept {
  return static_cast<std::size_t>(place);
}

}  // namespace attest::check
