// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>

#include "attest/check/gradients/gradient_mistakes.h"

namespace attest::check::gradients {
namespace {

using Recipe = GradientRecipe;

bool multiply(Recipe& r, double factor) {
  for (ResultRecipe& result : r.results) result.factor *= factor;
  return factor != 1;
}
double extent(const Claim& claim, std::size_t axis) {
  return static_cast<double>(claim.call.query.extent(axis));
}
double width(const Claim& claim) { return static_cast<double>(claim.call.value.extent(3)); }
bool same_size(const Claim& claim) { return claim.call.query.shape() == claim.call.key.shape(); }
bool lay_out(Recipe& r, const Claim& claim, Layout layout, bool query, bool keys) {
  if (query) r.results[0].layout = layout;
  if (keys) r.results[1].layout = r.results[2].layout = layout;
  return claim.call.query.extent(1) > 1 && (query || claim.call.key.extent(1) > 1);
}
bool turn(Recipe& r, const Claim& claim, Turn query, Turn key) {
  r.results[0].turn = query;
  r.results[1].turn = key;
  return claim.rope.has_value();
}
bool coarser(const Claim& claim, DType type) {
  return unit_of(claim.precision) < (type == DType::bf16 ? 0x1p-8 : 0x1p-11);
}

const GradientMistake table[] = {
    {{.name = "gradient.sign_flipped",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has every gradient with the wrong sign",
      .look_for = "whether the loss or its negative is differentiated",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) { return multiply(r, -1); }},
    {{.name = "gradient.doubled",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has every gradient twice",
      .look_for = "gradients that are added to an earlier pass (not set to zero), or d_output "
                  "that is doubled",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) { return multiply(r, 2); }},
    {{.name = "gradient.halved",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has half of every gradient",
      .look_for = "a factor of 1/2 in the loss",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) { return multiply(r, 0.5); }},
    {{.name = "gradient.batch_mean",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "divides every gradient by the batch",
      .look_for = "a mean over the batch where d_output is that of a sum",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return multiply(r, 1 / extent(claim, 0)); }},
    {{.name = "gradient.query_mean",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "divides every gradient by the number of tokens",
      .look_for = "a mean over batch and queries where d_output is that of a sum",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return multiply(r, 1 / (extent(claim, 0) * extent(claim, 2)));
     }},
    {{.name = "gradient.mean_loss",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "divides every gradient by the number of outputs",
      .look_for = "a mean over all outputs where d_output is that of a sum",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return multiply(r,
                       1 / (extent(claim, 0) * extent(claim, 1) * extent(claim, 2) * width(claim)));
     }},
    {{.name = "gradient.zero",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves gradients zero",
      .look_for = "gradients that are never written, or of tensors cut off from the graph",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       for (ResultRecipe& result : r.results) result.factor = 0;
       return true;
     }},
    {{.name = "gradient.other_factor",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has gradients multiplied by a number that no other mistake gives",
      .look_for = "a factor in the loss, or a scale for mixed precision that is not divided away",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double value) { return value != 0 && multiply(r, value); }},
    {{.name = "gradient.batches_pile_up",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "adds the gradients of one batch to those of the next",
      .look_for = "the accumulator is set to zero for every batch",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       for (ResultRecipe& result : r.results) result.batches_pile_up = true;
       return extent(claim, 0) > 1;
     }},
    {{.name = "gradient.d_query_d_key_swapped",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives d_key for d_query and d_query for d_key",
      .look_for = "the order of what the backward pass returns",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[0].taken_from = 1;
       r.results[1].taken_from = 0;
       return same_size(claim);
     }},
    {{.name = "gradient.d_key_d_value_swapped",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives d_value for d_key and d_key for d_value",
      .look_for = "the order of what the backward pass returns; Keras has query, value, key",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[1].taken_from = 2;
       r.results[2].taken_from = 1;
       return claim.call.key.shape() == claim.call.value.shape();
     }},
    {{.name = "gradient.d_query_d_value_swapped",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives d_value for d_query and d_query for d_value",
      .look_for = "the order of what the backward pass returns",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[0].taken_from = 2;
       r.results[2].taken_from = 0;
       return same_size(claim) && claim.call.query.shape() == claim.call.value.shape();
     }},
    {{.name = "gradient.heads_reversed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has the gradients of the heads in reverse order",
      .look_for = "the index of the head in the store",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::heads_reversed, true, true);
     }},
    {{.name = "gradient.heads_reversed_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has d_query of the heads in reverse order",
      .look_for = "the index of the head in the store",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::heads_reversed, true, false);
     }},
    {{.name = "gradient.heads_reversed_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has d_key and d_value of the heads in reverse order",
      .look_for = "the index of the head in the store",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::heads_reversed, false, true);
     }},
    {{.name = "gradient.layout_bthd",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "stores gradients as [B, T, H, D], where they are read as [B, H, T, D]",
      .look_for = "a reshape where a transpose is needed",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::queries_before_heads, true, true);
     }},
    {{.name = "gradient.layout_bthd_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "stores d_query as [B, T, H, D], where it is read as [B, H, T, D]",
      .look_for = "a reshape where a transpose is needed",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::queries_before_heads, true, false);
     }},
    {{.name = "gradient.layout_bthd_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "stores d_key and d_value as [B, S, G, D], where they are read as [B, G, S, D]",
      .look_for = "a reshape where a transpose is needed",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return lay_out(r, claim, Layout::queries_before_heads, false, true);
     }},
    {{.name = "gradient.rope_not_turned_back",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives the gradients of rotated query and key",
      .look_for = "the backward pass of RoPE: turn by the negative angle",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return turn(r, claim, Turn::none, Turn::none); }},
    {{.name = "gradient.rope_not_turned_back_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives the gradient of the rotated query",
      .look_for = "the backward pass of RoPE for the query",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return turn(r, claim, Turn::none, Turn::back); }},
    {{.name = "gradient.rope_not_turned_back_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives the gradient of the rotated key",
      .look_for = "the backward pass of RoPE for the key",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return turn(r, claim, Turn::back, Turn::none); }},
    {{.name = "gradient.rope_turned_forward",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "turns the gradients of query and key by the angle, not by its negative",
      .look_for = "-sin for sin in the backward pass of RoPE",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return turn(r, claim, Turn::forward, Turn::forward);
     }},
    {{.name = "gradient.rope_turned_forward_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "turns the gradient of the query by the angle, not by its negative",
      .look_for = "-sin for sin in the backward pass of RoPE",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return turn(r, claim, Turn::forward, Turn::back);
     }},
    {{.name = "gradient.rope_turned_forward_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "turns the gradient of the key by the angle, not by its negative",
      .look_for = "-sin for sin in the backward pass of RoPE",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return turn(r, claim, Turn::back, Turn::forward);
     }},
    {{.name = "gradient.stored_as_bf16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "stores gradients as bf16",
      .look_for = "the type of the buffer that gradients are written to",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       for (ResultRecipe& result : r.results) result.rounded = DType::bf16;
       return coarser(claim, DType::bf16);
     }},
    {{.name = "gradient.weights_as_bf16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds the weights to bf16 in the backward pass",
      .look_for = "the type of the weights that enter the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.weights_rounded = DType::bf16;
       return coarser(claim, DType::bf16);
     }},
    {{.name = "gradient.d_scores_as_bf16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds d_scores to bf16",
      .look_for = "the type of d_scores that enters the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.d_scores_rounded = DType::bf16;
       return coarser(claim, DType::bf16);
     }},
    {{.name = "gradient.weights_and_d_scores_as_bf16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds the weights and d_scores to bf16 in the backward pass",
      .look_for = "the type of what enters the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.weights_rounded = r.d_scores_rounded = DType::bf16;
       return coarser(claim, DType::bf16);
     }},
    {{.name = "gradient.stored_as_f16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "stores gradients as f16",
      .look_for = "the type of the buffer that gradients are written to",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       for (ResultRecipe& result : r.results) result.rounded = DType::f16;
       return coarser(claim, DType::f16);
     }},
    {{.name = "gradient.weights_as_f16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds the weights to f16 in the backward pass",
      .look_for = "the type of the weights that enter the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.weights_rounded = DType::f16;
       return coarser(claim, DType::f16);
     }},
    {{.name = "gradient.d_scores_as_f16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds d_scores to f16",
      .look_for = "the type of d_scores that enters the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.d_scores_rounded = DType::f16;
       return coarser(claim, DType::f16);
     }},
    {{.name = "gradient.weights_and_d_scores_as_f16",
      .axis = Axis::gradient,
      .kind = MistakeKind::rounding,
      .what = "rounds the weights and d_scores to f16 in the backward pass",
      .look_for = "the type of what enters the products",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.weights_rounded = r.d_scores_rounded = DType::f16;
       return coarser(claim, DType::f16);
     }},
};

}  // namespace

std::span<const GradientMistake> result_mistakes() { return table; }

}  // namespace attest::check::gradients
