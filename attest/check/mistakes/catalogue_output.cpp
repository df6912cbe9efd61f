// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

bool gives(Recipe& recipe, const Claim& claim, OutputForm form) {
  recipe.scoring.mix.output = form;
  return claim.has_value();
}

constexpr std::array mistakes{
    Mistake{.name = "out.is_own_value",
            .axis = Axis::output,
            .what = "Each output is the value of the query's own position: nothing is mixed.",
            .look_for = "a mask that leaves the diagonal alone, or weights that were never used.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return is_square(claim) && gives(recipe, claim, OutputForm::own_value);
                }},
    Mistake{.name = "out.is_v_of_argmax",
            .axis = Axis::output,
            .what = "Each output is the value of the key with the largest score.",
            .look_for = "argmax in place of softmax, or scores so large that one weight is 1.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.softmax.form = SoftmaxForm::argmax;
                  return claim.has_value();
                }},
    Mistake{.name = "out.query_added",
            .axis = Axis::output,
            .what = "The query is added to the output.",
            .look_for = "a residual inside the attention function.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!claim.has_query_and_key() || claim.shape.D != claim.shape.E) return false;
                  return gives(recipe, claim, OutputForm::query_added);
                }},
    Mistake{.name = "out.row_before",
            .axis = Axis::output,
            .what = "Each row holds the output of the query before it.",
            .look_for = "an index off by one where rows are written.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return claim.shape.T > 1 && gives(recipe, claim, OutputForm::row_before);
                }},
    Mistake{.name = "out.sign",
            .axis = Axis::output,
            .what = "The output has the wrong sign.",
            .look_for = "a negated value or weight.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return gives(recipe, claim, OutputForm::negated); }},
    Mistake{.name = "out.v_mean",
            .axis = Axis::output,
            .what = "All products query·key are 0: each output is the mean of the values that the "
                    "query sees, but for what bias and ALiBi add.",
            .look_for = "a query or key of zeros, a scale of 0, weights never loaded.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.scale_factor = 0;
                  return claim.has_value() && claim.has_query_and_key();
                }},
    Mistake{.name = "out.zeros",
            .axis = Axis::output,
            .what = "The output is 0 everywhere.",
            .look_for = "an output that was never written.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return gives(recipe, claim, OutputForm::zeros); }},
};

}  // namespace

std::span<const Mistake> output_mistakes() { return mistakes; }

}  // namespace attest::check
