// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/base/mask.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

// What a program makes of its operands: scores, mask, softmax and mix. Defaults mean "as claimed"
// everywhere; a mistake sets a few fields. The order of computation is
//
//     dot, scale, softcap, bias and ALiBi, mask, softmax with sink, dropout, mix
//
// unless a field says otherwise.

/// What the softcap does to a score x, with c the cap.
enum class CapForm {
  tanh,              ///< c·tanh(x/c)
  no_multiply_back,  ///< tanh(x/c)
  no_divide,         ///< c·tanh(x)
  clip,              ///< x, but not beyond ±c
  missing,           ///< x
};
/// After which step the softcap comes.
enum class CapPlace { scaled, dot, biased, masked, output };

struct CapRecipe {
  CapForm form = CapForm::tanh;
  CapPlace place = CapPlace::scaled;
  bool operator==(const CapRecipe&) const = default;
};

/// What happens to the claim's bias.
enum class BiasUse {
  added,
  missing,
  subtracted,
  twice,
  multiplied,        ///< score·bias
  before_scale,      ///< scale·(dot + bias)
  after_softmax,     ///< weight + bias
  as_mask,           ///< bias > 0 may be seen
  nonzero_as_mask,   ///< bias ≠ 0 may be seen
  nonzero_is_hidden  ///< bias ≠ 0 is hidden: what a mask of 0 and −10000 becomes
};
/// Which number of a bias or mask is read for batch b, head h, query i and key j.
enum class Lookup {
  own,
  batch0,
  head0,
  query0,
  transposed,      ///< [b, h, j, i]
  batch_for_head,  ///< the head counts along the batch axis, the batch along the head axis
  tiled,           ///< batch (b·H + h) mod B: a mask for B tiled H times, read as batch-major
  other_batch,     ///< batch b + 1
  query_for_key,   ///< [b, h, i, i]: a mask of keys used for queries
  one_longer,      ///< [b, h, i, j − 1]; key 0 may be seen
  one_shorter,     ///< [b, h, i, j + 1]; the last key is hidden
  from_the_end,    ///< [b, h, i, S − 1 − j]
  heads_reversed,  ///< [b, H − 1 − h, i, j]
};

struct BiasRecipe {
  BiasUse use = BiasUse::added;
  Lookup lookup = Lookup::own;
  bool operator==(const BiasRecipe&) const = default;
};

/// What a slope is multiplied with; p is the position of the query.
enum class AlibiDistance {
  absolute,     ///< −|p − j|
  difference,   ///< −(p − j): reward for the future
  future_free,  ///< −max(p − j, 0)
  key,          ///< +j
  key_minus,    ///< −j
  square,       ///< −(p − j)²
};

struct AlibiRecipe {
  std::optional<std::vector<double>> slopes{};  ///< [H]; empty: none
  AlibiDistance distance = AlibiDistance::absolute;
  std::int64_t shift = 0;     ///< added to the distance
  bool at_index = false;      ///< p is the query's index: the offset is forgotten
  bool before_scale = false;  ///< scale·(dot + alibi)
  bool operator==(const AlibiRecipe&) const = default;
};

