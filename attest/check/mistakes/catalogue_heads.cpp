// SPDX-License-Identifier: MIT
// Which head reads which.

#include <array>

#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

bool grouped(const Claim& claim) { return claim.shape.G > 1 && claim.shape.G < claim.shape.H; }

template <HeadCount count>
bool counted(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!claim.has_query_and_key() || !claim.has_value()) return false;
  if (count != HeadCount::twice && claim.shape.H < 2) return false;
  recipe.operands.head_count = count;
  recipe.operands.cache_read_likewise = true;
  return true;
}

/// Of key and value, where there is more than one to choose from.
template <HeadMap keys, HeadMap values>
bool mapped(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (claim.shape.G < 2) return false;
  if (keys == HeadMap::claimed ? !claim.has_value() : !claim.has_query_and_key()) return false;
  recipe.operands.heads.keys = keys;
  recipe.operands.heads.values = values;
  return true;
}

/// The same, where several query heads share one.
template <HeadMap keys, HeadMap values>
bool mapped_in_groups(Recipe& recipe, const Claim& claim, double value) {
  return grouped(claim) && mapped<keys, values>(recipe, claim, value);
}

template <HeadOrder order>
bool queries(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!claim.has_query_and_key() || claim.shape.H < 2) return false;
  recipe.operands.heads.queries = order;
  return true;
}

template <HeadOrder order>
bool output(Recipe& recipe, const Claim& claim, double /*value*/) {
  const bool regroups = order == HeadOrder::regrouped || order == HeadOrder::regrouped_back;
  if (claim.shape.H < 2 || (regroups && !grouped(claim))) return false;
  recipe.operands.output.heads = order;
  return true;
}

