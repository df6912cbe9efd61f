// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "attest/base/random.h"
#include "attest/check/gradients/gradients.h"
#include "tests/support/random_case.h"

/// Dumps on which mistakes show: odd shapes, every feature somewhere.
namespace attest::test {

using check::GradientDump;

inline float as_float(double x) { return static_cast<float>(x); }

/// Numbers that every type of the tests holds.
inline Tensor<double> stored_numbers(Random& random, Shape shape, DType type) {
  Tensor<double> out = random_tensor(random, std::move(shape), -2, 2);
  for (double& x : out.elements()) {
    x = type == DType::bf16  ? to_double(to_bfloat16(x))
        : type == DType::f16 ? to_double(to_half(x))
                             : static_cast<double>(as_float(x));
  }
  return out;
}

/// T is not S, groups of heads, causal in the lower right corner, a window, an allow mask, a bias that is
/// broadcast along some axes, softcap, sink, dropout, a flow into log_sum_exp, rows that see no key.
inline GradientDump wide_dump(std::uint64_t seed, DType type = DType::f32) {
  Random random(seed, 7);
  const std::int64_t B = 2, G = random.between(1, 2) + 1, H = G * random.between(2, 3);
  const std::int64_t T = random.between(5, 8), S = T + random.between(2, 5);
  const std::int64_t D = random.between(3, 6), E = random.between(2, 5);
  GradientDump out;
  AttentionCase& call = out.claim.call;
  call.query = stored_numbers(random, {B, H, T, D}, type);
  call.key = stored_numbers(random, {B, G, S, D}, type);
  call.value = stored_numbers(random, {B, G, S, E}, type);
  out.d_output = stored_numbers(random, {B, H, T, E}, type);
  out.d_log_sum_exp = stored_numbers(random, {B, H, T}, DType::f32);
  call.mask = Mask::causal_bottom_right();
  call.mask.window.left = S - 3;
  call.visible = Tensor<bool>({B, 1, T, S});
  for (bool& seen : call.visible->elements()) seen = random.between(0, 6) != 0;
  for (std::int64_t j = 0; j < S; ++j) (*call.visible)(1, 0, T - 2, j) = false;  // sees no key
  const Shape shapes[] = {{1, 1, T, S}, {B, 1, 1, S}, {1, H, T, S}, {1, H, 1, S}};
  call.bias = stored_numbers(random, shapes[random.between(0, 3)], DType::f32);
  call.scale = as_float(random.uniform(0.2, 0.7));
  call.softcap = as_float(random.uniform(1.5, 3));
  for (std::int64_t h = 0; h < H; ++h) call.sink.push_back(as_float(random.uniform(-1, 1)));
  call.dropout = {.rate = 0.25, .seed = seed};
  call.empty_row = EmptyRow::zero;
  return out;
}

/// T = S, H = G, D = E: whatever can be taken for another fits.
inline GradientDump square_dump(std::uint64_t seed, DType type = DType::f32) {
  Random random(seed, 8);
  const std::int64_t B = 2, H = 3, T = random.between(6, 9), D = random.between(3, 6);
  GradientDump out;
  AttentionCase& call = out.claim.call;
  call.query = stored_numbers(random, {B, H, T, D}, type);
  call.key = stored_numbers(random, {B, H, T, D}, type);
  call.value = stored_numbers(random, {B, H, T, D}, type);
  out.d_output = stored_numbers(random, {B, H, T, D}, type);
  call.mask = Mask::causal();
  if (seed % 2 == 1) {
    for (std::int64_t i = 0; i < T; ++i) call.mask.documents.query.push_back(i / 4);
    call.mask.documents.key = call.mask.documents.query;
  }
  return out;
}

/// More keys than queries, causal from the upper left, key lengths of each batch; no row is empty.
inline GradientDump corner_dump(std::uint64_t seed, DType type = DType::f32) {
  Random random(seed, 10);
  const std::int64_t B = 2, H = 2, T = random.between(5, 7), S = T + 3, D = random.between(3, 6);
  GradientDump out;
  AttentionCase& call = out.claim.call;
  call.query = stored_numbers(random, {B, H, T, D}, type);
  call.key = stored_numbers(random, {B, H, S, D}, type);
  call.value = stored_numbers(random, {B, H, S, D + 1}, type);
  out.d_output = stored_numbers(random, {B, H, T, D + 1}, type);
  call.mask = Mask::causal_top_left();
  call.mask.key_lengths = {T - 1, S};
  return out;
}

/// Rotary positions after a cache, groups of heads.
inline GradientDump rope_dump(std::uint64_t seed, DType type = DType::f32) {
  Random random(seed, 9);
  const std::int64_t B = 2, G = 2, H = 4, T = random.between(4, 6), past = 3, S = T + past;
  const std::int64_t D = 2 * random.between(2, 4), E = random.between(3, 5);
  GradientDump out;
  AttentionCase& call = out.claim.call;
  call.query = stored_numbers(random, {B, H, T, D}, type);
  call.key = stored_numbers(random, {B, G, S, D}, type);
  call.value = stored_numbers(random, {B, G, S, E}, type);
  out.d_output = stored_numbers(random, {B, H, T, E}, type);
  call.mask = Mask::causal_at(past);
  check::RopeClaim rope;
  rope.config.pairing = random.between(0, 1) == 0 ? RopePairing::half : RopePairing::interleaved;
  for (std::int64_t i = 0; i < T; ++i) rope.query_positions.push_back(past + i);
  for (std::int64_t j = 0; j < S; ++j) rope.key_positions.push_back(j);
  out.claim.rope = rope;
  out.claim.past = past;
  return out;
}

}  // namespace attest::test
