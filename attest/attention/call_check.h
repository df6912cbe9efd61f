// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "attest/attention/call.h"
#include "attest/base/result.h"

/// The checks of an attention call, apart from its number types. Not public.
namespace attest::engine {

struct Sizes {
  bool given = false;  ///< query, key and value are there
  std::array<std::int64_t, 4> query{};
  std::array<std::int64_t, 4> key{};
  std::array<std::int64_t, 4> value{};
};

struct Numbers {
  const std::array<std::int64_t, 4>* bias = nullptr;  // its extents
  std::optional<double> scale{};
  std::optional<double> softcap{};
  const std::vector<double>* alibi_slopes = nullptr;
  const std::vector<double>* sink = nullptr;
  Dropout dropout{};
};

/// Fails with shape-mismatch or too-large.
[[nodiscard]] Result<void> check_sizes(const Sizes& sizes);
/// Fails with causal-needs-square, shape-mismatch or bad-option.
[[nodiscard]] Result<void> check_mask(const Mask& mask, const Shape& shape);
[[nodiscard]] Result<void> check_numbers(const Numbers& numbers, const Shape& shape);

}  // namespace attest::engine
