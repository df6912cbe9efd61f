// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>

#include "attest/check/gradients/gradient_mistakes.h"

namespace attest::check::gradients {
namespace {

using Recipe = GradientRecipe;

bool has_dropout(const Claim& claim) { return claim.call.dropout.rate > 0; }
bool has_mask(const Claim& claim) {
  const Mask& mask = claim.call.mask;
  return mask.future_hidden || mask.window.left || mask.window.right || !mask.key_lengths.empty() ||
         !mask.packing.query_starts.empty() || !mask.documents.query.empty() || claim.call.visible;
}
bool forget(Recipe& r, unsigned rules) {
  r.score_forgets = r.value_forgets = rules;
  return true;
}
bool unpacked_causal(const Claim& claim) {
  return claim.call.mask.future_hidden && claim.call.mask.packing.query_starts.empty();
}
bool may_be_empty(const Claim& claim) {
  return claim.call.empty_row != EmptyRow::error && (has_mask(claim) || claim.call.bias);
}

const GradientMistake table[] = {
    {{.name = "gradient.mask_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the weights again without the mask, with the log_sum_exp of the "
              "forward pass: hidden keys get gradients",
      .look_for = "every block of the backward pass hides what the forward pass hid",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, every_rule);
       return has_mask(claim);
     }},
    {{.name = "gradient.mask_not_reused_rows_term_too",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the weights again without the mask, and the rows term from them",
      .look_for = "every block of the backward pass hides what the forward pass hid",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, every_rule);
       r.rows = RowsTerm::again;
       return has_mask(claim);
     }},
    {{.name = "gradient.unmasked_softmax",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "differentiates attention without its mask",
      .look_for = "the mask in the backward pass: the softmax has it, the gradient has not",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, every_rule);
       r.score_weights = r.value_weights = WeightsBack::unmasked;
       r.rows = RowsTerm::again;
       return has_mask(claim);
     }},
    {{.name = "gradient.mask_not_reused_in_d_scores",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "forgets the mask where it makes d_scores, not where it makes d_value",
      .look_for = "the weights that multiply dP - delta are those of the forward pass",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_forgets = every_rule;
       return has_mask(claim);
     }},
    {{.name = "gradient.mask_not_reused_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "forgets the mask where it makes d_value",
      .look_for = "dV = P^T dO with the weights that multiplied the values",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.value_forgets = every_rule;
       return has_mask(claim);
     }},
    {{.name = "gradient.causal_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives gradients to future keys: that part of the mask is missing in the "
              "backward pass",
      .look_for = "all parts of the mask in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, by_future);
       return claim.call.mask.future_hidden;
     }},
    {{.name = "gradient.window_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives gradients to keys outside the window: that part of the mask is missing "
              "in the backward pass",
      .look_for = "all parts of the mask in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, by_window);
       return claim.call.mask.window.left || claim.call.mask.window.right;
     }},
    {{.name = "gradient.lengths_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives gradients to keys beyond the length: that part of the mask is missing in"
              " the backward pass",
      .look_for = "all parts of the mask in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, by_length);
       return !claim.call.mask.key_lengths.empty();
     }},
    {{.name = "gradient.documents_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives gradients to keys of other documents: that part of the mask is missing "
              "in the backward pass",
      .look_for = "all parts of the mask in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, by_document);
       return !claim.call.mask.packing.query_starts.empty() ||
              !claim.call.mask.documents.query.empty();
     }},
    {{.name = "gradient.allow_mask_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives gradients to keys that the mask hides: that part of the mask is missing "
              "in the backward pass",
      .look_for = "all parts of the mask in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       forget(r, by_mask);
       return claim.call.visible.has_value();
     }},
    {{.name = "gradient.causal_top_left",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "hides the future from the upper left corner in the backward pass",
      .look_for = "the same corner in both passes, where T is not S",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.future_offset = 0;
       return unpacked_causal(claim) && claim.call.query.extent(2) != claim.call.key.extent(2);
     }},
    {{.name = "gradient.causal_bottom_right",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "hides the future from the lower right corner in the backward pass",
      .look_for = "the same corner in both passes, where T is not S",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.future_offset = claim.call.key.extent(2) - claim.call.query.extent(2);
       return unpacked_causal(claim) && r.future_offset != 0;
     }},
    {{.name = "gradient.causal_strict",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "hides a query's own position too in the backward pass",
      .look_for = "j > i hides, j = i does not",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.future_slack = -1;
       return claim.call.mask.future_hidden;
     }},
    {{.name = "gradient.causal_one_future",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "shows every query one key of the future in the backward pass",
      .look_for = "j > i hides, not j > i + 1",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.future_slack = 1;
       return claim.call.mask.future_hidden;
     }},
    {{.name = "gradient.empty_rows_nan",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "makes NaN of a query that sees no key, and that reaches every key",
      .look_for = "exp(-inf - -inf): a row without a visible key is zero in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.empty = EmptyBack::nan_everywhere;
       return may_be_empty(claim);
     }},
    {{.name = "gradient.empty_rows_nan_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "makes NaN of d_query where a query sees no key",
      .look_for = "a row without a visible key has no gradient",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.empty = EmptyBack::nan_query;
       return may_be_empty(claim);
     }},
    {{.name = "gradient.empty_rows_uniform_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives every value its even share of the gradient of a query that sees no key",
      .look_for = "a finite fill makes an even softmax of a hidden row: the fill passes nothing "
                  "to the scores, but the values get theirs",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.empty = EmptyBack::uniform_values;
       return may_be_empty(claim);
     }},
    {{.name = "gradient.empty_rows_uniform",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "spreads the gradient of a query that sees no key over all keys",
      .look_for = "a finite fill makes an even softmax of a hidden row; its gradient is then not "
                  "zero",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.empty = EmptyBack::uniform;
       return may_be_empty(claim);
     }},
    {{.name = "gradient.dropout_not_reused",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves dropout out of the backward pass, but for the rows term",
      .look_for = "the same dropout mask in both passes: same seed, same offsets",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::none;
       r.value_dropout = DropoutBack::none;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_not_reused_rows_term_too",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves dropout out of the backward pass",
      .look_for = "the same dropout mask in both passes: same seed, same offsets",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::none;
       r.value_dropout = DropoutBack::none;
       r.rows = RowsTerm::before_dropout;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_not_reused_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes d_value with the weights before dropout",
      .look_for = "dV = dropout(P)^T dO",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::right;
       r.value_dropout = DropoutBack::none;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_not_reused_in_d_scores",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not put dropout on d_weights, but for the rows term",
      .look_for = "dP = dropout(dO V^T), with the mask of the forward pass",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::none;
       r.value_dropout = DropoutBack::right;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_not_reused_in_d_weights",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not put dropout on d_weights",
      .look_for = "dP = dropout(dO V^T), with the mask of the forward pass",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::none;
       r.value_dropout = DropoutBack::right;
       r.rows = RowsTerm::before_dropout;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_missing",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves 1/(1 - rate) out of the backward pass, but for the rows term",
      .look_for = "kept weights and their gradients are both divided by 1 - rate",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::factor_missing;
       r.value_dropout = DropoutBack::factor_missing;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_missing_rows_term_too",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves 1/(1 - rate) out of the backward pass",
      .look_for = "kept weights and their gradients are both divided by 1 - rate",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::factor_missing;
       r.value_dropout = DropoutBack::factor_missing;
       r.rows = RowsTerm::without_dropout_factor;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_missing_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves 1/(1 - rate) out of d_value",
      .look_for = "kept weights are divided by 1 - rate",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::right;
       r.value_dropout = DropoutBack::factor_missing;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_missing_in_d_scores",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves 1/(1 - rate) out of d_weights, but not out of the rows term",
      .look_for = "gradients of kept weights are divided by 1 - rate",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::factor_missing;
       r.value_dropout = DropoutBack::right;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_twice",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies by 1/(1 - rate) twice, but for the rows term",
      .look_for = "kept weights are divided by 1 - rate once",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::factor_twice;
       r.value_dropout = DropoutBack::factor_twice;
       return has_dropout(claim);
     }},
    {{.name = "gradient.dropout_factor_twice_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_value by 1/(1 - rate) twice",
      .look_for = "kept weights are divided by 1 - rate once",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_dropout = DropoutBack::right;
       r.value_dropout = DropoutBack::factor_twice;
       return has_dropout(claim);
     }},
};

}  // namespace

std::span<const GradientMistake> forget_mistakes() { return table; }

}  // namespace attest::check::gradients
