// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "attest/check/mistakes/claim.h"

namespace attest::check::gradients {

/// A half-open range of queries or keys.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] bool has(std::int64_t n) const { return n >= begin && n < end; }
  bool operator==(const Span&) const = default;
};

/// Why a key is hidden, as bits: all rules that apply, not the first alone.
enum HiddenBit : unsigned {
  by_document = 1,
  by_future = 2,
  by_window = 4,
  by_length = 8,
  by_mask = 16,
  by_bias = 32,  ///< −∞: hidden whatever a program forgets
};
inline constexpr unsigned every_rule = 31;

/// The number that is taken from every d_weights of a row before the weight multiplies it.
enum class RowsTerm {
  right,  ///< Σ weights·d_weights = Σ_e d_output·output
  missing,
  sign,
  before_dropout,          ///< Σ softmax·d_output·value, nothing left out
  without_dropout_factor,  ///< the kept ones, not scaled up
  unweighted,              ///< Σ d_weights
  mean,                    ///< their mean
  from_d_output,           ///< Σ_e d_output
  from_output,             ///< Σ_e output
  output_squared,          ///< Σ_e output·output
  per_key,                 ///< Σ over the queries, for each key
  first_head,              ///< that of head 0
  first_row,               ///< that of query 0
  again,                   ///< Σ of the weights that the backward pass has made for itself
};

enum class SoftmaxBack {
  right,           ///< weights·(d_weights − rows term)
  passed_through,  ///< d_weights
  diagonal,        ///< weights·(1 − weights)·d_weights
};

/// The derivative of c·tanh(scaled/c), with t = tanh(scaled/c): 1 − t².
enum class CapBack { right, missing, of_capped, of_scaled, not_squared, plus, twice };

/// How the heads of a group, or a broadcast axis, come together.
enum class Gather { sum, first, last, mean, tiled, apart };

/// Which weights the backward pass has.
enum class WeightsBack { right, unnormalised, base2, without_sink, unmasked };

enum class DropoutBack { right, none, factor_missing, factor_twice };

enum class BiasBack { right, scaled, before_softmax, after_cap };

enum class SinkBack { right, zero, unweighted, without_flow };

enum class EmptyBack { zero, nan_query, nan_everywhere, uniform, uniform_values };

enum class Turn { back, none, forward };

enum class Layout { right, queries_before_heads, heads_reversed };

/// What is done to one result after it has been computed.
struct ResultRecipe {
  double factor = 1;
  double scale_power = 0;  ///< of the scale, beside what is right
  Turn turn = Turn::back;
  Layout layout = Layout::right;
  bool transposed = false;  ///< its sum runs over the table's other axis
  bool batches_pile_up = false;
  std::optional<DType> rounded{};
  std::optional<int> taken_from{};  ///< the result that is stored in its place
  bool operator==(const ResultRecipe&) const = default;
};

/// How a program, right or wrong, computes gradients. A default recipe is the claim's.
struct GradientRecipe {
  RowsTerm rows = RowsTerm::right;
  SoftmaxBack softmax = SoftmaxBack::right;
  CapBack cap = CapBack::right;
  double flow = 1;  ///< what multiplies d_log_sum_exp

  WeightsBack score_weights = WeightsBack::right;  ///< for d_query, d_key, d_bias and d_sink
  WeightsBack value_weights = WeightsBack::right;  ///< for d_value
  DropoutBack score_dropout = DropoutBack::right;
  DropoutBack value_dropout = DropoutBack::right;
  unsigned score_forgets = 0;  ///< rules that hide nothing
  unsigned value_forgets = 0;
  std::optional<std::int64_t> future_offset{};  ///< another causal corner
  std::int64_t future_slack = 0;                ///< query i sees so many keys more
  std::optional<DType> weights_rounded{};
  std::optional<DType> d_scores_rounded{};

  Gather key_heads = Gather::sum;
  Gather value_heads = Gather::sum;
  Gather bias_batch = Gather::sum;
  Gather bias_heads = Gather::sum;
  Gather bias_rows = Gather::sum;
  BiasBack bias = BiasBack::right;
  SinkBack sink = SinkBack::right;
  Gather sink_batch = Gather::sum;
  EmptyBack empty = EmptyBack::zero;

  Span query_keys{};    ///< that d_query sums over
  Span key_rows{};      ///< that d_key and d_value sum over
  Span written_keys{};  ///< whose d_key and d_value are not left zero
  Span written_rows{};  ///< whose d_query is not left zero

  std::array<ResultRecipe, 5> results{};  ///< by GradientOf
  bool operator==(const GradientRecipe&) const = default;
};

}  // namespace attest::check::gradients
