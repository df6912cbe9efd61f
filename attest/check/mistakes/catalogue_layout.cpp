// SPDX-License-Identifier: MIT
// Tensors read or written in another order than they have.

#include <array>

#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

/// Which of query, key and value a mistake is made with.
enum Which : unsigned { of_query = 1, of_key = 2, of_value = 4, of_all = 7 };

bool many_rows(const Claim& claim, unsigned which) {
  const lab::AttentionShape& shape = claim.shape;
  const bool queries = (which & of_query) != 0 && shape.H > 1 && shape.T > 1;
  const bool keys = (which & (of_key | of_value)) != 0 && shape.G > 1 && shape.S > 1;
  return queries || keys;
}

bool given(const Claim& claim, unsigned which) {
  const bool scores = (which & (of_query | of_key)) == 0 || claim.has_query_and_key();
  return scores && ((which & of_value) == 0 || claim.has_value());
}

template <Split split, unsigned which, bool cache_too = false>
bool split_as(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!given(claim, which) || !many_rows(claim, which)) return false;
  if (cache_too && (claim.past == 0 || (which & (of_key | of_value)) == 0)) return false;
  for (std::size_t role = 0; role < 3; ++role) {
    if ((which >> role & 1U) != 0) recipe.operands.reading[role].split = split;
  }
  recipe.operands.cache_read_likewise = cache_too;
  return true;
}

template <Merge merge>
bool merged_as(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (claim.shape.H < 2 || (merge != Merge::width_major && claim.shape.T < 2)) return false;
  recipe.operands.output.merge = merge;
  return true;
}

template <Split split, Merge merge>
bool split_and_merged_as(Recipe& recipe, const Claim& claim, double value) {
  return split_as<split, of_all>(recipe, claim, value) && merged_as<merge>(recipe, claim, value);
}

/// The batch that keys and values are taken from.
bool batch_rolled(Recipe& recipe, const Claim& claim, double value) {
  if (claim.shape.B < 2 || (value <= 0 && claim.shape.B < 3)) return false;
  recipe.operands.key_batch = value > 0   ? BatchUse::next
                              : value < 0 ? BatchUse::previous
                                          : BatchUse::reversed;
  return true;
}

template <BatchTime order>
bool batch_for_time(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (claim.shape.B < 2 || !given(claim, of_all)) return false;
  recipe.operands.batch_time = order;
  return true;
}

template <FusedOrder written, FusedOrder read>
bool fused_as(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!given(claim, of_all)) return false;
  recipe.operands.fused_written = written;
  recipe.operands.fused_read = read;
  return true;
}

template <unsigned which>
bool fused_strides(Recipe& recipe, const Claim& claim, double value) {
  if (!given(claim, of_all)) return false;
  const auto strides = value == 0 ? FusedStrides::heads_first : FusedStrides::sequence_first;
  for (std::size_t role = 0; role < 3; ++role) {
    if ((which >> role & 1U) != 0) recipe.operands.reading[role].strides = strides;
  }
  return true;
}

constexpr std::array<double, 3> rolls{1, -1, 0};
constexpr std::array<double, 2> one_either_way{1, -1};
constexpr std::array<double, 2> dense_orders{0, 1};

constexpr std::string_view needs_transpose =
    "a .view/.reshape from [B, T, H*D] straight to [B, H, T, D]: it needs [B, T, H, D], then a "
    "transpose "
    "of axes 1 and 2";
constexpr std::string_view einops_split =
    "a reshape to [B, T, D, H], or a rearrange \"b t (d h)\" where the projection has \"(h d)\"";