/// Who may see whom.
enum class Compose {
  both,            ///< visible if positions and masks allow it
  either,          ///< visible if one of them does
  positions_only,  ///< causal and window
  masks_only,      ///< mask, lengths and documents
};
enum class OpenRows { none, first, last };
enum class WindowForm {
  sliding,
  chunked,    ///< blocks of left + 1 positions
  ahead,      ///< [p, p + left]
  symmetric,  ///< left on both sides
};
enum class DocumentUse {
  claimed,
  ignored,
  shifted,         ///< each boundary one later
  equal_lengths,   ///< every document as long as the longest
  equal_shares,    ///< the sequence in as many equal parts
  since_previous,  ///< the document before is seen too
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
  std::int64_t position_shift = 0;  ///< of all that counts positions
  std::int64_t causal_shift = 0;    ///< of the causal bound alone: 1 shows a future key
  bool causal_reversed = false;     ///< j ≥ p
  std::int64_t causal_block = 0;    ///< sees to the end of its block of that many positions
  OpenRows open_rows = OpenRows::none;

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

/// What the weights of a softmax are normalised over.
enum class SoftmaxOver { keys, queries, heads, batch, pairs };
enum class SoftmaxForm {
  softmax,
  missing,       ///< the scores themselves; 0 for hidden keys
  unnormalised,  ///< exp(score − max)
  twice,
  sigmoid,
  log,      ///< log of the softmax
  uniform,  ///< the mean of the visible values
  argmax,
  squared_relu,
  l1,  ///< score / Σ|score|
};

struct SoftmaxRecipe {
  SoftmaxOver over = SoftmaxOver::keys;
  SoftmaxForm form = SoftmaxForm::softmax;
  double exponent = 1;                 ///< exp(exponent·score)
  double more_zeros = 0;               ///< that many more scores of 0 in the denominator
  std::int64_t zeros_to_multiple = 0;  ///< as many as make S a multiple of it
  std::int64_t unrescaled_block = 0;   ///< blocks of an online softmax without exp(old − new max)
  bool max_not_below_zero = false;     ///< running max starts at 0, in binary32
  bool no_max = false;                 ///< exp(score) in binary32: overflows
  std::int64_t averaged_parts = 0;     ///< of the keys, each with a softmax of its own
  bool parts_merged_base2 = false;     ///< by log2 sums, as if they were natural
  double epsilon = 0;                  ///< added to the denominator
  bool operator==(const SoftmaxRecipe&) const = default;
};

enum class SinkUse {
  denominator,
  twice,         ///< two such terms
  not_exp,       ///< sum + sink instead of sum + exp(sink)
  added_to_all,  ///< scores
  added_to_first,
  maximum,  ///< limits the scores from below
};
struct SinkRecipe {
  std::optional<std::vector<double>> values{};  ///< [H]; empty: none
  SinkUse use = SinkUse::denominator;
  bool capped = false;
  bool operator==(const SinkRecipe&) const = default;
};

/// After the softmax.
struct MixRecipe {
  double weight_factor = 1;  ///< 1/(1 − rate) of a dropout that drops nothing
  bool dropout_ignored = false;
  bool dropout_unscaled = false;
  bool operator==(const MixRecipe&) const = default;
};

/// Roundings on the way; f64 means none.
struct RoundingRecipe {
  Precision query_key = Precision::f64;
  Precision dot = Precision::f64;
  bool dot_clipped = false;  ///< to the largest number of its type, instead of infinity
  Precision scaled = Precision::f64;
  Precision biased = Precision::f64;
  Precision weights = Precision::f64;
  Precision value = Precision::f64;
  Precision output = Precision::f64;
  bool operator==(const RoundingRecipe&) const = default;
};

enum class LseForm { natural, base2, infinite_if_empty, without_max, without_sink, of_sum_alone };
enum class WeightsShown { own, head_mean, before_dropout, head_sum, transposed };

struct LabelRecipe {
  /// What stands under the first name is the second table; and the other way round if `exchanged`.
  std::optional<Stage> named{};
  Stage is = Stage::dot;
  bool exchanged = false;
  LseForm log_sum_exp = LseForm::natural;
  WeightsShown weights = WeightsShown::own;
  bool operator==(const LabelRecipe&) const = default;

  /// Which table stands under this name.
  [[nodiscard]] Stage shown_as(Stage name) const {
    if (named && name == *named) return is;
    if (named && exchanged && name == is) return *named;
    return name;
  }
};

struct ScoringRecipe {
  std::optional<double>
      scale{};  ///< nothing: the claim's; 1/√D of the program's own D if that is none
  std::optional<double> softcap{};  ///< nothing: the claim's
  CapRecipe cap{};
  BiasRecipe bias{};
  AlibiRecipe alibi{};
  SightRecipe sight{};
  HideRecipe hide{};
  SoftmaxRecipe softmax{};
  SinkRecipe sink{};
  MixRecipe mix{};
  RoundingRecipe rounding{};
  LabelRecipe label{};
  bool operator==(const ScoringRecipe&) const = default;
};

}  // namespace attest::check
