// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array tiles{8.0, 16.0, 32.0, 64.0, 128.0};
constexpr std::array blocks{2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0};
constexpr std::array parts{2.0, 3.0, 4.0, 8.0};
constexpr double ln2 = 0x1.62e42fefa39efp-1;

bool in_form(Recipe& recipe, const Claim&, SoftmaxForm form) {
  recipe.scoring.softmax.form = form;
  return true;
}

bool over(Recipe& recipe, SoftmaxOver what, std::int64_t extent) {
  if (extent <= 1) return false;
  recipe.scoring.softmax.over = what;
  return true;
}

bool if_empty(Recipe& recipe, const Claim& claim, EmptyAnswer answer) {
  const EmptyRow claimed = claim.call.empty_row;
  if (!hides_anything(claim)) return false;
  if (answer == EmptyAnswer::nan && claimed == EmptyRow::nan) return false;
  if (answer == EmptyAnswer::zero && claimed != EmptyRow::nan) return false;
  recipe.scoring.hide.empty = answer;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "empty_rows.first_value",
            .axis = Axis::empty_rows,
            .what = "A query that sees no key gets the value of key 0.",
            .look_for = "an argmax of equal scores, or a mask that always opens key 0.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return if_empty(recipe, claim, EmptyAnswer::first_value); }},
    Mistake{.name = "empty_rows.nan",
            .axis = Axis::empty_rows,
            .what = "A query that sees no key gets NaN: 0/0.",
            .look_for = "rows whose mask is all false: padding, an empty window, a strict causal "
                        "mask.",
            .seen_in = "pytorch/pytorch#103963, #103749, #109517, tracel-ai/burn#4694",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return if_empty(recipe, claim, EmptyAnswer::nan); }},
    Mistake{.name = "empty_rows.uniform",
            .axis = Axis::empty_rows,
            .what = "A query that sees no key gets the mean of all values: its scores are all the "
                    "same finite fill.",
            .look_for = "a finite number for −∞: -1e9, -1e30, the smallest of the type.",
            .seen_in = "microsoft/onnxruntime#28904, onnx/onnx#8068, PaddlePaddle/PaddleOCR#18341",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return if_empty(recipe, claim, EmptyAnswer::uniform); }},
    Mistake{.name = "empty_rows.unmasked",
            .axis = Axis::empty_rows,
            .what = "A query that sees no key is computed as if it saw all.",
            .look_for = "a finite number added for −∞: the softmax takes it off again.",
            .seen_in = "ONNX Runtime 1.30 MultiHeadAttention",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return if_empty(recipe, claim, EmptyAnswer::unmasked); }},
    Mistake{.name = "empty_rows.zero",
            .axis = Axis::empty_rows,
            .what = "A query that sees no key gets 0, where the claim says NaN.",
            .look_for = "the library's version: PyTorch gives 0 since 2.5.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return if_empty(recipe, claim, EmptyAnswer::zero); }},
    Mistake{.name = "online.acc_not_rescaled",
            .axis = Axis::softmax,
            .what = "In a softmax over blocks of this many keys, the accumulated output is not "
                    "multiplied by exp(old max − new max).",
            .look_for = "the rescaling of the accumulator when the running maximum rises.",
            .seen_in = "tile-ai/tilelang#1148",
            .values = blocks,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (whole(value) >= claim.shape.S) return false;
                  recipe.scoring.softmax.unrescaled_block = whole(value);
                  return true;
                }},
    Mistake{.name = "online.max_from_zero",
            .axis = Axis::softmax,
            .what = "The running maximum starts at 0: where all scores are below −87, every "
                    "exponential vanishes.",
            .look_for = "the initial maximum: −∞, not 0.",
            .seen_in = "Dao-AILab/flash-attention#2082",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.softmax.max_not_below_zero = true;
                  return true;
                }},
    Mistake{.name = "softmax.base2",
            .axis = Axis::exponent,
            .what = "The softmax takes powers of 2 in place of powers of e: the scale lacks the "
                    "factor log2(e).",
            .look_for = "exp2 without the factor log2(e) in the scale.",
            .seen_in = "triton-lang/triton#2700",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.scale_factor *= ln2;
                  return true;
                }},
    Mistake{.name = "softmax.exp_with_log2e",
            .axis = Axis::exponent,
            .what = "The softmax takes exp of scores that carry the factor log2(e) for exp2.",
            .look_for = "exp in place of exp2, or the factor multiplied in twice.",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.scale_factor *= 1 / ln2;
                  return true;
                }},
    Mistake{.name = "softmax.base2_of_biased",
            .axis = Axis::exponent,
            .what = "The softmax takes powers of 2 of the finished scores, bias and all.",
            .look_for = "exp2 without the factor log2(e), which bias and ALiBi need too.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.softmax.exponent = ln2;
                  return claim.call.bias || has_alibi(claim) || claim.call.softcap;
                }},
    Mistake{.name = "softmax.biased_with_log2e",
            .axis = Axis::exponent,
            .what = "The softmax takes exp of finished scores that carry the factor log2(e), bias "
                    "and all.",
            .look_for = "exp in place of exp2.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.softmax.exponent = 1 / ln2;
                  return claim.call.bias || has_alibi(claim) || claim.call.softcap;
                }},
    Mistake{.name = "softmax.log",
            .axis = Axis::softmax,
            .what = "The weights are the logarithm of the softmax.",
            .look_for = "log_softmax in place of softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return in_form(recipe, claim, SoftmaxForm::log); }},
    Mistake{.name = "softmax.missing",
            .axis = Axis::softmax,
            .what = "There is no softmax: the scores themselves are the weights.",
            .look_for = "the softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return in_form(recipe, claim, SoftmaxForm::missing); }},
    Mistake{.name = "softmax.no_max_shift",
            .axis = Axis::softmax,
            .kind = MistakeKind::harmless,
            .what =
                "The maximum is not taken off before exp: the same numbers, until scores beyond "
                "88 overflow binary32.",
            .look_for = "exp of scores without the maximum subtracted.",
            .seen_in = "triton-lang/triton#230",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.softmax.no_max = true;
                  return true;
                }},
    Mistake{.name = "softmax.over_all_pairs",
            .axis = Axis::softmax,
            .what = "The softmax runs over all pairs of query and key of a head.",
            .look_for = "a softmax over the flattened scores.",
            .seen_in = "lucidrains/perceiver-pytorch#46",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return over(recipe, SoftmaxOver::pairs, claim.shape.T); }},
    Mistake{.name = "softmax.over_batch",
            .axis = Axis::softmax,
            .what = "The softmax runs over the batch.",
            .look_for = "the axis of the softmax: 0 is the batch, −1 the keys.",
            .seen_in = "PetrochukM/PyTorch-NLP#2",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.softmax.over = SoftmaxOver::batch;  // all ones if B = 1
                  return true;
                }},
    Mistake{.name = "softmax.over_heads",
            .axis = Axis::softmax,
            .what = "The softmax runs over the heads.",
            .look_for = "the axis of the softmax: 1 is the heads, −1 the keys.",
            .seen_in = "CAMMA-public/rendezvous-in-time#3",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return over(recipe, SoftmaxOver::heads, claim.shape.H); }},
    Mistake{.name = "softmax.over_queries",
            .axis = Axis::softmax,
            .what = "The softmax runs over the queries: columns sum to 1, rows do not.",
            .look_for = "the axis of the softmax: −2 is the queries, −1 the keys.",
            .seen_in = "labmlai/annotated_deep_learning_paper_implementations#282, "
                       "PetrochukM/PyTorch-NLP#2, nerdai/llms-from-scratch-rs#30",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return over(recipe, SoftmaxOver::queries, claim.shape.T); }},
    Mistake{.name = "softmax.plus_one",
            .axis = Axis::softmax,
            .what = "The denominator is 1 + the sum of exponentials, as with a sink of 0.",
            .look_for = "softmax_one, quiet attention, smooth_softmax.",
            .seen_in = "softmax1/Flash-Attention-Softmax-N",
            .make =
                [](Recipe& recipe, const Claim&, double) {
                  recipe.scoring.softmax.more_zeros = 1;
                  return true;
                }},
    Mistake{.name = "softmax.sigmoid",
            .axis = Axis::softmax,
            .what = "Each score goes through a sigmoid of its own, without a sum.",
            .look_for = "sigmoid in place of softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return in_form(recipe, claim, SoftmaxForm::sigmoid); }},
    Mistake{.name = "softmax.twice",
            .axis = Axis::softmax,
            .what = "The softmax is applied twice.",
            .look_for = "a softmax before a function that applies its own.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return in_form(recipe, claim, SoftmaxForm::twice); }},
    Mistake{.name = "softmax.unnormalised",
            .axis = Axis::softmax,
            .what = "The exponentials are not divided by their sum.",
            .look_for = "the division at the end of an online softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return in_form(recipe, claim, SoftmaxForm::unnormalised); }},
    Mistake{
        .name = "split.lse_base",
        .axis = Axis::softmax,
        .what = "The keys are split into this many parts, and merged by sums in base 2 as if "
                "they were natural.",
        .look_for = "the base of log_sum_exp: what a kernel returns and what the merge expects.",
        .seen_in = "flashinfer-ai/flashinfer#2113, #4485, sgl-project/sglang#35045, #40903",
        .values = parts,
        .make =
            [](Recipe& recipe, const Claim& claim, double value) {
              if (whole(value) > claim.shape.S) return false;
              recipe.scoring.softmax.averaged_parts = whole(value);
              recipe.scoring.softmax.parts_merged_base2 = true;
              return true;
            }},
    Mistake{.name = "split.partials_averaged",
            .axis = Axis::softmax,
            .what = "The keys are split into this many parts, and their outputs averaged.",
            .look_for = "the merge of partial results: by log_sum_exp, not by their number.",
            .values = parts,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (whole(value) > claim.shape.S) return false;
                  recipe.scoring.softmax.averaged_parts = whole(value);
                  return true;
                }},
    Mistake{.name = "tail.zero_keys_counted",
            .axis = Axis::softmax,
            .what =
                "The keys are padded to a multiple of this, and the padding's scores of 0 stand "
                "in the denominator.",
            .look_for = "the mask of the last tile.",
            .seen_in = "NVIDIA/TensorRT-LLM#18111, hw-native-sys/simpler#72, zml/zml#563",
            .values = tiles,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  const std::int64_t width = whole(value);
                  if (claim.shape.S == 0 || claim.shape.S % width == 0) return false;
                  recipe.scoring.softmax.zeros_to_multiple = width;
                  return true;
                }},
};

}  // namespace

std::span<const Mistake> softmax_mistakes() { return mistakes; }

}  // namespace attest::check
