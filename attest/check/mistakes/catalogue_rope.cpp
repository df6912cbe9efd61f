// SPDX-License-Identifier: MIT
// Rotary positions.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>

#include "attest/check/mistakes/catalogue_parts.h"

namespace attest::check {
namespace {

bool turned(const Claim& claim) { return claim.rope.has_value() && claim.has_query_and_key(); }
bool turned_as(const Claim& claim, RopePairing pairing) {
  return turned(claim) && claim.rope->config.pairing == pairing;
}
bool cached(const Claim& claim) {
  return turned(claim) && claim.past > 0 && claim.past < claim.shape.S;
}
/// Whether only a part of each row turns.
bool partly(const Claim& claim) {
  const std::int64_t width = claim.rope->config.rotary_dim;
  return width != 0 && width != claim.shape.D;
}

template <RopePairing claimed, bool query, bool key>
bool other_pairing(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned_as(claim, claimed)) return false;
  recipe.operands.rope.query_other_pairing = query;
  recipe.operands.rope.key_other_pairing = key;
  return true;
}

template <Turn query, Turn key>
bool turns(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim)) return false;
  recipe.operands.rope.query = query;
  recipe.operands.rope.key = key;
  return true;
}

/// Whether some wave is so long that Llama 3.1 would stretch it: fewer than 4 of it in 8192 positions.
bool has_long_waves(const Claim& claim) {
  const RopeConfig& config = claim.rope->config;
  const double width = static_cast<double>(partly(claim) ? config.rotary_dim : claim.shape.D);
  const double slowest = std::pow(config.base, 2 / width - 1);
  return 8192 * slowest < 4 * 2 * std::numbers::pi;
}

/// Whether some position is no bf16 number, which holds eight bits.
bool has_long_positions(const Claim& claim) {
  const auto beyond = [](std::int64_t position) { return std::abs(position) > 256; };
  return std::ranges::any_of(claim.rope->query_positions, beyond) ||
         std::ranges::any_of(claim.rope->key_positions, beyond);
}

template <RopeExponent which>
bool exponent_is(Recipe& recipe, const Claim& claim, double value) {
  if (!turned(claim)) return false;
  if (which == RopeExponent::of_head_dim && !partly(claim)) return false;
  if (which == RopeExponent::llama3_scaled && !has_long_waves(claim)) return false;
  recipe.operands.rope.exponent = which;
  if (which == RopeExponent::llama3_scaled) recipe.operands.rope.long_wave_factor = value;
  return true;
}

template <RopeForm which>
bool form_is(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim)) return false;
  recipe.operands.rope.form = which;
  return true;
}

template <RopeRounding rounding>
bool rounded(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim)) return false;
  if (rounding == RopeRounding::positions_bf16 && !has_long_positions(claim)) return false;
  recipe.operands.rope.rounding = rounding;
  return true;
}

template <CachedTurn turn>
bool cached_turn(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!cached(claim)) return false;
  recipe.operands.rope.cached = turn;
  return true;
}

template <RopePositions positions>
bool query_positions(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim) || claim.shape.T == 0) return false;
  recipe.operands.rope.query_positions = positions;
  return true;
}

template <std::int64_t shift>
bool query_shifted(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim)) return false;
  recipe.operands.rope.query_shift = shift;
  return true;
}

template <bool keep, bool other>
bool tables(Recipe& recipe, const Claim& claim, double /*value*/) {
  if (!turned(claim)) return false;
  recipe.operands.rope.query_other_pairing = keep;
  recipe.operands.rope.key_other_pairing = keep;
  recipe.operands.rope.keep_tables = keep;
  recipe.operands.rope.other_tables = other;
  return true;
}

bool width(Recipe& recipe, const Claim& claim, double part) {
  if (!turned(claim)) return false;
  const double claimed = partly(claim) ? static_cast<double>(claim.rope->config.rotary_dim) /
                                             static_cast<double>(claim.shape.D)
                                       : 1;
  if (part == claimed) return false;
  recipe.operands.rope.width = part;
  return true;
}

