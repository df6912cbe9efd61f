// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "attest/base/config.h"
#include "attest/lab/oracle/evaluate.h"

/// Checks that several operations of the oracle need; each says what is wrong, or nothing.
namespace attest::lab::oracle {

using MaybeFailure = std::optional<Failure>;

[[nodiscard]] inline MaybeFailure need_rank(std::string_view operation, const Named& input,
                                            std::size_t rank) {
  if (input.tensor.rank() == rank) return {};
  return failure(ErrorKind::shape, "shape-mismatch", operation, input.name, " must have rank ",
                 rank, "; its shape is ", to_string(input.tensor.shape()));
}

[[nodiscard]] inline MaybeFailure need_rows(std::string_view operation, const Named& input) {
  if (input.tensor.rank() >= 1 && input.tensor.shape().back() >= 1) return {};
  return failure(ErrorKind::shape, "shape-mismatch", operation, input.name,
                 " needs a last axis with at least one element; its shape is ",
                 to_string(input.tensor.shape()));
}

/// The tensor has this shape, or is absent where that is allowed.
[[nodiscard]] inline MaybeFailure need_shape(std::string_view operation, const Named& input,
                                             const Shape& expected) {
  if (input.tensor.shape() == expected) return {};
  return wrong_shape(operation, input.name, input.tensor.shape(), expected);
}
[[nodiscard]] inline MaybeFailure absent_or_shape(std::string_view operation, const Named& input,
                                                  const Shape& expected) {
  if (input.tensor.shape() == Shape{0}) return {};
  return need_shape(operation, input, expected);
}

/// The rotated width fits the row, and the base has powers.
[[nodiscard]] inline MaybeFailure check_rope_config(std::string_view operation,
                                                    const RopeConfig& config, std::int64_t width) {
  const std::int64_t turned = config.rotary_dim == 0 ? width : config.rotary_dim;
  if (turned < 0 || turned > width || turned % 2 != 0) {
    return failure(ErrorKind::value, "bad-option", operation,
                   "the rotated width must be even and at most D = ", width, "; it is ", turned);
  }
  if (!std::isfinite(config.base) || config.base <= 0) {
    return failure(ErrorKind::value, "bad-option", operation, "base must be finite and above 0");
  }
  return {};
}

}  // namespace attest::lab::oracle
