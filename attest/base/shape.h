// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace attest {

/// The extents of a tensor, outermost first. Rank 0 is a single number.
using Shape = std::vector<std::int64_t>;

/// The product of the extents, or nothing if an extent is negative or the product does not fit.
[[nodiscard]] std::optional<std::int64_t> element_count(
    std::span<const std::int64_t> shape) noexcept;

/// "[2, 3, 4]".
[[nodiscard]] std::string to_string(std::span<const std::int64_t> shape);

/// Row-major strides in elements: the last axis is contiguous.
[[nodiscard]] std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> shape);

}  // namespace attest
