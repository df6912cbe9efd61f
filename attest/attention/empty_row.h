// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "attest/attention/attention.h"
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

/// A row whose visible scores are all −∞: 0/0, unless a sink takes all the weight.
template <class T>
void write_scores_of_minus_infinity(const Call& call, const AttentionOutputs<T>& outputs,
                                    std::int64_t b, std::int64_t h, std::int64_t i) {
  using Sum = AccumulatorOf<T>;
  const bool with_sink = call.sink != nullptr;
  const Sum number = with_sink ? Sum(0) : std::numeric_limits<Sum>::quiet_NaN();
  for (std::int64_t e = 0; e < call.shape.E; ++e)
    outputs.output(b, h, i, e) = rounded_to<T>(number);
  if (outputs.log_sum_exp) {
    outputs.log_sum_exp(b, h, i) =
        with_sink ? static_cast<Sum>((*call.sink)[static_cast<std::size_t>(h)]) : number;
  }
}

}  // namespace attest::engine
