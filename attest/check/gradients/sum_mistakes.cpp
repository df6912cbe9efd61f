// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>

#include "attest/check/gradients/gradient_mistakes.h"

namespace attest::check::gradients {
namespace {

using Recipe = GradientRecipe;

bool grouped(const Claim& claim) { return claim.call.query.extent(1) != claim.call.key.extent(1); }
bool square(const Claim& claim) { return claim.call.query.extent(2) == claim.call.key.extent(2); }
bool broadcast_over(const Claim& claim, std::size_t axis) {
  if (!claim.call.bias || claim.call.bias->extent(axis) != 1) return false;
  return claim.call.query.extent(axis) != 1;
}
bool set_heads(Recipe& r, const Claim& claim, Gather key, Gather value) {
  r.key_heads = key;
  r.value_heads = value;
  return grouped(claim);
}

/// What is left beyond the last whole block of that size; the last block where it is full.
std::int64_t last_block(std::int64_t length, double value) {
  const auto block = static_cast<std::int64_t>(value);
  return (length - 1) / block * block;
}
std::int64_t keys_of(const Claim& claim) { return claim.call.key.extent(2); }
std::int64_t rows_of(const Claim& claim) { return claim.call.query.extent(2); }

constexpr std::array<double, 16> blocks{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128};

const GradientMistake table[] = {
    {{.name = "gradient.heads_not_summed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives d_key and d_value for every query head, not summed over the heads that "
              "read one key/value head",
      .look_for = "sum over the H/G query heads of each group: the backward pass of "
                  "repeat_interleave",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::apart, Gather::apart);
     }},
    {{.name = "gradient.heads_last_only",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_key and d_value of the last query head of each group alone",
      .look_for = "query heads of a group add to d_key and d_value; a store overwrites",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::last, Gather::last);
     }},
    {{.name = "gradient.heads_first_only",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_key and d_value of the first query head of each group alone",
      .look_for = "sum over the H/G query heads of each group",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::first, Gather::first);
     }},
    {{.name = "gradient.heads_averaged",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "averages d_key and d_value over the query heads of a group",
      .look_for = "a sum over the group, not a mean",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::mean, Gather::mean);
     }},
    {{.name = "gradient.heads_tiled",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "adds d_key and d_value of query head h to key/value head h mod G",
      .look_for = "h div (H/G): reshape to [B, G, H/G, ...] before the sum, not [B, H/G, G, ...]",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::tiled, Gather::tiled);
     }},
    {{.name = "gradient.heads_last_only_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_key of the last query head of each group alone",
      .look_for = "query heads of a group add to d_key; a store overwrites",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::last, Gather::sum);
     }},
    {{.name = "gradient.heads_last_only_in_d_value",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_value of the last query head of each group alone",
      .look_for = "query heads of a group add to d_value; a store overwrites",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       return set_heads(r, claim, Gather::sum, Gather::last);
     }},
    {{.name = "gradient.d_bias_not_summed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives d_bias for every score, not summed over the axes along which the bias "
              "was repeated",
      .look_for = "sum d_scores to the shape of the bias",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_batch = Gather::apart;
       return broadcast_over(claim, 0) || broadcast_over(claim, 1) || broadcast_over(claim, 2) ||
              (claim.call.bias && claim.call.bias->extent(3) == 1 && keys_of(claim) != 1);
     }},
    {{.name = "gradient.d_bias_last_batch",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the last batch alone, where the bias is the same for all",
      .look_for = "d_bias is added to, not overwritten, along axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_batch = Gather::last;
       return broadcast_over(claim, 0);
     }},
    {{.name = "gradient.d_bias_first_batch",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the first batch alone, where the bias is the same for all",
      .look_for = "sum over the axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_batch = Gather::first;
       return broadcast_over(claim, 0);
     }},
    {{.name = "gradient.d_bias_batch_averaged",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "averages d_bias over the batch, where the bias is the same for all",
      .look_for = "a sum over the axes that the bias does not have, not a mean",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_batch = Gather::mean;
       return broadcast_over(claim, 0);
     }},
    {{.name = "gradient.d_bias_last_head",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the last head alone, where the bias is the same for all",
      .look_for = "d_bias is added to, not overwritten, along axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_heads = Gather::last;
       return broadcast_over(claim, 1);
     }},
    {{.name = "gradient.d_bias_first_head",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the first head alone, where the bias is the same for all",
      .look_for = "sum over the axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_heads = Gather::first;
       return broadcast_over(claim, 1);
     }},
    {{.name = "gradient.d_bias_heads_averaged",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "averages d_bias over the heads, where the bias is the same for all",
      .look_for = "a sum over the axes that the bias does not have, not a mean",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_heads = Gather::mean;
       return broadcast_over(claim, 1);
     }},
    {{.name = "gradient.d_bias_last_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the last query alone, where the bias is the same for all",
      .look_for = "d_bias is added to, not overwritten, along axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_rows = Gather::last;
       return broadcast_over(claim, 2);
     }},
    {{.name = "gradient.d_bias_first_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_bias of the first query alone, where the bias is the same for all",
      .look_for = "sum over the axes that the bias does not have",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_rows = Gather::first;
       return broadcast_over(claim, 2);
     }},
    {{.name = "gradient.d_bias_queries_averaged",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "averages d_bias over the queries, where the bias is the same for all",
      .look_for = "a sum over the axes that the bias does not have, not a mean",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias_rows = Gather::mean;
       return broadcast_over(claim, 2);
     }},
    {{.name = "gradient.d_bias_sign",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has d_bias with the wrong sign",
      .look_for = "the bias is added: its gradient is d_scores",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[3].factor = -1;
       return claim.call.bias.has_value();
     }},
    {{.name = "gradient.d_value_unnormalised",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes d_value with weights that are not divided by their sum",
      .look_for = "dV = P^T dO with the weights that multiplied the values",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.value_weights = WeightsBack::unnormalised;
       return true;
     }},
    {{.name = "gradient.d_value_transposed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_output by the weights, not by their transpose, for d_value",
      .look_for = "dV = P^T dO: the sum runs over queries",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[2].transposed = true;
       return square(claim);
     }},
    {{.name = "gradient.d_query_transposed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies keys by the transpose of d_scores for d_query",
      .look_for = "dQ = dS K: the sum runs over keys",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[0].transposed = true;
       return square(claim);
     }},
    {{.name = "gradient.d_key_transposed",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies queries by d_scores, not by their transpose, for d_key",
      .look_for = "dK = dS^T Q: the sum runs over queries",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[1].transposed = true;
       return square(claim);
     }},
    {{.name = "gradient.last_keys_lost",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "loses the last block of keys",
      .look_for = "the number of blocks is rounded up, and the last one has a mask of its own",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       const std::int64_t begin = last_block(keys_of(claim), value);
       r.query_keys.end = r.written_keys.end = begin;
       return begin > 0;
     }},
    {{.name = "gradient.first_keys_lost",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "loses the first block of keys",
      .look_for = "where the loop over blocks of keys begins",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       const auto block = static_cast<std::int64_t>(value);
       r.query_keys.begin = r.written_keys.begin = block;
       return block < keys_of(claim);
     }},
    {{.name = "gradient.last_queries_lost",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "loses the last block of queries",
      .look_for = "the number of blocks is rounded up, and the last one has a mask of its own",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       const std::int64_t begin = last_block(rows_of(claim), value);
       r.key_rows.end = r.written_rows.end = begin;
       return begin > 0;
     }},
    {{.name = "gradient.first_queries_lost",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "loses the first block of queries",
      .look_for = "where the loop over blocks of queries begins",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       const auto block = static_cast<std::int64_t>(value);
       r.key_rows.begin = r.written_rows.begin = block;
       return block < rows_of(claim);
     }},
    {{.name = "gradient.d_query_last_key_block",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_query of the last block of keys alone",
      .look_for = "blocks of keys add to d_query; a store overwrites",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       r.query_keys.begin = last_block(keys_of(claim), value);
       return r.query_keys.begin > 0;
     }},
    {{.name = "gradient.d_query_first_key_block",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_query of the first block of keys alone",
      .look_for = "blocks of keys add to d_query",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       r.query_keys.end = static_cast<std::int64_t>(value);
       return r.query_keys.end < keys_of(claim);
     }},
    {{.name = "gradient.d_key_last_query_block",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_key and d_value of the last block of queries alone",
      .look_for = "blocks of queries add to d_key and d_value; a store overwrites",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       r.key_rows.begin = last_block(rows_of(claim), value);
       return r.key_rows.begin > 0;
     }},
    {{.name = "gradient.d_key_first_query_block",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps d_key and d_value of the first block of queries alone",
      .look_for = "blocks of queries add to d_key and d_value",
      .seen_in = "",
      .values = blocks},
     [](Recipe& r, const Claim& claim, double value) {
       r.key_rows.end = static_cast<std::int64_t>(value);
       return r.key_rows.end < rows_of(claim);
     }},
};

}  // namespace

std::span<const GradientMistake> sum_mistakes() { return table; }

}  // namespace attest::check::gradients