constexpr std::array<double, 16> bases{5e5, 1e6,   1e5, 5e3, 1e4, 1e3, 100,  2e4,
                                       4e4, 1.5e5, 5e4, 2e6, 5e6, 1e7, 32e4, 8e6};
constexpr std::array<double, 4> parts{0.25, 0.4, 0.75, 1};
constexpr std::array<double, 7> divisors{2, 4, 8, 16, 32, 0.5, 0.25};
constexpr std::array<double, 2> stretches{8, 32};
constexpr std::array<double, 8> shifts{-4, -3, -2, 2, 3, 4, 8, 16};
constexpr std::array<double, 2> half_then_interleaved{0, 1};

constexpr std::string_view pairing =
    "the rotation's pairing: halves (x[i], x[i + D/2]) as GPT-NeoX and Hugging Face, or neighbours "
    "(x[2i], x[2i + 1]) as GPT-J and Meta; weights may be permuted for one of them";
constexpr std::string_view table_layout =
    "the cosine and sine tables: cat(freqs, freqs) belongs to halves, repeat_interleave(2) to "
    "neighbours";
constexpr std::string_view decode_positions =
    "the positions that the query is turned by when there is a cache: they begin at its length";
constexpr std::string_view frequency =
    "the frequencies: base^(-2i/R) for i from 0 to R/2 - 1, R the rotated width";
constexpr std::string_view rotation =
    "the rotation: rotate_half(x) is (-x2, x1), and x*cos + rotate_half(x)*sin";
constexpr std::string_view cache_turn =
    "whether keys are turned before they go into the cache, or after they come out; not both, and "
    "not "
    "neither";

