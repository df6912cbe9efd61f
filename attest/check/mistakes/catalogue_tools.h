// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "attest/check/mistakes/catalogue.h"

namespace attest::check {

// What the files of the catalogue ask about a claim.

/// The claim's factor of a score; nothing if D is not known.
[[nodiscard]] inline std::optional<double> claimed_scale(const Claim& claim) {
  if (claim.call.scale) return claim.call.scale;
  if (claim.shape.D == 0) return std::nullopt;
  return 1 / std::sqrt(static_cast<double>(claim.shape.D));
}

[[nodiscard]] inline bool is_causal(const Claim& claim) { return claim.call.mask.future_hidden; }
[[nodiscard]] inline bool has_window(const Claim& claim) {
  return claim.call.mask.window.left || claim.call.mask.window.right;
}
[[nodiscard]] inline bool has_packing(const Claim& claim) {
  return !claim.call.mask.packing.query_starts.empty();
}
[[nodiscard]] inline bool has_documents(const Claim& claim) {
  return has_packing(claim) || !claim.call.mask.documents.query.empty();
}
[[nodiscard]] inline bool has_lengths(const Claim& claim) {
  return !claim.call.mask.key_lengths.empty();
}
[[nodiscard]] inline bool has_table(const Claim& claim) { return claim.call.visible.has_value(); }
/// A mask or lengths: what a program gets as its mask argument.
[[nodiscard]] inline bool has_mask(const Claim& claim) {
  return has_table(claim) || has_lengths(claim);
}
[[nodiscard]] inline bool has_position_rule(const Claim& claim) {
  return is_causal(claim) || has_window(claim);
}
[[nodiscard]] inline bool hides_anything(const Claim& claim) {
  return has_position_rule(claim) || has_mask(claim) || has_documents(claim) || claim.call.bias;
}
[[nodiscard]] inline bool has_alibi(const Claim& claim) { return !claim.call.alibi_slopes.empty(); }
[[nodiscard]] inline bool has_sink(const Claim& claim) { return !claim.call.sink.empty(); }
[[nodiscard]] inline bool counts_positions(const Claim& claim) {
  return has_position_rule(claim) || has_alibi(claim);
}
[[nodiscard]] inline bool is_square(const Claim& claim) { return claim.shape.T == claim.shape.S; }
[[nodiscard]] inline std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }

/// What a program with results of this type adds in.
[[nodiscard]] inline Precision sums_of(Precision precision) {
  return precision == Precision::tf32 ? Precision::f32 : precision;
}

/// Where query 0 of batch b stands among the keys: the claim's offset, packed documents aside.
[[nodiscard]] inline std::int64_t claimed_offset(const Claim& claim, std::int64_t b) {
  const Mask& mask = claim.call.mask;
  const auto of_batch = [&](const std::vector<std::int64_t>& list, std::int64_t otherwise) {
    if (list.empty()) return otherwise;
    return list[list.size() == 1 ? 0 : static_cast<std::size_t>(b)];
  };
  if (mask.corner == Corner::at_offset) return of_batch(mask.query_offset, 0);
  if (mask.corner != Corner::bottom_right) return 0;
  return of_batch(mask.key_lengths, claim.shape.S) - claim.shape.T;
}
/// Whether that is anywhere something else than `offset`.
[[nodiscard]] inline bool stands_elsewhere(const Claim& claim, std::int64_t offset) {
  for (std::int64_t b = 0; b < claim.shape.B; ++b) {
    if (claimed_offset(claim, b) != offset) return true;
  }
  return has_packing(claim) && claim.call.mask.corner != Corner::square;
}

}  // namespace attest::check
