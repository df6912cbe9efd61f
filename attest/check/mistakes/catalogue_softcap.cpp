// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array usual_caps{10.0, 15.0, 20.0, 30.0, 50.0, 100.0};
constexpr std::array factors{0.5, 2.0, 10.0};

bool capped_as(Recipe& recipe, const Claim& claim, CapForm form) {
  if (!claim.call.softcap) return false;
  recipe.scoring.cap.form = form;
  return true;
}
bool capped_at(Recipe& recipe, const Claim& claim, CapPlace place) {
  if (!claim.call.softcap) return false;
  recipe.scoring.cap.place = place;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "softcap.after_bias",
            .axis = Axis::softcap,
            .what = "The softcap comes after the bias, and limits it too.",
            .look_for = "the order of the two steps: scale, softcap, bias, mask.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!claim.call.bias && !has_alibi(claim)) return false;
                  return capped_at(recipe, claim, CapPlace::biased);
                }},
    Mistake{.name = "softcap.after_mask",
            .axis = Axis::softcap,
            .what = "The softcap comes after the mask: a hidden −∞ becomes −softcap, and the key "
                    "is seen.",
            .look_for = "tanh applied to scores that already hold −∞.",
            .seen_in = "onnx/onnx#7865, emmtrix/emx-onnx-cgen#731, Dao-AILab/flash-attention#1025",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!hides_anything(claim)) return false;
                  return capped_at(recipe, claim, CapPlace::masked);
                }},
    Mistake{.name = "softcap.before_scale",
            .axis = Axis::softcap,
            .what = "The softcap is applied to query·key, and the result is scaled.",
            .look_for = "the scale multiplied in after the tanh.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_at(recipe, claim, CapPlace::dot); }},
    Mistake{.name = "softcap.clip",
            .axis = Axis::softcap,
            .what = "The scores are clipped at ±softcap instead of bent by tanh.",
            .look_for = "clamp or clip in place of softcap·tanh(score/softcap).",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_as(recipe, claim, CapForm::clip); }},
    Mistake{.name = "softcap.missing",
            .axis = Axis::softcap,
            .what = "There is no softcap.",
            .look_for = "a kernel without the argument, or one that ignores it.",
            .seen_in = "Dao-AILab/flash-attention#1025",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_as(recipe, claim, CapForm::missing); }},
    Mistake{.name = "softcap.no_divide",
            .axis = Axis::softcap,
            .what = "softcap·tanh(score), without dividing the score by the softcap.",
            .look_for = "the division inside the tanh.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_as(recipe, claim, CapForm::no_divide); }},
    Mistake{.name = "softcap.no_multiply_back",
            .axis = Axis::softcap,
            .what = "tanh(score/softcap), without multiplying by the softcap again.",
            .look_for = "the multiplication after the tanh.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_as(recipe, claim, CapForm::no_multiply_back); }},
    Mistake{.name = "softcap.on_output",
            .axis = Axis::softcap,
            .what = "The softcap is applied to the output instead of the scores.",
            .look_for = "the tanh after the product with value.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return capped_at(recipe, claim, CapPlace::output); }},
    Mistake{.name = "softcap.unclaimed",
            .axis = Axis::softcap,
            .what = "The scores are softcapped, which the claim does not say.",
            .look_for = "a softcap that comes from the model's configuration (Gemma 2: 50).",
            .values = usual_caps,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.call.softcap) return false;
                  recipe.scoring.softcap = value;
                  return true;
                }},
    Mistake{.name = "softcap.wrong_value",
            .axis = Axis::softcap,
            .what = "The softcap is the claim's, times this factor.",
            .look_for = "which of the model's softcaps is used: attention and logits have two.",
            .values = factors,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!claim.call.softcap) return false;
                  recipe.scoring.softcap = value * *claim.call.softcap;
                  return true;
                }},
};

}  // namespace

std::span<const Mistake> softcap_mistakes() { return mistakes; }

}  // namespace attest::check