constexpr std::array mistakes{
    Mistake{.name = "rope.all_positions_shifted",
            .axis = Axis::rope,
            .kind = MistakeKind::harmless,
            .what = "Query and key positions are both one too high: only their difference counts.",
            .look_for = "positions that begin at 1",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!turned(claim)) return false;
                  recipe.operands.rope.query_shift = 1;
                  recipe.operands.rope.key_shift = 1;
                  return true;
                }},
    Mistake{.name = "rope.applied_twice",
            .axis = Axis::rope,
            .what = "Query and key are turned twice.",
            .look_for = "a rotation in the caller and another inside the attention",
            .make = turns<Turn::twice, Turn::twice>},
    Mistake{.name = "rope.applied_unasked",
            .axis = Axis::rope,
            .what = "Query and key are turned by their positions although the claim has no rotary "
                    "positions (0: "
                    "in halves, 1: in neighbours).",
            .look_for = "a rotation inside the attention; or claim it, with --rope",
            .values = half_then_interleaved,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (claim.rope || !claim.has_query_and_key()) return false;
                  recipe.operands.rope.added = true;
                  recipe.operands.rope.query_other_pairing = value == 1;
                  recipe.operands.rope.key_other_pairing = value == 1;
                  return true;
                }},
    Mistake{.name = "rope.base",
            .axis = Axis::rope,
            .what = "The rotation has another base.",
            .look_for = "rope_theta, or the 10000 in the frequencies",
            .values = bases,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!turned(claim) || claim.rope->config.base == value) return false;
                  recipe.operands.rope.base = value;
                  return true;
                }},
    Mistake{.name = "rope.before_head_split",
            .axis = Axis::rope,
            .what = "The whole row of all heads is turned as one, before it is split into heads.",
            .look_for = "the rotation stands before the reshape to heads",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!turned(claim) || claim.shape.H < 2) return false;
                  recipe.operands.rope.before_split = true;
                  return true;
                }},
    Mistake{
        .name = "rope.cached_keys_turned_twice",
        .axis = Axis::rope,
        .what = "Cached keys, turned when they were written, are turned again when they are read.",
        .look_for = cache_turn,
        .make = cached_turn<CachedTurn::cached_twice>},
    Mistake{.name = "rope.cached_keys_unrotated",
            .axis = Axis::rope,
            .what = "Cached keys are not turned.",
            .look_for = cache_turn,
            .seen_in = "EleutherAI/gpt-neox#363, rajveer43/VeloxQuant-MLX#389",
            .make = cached_turn<CachedTurn::cached_unturned>},
    Mistake{.name = "rope.direction_reversed",
            .axis = Axis::rope,
            .what = "Query and key are turned the other way round: -sin for sin.",
            .look_for = rotation,
            .make = turns<Turn::reversed, Turn::reversed>},
    Mistake{.name = "rope.freq_from_one",
            .axis = Axis::rope,
            .what = "The exponents are 2(i + 1)/R: pairs are counted from 1.",
            .look_for = frequency,
            .make = exponent_is<RopeExponent::from_one>},
    Mistake{.name = "rope.freq_i/d",
            .axis = Axis::rope,
            .what = "The exponents are i/R in place of 2i/R.",
            .look_for = frequency,
            .make = exponent_is<RopeExponent::half>},
    Mistake{.name = "rope.freq_linspace",
            .axis = Axis::rope,
            .what = "The exponents reach 1: linspace(0, 1) with its end.",
            .look_for = frequency,
            .make = exponent_is<RopeExponent::to_the_end>},
    Mistake{.name = "rope.freq_of_head_dim",
            .axis = Axis::rope,
            .what = "The exponents are 2i/D, though only R of the D features turn.",
            .look_for = frequency,
            .make = exponent_is<RopeExponent::of_head_dim>},
    Mistake{.name = "rope.freq_reversed",
            .axis = Axis::rope,
            .what = "The frequencies are in reverse order.",
            .look_for = frequency,
            .make = exponent_is<RopeExponent::backwards>},
    Mistake{.name = "rope.half_for_interleaved",
            .axis = Axis::rope,
            .what = "Features are paired as halves, (i, i + R/2), where neighbours are due.",
            .look_for = pairing,
            .seen_in = "EleutherAI/gpt-neox#834, huggingface/transformers#25199",
            .make = other_pairing<RopePairing::interleaved, true, true>},
    Mistake{
        .name = "rope.interleaved_for_half",
        .axis = Axis::rope,
        .what = "Features are paired as neighbours, (2i, 2i + 1), where halves are due.",
        .look_for = pairing,
        .seen_in =
            "EleutherAI/gpt-neox#834, huggingface/transformers#25199, tenstorrent/tt-metal#26844",
        .make = other_pairing<RopePairing::half, true, true>},
    Mistake{.name = "rope.k_direction_only",
            .axis = Axis::rope,
            .what = "The key is turned the other way round, the query rightly.",
            .look_for = rotation,
            .make = turns<Turn::claimed, Turn::reversed>},
    Mistake{.name = "rope.k_only",
            .axis = Axis::rope,
            .what = "Only the key is turned.",
            .look_for = "the rotation of the query",
            .seen_in = "trymirai/lalamo#272",
            .make = turns<Turn::none, Turn::claimed>},
    Mistake{.name = "rope.k_twice",
            .axis = Axis::rope,
            .what = "The key is turned twice, the query once.",
            .look_for = cache_turn,
            .make = turns<Turn::claimed, Turn::twice>},
    Mistake{.name = "rope.last_features",
            .axis = Axis::rope,
            .what = "The last R features turn, not the first.",
            .look_for = "the order of the turned and the unturned part",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!turned(claim) || !partly(claim)) return false;
                  recipe.operands.rope.last_features = true;
                  return true;
                }},
    Mistake{.name = "rope.llama3_scaled",
            .axis = Axis::rope,
            .what = "Long waves are stretched as Llama 3.1 does it.",
            .look_for = "rope_scaling of the model's configuration",
            .values = stretches,
            .make = exponent_is<RopeExponent::llama3_scaled>},
    Mistake{.name = "rope.minus_missing",
            .axis = Axis::rope,
            .what = "rotate_half has no minus: (x2, x1) for (-x2, x1).",
            .look_for = rotation,
            .make = form_is<RopeForm::no_minus>},
    Mistake{.name = "rope.mixed_layout_tables",
            .axis = Axis::rope,
            .what = "The pairing is the other one, the tables of angles are not.",
            .look_for = table_layout,
            .seen_in = "karpathy/nanochat#264, huggingface/transformers#47403",
            .make = tables<true, false>},
    Mistake{.name = "rope.new_keys_at_0",
            .axis = Axis::rope,
            .what = "The positions of new keys begin at 0 again.",
            .look_for = "the positions that new keys are turned by before they join the cache",
            .seen_in = "EleutherAI/gpt-neox#363",
            .make = cached_turn<CachedTurn::new_from_zero>},
    Mistake{.name = "rope.none",
            .axis = Axis::rope,
            .what = "Nothing is turned.",
            .look_for = "a missing rotation of query and key",
            .make = turns<Turn::none, Turn::none>},
    Mistake{.name = "rope.offset+1_q",
            .axis = Axis::rope,
            .what =
                "Query positions are one too high, or the keys' one too low: the cache's length is "
                "counted one too many.",
            .look_for = decode_positions,
            .seen_in = "fla-org/flash-linear-attention#766, skyzh/tiny-llm#46",
            .make = query_shifted<1>},
    Mistake{.name = "rope.offset-1_q",
            .axis = Axis::rope,
            .what = "Query positions are one too low, or the keys' one too high.",
            .look_for = decode_positions,
            .make = query_shifted<-1>},
    Mistake{.name = "rope.offset_missing_q",
            .axis = Axis::rope,
            .what = "Query positions begin at 0, not at the cache's length.",
            .look_for = decode_positions,
            .seen_in = "Blaizzy/mlx-vlm#1983, pytorch/executorch#2010, RobertCsordas/moeut#6",
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  const bool from_zero = claim.rope && !claim.rope->query_positions.empty() &&
                                         claim.rope->query_positions.front() == 0;
                  return !from_zero &&
                         query_positions<RopePositions::from_zero>(recipe, claim, value);
                }},
    Mistake{.name = "rope.offset_q",
            .axis = Axis::rope,
            .what = "Query positions are shifted against the keys'.",
            .look_for = decode_positions,
            .values = shifts,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!turned(claim)) return false;
                  recipe.operands.rope.query_shift = static_cast<std::int64_t>(value);
                  return true;
                }},
    Mistake{.name = "rope.other_tables",
            .axis = Axis::rope,
            .what = "The pairing is right, the tables of angles are those of the other one.",
            .look_for = table_layout,
            .seen_in = "karpathy/nanochat#264",
            .make = tables<false, true>},
    Mistake{.name = "rope.partial",
            .axis = Axis::rope,
            .what = "Another part of the features turns than claimed.",
            .look_for = "rotary_dim, or partial_rotary_factor",
            .values = parts,
            .make = width},
    Mistake{.name = "rope.partial_half",
            .axis = Axis::rope,
            .what = "Half of the features turn, not as many as claimed.",
            .look_for = "rotary_dim, or D/2 taken for the rotated width",
            .make = [](Recipe& recipe, const Claim& claim,
                       double /*value*/) { return width(recipe, claim, 0.5); }},
    Mistake{.name = "rope.position_is_head",
            .axis = Axis::rope,
            .what = "Rows are turned by the index of their head, not of their position.",
            .look_for =
                "the axis that the rotation takes for the sequence: [B, T, H, D] or [B, H, T, D]",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!turned(claim) || claim.shape.H < 2) return false;
                  recipe.operands.rope.query_positions = RopePositions::head;
                  recipe.operands.rope.key_positions = RopePositions::head;
                  return true;
                }},
    Mistake{.name = "rope.positions_1based_q_only",
            .axis = Axis::rope,
            .what = "Query positions are counted from 1, key positions from 0.",
            .look_for = "where the positions of query and key are made",
            .make = query_shifted<1>},
    Mistake{.name = "rope.positions_bf16",
            .axis = Axis::rope,
            .kind = MistakeKind::rounding,
            .what = "Positions are rounded to bf16, which holds whole numbers up to 256.",
            .look_for = "the type of the position ids",
            .seen_in = "huggingface/transformers#25199",
            .make = rounded<RopeRounding::positions_bf16>},
    Mistake{.name = "rope.positions_divided",
            .axis = Axis::rope,
            .what = "Positions are divided by a number: linear scaling to longer contexts.",
            .look_for = "rope_scaling of the model's configuration",
            .values = divisors,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  if (!turned(claim)) return false;
                  recipe.operands.rope.positions_divided_by = value;
                  return true;
                }},
    Mistake{.name = "rope.q_at_final_position_all",
            .axis = Axis::rope,
            .what = "All queries are turned by the position of the last one.",
            .look_for = decode_positions,
            .make = query_positions<RopePositions::last_for_all>},
    Mistake{.name = "rope.q_at_last_position_all",
            .axis = Axis::rope,
            .what = "All queries are turned by one position, the cache's length.",
            .look_for = decode_positions,
            .make = query_positions<RopePositions::first_for_all>},
    Mistake{.name = "rope.q_direction_only",
            .axis = Axis::rope,
            .what = "The query is turned the other way round, the key rightly.",
            .look_for = rotation,
            .make = turns<Turn::reversed, Turn::claimed>},
    Mistake{.name = "rope.q_half_k_interleaved",
            .axis = Axis::rope,
            .what = "The query is turned in halves, the key in neighbours.",
            .look_for = pairing,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return other_pairing<RopePairing::half, false, true>(recipe, claim, value) ||
                         other_pairing<RopePairing::interleaved, true, false>(recipe, claim, value);
                }},
    Mistake{.name = "rope.q_interleaved_k_half",
            .axis = Axis::rope,
            .what = "The query is turned in neighbours, the key in halves.",
            .look_for = pairing,
            .make =
                [](Recipe& recipe, const Claim& claim, double value) {
                  return other_pairing<RopePairing::half, true, false>(recipe, claim, value) ||
                         other_pairing<RopePairing::interleaved, false, true>(recipe, claim, value);
                }},
    Mistake{.name = "rope.q_only",
            .axis = Axis::rope,
            .what = "Only the query is turned.",
            .look_for = "the rotation of the key",
            .seen_in = "trymirai/lalamo#272",
            .make = turns<Turn::claimed, Turn::none>},
    Mistake{.name = "rope.q_twice",
            .axis = Axis::rope,
            .what = "The query is turned twice, the key once.",
            .look_for = "a rotation in the caller and another inside the attention",
            .make = turns<Turn::twice, Turn::claimed>},
    Mistake{.name = "rope.sin_cos_swapped",
            .axis = Axis::rope,
            .what = "Sine and cosine have changed places.",
            .look_for = "the order of the tables that are passed or returned",
            .make = form_is<RopeForm::sin_cos_swapped>},
    Mistake{.name = "rope.tables_bf16",
            .axis = Axis::rope,
            .kind = MistakeKind::rounding,
            .what = "The tables of cosines and sines are rounded to bf16.",
            .look_for = "the type of the cached tables",
            .seen_in = "huggingface/transformers#25199",
            .make = rounded<RopeRounding::tables_bf16>},
    Mistake{.name = "rope.tables_f16",
            .axis = Axis::rope,
            .kind = MistakeKind::rounding,
            .what = "The tables of cosines and sines are rounded to float16.",
            .look_for = "the type of the cached tables",
            .make = rounded<RopeRounding::tables_f16>},
    Mistake{.name = "rope.v_rotated_too",
            .axis = Axis::rope,
            .what = "The value is turned too.",
            .look_for = "a rotation applied to all of qkv",
            .make =
                [](Recipe& recipe, const Claim& claim, double /*value*/) {
                  if (!turned(claim) || !claim.has_value()) return false;
                  recipe.operands.rope.value_too = true;
                  return true;
                }},
};

}  // namespace

std::span<const Mistake> rope_mistakes() { return mistakes; }

}  // namespace attest::check
