// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/base/view.h"

namespace attest {

/// Where the queries stand among the keys: query i has position `offset + i`, key j position j.
///
///     T=2, S=5      top_left       bottom_right     at_offset 1
///                   x . . . .      x x x x .        x x . . .
///                   x x . . .      x x x x x        x x x . .      (causal; x = may see)
enum class Corner {
  square,        ///< offset 0, and T = S is required: the workbook's causal mode
  top_left,      ///< offset 0: the first query stands at the first key
  bottom_right,  ///< own key length − T, per batch; may be negative, then leading rows see nothing
  at_offset,     ///< Mask::query_offset says it
};

/// How many keys beside the query's own position may be seen, to each side; nothing means all.
struct Window {
  std::optional<std::int64_t> left{};
  std::optional<std::int64_t> right{};
};

/// Sequences laid end to end in one tensor: document n has the queries from query_starts[n] to before
/// query_starts[n + 1], and its keys likewise (cumulative lengths, "cu_seqlens"). A query sees keys
/// of its own document alone, and positions, corners and offsets count within it: corner
/// bottom_right is own key count − own query count. Both lists begin with 0, never fall, have the same
/// number of entries, and end with T and S. The same for every batch.
struct Packing {
  std::vector<std::int64_t> query_starts{};  ///< [documents + 1]
  std::vector<std::int64_t> key_starts{};    ///< [documents + 1]
};

/// A name for each token: a query sees the keys of its own name alone. Positions stay those of the
/// whole sequence. Any numbers in any order.
struct DocumentIds {
  std::vector<std::int64_t> query{};  ///< [T] for all batches, or [B·T]
  std::vector<std::int64_t> key{};    ///< [S] for all batches, or [B·S]
};

/// Who may see whom, as data. A key is visible if *every* rule below lets it be seen.
///
/// true means "may see". Masked means excluded: a hidden key or value is never read into a result,
/// whatever it holds. This struct says what is meant; each tier evaluates it with its own code.
struct Mask {
  bool future_hidden = false;                ///< causal: position j ≤ position of the query
  Corner corner = Corner::top_left;          ///< positions, for causal, window and ALiBi alike
  std::vector<std::int64_t> query_offset{};  ///< for at_offset: one for all, or one per batch [B]
  Window window{};                           ///< −left ≤ j − position ≤ right
  std::vector<std::int64_t> key_lengths{};   ///< [B] or one for all: keys at and beyond are hidden
  Packing packing{};                         ///< documents end to end; empty: none
  DocumentIds documents{};                   ///< documents by name; empty: none
  View<const bool, 4> visible{};             ///< broadcasts to [B, H, T, S]

  /// The workbook's: j ≤ i, and T = S is required.
  [[nodiscard]] static Mask causal() { return at(Corner::square); }
  [[nodiscard]] static Mask causal_top_left() { return at(Corner::top_left); }
  [[nodiscard]] static Mask causal_bottom_right() { return at(Corner::bottom_right); }
  [[nodiscard]] static Mask causal_at(std::int64_t offset) {
    Mask mask = at(Corner::at_offset);
    mask.query_offset = {offset};
    return mask;
  }

 private:
  [[nodiscard]] static Mask at(Corner corner) {
    Mask mask;
    mask.future_hidden = true;
    mask.corner = corner;
    return mask;
  }
};

/// What becomes of a query that may see no key.
enum class EmptyRow {
  error,  ///< the call fails and names the first such row: no distribution is made up
  zero,   ///< output 0, weights 0, log_sum_exp −∞, gradients 0
  nan,    ///< output and weights NaN, log_sum_exp −∞, gradients 0
};

}  // namespace attest
