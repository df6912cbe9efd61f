// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array rates{0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5};

constexpr std::array mistakes{
    Mistake{.name = "dropout.missing",
            .axis = Axis::dropout,
            .what = "No weight is dropped, although the claim has dropout.",
            .look_for = "a module in evaluation mode.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.mix.dropout_ignored = true;
                  return claim.call.dropout.rate > 0;
                }},
    Mistake{.name = "dropout.on",
            .axis = Axis::dropout,
            .what = "Dropout of this rate is on: some weights are 0 and the others multiplied by "
                    "1/(1 − rate). Which ones was found from the output.",
            .look_for = "a functional call that takes a probability, not a mode: it drops in "
                        "evaluation too.",
            .seen_in = "pytorch/pytorch#124464, suno-ai/bark#662, pytorch/torchtune#1791",
            .values = rates,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  recipe.scoring.mix.fitted_dropout = value;
                  return claim.call.dropout.rate == 0;
                }},
    Mistake{.name = "dropout.scale_only",
            .axis = Axis::dropout,
            .what = "The weights are multiplied by 1/(1 − rate), and none is dropped: rows sum to "
                    "more than 1.",
            .look_for = "the scaling of dropout applied in evaluation.",
            .seen_in = "pytorch/pytorch#124464",
            .values = rates,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  recipe.scoring.mix.weight_factor *= 1 / (1 - value);
                  return claim.call.dropout.rate == 0;
                }},
    Mistake{.name = "dropout.unscaled",
            .axis = Axis::dropout,
            .what = "Weights are dropped, and the others are not multiplied by 1/(1 − rate).",
            .look_for = "the factor 1/(1 − rate).",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.mix.dropout_unscaled = true;
                  return claim.call.dropout.rate > 0;
                }},
};

}  // namespace

std::span<const Mistake> dropout_mistakes() { return mistakes; }

}  // namespace attest::check
