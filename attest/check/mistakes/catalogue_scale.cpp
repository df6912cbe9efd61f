// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array padded_widths{8.0, 16.0, 32.0, 64.0, 128.0, 256.0};
constexpr std::array constants{0.5, 0.25, 0.2, 0.125, 0.1, 0.0625};

double root(std::int64_t number) { return std::sqrt(static_cast<double>(number)); }

/// Another factor than the claim's.
bool with_scale(Recipe& recipe, const Claim& claim, double scale) {
  const auto claimed = claimed_scale(claim);
  if (claimed && std::fabs(*claimed - scale) <= 1e-12 * std::fabs(scale)) return false;
  recipe.scoring.scale = scale;
  return true;
}

/// A function of the claim's factor.
template <class F>
bool from_claimed(Recipe& recipe, const Claim& claim, F&& f) {
  const auto claimed = claimed_scale(claim);
  return claimed && with_scale(recipe, claim, f(*claimed));
}

std::int64_t padded(std::int64_t width, double value) {
  const std::int64_t to = whole(value);
  return (width + to - 1) / to * to;
}

bool padded_head_dim(Recipe& recipe, const Claim& claim, double value) {
  const std::int64_t width = claim.shape.D;
  if (width == 0 || padded(width, value) == width) return false;
  for (const double smaller : padded_widths) {
    if (smaller < value && padded(width, smaller) == padded(width, value)) return false;
  }
  return with_scale(recipe, claim, 1 / root(padded(width, value)));
}

