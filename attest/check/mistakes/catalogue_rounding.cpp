// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

double largest_of(const Tensor<double>& tensor) {
  double out = 0;
  for (const double x : tensor.elements()) {
    const double size = std::fabs(x);
    if (std::isfinite(size)) out = std::max(out, size);
  }
  return out;
}

/// Whether no product query·key can leave the range of f16.
bool fits_f16(const Claim& claim) {
  const double bound = largest_of(claim.call.query) * largest_of(claim.call.key) *
                       static_cast<double>(claim.shape.D);
  return bound < 65504;
}

/// A step rounded to a type that is coarser than the claim's.
bool rounds(Precision RoundingRecipe::*step, Recipe& recipe, const Claim& claim,
            Precision precision) {
  if (unit_of(precision) <= unit_of(claim.precision)) return false;
  recipe.scoring.rounding.*step = precision;
  return true;
}

template <Precision RoundingRecipe::*step, Precision precision>
bool make(Recipe& recipe, const Claim& claim, double) {
  return rounds(step, recipe, claim, precision);
}

template <Precision precision>
bool round_inputs(Recipe& recipe, const Claim& claim, double) {
  return rounds(&RoundingRecipe::query_key, recipe, claim, precision) &&
         rounds(&RoundingRecipe::value, recipe, claim, precision);
}

/// What goes into the two products: all but scores, softmax and sums is in the coarse type.
template <Precision precision>
bool round_factors(Recipe& recipe, const Claim& claim, double) {
  return round_inputs<precision>(recipe, claim, 0) &&
         rounds(&RoundingRecipe::weights, recipe, claim, precision);
}

using R = RoundingRecipe;
constexpr auto rounding = MistakeKind::rounding;
constexpr std::string_view operands_here = "the type that query and key are converted to.";
constexpr std::string_view scores_here =
    "the type that the scores are stored in before the softmax.";
constexpr std::string_view weights_here =
    "the type that the weights are stored in after the softmax.";
constexpr std::string_view mixed_here =
    "autocast, or mixed precision, that is on where it should not be.";
constexpr std::string_view values_here = "the type that value is converted to.";

constexpr std::array mistakes{
    Mistake{.name = "num.scores_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The scores are rounded to bf16 before the softmax.",
            .look_for = scores_here,
            .make = make<&R::biased, Precision::bf16>},
    Mistake{.name = "num.scores_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The scores are rounded to f16 before the softmax.",
            .look_for = scores_here,
            .make = make<&R::biased, Precision::f16>},
    Mistake{.name = "num.dot_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query·key is rounded to bf16 before the scale.",
            .look_for = scores_here,
            .make = make<&R::dot, Precision::bf16>},
    Mistake{.name = "num.dot_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query·key is rounded to f16 before the scale.",
            .look_for = scores_here,
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.rounding.dot = Precision::f16;
                  return claim.has_query_and_key() && fits_f16(claim);
                }},
    Mistake{.name = "num.dot_f16_clipped",
            .axis = Axis::rounding,
            .what = "query·key leaves the range of f16 before the scale, and is cut at ±65504.",
            .look_for = "scale query before the product, or sum in a wider type.",
            .seen_in = "pytorch/pytorch#119131, Dao-AILab/flash-attention#49",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.rounding.dot = Precision::f16;
                  recipe.scoring.rounding.dot_clipped = true;
                  return claim.has_query_and_key() && !fits_f16(claim);
                }},
    Mistake{.name = "num.dot_f16_overflow",
            .axis = Axis::rounding,
            .what = "query·key leaves the range of f16 before the scale: infinite scores, and NaN "
                    "from ∞ − ∞.",
            .look_for = "scale query before the product, or sum in a wider type.",
            .seen_in = "pytorch/pytorch#119131, ultralytics/ultralytics#24990, "
                       "Dao-AILab/flash-attention#49, mlc-ai/mlc-llm#1638",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.rounding.dot = Precision::f16;
                  return claim.has_query_and_key() && !fits_f16(claim);
                }},
    Mistake{.name = "num.inputs_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query and key are rounded to bf16.",
            .look_for = operands_here,
            .make = make<&R::query_key, Precision::bf16>},
    Mistake{.name = "num.inputs_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query and key are rounded to f16.",
            .look_for = operands_here,
            .make = make<&R::query_key, Precision::f16>},
    Mistake{.name = "num.inputs_tf32",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query and key are rounded to tf32 in the product.",
            .look_for = "the framework's switch for tf32 matrix products.",
            .make = make<&R::query_key, Precision::tf32>},
    Mistake{.name = "num.output_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The output is rounded to bf16.",
            .look_for = "the type that the output was stored in before it was dumped.",
            .make = make<&R::output, Precision::bf16>},
    Mistake{.name = "num.output_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The output is rounded to f16.",
            .look_for = "the type that the output was stored in before it was dumped.",
            .make = make<&R::output, Precision::f16>},
    Mistake{.name = "num.probs_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The weights are rounded to bf16.",
            .look_for = weights_here,
            .seen_in = "huggingface/diffusers#3483, tinygrad/tinygrad#12280",
            .make = make<&R::weights, Precision::bf16>},
    Mistake{.name = "num.probs_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The weights are rounded to f16.",
            .look_for = weights_here,
            .make = make<&R::weights, Precision::f16>},
    Mistake{.name = "num.scaled_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The scores are rounded to bf16 after the scale, before softcap and bias.",
            .look_for = scores_here,
            .seen_in = "huggingface/diffusers#3483, tinygrad/tinygrad#12280",
            .make = make<&R::scaled, Precision::bf16>},
    Mistake{.name = "num.scaled_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "The scores are rounded to f16 after the scale, before softcap and bias.",
            .look_for = scores_here,
            .make = make<&R::scaled, Precision::f16>},
    Mistake{.name = "num.all_inputs_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query, key and value are rounded to bf16; the rest is not.",
            .look_for = mixed_here,
            .make = round_inputs<Precision::bf16>},
    Mistake{.name = "num.all_inputs_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query, key and value are rounded to f16; the rest is not.",
            .look_for = mixed_here,
            .make = round_inputs<Precision::f16>},
    Mistake{.name = "num.all_inputs_tf32",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query, key and value are rounded to tf32; the rest is not.",
            .look_for = mixed_here,
            .make = round_inputs<Precision::tf32>},
    Mistake{.name = "num.mixed_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query, key, value and weights are rounded to bf16; scores and sums are not.",
            .look_for = mixed_here,
            .make = round_factors<Precision::bf16>},
    Mistake{.name = "num.mixed_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "query, key, value and weights are rounded to f16; scores and sums are not.",
            .look_for = mixed_here,
            .make = round_factors<Precision::f16>},
    Mistake{.name = "num.values_bf16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "value is rounded to bf16.",
            .look_for = values_here,
            .make = make<&R::value, Precision::bf16>},
    Mistake{.name = "num.values_f16",
            .axis = Axis::rounding,
            .kind = rounding,
            .what = "value is rounded to f16.",
            .look_for = values_here,
            .make = make<&R::value, Precision::f16>},
};

}  // namespace

std::span<const Mistake> rounding_mistakes() { return mistakes; }

}  // namespace attest::check