constexpr std::array<double, 16> some_heads{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

constexpr std::string_view group_map =
    "the map from query heads to key/value heads: it is h / (H / G), a repeat_interleave, not a "
    "repeat "
    "or tile";
constexpr std::string_view head_index =
    "the head index or head stride that keys and values are read with";
constexpr std::string_view head_number =
    "the number of heads that the split and the merge are made with";

constexpr std::array mistakes{
    Mistake{.name = "gqa.all_kv0",
            .axis = Axis::heads,
            .what = "Every query head reads key/value head 0.",
            .look_for = head_index,
            .seen_in = "BobMcDear/attorch#14, PSAL-POSTECH/ONNXim#34",
            .make = mapped_in_groups<HeadMap::first, HeadMap::first>},
    Mistake{.name = "gqa.divided_by_kv_heads",
            .axis = Axis::heads,
            .what = "Query head h reads key/value head h / G instead of h / (H / G).",
            .look_for = group_map,
            .make = mapped_in_groups<HeadMap::divided_by_G, HeadMap::divided_by_G>},
    Mistake{.name = "gqa.groups_averaged",
            .axis = Axis::heads,
            .what = "All queries of a group are replaced by their mean.",
            .look_for = "a mean over the group axis of the query",
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return claim.shape.G < claim.shape.H &&
                         queries<HeadOrder::group_means>(recipe, claim, value);
                }},
    Mistake{.name = "gqa.k_interleave_v_tile",
            .axis = Axis::heads,
            .what = "Keys are repeated rightly for their group, values are tiled.",
            .look_for = group_map,
            .make = mapped_in_groups<HeadMap::claimed, HeadMap::tiled>},
    Mistake{.name = "gqa.k_tile_v_interleave",
            .axis = Axis::heads,
            .what = "Values are repeated rightly for their group, keys are tiled.",
            .look_for = group_map,
            .make = mapped_in_groups<HeadMap::tiled, HeadMap::claimed>},
    Mistake{.name = "gqa.modulo_group",
            .axis = Axis::heads,
            .what = "Query head h reads key/value head h mod (H / G).",
            .look_for = group_map,
            .make = mapped_in_groups<HeadMap::modulo_group, HeadMap::modulo_group>},
    Mistake{.name = "gqa.output_regrouped",
            .axis = Axis::heads,
            .what = "The heads of the output are merged as [H/G, G] instead of [G, H/G].",
            .look_for = "the reshape that merges groups and heads of the output",
            .make = output<HeadOrder::regrouped>},
    Mistake{
        .name = "gqa.output_regrouped_back",
        .axis = Axis::heads,
        .what = "The heads of the output are [G, H/G], and are taken for [H/G, G] and regrouped.",
        .look_for = "the reshape that merges groups and heads of the output",
        .make = output<HeadOrder::regrouped_back>},
    Mistake{
        .name = "gqa.repeat_on_seq_axis",
        .axis = Axis::heads,
        .what =
            "Keys and values are repeated along the sequence instead of the heads, and cut to S.",
        .look_for = "the axis of repeat_interleave: it is the heads', 1 of [B, G, S, D]",
        .seen_in = "PrimeIntellect-ai/prime-rl#2681, datawhalechina/tiny-universe#21",
        .make = mapped_in_groups<HeadMap::repeated_keys, HeadMap::repeated_keys>},
    Mistake{.name = "gqa.repeat_on_seq_axis_reshaped",
            .axis = Axis::heads,
            .what = "Keys and values are repeated along the sequence, and viewed as [B, H, S, D].",
            .look_for =
                "the axis of expand before the reshape to H heads: it stands before S, not after",
            .seen_in = "PrimeIntellect-ai/prime-rl#2681",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (claim.shape.G >= claim.shape.H || claim.shape.S < 2) return false;
                  recipe.operands.heads.keys = HeadMap::reshaped_keys;
                  recipe.operands.heads.values = HeadMap::reshaped_keys;
                  return true;
                }},
    Mistake{
        .name = "gqa.tile",
        .axis = Axis::heads,
        .what =
            "Query head h reads key/value head h mod G: keys and values are tiled, not repeated.",
        .look_for = group_map,
        .seen_in = "onnx/onnx#7274, ekzhang/jax-js#180, apple/axlearn#842",
        .make = mapped_in_groups<HeadMap::tiled, HeadMap::tiled>},
    Mistake{.name = "heads.all_use_kv0",
            .axis = Axis::heads,
            .what = "Every head reads key/value head 0.",
            .look_for = head_index,
            .seen_in = "BobMcDear/attorch#14, PSAL-POSTECH/ONNXim#34",
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return !grouped(claim) &&
                         mapped<HeadMap::first, HeadMap::first>(recipe, claim, value);
                }},
    Mistake{.name = "heads.all_use_last_kv",
            .axis = Axis::heads,
            .what = "Every head reads the last key/value head.",
            .look_for = "a loop over heads whose buffers are overwritten by the last one",
            .make = mapped<HeadMap::last, HeadMap::last>},
    Mistake{.name = "heads.half_number",
            .axis = Axis::heads,
            .what = "The tensors are split into half as many heads of twice the width.",
            .look_for = head_number,
            .make = counted<HeadCount::half>},
    Mistake{.name = "heads.key_kv0",
            .axis = Axis::heads,
            .what = "Every head reads the key of head 0, and its own value.",
            .look_for = head_index,
            .make = mapped<HeadMap::first, HeadMap::claimed>},
    Mistake{.name = "heads.keys_next",
            .axis = Axis::heads,
            .what = "Keys are those of the next head, values are right.",
            .look_for = head_index,
            .make = mapped<HeadMap::next, HeadMap::claimed>},
    Mistake{.name = "heads.keys_reversed",
            .axis = Axis::heads,
            .what = "Key heads are in reverse order, values are right.",
            .look_for = head_index,
            .make = mapped<HeadMap::reversed, HeadMap::claimed>},
    Mistake{.name = "heads.kv_averaged",
            .axis = Axis::heads,
            .what = "Every head reads the mean of all key/value heads.",
            .look_for = "a mean over heads that makes one key/value head of many",
            .make = mapped<HeadMap::mean, HeadMap::mean>},
    Mistake{.name = "heads.kv_next",
            .axis = Axis::heads,
            .what = "Each head reads the key/value head after its own.",
            .look_for = head_index,
            .make = mapped<HeadMap::next, HeadMap::next>},
    Mistake{.name = "heads.kv_previous",
            .axis = Axis::heads,
            .what = "Each head reads the key/value head before its own.",
            .look_for = head_index,
            .make = mapped<HeadMap::previous, HeadMap::previous>},
    Mistake{.name = "heads.kv_reversed",
            .axis = Axis::heads,
            .what = "Key/value heads are in reverse order.",
            .look_for = head_index,
            .make = mapped<HeadMap::reversed, HeadMap::reversed>},
    Mistake{.name = "heads.one_reads_kv0",
            .axis = Axis::heads,
            .what = "One query head alone reads key/value head 0.",
            .look_for = "a special case, a tail, or an index out of range for that head",
            .values = some_heads,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  const auto head = static_cast<std::int64_t>(value);
                  if (claim.shape.G < 2 || head >= claim.shape.H) return false;
                  if (head < claim.shape.H / claim.shape.G) return false;  // as claimed
                  recipe.operands.heads.wrong_head = head;
                  return true;
                }},
    Mistake{.name = "heads.output_next",
            .axis = Axis::heads,
            .what = "Each head of the output is the next one's.",
            .look_for = "the head index or head stride that the output is written with",
            .make = output<HeadOrder::next>},
    Mistake{.name = "heads.output_previous",
            .axis = Axis::heads,
            .what = "Each head of the output is that of the one before.",
            .look_for = "the head index or head stride that the output is written with",
            .make = output<HeadOrder::previous>},
    Mistake{.name = "heads.output_reversed",
            .axis = Axis::heads,
            .what = "The heads of the output are in reverse order.",
            .look_for = "the head index or head stride that the output is written with",
            .make = output<HeadOrder::reversed>},
    Mistake{.name = "heads.queries_next",
            .axis = Axis::heads,
            .what = "Each head reads the query of the next one.",
            .look_for = "the head index or head stride that the query is read with",
            .make = queries<HeadOrder::next>},
    Mistake{.name = "heads.queries_reversed",
            .axis = Axis::heads,
            .what = "Query heads are in reverse order.",
            .look_for = "the head index or head stride that the query is read with",
            .make = queries<HeadOrder::reversed>},
    Mistake{.name = "heads.single_head",
            .axis = Axis::heads,
            .what = "All heads are computed as one head of the whole width.",
            .look_for = "a split into heads that is missing",
            .make = counted<HeadCount::one>},
    Mistake{.name = "heads.twice_number",
            .axis = Axis::heads,
            .what = "The tensors are split into twice as many heads of half the width.",
            .look_for = head_number,
            .make = counted<HeadCount::twice>},
    Mistake{.name = "heads.value_kv0",
            .axis = Axis::heads,
            .what = "Every head reads the value of head 0, and its own key.",
            .look_for = head_index,
            .make = mapped<HeadMap::claimed, HeadMap::first>},
    Mistake{.name = "heads.values_next",
            .axis = Axis::heads,
            .what = "Values are those of the next head, keys are right.",
            .look_for = head_index,
            .make = mapped<HeadMap::claimed, HeadMap::next>},
    Mistake{.name = "heads.values_reversed",
            .axis = Axis::heads,
            .what = "Value heads are in reverse order, keys are right.",
            .look_for = head_index,
            .make = mapped<HeadMap::claimed, HeadMap::reversed>},
};

}  // namespace

std::span<const Mistake> heads_mistakes() { return mistakes; }

}  // namespace attest::check
