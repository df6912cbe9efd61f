// SPDX-License-Identifier: MIT
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array fills{-10.0, -100.0, -1e4, -65504.0, -1e9, -1e30, -3.4028234663852886e38};

/// Something that a mask argument would hold: a table, lengths, or documents as a mask.
bool masks(const Claim& claim) { return has_mask(claim) || has_documents(claim); }

bool looked_up(Recipe& recipe, Lookup lookup) {
  recipe.scoring.sight.lookup = lookup;
  return true;
}
/// Whether the mask differs along that axis of [B, H, T, S].
bool varies(const Claim& claim, std::size_t axis) {
  if (axis == 0 && claim.call.mask.key_lengths.size() > 1) return true;
  return has_table(claim) && claim.call.visible->extent(axis) > 1;
}
/// A mask of keys alone: padding.
bool is_padding(const Claim& claim) {
  return has_mask(claim) && !(has_table(claim) && claim.call.visible->extent(2) > 1);
}

bool hidden_by(Recipe& recipe, const Claim& claim, HideBy by, double number = 0,
               Precision sum = Precision::f64) {
  if (!masks(claim)) return false;
  recipe.scoring.hide.masks = {.by = by, .number = number, .sum = sum};
  return true;
}
/// Whatever hides, causal and window too.
bool all_hidden_by(Recipe& recipe, const Claim& claim, HideBy by, double number = 0,
                   Precision sum = Precision::f64) {
  if (!masks(claim) || !has_position_rule(claim)) return false;
  recipe.scoring.hide.masks = {.by = by, .number = number, .sum = sum};
  recipe.scoring.hide.positions = recipe.scoring.hide.masks;
  return true;
}

bool composed(Recipe& recipe, const Claim& claim, Compose compose) {
  if (!masks(claim) || !has_position_rule(claim)) return false;
  recipe.scoring.sight.compose = compose;
  return true;
}

void invert(SightRecipe& sight) {
  sight.mask_inverted = true;
  sight.lengths_inverted = true;
}

bool of_batch0(Recipe& recipe, const Claim& claim, double) {
  return claim.shape.B > 1 && varies(claim, 0) && looked_up(recipe, Lookup::batch0);
}
bool of_head0(Recipe& recipe, const Claim& claim, double) {
  return varies(claim, 1) && looked_up(recipe, Lookup::head0);
}
bool of_query0(Recipe& recipe, const Claim& claim, double) {
  return varies(claim, 2) && looked_up(recipe, Lookup::query0);
}
bool of_next_batch(Recipe& recipe, const Claim& claim, double) {
  return claim.shape.B > 1 && varies(claim, 0) && looked_up(recipe, Lookup::other_batch);
}
bool batch_head_order(Recipe& recipe, const Claim& claim, double) {
  return claim.shape.B > 1 && claim.shape.H > 1 && varies(claim, 0) &&
         looked_up(recipe, Lookup::tiled);
}
bool rank3_as_heads(Recipe& recipe, const Claim& claim, double) {
  return claim.shape.B > 1 && claim.shape.H > 1 && (varies(claim, 0) || varies(claim, 1)) &&
         looked_up(recipe, Lookup::batch_for_head);
}
bool rank2_as_queries(Recipe& recipe, const Claim& claim, double) {
  return claim.shape.B > 1 && claim.shape.B == claim.shape.T && is_padding(claim) &&
         varies(claim, 0) && looked_up(recipe, Lookup::query_for_batch);
}
bool as_query_mask(Recipe& recipe, const Claim& claim, double) {
  return is_padding(claim) && claim.shape.T > 1 && looked_up(recipe, Lookup::query_for_key);
}
bool transposed(Recipe& recipe, const Claim& claim, double) {
  return is_square(claim) && varies(claim, 2) && looked_up(recipe, Lookup::transposed);
}
bool one_longer(Recipe& recipe, const Claim& claim, double) {
  return is_padding(claim) && looked_up(recipe, Lookup::one_longer);
}
bool one_shorter(Recipe& recipe, const Claim& claim, double) {
  return is_padding(claim) && looked_up(recipe, Lookup::one_shorter);
}
bool from_the_end(Recipe& recipe, const Claim& claim, double) {
  return is_padding(claim) && looked_up(recipe, Lookup::from_the_end);
}

