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

/// The rule that hides a key; the first that applies, in this order. A key of another document comes
/// first: in a packed call it has no position that the other rules could speak of.
enum class HiddenBy { nothing, document, future, window, key_length, mask, bias };

/// "", "document", "causal", "window", "length", "mask", "bias -inf": for traces and error sentences.
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

  /// Where this query stands, as the index of a key: causal, window and ALiBi count from here. In a
  /// packed call that is a place within its own document, counted from the document's first key.
  [[nodiscard]] std::int64_t position_of(RowPlace at) const;

  /// Why key j is hidden from this query, or `nothing` if it may be seen.
  [[nodiscard]] HiddenBy rule(RowPlace at, std::int64_t j) const;
  [[nodiscard]] bool visible(RowPlace at, std::int64_t j) const {
    return rule(at, j) == HiddenBy::nothing;
  }

  /// The bias of a score, broadcast; 0 if there is none.
  [[nodiscard]] double bias(RowPlace at, std::int64_t j) const;

 private:
  /// Where a document begins in the two tensors, and how much of each is its own.
  struct Document {
    std::int64_t first_query = 0;
    std::int64_t first_key = 0;
    std::int64_t queries = 0;
    std::int64_t keys = 0;
  };

  [[nodiscard]] std::int64_t key_length(std::int64_t b) const;
  [[nodiscard]] Document document_of(RowPlace at) const;
  [[nodiscard]] std::int64_t offset(std::int64_t b, const Document& own) const;
  [[nodiscard]] bool same_document(RowPlace at, std::int64_t j) const;

  const Mask& mask_;
  AttentionShape shape_;
  View<const bool, 4> allowed_;  // [B, H, T, S], broadcast
  View<const double, 4> bias_;   // [B, H, T, S], broadcast
};

}  // namespace attest::lab