constexpr std::array mistakes{
    Mistake{
        .name = "layout.attends_over_batch",
        .axis = Axis::layout,
        .what = "The batch is taken for the sequence: every position attends to the other batch "
                "entries.",
        .look_for = "batch_first: tensors are [B, T, C] and the module expects [T, B, C], or back",
        .seen_in = "IBM/TabFormer#14, om-ai-lab/OmDet#19, aipixel/AEMatter#3",
        .make = batch_for_time<BatchTime::exchanged>},
    Mistake{.name = "layout.batch_first_key_value",
            .axis = Axis::layout,
            .what = "Keys and values of batch entry 0 serve every batch entry.",
            .look_for = "a key/value batch stride of 0, an index [0], or an expand over the batch",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.B < 2) return false;
                  recipe.operands.key_batch = BatchUse::first;
                  return true;
                }},
    Mistake{.name = "layout.batch_rolled",
            .axis = Axis::layout,
            .what = "Keys and values are those of another batch entry (1 the next, -1 the one "
                    "before, 0 the "
                    "batch backwards).",
            .look_for =
                "a reordering of the cache by beams, or a batch axis that was flipped or rolled",
            .values = rolls,
            .make = batch_rolled},
    Mistake{.name = "layout.bhsd_as_bshd",
            .axis = Axis::layout,
            .what = "Memory of [B, H, T, D] is read as [B, T, H, D].",
            .look_for =
                "a kernel or call that expects the sequence before the heads (FlashAttention, JAX, "
                "Keras) given tensors that were already transposed",
            .make = split_and_merged_as<Split::unshaped, Merge::unshaped>},
    Mistake{.name = "layout.bshd_as_bhsd",
            .axis = Axis::layout,
            .what = "The heads are taken for the sequence: [B, T, H, D] is passed where [B, H, T, "
                    "D] is due, "
                    "so heads attend to each other at each position.",
            .look_for = "a missing transpose of axes 1 and 2 before the attention call",
            .seen_in = "pytorch/pytorch#152257, Lightning-AI/litgpt#1906",
            .make = split_and_merged_as<Split::exchanged, Merge::reshaped>},
    Mistake{.name = "layout.bshd_as_bhsd_then_merged",
            .axis = Axis::layout,
            .what = "The heads are taken for the sequence, and the output is transposed before its "
                    "heads are "
                    "merged.",
            .look_for =
                "a missing transpose of axes 1 and 2 before the attention call, with the one after "
                "it in place",
            .seen_in = "pytorch/pytorch#152257",
            .make = split_as<Split::exchanged, of_all>},
    Mistake{.name = "layout.head_dim_major_all",
            .axis = Axis::layout,
            .what = "Heads are the fast axis of every packed tensor, input and output: \"(d h)\" "
                    "for \"(h d)\".",
            .look_for = einops_split,
            .make = split_and_merged_as<Split::width_major, Merge::width_major>},
    Mistake{
        .name = "layout.head_dim_major_key_value",
        .axis = Axis::layout,
        .what = "Keys and values are split with heads as the fast axis: \"(d h)\" for \"(h d)\".",
        .look_for = einops_split,
        .make = split_as<Split::width_major, of_key | of_value>},
    Mistake{.name = "layout.head_dim_major_merge",
            .axis = Axis::layout,
            .what = "The output is merged with heads as the fast axis: \"(d h)\" for \"(h d)\".",
            .look_for = "a merge of the heads that transposes [H, E] to [E, H] first",
            .make = merged_as<Merge::width_major>},
    Mistake{.name = "layout.head_dim_major_query",
            .axis = Axis::layout,
            .what = "Queries are split with heads as the fast axis: \"(d h)\" for \"(h d)\".",
            .look_for = einops_split,
            .make = split_as<Split::width_major, of_query>},
    Mistake{
        .name = "layout.head_dim_major_split",
        .axis = Axis::layout,
        .what =
            "Query, key and value are split with heads as the fast axis: \"(d h)\" for \"(h d)\".",
        .look_for = einops_split,
        .make = split_as<Split::width_major, of_all>},
    Mistake{.name = "layout.head_dim_major_value",
            .axis = Axis::layout,
            .what = "Values are split with heads as the fast axis: \"(d h)\" for \"(h d)\".",
            .look_for = einops_split,
            .make = split_as<Split::width_major, of_value>},
    Mistake{
        .name = "layout.heads_merged_by_reshape",
        .axis = Axis::layout,
        .what = "The output [B, H, T, E] is viewed as [B, T, H*E] without a transpose.",
        .look_for =
            "a .view/.reshape of the output from [B, H, T, E]: it needs a transpose of axes 1 and "
            "2 first",
        .seen_in =
            "jsbaan/transformer-from-scratch#6, chelsea0x3b/dfdx#158, pytorch/pytorch#67651, "
            "meta-pytorch/opacus#825",
        .make = merged_as<Merge::reshaped>},
    Mistake{
        .name = "layout.heads_split_by_reshape",
        .axis = Axis::layout,
        .what = "[B, T, H*D] is viewed as [B, H, T, D] without a transpose; cached keys are right.",
        .look_for = needs_transpose,
        .seen_in = "reczoo/FuxiCTR#30, hyunwoongko/transformer#15, onnx/onnx#7142",
        .make = split_as<Split::reshaped, of_all>},
    Mistake{.name = "layout.heads_split_by_reshape_with_cache",
            .axis = Axis::layout,
            .what = "[B, T, H*D] is viewed as [B, H, T, D] without a transpose, cached keys and "
                    "values too.",
            .look_for = needs_transpose,
            .make = split_as<Split::reshaped, of_all, true>},
    Mistake{.name = "layout.key_as_bshd",
            .axis = Axis::layout,
            .what = "Memory of the key, [B, H, S, D], is read as [B, S, H, D].",
            .look_for = "strides of another tensor used for the key",
            .seen_in = "ROCm/pytorch#3230, Dao-AILab/flash-attention#355",
            .make = split_as<Split::unshaped, of_key>},
    Mistake{.name = "layout.key_split_by_reshape",
            .axis = Axis::layout,
            .what = "The key alone is viewed as [B, H, S, D] without a transpose.",
            .look_for = needs_transpose,
            .make = split_as<Split::reshaped, of_key>},
    Mistake{
        .name = "layout.key_value_split_by_reshape",
        .axis = Axis::layout,
        .what = "Key and value are viewed as [B, H, S, D] without a transpose; the query is right.",
        .look_for = needs_transpose,
        .make = split_as<Split::reshaped, of_key | of_value>},
    Mistake{.name = "layout.k_reshaped_not_transposed",
            .axis = Axis::layout,
            .what = "The key's memory [S, D] is read as [D, S] where its transpose is due.",
            .look_for =
                "a reshape/view of the key to [.., D, S] before the product: it needs a transpose",
            .seen_in = "leaderj1001/Attention-Augmented-Conv2d#25",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!given(claim, of_key) || claim.shape.S < 2 || claim.shape.D < 2) return false;
                  recipe.operands.slots.keys_read_transposed = true;
                  return true;
                }},
    Mistake{.name = "layout.output_as_bshd",
            .axis = Axis::layout,
            .what = "The output is written as [B, T, H, E] where [B, H, T, E] is due.",
            .look_for = "a transpose of axes 1 and 2 after the attention call that the consumer "
                        "does not expect",
            .make = merged_as<Merge::unshaped>},
    Mistake{.name = "layout.output_batch_rolled",
            .axis = Axis::layout,
            .what = "Each output belongs to another batch entry (1 the next, -1 the one before, 0 "
                    "the batch "
                    "backwards).",
            .look_for = "a batch axis that was flipped or rolled after the attention call",
            .values = rolls,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!batch_rolled(recipe, claim, value)) return false;
                  recipe.operands.output.batch = recipe.operands.key_batch;
                  recipe.operands.key_batch = BatchUse::own;
                  return true;
                }},
    Mistake{.name = "layout.output_rows_reversed",
            .axis = Axis::layout,
            .what = "The rows of the output are in reverse order.",
            .look_for = "a flip of the sequence that is not undone",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.T < 2) return false;
                  recipe.operands.output.rows_reversed = true;
                  return true;
                }},
    Mistake{.name = "layout.output_rows_shifted",
            .axis = Axis::layout,
            .what = "Row i of the output belongs to query i + 1 (or i - 1), around.",
            .look_for = "a roll, or a write at the wrong row of the output",
            .values = one_either_way,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.shape.T < 2) return false;
                  recipe.operands.output.roll_rows = value > 0 ? 1 : -1;
                  return true;
                }},
    Mistake{.name = "layout.output_transposed",
            .axis = Axis::layout,
            .what = "Each head of the output is written as [E, T] where [T, E] is due.",
            .look_for = "a product V^T P^T whose result was reshaped, not transposed back",
            .seen_in = "huggingface/diffusers#14342",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.T < 2 || claim.shape.E < 2) return false;
                  recipe.operands.output.read_transposed = true;
                  return true;
                }},
    Mistake{.name = "layout.query_as_bshd",
            .axis = Axis::layout,
            .what = "Memory of the query, [B, H, T, D], is read as [B, T, H, D].",
            .look_for = "strides of another tensor used for the query",
            .seen_in = "ROCm/pytorch#3230",
            .make = split_as<Split::unshaped, of_query>},
    Mistake{.name = "layout.query_split_by_reshape",
            .axis = Axis::layout,
            .what = "The query alone is viewed as [B, H, T, D] without a transpose.",
            .look_for = needs_transpose,
            .make = split_as<Split::reshaped, of_query>},
    Mistake{
        .name = "layout.sequence_first_reshaped",
        .axis = Axis::layout,
        .what = "[T, B, ...] memory is viewed as [B, T, ...] without a transpose, and back after.",
        .look_for = "a .view/.reshape between [T, B, C] and [B, T, C]: it needs a transpose of "
                    "axes 0 and 1",
        .make = batch_for_time<BatchTime::reshaped>},
    Mistake{.name = "layout.split_and_merge_by_reshape",
            .axis = Axis::layout,
            .what = "[B, T, H*D] is viewed as [B, H, T, D] without a transpose, and the output "
                    "back likewise.",
            .look_for = needs_transpose,
            .seen_in = "649453932/Chinese-Text-Classification-Pytorch#53",
            .make = split_and_merged_as<Split::reshaped, Merge::reshaped>},
    Mistake{.name = "layout.value_as_bshd",
            .axis = Axis::layout,
            .what = "Memory of the value, [B, H, S, E], is read as [B, S, H, E].",
            .look_for = "strides of another tensor used for the value",
            .seen_in = "torch-spyre/torch-spyre#4331, Dao-AILab/flash-attention#355",
            .make = split_as<Split::unshaped, of_value>},
    Mistake{.name = "layout.value_split_by_reshape",
            .axis = Axis::layout,
            .what = "The value alone is viewed as [B, H, S, E] without a transpose.",
            .look_for = needs_transpose,
            .make = split_as<Split::reshaped, of_value>},
    Mistake{.name = "layout.v_reshaped",
            .axis = Axis::layout,
            .what = "The value's memory [S, E] is read as [E, S].",
            .look_for = "a reshape/view of the value to [.., E, S]: it needs a transpose",
            .seen_in = "huggingface/diffusers#14342",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!claim.has_value() || claim.shape.S < 2 || claim.shape.E < 2) return false;
                  recipe.operands.slots.values_read_transposed = true;
                  return true;
                }},
    Mistake{
        .name = "qkv.all_read_as_dense",
        .axis = Axis::layout,
        .what =
            "Query, key and value are parts of one buffer [B, T, 3*H*D], and each is read as if it "
            "lay alone (0: as [H, T, D], 1: as [T, H, D]).",
        .look_for = "a kernel that takes pointers and sizes, and not the strides of a slice of qkv",
        .seen_in = "torch-spyre/torch-spyre#4331, flagos-ai/FlagGems#5896",
        .values = dense_orders,
        .make = fused_strides<of_all>},
    Mistake{.name = "qkv.blocked_read_as_feature_major",
            .axis = Axis::layout,
            .what = "The fused projection is \"(qkv h d)\" and is read as \"(h d qkv)\".",
            .look_for =
                "the split of the fused qkv projection: a rearrange with the axes in another order",
            .make = fused_as<FusedOrder::chd, FusedOrder::hdc>},
    Mistake{
        .name = "qkv.blocked_read_as_interleaved",
        .axis = Axis::layout,
        .what = "The fused projection is [3, H, D] and is read as [H, 3, D].",
        .look_for =
            "the split of the fused qkv projection: view(.., H, 3*D).chunk(3) for chunk(3), then "
            "view(.., H, D)",
        .seen_in = "awslabs/slapo#46, tenstorrent/tt-metal#6243",
        .make = fused_as<FusedOrder::chd, FusedOrder::hcd>},
    Mistake{.name = "qkv.feature_major_read_as_blocked",
            .axis = Axis::layout,
            .what = "The fused projection is \"(h d qkv)\" and is read as \"(qkv h d)\".",
            .look_for =
                "the split of the fused qkv projection: a rearrange with the axes in another order",
            .make = fused_as<FusedOrder::hdc, FusedOrder::chd>},
    Mistake{.name = "qkv.head_dim_major_read_as_blocked",
            .axis = Axis::layout,
            .what = "The fused projection is \"(d qkv h)\" and is read as \"(qkv h d)\".",
            .look_for =
                "the split of the fused qkv projection: a rearrange with the axes in another order",
            .make = fused_as<FusedOrder::dch, FusedOrder::chd>},
    Mistake{.name = "qkv.interleaved_read_as_blocked",
            .axis = Axis::layout,
            .what = "The fused projection is [H, 3, D] and is read as [3, H, D].",
            .look_for =
                "the split of the fused qkv projection: chunk(3) over features where each head has "
                "its own three",
            .seen_in = "awslabs/slapo#46, tenstorrent/tt-metal#6243",
            .make = fused_as<FusedOrder::hcd, FusedOrder::chd>},
    Mistake{
        .name = "qkv.key_read_as_dense",
        .axis = Axis::layout,
        .what =
            "The key is a part of one buffer [B, T, 3*H*D], and is read as if it lay alone (0: as "
            "[H, T, D], 1: as [T, H, D]).",
        .look_for = "the strides that the kernel takes for the key",
        .seen_in = "torch-spyre/torch-spyre#4331, ROCm/pytorch#3230",
        .values = dense_orders,
        .make = fused_strides<of_key>},
    Mistake{.name = "qkv.query_read_as_dense",
            .axis = Axis::layout,
            .what = "The query is a part of one buffer [B, T, 3*H*D], and is read as if it lay "
                    "alone (0: as "
                    "[H, T, D], 1: as [T, H, D]).",
            .look_for = "the strides that the kernel takes for the query",
            .seen_in = "torch-spyre/torch-spyre#4331",
            .values = dense_orders,
            .make = fused_strides<of_query>},
    Mistake{.name = "qkv.value_read_as_dense",
            .axis = Axis::layout,
            .what = "The value is a part of one buffer [B, T, 3*H*D], and is read as if it lay "
                    "alone (0: as "
                    "[H, T, D], 1: as [T, H, D]).",
            .look_for = "the strides that the kernel takes for the value",
            .seen_in = "torch-spyre/torch-spyre#4331, ROCm/pytorch#3230, flagos-ai/FlagGems#5896",
            .values = dense_orders,
            .make = fused_strides<of_value>},
};

}  // namespace

std::span<const Mistake> layout_mistakes() { return mistakes; }

}  // namespace attest::check