constexpr std::array mistakes{
    Mistake{.name = "compose.causal_only",
            .axis = Axis::mask,
            .what = "Where a mask and a causal or window rule are given, the mask is dropped.",
            .look_for = "a fast causal path that ignores the mask argument.",
            .seen_in = "huggingface/transformers#37807, #30311, NVIDIA/TransformerEngine#1524",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return composed(recipe, claim, Compose::positions_only); }},
    Mistake{.name = "compose.mask_only",
            .axis = Axis::mask,
            .what = "Where a mask and a causal or window rule are given, only the mask applies.",
            .look_for = "`is_causal` treated as a hint once a mask is given.",
            .seen_in = "huggingface/transformers#37807, NVIDIA/TransformerEngine#1524",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return composed(recipe, claim, Compose::masks_only); }},
    Mistake{.name = "compose.or",
            .axis = Axis::mask,
            .what = "A key is seen if the mask or the causal rule allows it; both must.",
            .look_for = "`|` where `&` is meant; masks where true hides combine the other way.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return composed(recipe, claim, Compose::either); }},
    Mistake{
        .name = "mask.after_softmax_no_renorm",
        .axis = Axis::mask,
        .what = "Weights of hidden keys are set to 0 after the softmax: rows sum to less than 1.",
        .look_for = "the mask multiplied into the weights.",
        .seen_in = "huggingface/pytorch-image-models#2236, THUDM/ComiRec#17",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return hidden_by(recipe, claim, HideBy::after_softmax); }},
    Mistake{.name = "mask.after_softmax_renorm",
            .axis = Axis::mask,
            .kind = MistakeKind::harmless,
            .what = "Weights of hidden keys are set to 0 after the softmax, and rows divided by "
                    "their sum: the same numbers.",
            .look_for = "nothing; but NaN in a hidden key spreads.",
            .seen_in = "abisee/pointer-generator#88",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return hidden_by(recipe, claim, HideBy::after_softmax_renormalised);
                }},
    Mistake{.name = "mask.all_finite_fill",
            .axis = Axis::mask,
            .what = "All hidden scores, causal ones too, are replaced by a large negative number.",
            .look_for = "the number that stands for −∞: a row that sees no key becomes the mean of "
                        "all values.",
            .seen_in = "microsoft/onnxruntime#28904, PaddlePaddle/PaddleOCR#18341",
            .values = fills,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return all_hidden_by(recipe, claim, HideBy::replacing, value);
                }},
    Mistake{.name = "mask.all_zero_scores",
            .axis = Axis::mask,
            .what = "All hidden scores, causal ones too, are set to 0 instead of −∞.",
            .look_for = "`scores * mask` before the softmax.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return all_hidden_by(recipe, claim, HideBy::multiplying); }},
    Mistake{
        .name = "mask.as_query_mask",
        .axis = Axis::mask,
        .what = "The mask of keys is applied to the queries.",
        .look_for = "the axis on which a [B, S] mask is broadcast: [:, None, None, :] is for keys.",
        .seen_in = "lsdefine/attention-is-all-you-need-keras#16",
        .make = as_query_mask},
    Mistake{.name = "mask.batch0_used_for_all",
            .axis = Axis::mask,
            .what = "Every batch gets the mask of batch 0.",
            .look_for = "a batch stride of 0, or a mask built from the first sequence's length.",
            .make = of_batch0},
    Mistake{.name = "mask.batch_head_order",
            .axis = Axis::mask,
            .what =
                "Batches and heads are one axis in the data, batch first, and the mask is tiled "
                "the other way round.",
            .look_for = "`tile` or `repeat` where `repeat_interleave` is meant.",
            .seen_in = "lsdefine/attention-is-all-you-need-keras#36",
            .make = batch_head_order},
    Mistake{.name = "mask.bool_added_as_float",
            .axis = Axis::mask,
            .what = "The mask of 0 and 1 is added to the scores: hidden keys are only weaker.",
            .look_for = "a boolean mask converted to float and given where a bias is expected.",
            .seen_in = "huggingface/diffusers#14342, pytorch/pytorch#103963, timeseriesAI/tsai#171",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::adding_visible, 1); }},
    Mistake{.name = "mask.fill_added",
            .axis = Axis::mask,
            .what = "A large negative number is added to hidden scores instead of excluding them.",
            .look_for = "the number that stands for −∞: a row that sees no key comes out as if "
                        "nothing were hidden, or as the mean of all values.",
            .seen_in = "microsoft/onnxruntime#8549, pytorch/pytorch#110213",
            .values = fills,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return hidden_by(recipe, claim, HideBy::adding, value, sums_of(claim.precision));
                }},
    Mistake{.name = "mask.first_key_open",
            .axis = Axis::mask,
            .what = "Key 0 is seen whatever hides it.",
            .look_for = "a remedy against rows that see no key, applied to all rows.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.open_keys = OpenKeys::first;
                  return masks(claim);
                }},
    Mistake{
        .name = "mask.finite_fill",
        .axis = Axis::mask,
        .what = "Hidden scores are replaced by a large negative number instead of −∞.",
        .look_for = "the number that stands for −∞: a row that sees no key becomes the mean of "
                    "all values.",
        .seen_in = "bentrevett/pytorch-seq2seq#191, microsoft/onnxruntime#28904",
        .values = fills,
        .make = [](Recipe& recipe, const Claim& claim,
                   double value) { return hidden_by(recipe, claim, HideBy::replacing, value); }},
    Mistake{.name = "mask.fp16_fill_overflow",
            .axis = Axis::mask,
            .what = "The number added to hidden scores overflows to −∞: a row that sees no key is "
                    "NaN.",
            .look_for = "-1e9 or the smallest float added in f16.",
            .seen_in = "ahrefs/ocannl#548, google/flax#982, NVIDIA/apex#1105",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  constexpr double infinity = std::numeric_limits<double>::infinity();
                  recipe.scoring.hide.masks = {.by = HideBy::adding, .number = -infinity};
                  recipe.scoring.hide.positions = recipe.scoring.hide.masks;
                  return masks(claim);
                }},
    Mistake{.name = "mask.head0_used_for_all",
            .axis = Axis::mask,
            .what = "Every head gets the mask of head 0.",
            .look_for = "a head stride of 0, or `mask[:, :1]`.",
            .make = of_head0},
    Mistake{.name = "mask.ignored",
            .axis = Axis::mask,
            .what = "The mask is not applied: hidden keys are seen.",
            .look_for = "a mask that is not passed on; in a cache, slots beyond the valid length.",
            .seen_in = "yaohungt/Multimodal-Transformer#34, tensorflow/tensorflow#512, "
                       "google/flax#5591",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.mask_ignored = true;
                  recipe.scoring.sight.lengths_ignored = true;
                  return has_mask(claim);
                }},
    Mistake{.name = "mask.infinity_times_zero",
            .axis = Axis::mask,
            .what =
                "(1 − mask)·(−∞) is added to the scores: for a key that may be seen that is 0·∞, "
                "NaN.",
            .look_for = "a mask multiplied by −∞, or by a number that overflows to it.",
            .seen_in = "google/flax#982",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
                  return hidden_by(recipe, claim, HideBy::adding_visible, nan);
                }},
    Mistake{.name = "mask.inverted",
            .axis = Axis::mask,
            .what = "The mask has the opposite meaning: true hides.",
            .look_for = "which way the library's boolean masks count: PyTorch's two interfaces "
                        "differ.",
            .seen_in = "rasbt/LLMs-from-scratch#1061, pytorch/pytorch#170404",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  invert(recipe.scoring.sight);
                  return has_mask(claim);
                }},
    Mistake{.name = "mask.inverted_including_causal",
            .axis = Axis::mask,
            .what = "Mask and causal rule are joined to one mask, which then has the opposite "
                    "meaning.",
            .look_for = "which way the library's boolean masks count.",
            .seen_in = "rasbt/LLMs-from-scratch#1061, pytorch/pytorch#170404",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.all_inverted = true;
                  return has_position_rule(claim) && masks(claim);
                }},
    Mistake{.name = "mask.k_zeroed_only",
            .axis = Axis::mask,
            .what = "The keys are set to 0 where they should be hidden: they keep a score of 0.",
            .look_for = "a mask multiplied into key.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::zeroing_key); }},
    Mistake{.name = "mask.kv_zeroed_unmasked",
            .axis = Axis::mask,
            .what = "Keys and values are set to 0 where they should be hidden, and the softmax "
                    "runs over all.",
            .look_for = "padding zeroed in the input and no mask at the softmax.",
            .seen_in = "ilivans/tf-rnn-attention#11",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::zeroing_key_and_value); }},
    Mistake{.name = "mask.left_instead_of_right_pad",
            .axis = Axis::mask,
            .what = "The lengths are counted from the other end: padding is taken to be on the "
                    "other side.",
            .look_for = "the tokenizer's padding side.",
            .make = from_the_end},
    Mistake{.name = "mask.lengths_ignored",
            .axis = Axis::mask,
            .what = "Key lengths are ignored, the mask is not: stale slots join the softmax.",
            .look_for = "attention over the whole allocated cache.",
            .seen_in = "google/flax#5591, vllm-project/vllm-xpu-kernels#181",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.lengths_ignored = true;
                  return has_lengths(claim) && has_table(claim);
                }},
    Mistake{.name = "mask.minus_one_added_small",
            .axis = Axis::mask,
            .what = "mask − 1 is added to the scores: hidden keys are only weaker by 1.",
            .look_for = "`(1 - mask) * -1` without the large factor.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::adding, -1); }},
    Mistake{.name = "mask.nan_behind_leaks",
            .axis = Axis::mask,
            .what = "Hidden values are multiplied by a weight of 0: NaN and infinity there spread.",
            .look_for = "memory beyond the valid length that was never written.",
            .seen_in = "Dao-AILab/flash-attention#1745, #2374, ROCm/aiter#5401, "
                       "ggml-org/llama.cpp#3523, pytorch/pytorch#101967",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.hide.hidden_values_read = true;
                  return hides_anything(claim);
                }},
    Mistake{.name = "mask.of_next_batch",
            .axis = Axis::mask,
            .what = "Every batch gets the mask of the next.",
            .look_for = "masks and sequences sorted or shuffled apart.",
            .make = of_next_batch},
    Mistake{.name = "mask.own_key_open",
            .axis = Axis::mask,
            .what = "A query sees its own position's key whatever hides it.",
            .look_for = "the diagonal added to the mask against rows that see no key.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.open_keys = OpenKeys::own;
                  return masks(claim);
                }},
    Mistake{.name = "mask.pos1e_9_instead_of_neg1e9",
            .axis = Axis::mask,
            .what = "Hidden scores are replaced by 1e-9, which is next to 0.",
            .look_for = "1e-9 where -1e9 is meant.",
            .seen_in = "hyunwoongko/transformer#10",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::replacing, 1e-9); }},
    Mistake{.name = "mask.query0_used_for_all",
            .axis = Axis::mask,
            .what = "Every query gets the mask of query 0.",
            .look_for = "a mask [T, S] reduced to [S], or a query stride of 0.",
            .make = of_query0},
    Mistake{.name = "mask.query_rows_zeroed_too",
            .axis = Axis::mask,
            .what = "Queries at and beyond the length give 0.",
            .look_for = "the padding mask applied to the output as well; JAX does so by rule.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.hide.padded_queries_zero = true;
                  return has_lengths(claim);
                }},
    Mistake{.name = "mask.rank2_as_queries",
            .axis = Axis::mask,
            .what = "A mask [B, S] is read as [T, S]: each query gets another batch's mask.",
            .look_for = "right-aligned broadcasting of a mask of rank 2; it runs where B = T.",
            .make = rank2_as_queries},
    Mistake{.name = "mask.rank3_as_heads_not_batch",
            .axis = Axis::mask,
            .what = "A mask [B, T, S] is read as [H, T, S]: each head gets another batch's mask.",
            .look_for = "right-aligned broadcasting of a mask of rank 3.",
            .seen_in = "onnx/onnx#8108",
            .make = rank3_as_heads},
    Mistake{.name = "mask.shifted_by_one_longer",
            .axis = Axis::mask,
            .what = "One key too many is seen: lengths are one too long.",
            .look_for = "`j <= length` where `j < length` is meant.",
            .seen_in = "sonos/tract",
            .make = one_longer},
    Mistake{.name = "mask.shifted_by_one_shorter",
            .axis = Axis::mask,
            .what = "One key too few is seen: lengths are one too short.",
            .look_for = "ONNX Runtime's seqlens_k, which is the length − 1.",
            .seen_in = "sonos/tract",
            .make = one_shorter},
    Mistake{.name = "mask.transposed",
            .axis = Axis::mask,
            .what = "The mask is read as [key, query].",
            .look_for = "the order of the mask's last two axes.",
            .make = transposed},
    Mistake{.name = "mask.v_zeroed_only",
            .axis = Axis::mask,
            .what = "Hidden keys take part in the softmax, and only their values are set to 0.",
            .look_for = "a mask multiplied into value.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::zeroing_value); }},
    Mistake{.name = "mask.zero_scores",
            .axis = Axis::mask,
            .what = "Hidden scores are multiplied by 0 instead of set to −∞.",
            .look_for = "`scores * mask` before the softmax.",
            .seen_in = "georg-wolflein/good-features#1, awslabs/gluonts#1401",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return hidden_by(recipe, claim, HideBy::multiplying); }},
};

}  // namespace

std::span<const Mistake> mask_mistakes() { return mistakes; }

}  // namespace attest::check
