// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "attest/attention/call.h"
#include "attest/base/text.h"

namespace attest::engine {

/// The first row, in the order [b, h, i], that saw no key. Threads lower it as they find one.
class FirstEmptyRow {
 public:
  explicit FirstEmptyRow(const Shape& shape) : shape_(shape) {}
  void found(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t index = (b * shape_.H + h) * shape_.T + i;
    std::int64_t least = first_.load();
    while (index < least && !first_.compare_exchange_weak(least, index)) {
    }
  }
  [[nodiscard]] Result<void> verdict() const {
    const std::int64_t index = first_.load();
    if (index == none) return {};
    return Failure{ErrorKind::value, "no-visible-key",
                   sentence("[attention] query ", index % shape_.T, " of head ",
                            index / shape_.T % shape_.H, ", batch ", index / shape_.T / shape_.H,
                            " sees no key; say what its output shall be (EmptyRow)")};
  }

 private:
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  const Shape& shape_;
  std::atomic<std::int64_t> first_{none};
};

}  // namespace attest::engine
