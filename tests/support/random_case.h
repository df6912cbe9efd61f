// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "tests/support/matrices.h"

/// Random attention calls with every option, replayable from their seed.
namespace attest::test {

struct CaseLimits {
  std::int64_t longest = 6;  ///< T and S
  std::int64_t widest = 5;   ///< D and E
  double size = 2;           ///< of queries, keys and values
};

/// [b or 1, h or 1, i or 1, j or 1], each axis kept or broadcast at random.
inline Shape broadcast_shape(Random& random, Shape whole) {
  for (std::int64_t& extent : whole) {
    if (random.between(0, 2) == 0) extent = 1;
  }
  return whole;
}

inline void random_positions(Random& random, Mask& mask, std::int64_t B, std::int64_t T,
                             std::int64_t S) {
  mask.future_hidden = random.between(0, 1) == 0;
  mask.corner = static_cast<Corner>(random.between(0, 3));
  if (mask.corner == Corner::square && T != S) mask.corner = Corner::top_left;
  if (mask.corner == Corner::at_offset) {
    const std::int64_t count = random.between(0, 1) == 0 ? 1 : B;
    for (std::int64_t n = 0; n < count; ++n) mask.query_offset.push_back(random.between(-2, S));
  }
  if (random.between(0, 2) == 0) mask.window.left = random.between(0, 3);
  if (random.between(0, 3) == 0) mask.window.right = random.between(0, 3);
  if (random.between(0, 2) == 0) {
    const std::int64_t count = random.between(0, 1) == 0 ? 1 : B;
    for (std::int64_t n = 0; n < count; ++n) mask.key_lengths.push_back(random.between(0, S));
  }
}

inline AttentionCase random_case(std::uint64_t seed, const CaseLimits& limits = {}) {
  Random random(seed);
  const std::int64_t B = random.between(1, 3);
  const std::int64_t G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, 3);
  const std::int64_t T = random.between(1, limits.longest);
  const std::int64_t S = random.between(0, 3) == 0 ? T : random.between(1, limits.longest);
  const std::int64_t D = random.between(1, limits.widest);
  const std::int64_t E = random.between(1, limits.widest);
  AttentionCase out;
  out.query = random_tensor(random, {B, H, T, D}, -limits.size, limits.size);
  out.key = random_tensor(random, {B, G, S, D}, -limits.size, limits.size);
  out.value = random_tensor(random, {B, G, S, E}, -limits.size, limits.size);
  random_positions(random, out.mask, B, T, S);
  if (random.between(0, 1) == 0) {
    Tensor<bool> visible(broadcast_shape(random, {B, H, T, S}));
    for (bool& seen : visible.elements()) seen = random.between(0, 3) != 0;
    out.visible = std::move(visible);
  }
  if (random.between(0, 1) == 0) {
    Tensor<double> bias = random_tensor(random, broadcast_shape(random, {B, H, T, S}));
    for (double& x : bias.elements()) {
      if (random.between(0, 7) == 0) x = -std::numeric_limits<double>::infinity();
    }
    out.bias = std::move(bias);
  }
  if (random.between(0, 2) == 0) out.scale = random.uniform(-2, 2);
  if (random.between(0, 2) == 0) out.softcap = random.uniform(0.5, 4);
  const auto per_head = [&](std::vector<double>& values, double low, double high) {
    for (std::int64_t h = 0; h < H; ++h) values.push_back(random.uniform(low, high));
  };
  if (random.between(0, 2) == 0) per_head(out.alibi_slopes, 0, 1);
  if (random.between(0, 2) == 0) per_head(out.sink, -2, 2);
  out.empty_row = random.between(0, 3) == 0 ? EmptyRow::nan : EmptyRow::zero;
  return out;
}

/// What to print when a case fails: its seed makes it again, the rest helps to read it.
inline std::string describe(std::uint64_t seed, const AttentionCase& call) {
  return sentence(
      "case with seed ", seed, ": query ", to_string(call.query.shape()), ", key ",
      to_string(call.key.shape()), ", value ", to_string(call.value.shape()), ", future hidden ",
      call.mask.future_hidden ? "yes" : "no", ", corner ", static_cast<int>(call.mask.corner),
      call.visible ? ", visible" : "", call.bias ? ", bias" : "", call.scale ? ", scale" : "",
      call.softcap ? ", softcap" : "", call.alibi_slopes.empty() ? "" : ", alibi",
      call.sink.empty() ? "" : ", sink", call.mask.window.left ? ", left" : "",
      call.mask.window.right ? ", right" : "", call.mask.key_lengths.empty() ? "" : ", lengths");
}

}  // namespace attest::test
