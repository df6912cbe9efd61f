// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/check/mistakes/sight_recipe.h"

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

/// What the weights of a softmax are normalised over.
enum class SoftmaxOver { keys, queries, heads, batch, pairs };
enum class SoftmaxForm {
  softmax,
  missing,       ///< the scores themselves; 0 for hidden keys
  unnormalised,  ///< exp(score − max)
  twice,
  sigmoid,
  log,     ///< log of the softmax
  argmax,  ///< all of the largest
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
  bool operator==(const SoftmaxRecipe&) const = default;
};

enum class SinkUse {
  denominator,
  twice,         ///< two such terms
  not_exp,       ///< sum + sink instead of sum + exp(sink)
  added_to_all,  ///< scores
  added_to_first,
  gate,     ///< weights·sigmoid(log_sum_exp − sink) after a softmax without it
  maximum,  ///< limits the scores from below
};
struct SinkRecipe {
  std::optional<std::vector<double>> values{};  ///< [H]; empty: none
  SinkUse use = SinkUse::denominator;
  bool capped = false;
  bool operator==(const SinkRecipe&) const = default;
};

/// What a program gives instead of the mix.
enum class OutputForm { mix, zeros, own_value, query_added, negated, row_before };

/// After the softmax.
struct MixRecipe {
  double weight_factor = 1;  ///< 1/(1 − rate) of a dropout that drops nothing
  /// Some weights are 0 and the others multiplied by 1/(1 − rate): which, is found from the dump.
  std::optional<double> fitted_dropout{};
  OutputForm output = OutputForm::mix;
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

enum class LseForm { natural, base2, infinite_if_empty, without_max, without_sink, maximum, sum };
enum class WeightsShown { own, head_mean, head_sum, before_dropout };

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
      scale{};              ///< nothing: the claim's; 1/√D of the program's own D if that is none
  double scale_factor = 1;  ///< of whatever the scale is
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
