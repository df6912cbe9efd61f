// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array blocks{2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0};
constexpr std::array fills{-10.0, -100.0, -1e4, -65504.0, -1e9, -1e30, -3.4028234663852886e38};
constexpr std::array shifts{-4.0, -3.0, -2.0, 2.0, 3.0, 4.0};
constexpr std::array steps{-1.0, 1.0};

bool shifted_by(Recipe& recipe, const Claim& claim, std::int64_t shift) {
  if (!is_causal(claim)) return false;
  recipe.scoring.sight.causal_shift = shift;
  return true;
}

bool at_corner(Recipe& recipe, const Claim& claim, Corner corner) {
  if (!is_causal(claim)) return false;
  const std::int64_t offset = corner == Corner::top_left ? 0 : claim.shape.S - claim.shape.T;
  if (!stands_elsewhere(claim, offset) && !has_lengths(claim)) return false;
  recipe.scoring.sight.corner = corner;
  return true;
}

bool opened(Recipe& recipe, const Claim& claim, OpenRows rows) {
  if (!is_causal(claim)) return false;
  recipe.scoring.sight.open_rows = rows;
  return true;
}

bool hidden_by(Recipe& recipe, const Claim& claim, HideBy by, double number = 0,
               Precision sum = Precision::f64) {
  if (!is_causal(claim)) return false;
  recipe.scoring.hide.positions = {.by = by, .number = number, .sum = sum};
  return true;
}

