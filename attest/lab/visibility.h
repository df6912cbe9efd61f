// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/result.h"

namespace attest::lab {

/// The letters of one attention call.
struct AttentionShape {
  std::int64_t B = 0;  // batch
  std::int64_t H = 0;  // query heads
  std::int64_t G = 0;  // key/value heads
  std::int64_t T = 0;  // queries
  std::int64_t S = 0;  // keys
  std::int64_t D = 0;  // query/key width
  std::int64_t E = 0;  // value width
};

/// Which query row of a call: batch, query head, query.
struct RowPlace {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t i = 0;
};

/// The rule that hides a key; the first that applies, in this order.
enum class HiddenBy { nothing, future, window, key_length, mask, bias };

/// "", "causal", "window", "length", "mask", "bias -inf": for traces and error sentences.
[[nodiscard]] std::string reason(HiddenBy rule);

/// Everything that a call must satisfy before any arithmetic, checked once.
///
/// Fails (shape-mismatch, causal-needs-square, bad-option) with both numbers in the sentence.
[[nodiscard]] Result<AttentionShape> check_attention(const AttentionInputs<double>& inputs,
                                                     const AttentionOptions<double>& options);

/// Evaluates a mask. All rules are combined by *and*; positions follow Mask's corner.
class Visibility {
 public:
  /// The options must have passed `check_attention`.
  Visibility(const AttentionOptions<double>& options, const AttentionShape& shape);

  /// The key position of query 0 in batch b.
  [[nodiscard]] std::int64_t offset(std::int64_t b) const;

  /// Why key j is hidden from this query, or `nothing` if it may be seen.
  [[nodiscard]] HiddenBy rule(RowPlace at, std::int64_t j) const;
  [[nodiscard]] bool visible(RowPlace at, std::int64_t j) const {
    return rule(at, j) == HiddenBy::nothing;
  }

  /// The bias of a score, broadcast; 0 if there is none.
  [[nodiscard]] double bias(RowPlace at, std::int64_t j) const;

 private:
  [[nodiscard]] std::int64_t key_length(std::int64_t b) const;

  const Mask& mask_;
  AttentionShape shape_;
  View<const bool, 4> allowed_;  // [B, H, T, S], broadcast
  View<const double, 4> bias_;   // [B, H, T, S], broadcast
};

}  // namespace attest::lab
