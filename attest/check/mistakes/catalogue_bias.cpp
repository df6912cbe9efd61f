// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

bool used_as(Recipe& recipe, const Claim& claim, BiasUse use) {
  if (!claim.call.bias) return false;
  recipe.scoring.bias.use = use;
  return true;
}

/// Looked up elsewhere; `axis` is the one that must have more than one entry for it to matter.
bool looked_up(Recipe& recipe, const Claim& claim, Lookup lookup, std::size_t axis) {
  if (!claim.call.bias || claim.call.bias->extent(axis) <= 1) return false;
  recipe.scoring.bias.lookup = lookup;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "bias.after_softmax",
            .axis = Axis::bias,
            .what = "The bias is added to the weights, after the softmax.",
            .look_for = "the order of the softmax and the addition.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::after_softmax); }},
    Mistake{.name = "bias.as_bool",
            .axis = Axis::bias,
            .what = "The bias is taken for a mask: keys with a positive one may be seen.",
            .look_for = "`mask > 0`, or a float mask handed to an argument for booleans.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::as_mask); }},
    Mistake{.name = "bias.batch0",
            .axis = Axis::bias,
            .what = "Every batch gets the bias of batch 0.",
            .look_for = "a batch stride of 0, or `bias[0]`.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return looked_up(recipe, claim, Lookup::batch0, 0); }},
    Mistake{.name = "bias.head0",
            .axis = Axis::bias,
            .what = "Every head gets the bias of head 0.",
            .look_for = "a head stride of 0, or `bias[:, :1]`.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return looked_up(recipe, claim, Lookup::head0, 1); }},
    Mistake{.name = "bias.heads_for_batches",
            .axis = Axis::bias,
            .what = "The bias's first axis is read as heads instead of batches.",
            .look_for = "a bias of rank 3: [batch, T, S] and [head, T, S] look alike.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.B == 1 && claim.shape.H == 1) return false;
                  return looked_up(recipe, claim, Lookup::batch_for_head, 0) ||
                         looked_up(recipe, claim, Lookup::batch_for_head, 1);
                }},
    Mistake{.name = "bias.heads_reversed",
            .axis = Axis::bias,
            .what = "The heads' biases are taken in reverse order.",
            .look_for = "the order in which the table of biases was built.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return looked_up(recipe, claim, Lookup::heads_reversed, 1); }},
    Mistake{.name = "bias.missing",
            .axis = Axis::bias,
            .what = "The bias is not added.",
            .look_for = "a kernel that takes no bias, or a fast path that drops it.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::missing); }},
    Mistake{.name = "bias.multiplied",
            .axis = Axis::bias,
            .what = "The scores are multiplied by the bias.",
            .look_for = "`scores * bias`: that is right for a mask of 0 and 1 nowhere either.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::multiplied); }},
    Mistake{.name = "bias.nonzero_hides",
            .axis = Axis::bias,
            .what = "Keys whose bias is not 0 are hidden.",
            .look_for = "a float bias converted to a boolean mask where true hides.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::nonzero_is_hidden); }},
    Mistake{.name = "bias.nonzero_seen",
            .axis = Axis::bias,
            .what = "Keys whose bias is 0 are hidden, the others seen without it.",
            .look_for = "`bias.bool()`: 0 becomes false.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::nonzero_as_mask); }},
    Mistake{
        .name = "bias.scaled_with_scores",
        .axis = Axis::bias,
        .what = "The bias is added before the scale, and scaled with the scores.",
        .look_for = "a bias given to the product (alpha·A·B + beta·C), or `(qk + bias) * scale`.",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              const auto scale = claimed_scale(claim);
              if (scale && *scale == 1) return false;
              return used_as(recipe, claim, BiasUse::before_scale);
            }},
    Mistake{.name = "bias.shifted_left",
            .axis = Axis::bias,
            .what = "Key j gets the bias of key j + 1.",
            .look_for = "relative positions off by one.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return looked_up(recipe, claim, Lookup::one_shorter, 3); }},
    Mistake{.name = "bias.shifted_right",
            .axis = Axis::bias,
            .what = "Key j gets the bias of key j − 1.",
            .look_for = "relative positions off by one.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return looked_up(recipe, claim, Lookup::one_longer, 3); }},
    Mistake{.name = "bias.sign",
            .axis = Axis::bias,
            .what = "The bias is subtracted.",
            .look_for = "the sign of the bias.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::subtracted); }},
    Mistake{
        .name = "bias.transposed",
        .axis = Axis::bias,
        .what = "The bias is read as [key, query].",
        .look_for = "the order of the bias's last two axes; relative positions i − j and j − i.",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              if (!is_square(claim)) return false;
              return looked_up(recipe, claim, Lookup::transposed, 2) ||
                     looked_up(recipe, claim, Lookup::transposed, 3);
            }},
    Mistake{.name = "bias.twice",
            .axis = Axis::bias,
            .what = "The bias is added twice.",
            .look_for = "a bias merged into the mask, and given to the kernel too.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, BiasUse::twice); }},
};

}  // namespace

std::span<const Mistake> bias_mistakes() { return mistakes; }

}  // namespace attest::check
