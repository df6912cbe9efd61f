// SPDX-License-Identifier: MIT
#include <utility>

#include "attest/check/gradients/judge.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/positions.h"

namespace attest::check::gradients {
namespace {

/// The turns of rows at any positions: a table of rows that all begin a batch of their own.
Result<lab::RopeTable> table_at(const RopeConfig& config, std::int64_t width,
                                const std::vector<std::int64_t>& positions, std::int64_t length) {
  auto table = lab::rope_table(config, width, {.T = 1, .offsets = positions});
  if (!table) return table.failure();
  const std::int64_t pairs = table->cos.extent(2);
  const auto batches = length == 0 ? 1 : static_cast<std::int64_t>(positions.size()) / length;
  for (Tensor<double>* part : {&table->angle, &table->cos, &table->sin}) {
    *part = std::move(*part).reshaped({batches, length, pairs});
  }
  return table;
}

Result<Tensor<double>> turned(const Tensor<double>& x, const lab::RopeTable& table,
                              RopePairing pairing, bool back) {
  Tensor<double> sin = table.sin;
  for (double& s : sin.elements()) s = back ? -s : s;
  return lab::rope_turn(x.view<4>(), {table.cos.view<3>(), sin.view<3>(), pairing});
}

}  // namespace

Result<std::array<Tensor<double>, 5>> exact_gradients(const GradientDump& dump) {
  AttentionCase call = dump.claim.call;
  std::optional<lab::RopeTable> query_turns, key_turns;
  if (const auto& rope = dump.claim.rope) {
    const std::int64_t width = call.query.extent(3);
    auto queries = table_at(rope->config, width, rope->query_positions, call.query.extent(2));
    if (!queries) return queries.failure();
    auto keys = table_at(rope->config, width, rope->key_positions, call.key.extent(2));
    if (!keys) return keys.failure();
    query_turns = std::move(*queries);
    key_turns = std::move(*keys);
    auto query = turned(call.query, *query_turns, rope->config.pairing, false);
    if (!query) return query.failure();
    auto key = turned(call.key, *key_turns, rope->config.pairing, false);
    if (!key) return key.failure();
    call.query = std::move(*query);
    call.key = std::move(*key);
  }
  lab::AttentionOutputGradients flows{.d_output = dump.d_output.view<4>()};
  if (dump.d_log_sum_exp) flows.d_log_sum_exp = dump.d_log_sum_exp->view<3>();
  auto out = lab::attention_backward(call.inputs(), call.options(), flows);
  if (!out) return out.failure();
  if (query_turns) {
    const RopePairing pairing = dump.claim.rope->config.pairing;
    auto query = turned(out->d_query, *query_turns, pairing, true);
    if (!query) return query.failure();
    auto key = turned(out->d_key, *key_turns, pairing, true);
    if (!key) return key.failure();
    out->d_query = std::move(*query);
    out->d_key = std::move(*key);
  }
  return std::array{std::move(out->d_query), std::move(out->d_key), std::move(out->d_value),
                    std::move(out->d_bias), std::move(out->d_sink)};
}

}  // namespace attest::check::gradients