constexpr std::array mistakes{
    Mistake{.name = "scale.after_softmax",
            .axis = Axis::scale,
            .what =
                "The scores go into the softmax unscaled, and the weights are multiplied by the "
                "scale afterwards.",
            .look_for = "the order of softmax and division by √D: the division belongs inside.",
            .seen_in = "lucidrains/vit-pytorch#65",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const auto claimed = claimed_scale(claim);
                  if (!claimed || *claimed == 1) return false;
                  recipe.scoring.scale = 1;
                  recipe.scoring.mix.weight_factor *= *claimed;
                  return true;
                }},
    Mistake{.name = "scale.default_for_given",
            .axis = Axis::scale,
            .what = "The scores are multiplied by 1/√D, although another scale is given.",
            .look_for = "a scale argument that is accepted and never handed to the kernel.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!claim.call.scale || claim.shape.D == 0) return false;
                  return with_scale(recipe, claim, 1 / root(claim.shape.D));
                }},
    Mistake{
        .name = "scale.half",
        .axis = Axis::scale,
        .what = "Only one of query and key is multiplied by the root of the scale: the scores get "
                "1/D^(1/4).",
        .look_for = "query and key each scaled by √scale, with one of the two lines missing.",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              return from_claimed(recipe, claim, [](double c) { return std::sqrt(std::fabs(c)); });
            }},
    Mistake{
        .name = "scale.multiplied",
        .axis = Axis::scale,
        .what = "The scores are multiplied by √D instead of divided by it.",
        .look_for = "`* sqrt(head_dim)` or `/ scale` where the scale is already 1/√D.",
        .seen_in = "huggingface/pytorch-image-models#1839",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return from_claimed(recipe, claim, [](double c) { return 1 / c; }); }},
    Mistake{.name = "scale.none",
            .axis = Axis::scale,
            .what = "The scores are not scaled at all.",
            .look_for = "the softmax of query·keyᵀ without a division by √D; a kernel whose scale "
                        "argument defaults to 1.",
            .seen_in =
                "mlc-ai/mlc-llm#3426, ggml-org/llama.cpp#14892, PAIR-code/tiny-transformers#71, "
                "delzac/cntkx#10",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_scale(recipe, claim, 1); }},
    Mistake{
        .name = "scale.other_constant",
        .axis = Axis::scale,
        .what = "The scores are multiplied by a constant that does not come from the head size.",
        .look_for = "a literal scale, or one copied from a model with another head size.",
        .seen_in = "ggml-org/llama.cpp#8444, #13951, ollama/ollama#13893, BobMcDear/attorch#14",
        .values = constants,
        .make = [](Recipe& recipe, const Claim& claim,
                   double value) { return with_scale(recipe, claim, value); }},
    Mistake{.name = "scale.padded_head_dim",
            .axis = Axis::scale,
            .what = "The scale is 1/√D of a head size padded to a multiple of the kernel's width.",
            .look_for = "the scale computed after query and key were padded.",
            .seen_in = "bytedance-iaas/sglang#485, intel/ipex-llm#12619",
            .values = padded_widths,
            .make = padded_head_dim},
    Mistake{.name = "scale.root_rounded_down",
            .axis = Axis::scale,
            .what = "√D is cut to a whole number before the division.",
            .look_for = "an integer square root, or `int(head_dim ** 0.5)`.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.D == 0) return false;
                  return with_scale(recipe, claim, 1 / std::floor(root(claim.shape.D)));
                }},
    Mistake{
        .name = "scale.sign_flipped",
        .axis = Axis::scale,
        .what = "The scores have the wrong sign.",
        .look_for = "a negative scale, or distances used where similarities belong.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return from_claimed(recipe, claim, [](double c) { return -c; }); }},
    Mistake{.name = "scale.sqrt_d_model",
            .axis = Axis::scale,
            .what = "The scale is 1/√(H·D), from the width of all heads together.",
            .look_for = "`embed_dim ** -0.5` where `head_dim ** -0.5` is meant.",
            .seen_in = "karpathy/ng-video-lecture#6, Graylab/DL4Proteins-notebooks#12, "
                       "juho-lee/set_transformer#18",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.D == 0 || claim.shape.H <= 1) return false;
                  return with_scale(recipe, claim, 1 / root(claim.shape.H * claim.shape.D));
                }},
    Mistake{.name = "scale.sqrt_group_width",
            .axis = Axis::scale,
            .what = "The scale is 1/√(H·D/G): the model's width divided by the number of key/value "
                    "heads.",
            .look_for = "`hidden_size / num_kv_heads` taken for the head size.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const lab::AttentionShape& s = claim.shape;
                  if (s.D == 0 || s.G <= 1 || s.G == s.H) return false;
                  return with_scale(recipe, claim, 1 / root(s.H / s.G * s.D));
                }},
    Mistake{.name = "scale.sqrt_half_width",
            .axis = Axis::scale,
            .what = "The scale is 1/√(D/2).",
            .look_for = "the number of rotated pairs taken for the head size.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.D < 2 || claim.shape.D % 2 != 0) return false;
                  return with_scale(recipe, claim, 1 / root(claim.shape.D / 2));
                }},
    Mistake{.name = "scale.sqrt_heads",
            .axis = Axis::scale,
            .what = "The scale is 1/√H, from the number of heads.",
            .look_for = "`num_heads` and `head_dim` exchanged in the scale.",
            .seen_in = "tenstorrent/tt-metal#56789",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.H <= 1) return false;
                  return with_scale(recipe, claim, 1 / root(claim.shape.H));
                }},
    Mistake{
        .name = "scale.sqrt_keys",
        .axis = Axis::scale,
        .what = "The scale is 1/√S, from the number of keys.",
        .look_for = "the size of the wrong axis: `scores.size(-1)` is S, `query.size(-1)` is D.",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              if (claim.shape.S <= 1) return false;
              return with_scale(recipe, claim, 1 / root(claim.shape.S));
            }},
    Mistake{.name = "scale.sqrt_value_width",
            .axis = Axis::scale,
            .what = "The scale is 1/√E, from the width of value.",
            .look_for = "the head size taken from value, which is wider or narrower than query.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.E == 0 || claim.shape.E == claim.shape.D) return false;
                  return with_scale(recipe, claim, 1 / root(claim.shape.E));
                }},
    Mistake{
        .name = "scale.twice",
        .axis = Axis::scale,
        .what = "The scale is applied twice: with 1/√D the scores get 1/D.",
        .look_for = "query scaled before a kernel that scales again, or `/ head_dim` without the "
                    "root.",
        .seen_in = "huggingface/transformers#38290",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return from_claimed(recipe, claim, [](double c) { return c * c; }); }},
};

}  // namespace

std::span<const Mistake> scale_mistakes() { return mistakes; }

}  // namespace attest::check