bool added(Recipe& recipe, const Claim& claim, Corner corner) {
  if (is_causal(claim) || claim.shape.T <= 1) return false;
  if (corner == Corner::bottom_right && is_square(claim)) return false;
  recipe.scoring.sight.causal = true;
  recipe.scoring.sight.corner = corner;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "causal.added_bottom_right",
            .axis = Axis::causal,
            .what = "Later keys are hidden, aligned to the last key, which the claim does not say.",
            .look_for = "a causal flag that is on by default.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return added(recipe, claim, Corner::bottom_right); }},
    Mistake{.name = "causal.added_top_left",
            .axis = Axis::causal,
            .what = "Keys after the query are hidden, which the claim does not say.",
            .look_for = "a causal flag that is on by default.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return added(recipe, claim, Corner::top_left); }},
    Mistake{
        .name = "causal.after_softmax_no_renorm",
        .axis = Axis::causal,
        .what = "Weights of later keys are set to 0 after the softmax: rows sum to less than 1.",
        .look_for = "the causal mask multiplied into the weights.",
        .seen_in = "lucidrains/memory-compressed-attention#2",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return hidden_by(recipe, claim, HideBy::after_softmax); }},
    Mistake{.name = "causal.after_softmax_renorm",
            .axis = Axis::causal,
            .kind = MistakeKind::harmless,
            .what = "Weights of later keys are set to 0 after the softmax, and rows divided by "
                    "their sum: the same numbers.",
            .look_for = "nothing; but NaN in a hidden key spreads.",
            .seen_in = "abisee/pointer-generator#88",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return hidden_by(recipe, claim, HideBy::after_softmax_renormalised);
                }},
    Mistake{.name = "causal.block",
            .axis = Axis::causal,
            .what = "A query sees to the end of its block: the mask is applied to whole blocks.",
            .look_for =
                "a tiled kernel that skips blocks beyond the diagonal, and does not mask the "
                "block on it.",
            .values = blocks,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!is_causal(claim) || whole(value) >= 2 * claim.shape.S) return false;
                  recipe.scoring.sight.causal_block = whole(value);
                  return true;
                }},
    Mistake{
        .name = "causal.bool_added_as_float",
        .axis = Axis::causal,
        .what = "The causal mask of 0 and 1 is added to the scores: later keys are only weaker.",
        .look_for = "`scores + tril`, where the mask should choose between score and −∞.",
        .seen_in = "pytorch/pytorch#103963",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return hidden_by(recipe, claim, HideBy::adding_visible, 1); }},
    Mistake{
        .name = "causal.bottom_right",
        .axis = Axis::causal,
        .what = "The causal mask is aligned to the last key.",
        .look_for = "which corner the library means when there are not as many queries as keys.",
        .seen_in = "Dao-AILab/flash-attention#282, pytorch/pytorch#108108, "
                   "pytorch/executorch#21749",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return at_corner(recipe, claim, Corner::bottom_right); }},
    Mistake{
        .name = "causal.corner_of_padded_length",
        .axis = Axis::causal,
        .what = "The last query stands at the last key of the buffer, padding included.",
        .look_for = "an offset from the size of the tensor, not from each sequence's own length.",
        .seen_in = "onnx/onnx#8054, openvinotoolkit/openvino#36680",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              const bool own = claim.call.mask.corner == Corner::bottom_right;
              if (!own || !has_lengths(claim) || !counts_positions(claim)) return false;
              recipe.scoring.sight.own_length_ignored = true;
              return true;
            }},
    Mistake{.name = "causal.fill_added",
            .axis = Axis::causal,
            .what = "A large negative number is added to the scores of later keys instead of "
                    "excluding them.",
            .look_for = "the number that stands for −∞: rows that see no key become a mean of "
                        "hidden values.",
            .seen_in = "microsoft/onnxruntime#8549, pytorch/pytorch#110213",
            .values = fills,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return hidden_by(recipe, claim, HideBy::adding, value, sums_of(claim.precision));
                }},
    Mistake{
        .name = "causal.finite_fill",
        .axis = Axis::causal,
        .what = "The scores of later keys are replaced by a large negative number instead of "
                "−∞.",
        .look_for = "the number that stands for −∞: rows that see no key become the mean of "
                    "all values.",
        .seen_in = "bentrevett/pytorch-seq2seq#191, microsoft/onnxruntime#8549",
        .values = fills,
        .make = [](Recipe& recipe, const Claim& claim,
                   double value) { return hidden_by(recipe, claim, HideBy::replacing, value); }},
    Mistake{.name = "causal.first_row_open",
            .axis = Axis::causal,
            .what = "The first query sees every key.",
            .look_for = "a loop that begins at row 1, or `if i` where 0 counts as no limit.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return opened(recipe, claim, OpenRows::first); }},
    Mistake{.name = "causal.ignores_past",
            .axis = Axis::causal,
            .what = "The length of the cache is not added: new queries see the oldest keys alone.",
            .look_for = "`j <= i` where `j <= i + past` is meant.",
            .seen_in = "onnx/onnx#7297",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!is_causal(claim) || claim.past == 0) return false;
                  recipe.scoring.sight.position_shift = -claim.past;
                  return true;
                }},
    Mistake{.name = "causal.last_row_open",
            .axis = Axis::causal,
            .what = "The last query sees every key.",
            .look_for = "a special case for the last row, as in decoding one token.",
            .seen_in = "ONNX Runtime 1.30 MultiHeadAttention",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return opened(recipe, claim, OpenRows::last); }},
    Mistake{.name = "causal.last_row_open_top_left",
            .axis = Axis::causal,
            .what = "The causal mask is aligned to the first key, and the last query sees every "
                    "key.",
            .look_for = "ONNX Runtime's MultiHeadAttention with unidirectional=1 does so.",
            .seen_in = "ONNX Runtime 1.30 MultiHeadAttention",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return at_corner(recipe, claim, Corner::top_left) &&
                         opened(recipe, claim, OpenRows::last);
                }},
    Mistake{.name = "causal.missing",
            .axis = Axis::causal,
            .what = "Every query sees the keys after it too.",
            .look_for = "a causal flag that is not passed on, or a mask built and never used.",
            .seen_in = "NVIDIA/TransformerEngine#1524",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!is_causal(claim)) return false;
                  recipe.scoring.sight.causal = false;
                  return true;
                }},
    Mistake{.name = "causal.offset_batch0",
            .axis = Axis::causal,
            .what = "Every batch has the offset of batch 0.",
            .look_for = "a cache or key length read at index 0.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.offset_of_batch0 = true;
                  return counts_positions(claim) && !has_packing(claim) &&
                         stands_elsewhere(claim, claimed_offset(claim, 0));
                }},
    Mistake{.name = "causal.offset_by",
            .axis = Axis::causal,
            .what = "The causal bound is off by this many keys.",
            .look_for = "what is added to the query's index: cache length, padding, prefix.",
            .values = shifts,
            .make = [](Recipe& recipe, const Claim& claim,
                       double value) { return shifted_by(recipe, claim, whole(value)); }},
    Mistake{.name = "causal.offset_keys",
            .axis = Axis::causal,
            .what = "The number of keys is added to the query's index: everything is seen.",
            .look_for = "the offset is S where S − T is meant.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return shifted_by(recipe, claim, claim.shape.S); }},
    Mistake{.name = "causal.offset_queries",
            .axis = Axis::causal,
            .what = "The number of queries is added to the query's index once too often.",
            .look_for = "the cache length taken after the new keys were appended.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.T <= 1) return false;
                  return shifted_by(recipe, claim, claim.shape.T);
                }},
    Mistake{.name = "causal.one_future",
            .axis = Axis::causal,
            .what = "A query sees one key too many: the next.",
            .look_for = "`j <= i + 1`, or `tril(diagonal=1)`.",
            .seen_in = "RVC-Boss/GPT-SoVITS#965",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return shifted_by(recipe, claim, 1); }},
    Mistake{.name = "causal.positions_off_by",
            .axis = Axis::causal,
            .what = "The positions of all queries are off by this many, for causal, window and "
                    "ALiBi alike.",
            .look_for = "a cache length counted before or after the new token was appended.",
            .seen_in = "fla-org/flash-linear-attention#766, skyzh/tiny-llm#46",
            .values = steps,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!counts_positions(claim)) return false;
                  if (!has_window(claim) && !has_alibi(claim))
                    return false;  // as strict, one_future
                  recipe.scoring.sight.position_shift = whole(value);
                  return true;
                }},
    Mistake{.name = "causal.reversed",
            .axis = Axis::causal,
            .what = "A query sees itself and the keys after it.",
            .look_for = "`triu` in place of `tril`, or a mask where true hides read as one where "
                        "true shows.",
            .seen_in = "rasbt/LLMs-from-scratch#1061, karpathy/nanoGPT#170",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.causal_reversed = true;
                  return is_causal(claim);
                }},
    Mistake{.name = "causal.reversed_strict",
            .axis = Axis::causal,
            .what = "A query sees the keys after it alone.",
            .look_for =
                "a causal mask where true hides, `triu(diagonal=1)`, read as one where true "
                "shows.",
            .seen_in = "rasbt/LLMs-from-scratch#1061",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.causal_reversed = true;
                  return shifted_by(recipe, claim, -1);
                }},
    Mistake{.name = "causal.strict",
            .axis = Axis::causal,
            .what = "A query does not see its own key.",
            .look_for = "`j < i`, or `tril(diagonal=-1)`.",
            .seen_in = "pbloem/former#10",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return shifted_by(recipe, claim, -1); }},
    Mistake{
        .name = "causal.top_left",
        .axis = Axis::causal,
        .what = "The causal mask is aligned to the first key: `j <= i` without an offset.",
        .look_for = "which corner the library means when there are not as many queries as keys.",
        .seen_in = "onnx/onnx#8054, pytorch/executorch#21749, openvinotoolkit/openvino#36680, "
                   "Dao-AILab/flash-attention#282",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return at_corner(recipe, claim, Corner::top_left); }},
    Mistake{.name = "causal.value_zeroed",
            .axis = Axis::causal,
            .what = "Later keys take part in the softmax, and only their values are left out.",
            .look_for = "a causal mask applied to the product with value.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::zeroing_value); }},
    Mistake{.name = "causal.zero_scores",
            .axis = Axis::causal,
            .what = "The scores of later keys are multiplied by 0 instead of set to −∞.",
            .look_for = "`scores * tril` before the softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::multiplying); }},
};

}  // namespace

std::span<const Mistake> causal_mistakes() { return mistakes; }

}  // namespace attest::check
