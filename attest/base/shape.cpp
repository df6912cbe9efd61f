// SPDX-License-Identifier: MIT
#include "attest/base/shape.h"

#include <limits>

#include "attest/base/text.h"

namespace attest {

std::optional<std::int64_t> element_count(std::span<const std::int64_t> shape) noexcept {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      empty = true;
      continue;
    }
    if (product > std::numeric_limits<std::int64_t>::max() / extent) return std::nullopt;
    product *= extent;
  }
  return empty ? 0 : product;
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    out += sentence(axis == 0 ? "" : ", ", shape[axis]);
  }
  return out + "]";
}

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

}  // namespace attest
