// SPDX-License-Identifier: MIT
#include <cmath>

#include "attest/base/dropout.h"
#include "attest/check/at_index.h"
#include "attest/check/gradients/forward.h"

namespace attest::check::gradients {
namespace {

/// An entry of a list that serves all batches, or has one for each.
std::int64_t for_batch(const std::vector<std::int64_t>& list, std::int64_t b) {
  return list.size() == 1 ? list.front() : list[at_index(b)];
}

std::int64_t of_token(const std::vector<std::int64_t>& list, std::int64_t length, std::int64_t b,
                      std::int64_t n) {
  return list.size() == at_index(length) ? list[at_index(n)] : list[at_index(b * length + n)];
}

}  // namespace

Noise Noise::of(Precision precision) {
  switch (precision) {
    case Precision::f64:
      return {.unit = 0x1p-53, .store = 0x1p-53};
    case Precision::f32:
      return {};
    case Precision::tf32:
      return {.entry = 0x1p-11, .cast = 0x1p-11};
    case Precision::f16:
      return {.cast = 0x1p-11, .store = 0x1p-11};
    case Precision::bf16:
      return {.cast = 0x1p-8, .store = 0x1p-8};
  }
  return {};
}

Noise Noise::with_tables(Precision precision) {
  Noise out = of(precision);
  out.table = unit_of(precision);
  return out;
}

Problem::Problem(const GradientDump& of)
    : dump(of), query(of.claim.call.query), key(of.claim.call.key) {
  const AttentionCase& call = dump.claim.call;
  shape = {.B = query.extent(0),
           .H = query.extent(1),
           .G = key.extent(1),
           .T = query.extent(2),
           .S = key.extent(2),
           .D = query.extent(3),
           .E = call.value.extent(3)};
  scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(shape.D)));
  keep_factor = 1 / (1 - call.dropout.rate);
  if (!dump.claim.rope) return;
  const RopeConfig& rope = dump.claim.rope->config;
  const std::int64_t width = rope.rotary_dim == 0 ? shape.D : rope.rotary_dim;
  for (std::int64_t n = 0; n < width / 2; ++n) {
    frequencies_.push_back(
        std::pow(rope.base, -2 * static_cast<double>(n) / static_cast<double>(width)));
  }
  const auto turn_all = [&](Tensor<double>& rows, bool of_query) {
    const std::int64_t heads = rows.extent(1), length = rows.extent(2);
    for (std::int64_t n = 0; n < shape.B * heads * length; ++n) {
      const std::int64_t b = n / (heads * length);
      turn(rows.elements().subspan(at_index(n * shape.D), at_index(shape.D)),
           rope_position(of_query, b, n % length), false);
    }
  };
  turn_all(query, true);
  turn_all(key, false);
}

void Problem::turn(std::span<double> row, std::int64_t position, bool back) const {
  const std::size_t pairs = frequencies_.size();
  const bool half = pairs != 0 && dump.claim.rope->config.pairing == RopePairing::half;
  for (std::size_t n = 0; n < pairs; ++n) {
    const double angle = static_cast<double>(position) * frequencies_[n] * (back ? -1 : 1);
    double& x = row[half ? n : 2 * n];
    double& y = row[half ? n + pairs : 2 * n + 1];
    const double first = x * std::cos(angle) - y * std::sin(angle);
    y = y * std::cos(angle) + x * std::sin(angle);
    x = first;
  }
}

std::int64_t Problem::rope_position(bool of_query, std::int64_t b, std::int64_t n) const {
  const RopeClaim& rope = *dump.claim.rope;
  return of_query ? of_token(rope.query_positions, shape.T, b, n)
                  : of_token(rope.key_positions, shape.S, b, n);
}

double Problem::turn_noise(bool of_query, std::int64_t b, std::int64_t n, double unit) const {
  if (frequencies_.empty()) return 0;
  return unit * (3 + std::fabs(static_cast<double>(rope_position(of_query, b, n))));
}

std::int64_t Problem::key_length(std::int64_t b) const {
  const auto& lengths = dump.claim.call.mask.key_lengths;
  return lengths.empty() ? shape.S : for_batch(lengths, b);
}

Problem::Document Problem::document_of(std::int64_t i) const {
  const auto& [queries, keys] = dump.claim.call.mask.packing;
  if (queries.empty()) return {.queries = shape.T, .keys = shape.S};
  std::size_t n = 0;
  while (n + 2 < queries.size() && i >= queries[n + 1]) ++n;
  return {queries[n], keys[n], queries[n + 1] - queries[n], keys[n + 1] - keys[n]};
}

std::int64_t Problem::query_position(std::int64_t b, std::int64_t i) const {
  const Mask& mask = dump.claim.call.mask;
  const Document own = document_of(i);
  const std::int64_t place = i - own.first_query;
  if (mask.corner == Corner::at_offset) return place + for_batch(mask.query_offset, b);
  if (mask.corner != Corner::bottom_right) return place;
  const std::int64_t keys = mask.packing.query_starts.empty() ? key_length(b) : own.keys;
  return place + keys - own.queries;
}

std::int64_t Problem::key_position(std::int64_t i, std::int64_t j) const {
  return j - document_of(i).first_key;
}

unsigned Problem::hidden(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const AttentionCase& call = dump.claim.call;
  const Mask& mask = call.mask;
  unsigned out = 0;
  const Document own = document_of(i);
  if (j < own.first_key || j >= own.first_key + own.keys) out |= by_document;
  const auto& ids = mask.documents;
  if (!ids.query.empty() &&
      of_token(ids.query, shape.T, b, i) != of_token(ids.key, shape.S, b, j)) {
    out |= by_document;
  }
  const std::int64_t ahead = key_position(i, j) - query_position(b, i);
  if (mask.future_hidden && ahead > 0) out |= by_future;
  if (mask.window.left && -ahead > *mask.window.left) out |= by_window;
  if (mask.window.right && ahead > *mask.window.right) out |= by_window;
  if (j >= key_length(b)) out |= by_length;
  if (call.visible &&
      !broadcast(call.visible->view<4>(), {shape.B, shape.H, shape.T, shape.S})(b, h, i, j)) {
    out |= by_mask;
  }
  const double added = bias(b, h, i, j);
  if (std::isinf(added) && added < 0) out |= by_bias;
  return out;
}

double Problem::bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const auto& bias = dump.claim.call.bias;
  if (!bias) return 0;
  return broadcast(bias->view<4>(), {shape.B, shape.H, shape.T, shape.S})(b, h, i, j);
}

std::int64_t Problem::bias_extent(std::size_t axis) const {
  return dump.claim.call.bias ? dump.claim.call.bias->extent(axis) : 0;
}

bool Problem::kept(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const Dropout& dropout = dump.claim.call.dropout;
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  const WeightPlace place{static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(h),
                          static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)};
  return threshold == 0 || !dropped(dropout.seed, threshold, place);
}

}  // namespace attest::check::gradients
