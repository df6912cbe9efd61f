// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/mask.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// Which number of a bias or mask is read for batch b, head h, query i and key j.
enum class Lookup {
  own,
  batch0,
  head0,
  query0,
  transposed,       ///< [b, h, j, i]
  batch_for_head,   ///< the head counts along the batch axis, the batch along the head axis
  tiled,            ///< batch (b·H + h) mod B: a mask for B tiled H times, read as batch-major
  other_batch,      ///< batch b + 1
  query_for_batch,  ///< [i, h, 0, j]: a mask [B, S] right-aligned as [T, S]
  query_for_key,    ///< [b, h, i, i]: a mask of keys used for queries
  one_longer,       ///< [b, h, i, j − 1]; key 0 may be seen
  one_shorter,      ///< [b, h, i, j + 1]; the last key is hidden
  from_the_end,     ///< [b, h, i, S − 1 − j]
  heads_reversed,   ///< [b, H − 1 − h, i, j]
};

/// Who may see whom.
enum class Compose {
  both,            ///< visible if positions and masks allow it
  either,          ///< visible if one of them does
  positions_only,  ///< causal and window
  masks_only,      ///< mask, lengths and documents
};
enum class OpenRows { none, first, last };
enum class OpenKeys { none, first, own };
enum class WindowForm {
  sliding,
  chunked,    ///< blocks of left + 1 positions
  ahead,      ///< [p, p + left]
  symmetric,  ///< left on both sides
};
enum class DocumentUse {
  claimed,
  ignored,
  shifted,          ///< each boundary one later
  equal_lengths,    ///< every document as long as the longest
  equal_shares,     ///< the sequence in as many equal parts
  whole_positions,  ///< kept apart, but positions count through the whole sequence
  since_previous,   ///< the document before is seen too
};

/// As attest::Window: keys beside the query's own, to each side; nothing means all.
struct Sides {
  std::optional<std::int64_t> left{};
  std::optional<std::int64_t> right{};
  bool operator==(const Sides&) const = default;
};

struct SightRecipe {
  Compose compose = Compose::both;

  std::optional<bool> causal{};
  std::optional<Corner> corner{};   ///< where positions begin; top_left: at 0
  bool own_length_ignored = false;  ///< bottom-right from S, not from the key length
  bool offset_of_batch0 = false;    ///< for every batch
  std::int64_t position_shift = 0;  ///< of all that counts positions
  std::int64_t causal_shift = 0;    ///< of the causal bound alone: 1 shows a future key
  bool causal_reversed = false;     ///< j ≥ p
  std::int64_t causal_block = 0;    ///< sees to the end of its block of that many positions
  OpenRows open_rows = OpenRows::none;
  OpenKeys open_keys = OpenKeys::none;  ///< seen whatever hides them

  std::optional<Sides> window{};
  WindowForm window_form = WindowForm::sliding;
  std::int64_t always_visible_keys = 0;  ///< the first so many escape the window
  bool window_at_index = false;          ///< counts from the query's index: the offset is forgotten

  bool lengths_ignored = false;
  bool lengths_inverted = false;
  bool mask_ignored = false;
  bool mask_inverted = false;
  bool all_inverted = false;  ///< what causal and window hide too
  Lookup lookup = Lookup::own;
  DocumentUse documents = DocumentUse::claimed;
  bool operator==(const SightRecipe&) const = default;
};

/// How a key is hidden.
enum class HideBy {
  excluding,
  replacing,                   ///< the score becomes `number`
  adding,                      ///< `number` is added to the score, rounded to `sum`
  adding_visible,              ///< `number` is added to the score of the visible keys
  multiplying,                 ///< the score becomes 0
  after_softmax,               ///< its weight becomes 0
  after_softmax_renormalised,  ///< and the others are divided by their sum
  zeroing_key,
  zeroing_value,
  zeroing_key_and_value,
  nothing,
};
struct Hide {
  HideBy by = HideBy::excluding;
  double number = 0;
  Precision sum = Precision::f64;
  bool operator==(const Hide&) const = default;
};

/// What a program gives for a query that sees no key.
enum class EmptyAnswer {
  claimed,  ///< zero where the claim calls it an error
  zero,
  nan,
  uniform,      ///< the mean of all values
  unmasked,     ///< as if nothing were hidden
  first_value,  ///< argmax of equal scores
};

struct HideRecipe {
  Hide positions{};  ///< what causal and window hide
  Hide masks{};      ///< what mask, lengths and documents hide
  EmptyAnswer empty = EmptyAnswer::claimed;
  bool hidden_values_read = false;   ///< 0·NaN is NaN
  bool padded_queries_zero = false;  ///< queries at and beyond the key length give 0
  bool operator==(const HideRecipe&) const = default;
};

}  // namespace attest::check
