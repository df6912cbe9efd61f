// SPDX-License-Identifier: MIT
#include "attest/check/verify_cases.h"

#include <algorithm>
#include <array>
#include <limits>

#include "attest/base/text.h"
#include "attest/lab/positions.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// True once in `n` times.
bool once_in(Random& random, std::int64_t n) { return random.between(1, n) == 1; }

Tensor<double> whole_numbers(Random& random, Shape shape, std::int64_t size) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = static_cast<double>(random.between(-size, size));
  return out;
}

/// A mask that hides about a third, but leaves the query one of the keys up to its own position.
Tensor<bool> random_allow(Random& random, Shape shape) {
  Tensor<bool> allow(shape);
  for (bool& cell : allow.elements()) cell = !once_in(random, 3);
  const std::int64_t T = shape[2];
  const std::int64_t S = shape[3];
  for (std::int64_t n = 0; n < shape[0] * shape[1] * T; ++n) {
    const std::int64_t last = std::min(n % T, S - 1);
    allow.elements()[static_cast<std::size_t>(n * S + random.between(0, last))] = true;
  }
  return allow;
}

void add_gradients(VerifyCase& out, Random& random) {
  const Shape& query = out.call.query.shape();
  out.d_output = random_tensor(random, {query[0], query[1], query[2], out.call.value.extent(3)}, 1);
  out.d_log_sum_exp = random_tensor(random, {query[0], query[1], query[2]}, 1);
}

std::string letters(const AttentionCase& call) {
  const Shape& query = call.query.shape();
  return sentence("B=", query[0], " H=", query[1], " G=", call.key.extent(1), " T=", query[2],
                  " S=", call.key.extent(2), " D=", query[3], " E=", call.value.extent(3));
}

/// Corner, window and key lengths; says what it chose.
std::string choose_mask(AttentionCase& call, Random& random) {
  const std::int64_t B = call.query.extent(0);
  const std::int64_t T = call.query.extent(2);
  const std::int64_t S = call.key.extent(2);
  std::string chosen;
  switch (random.between(0, 4)) {
    case 0:
      break;
    case 1:
      call.mask = Mask::causal_top_left();
      chosen += " causal-top-left";
      break;
    case 2:
      call.mask = Mask::causal_bottom_right();
      chosen += " causal-bottom-right";
      break;
    case 3:
      call.mask = Mask::causal_at(random.between(-1, S));
      chosen += sentence(" causal-at-", call.mask.query_offset[0]);
      break;
    default:
      call.mask.corner = Corner::at_offset;
      for (std::int64_t b = 0; b < B; ++b) call.mask.query_offset.push_back(random.between(0, 3));
      chosen += " offsets";
  }
  if (once_in(random, 3)) {
    call.mask.window.left = random.between(0, T);
    if (once_in(random, 2)) call.mask.window.right = random.between(0, 2);
    chosen += " window";
  }
  if (once_in(random, 3)) {
    for (std::int64_t b = 0; b < B; ++b) call.mask.key_lengths.push_back(random.between(1, S));
    chosen += " key-lengths";
  }
  return chosen;
}

/// What is added to scores, and what is done with them; says what it chose.
std::string choose_scores(AttentionCase& call, Random& random, double size) {
  const std::int64_t B = call.query.extent(0);
  const std::int64_t H = call.query.extent(1);
  const std::int64_t T = call.query.extent(2);
  const std::int64_t S = call.key.extent(2);
  std::string chosen;
  if (once_in(random, 2)) {
    const bool shared = once_in(random, 2);
    call.bias = random_tensor(random, {shared ? 1 : B, once_in(random, 2) ? 1 : H, T, S}, 2);
    if (once_in(random, 3)) {
      const auto last = static_cast<std::int64_t>(call.bias->size()) - 1;
      call.bias->elements()[static_cast<std::size_t>(random.between(0, last))] = -infinity;
    }
    chosen += " bias";
  }
  if (once_in(random, 3)) {
    call.softcap = random.uniform(0.5, 30);
    chosen += sentence(" softcap=", *call.softcap);
  }
  if (once_in(random, 3)) {
    call.scale = size > 100 ? random.uniform(-2, 2) / size / size : random.uniform(-1, 2);
    chosen += sentence(" scale=", *call.scale);
  }
  if (once_in(random, 3)) {
    call.alibi_slopes = lab::alibi_slopes(H);
    chosen += " alibi";
  }
  return chosen;
}

}  // namespace

Tensor<double> random_tensor(Random& random, Shape shape, double size) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = random.uniform(-size, size);
  return out;
}

VerifyCase workbook_case(std::uint64_t seed, std::int64_t n) {
  Random random(seed, static_cast<std::uint64_t>(2 * n));
  VerifyCase out;
  const bool causal = once_in(random, 2);
  const bool whole = once_in(random, 4);
  const std::int64_t T = random.between(1, 5);
  const std::int64_t S = causal ? T : random.between(1, 5);
  const std::int64_t D = random.between(1, 4);
  const std::int64_t E = random.between(1, 3);
  const auto numbers = [&](Shape shape) {
    return whole ? whole_numbers(random, shape, 5) : random_tensor(random, shape, 3);
  };
  out.call.query = numbers({1, 1, T, D});
  out.call.key = numbers({1, 1, S, D});
  out.call.value = numbers({1, 1, S, E});
  if (causal) out.call.mask = Mask::causal();
  if (once_in(random, 2)) out.call.visible = random_allow(random, {1, 1, T, S});
  out.name = sentence("workbook case ", n, " (T=", T, " S=", S, " D=", D, " E=", E,
                      causal ? ", causal" : "", out.call.visible ? ", allow" : "", ")");
  add_gradients(out, random);
  return out;
}

VerifyCase general_case(std::uint64_t seed, std::int64_t n) {
  Random random(seed, static_cast<std::uint64_t>(2 * n + 1));
  constexpr std::array sizes{1.0, 1.0, 3.0, 10.0, 1e3, 1e6, 1e-160};
  const double size = sizes[static_cast<std::size_t>(random.between(0, 6))];
  VerifyCase out;
  AttentionCase& call = out.call;
  const std::int64_t B = random.between(1, 2);
  const std::int64_t G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, 2);
  const std::int64_t T = random.between(1, 4);
  const std::int64_t S = random.between(1, 6);
  const std::int64_t D = random.between(1, 5);
  const std::int64_t E = random.between(1, 3);
  call.query = random_tensor(random, {B, H, T, D}, size);
  call.key = random_tensor(random, {B, G, S, D}, size);
  call.value = random_tensor(random, {B, G, S, E}, once_in(random, 3) ? size : 1);
  call.empty_row = EmptyRow::zero;

  std::string chosen = choose_mask(call, random);
  chosen += choose_scores(call, random, size);
  if (once_in(random, 4)) {
    call.visible = random_allow(random, {B, once_in(random, 2) ? 1 : H, T, S});
    chosen += " mask";
  }
  if (once_in(random, 3)) {
    for (std::int64_t h = 0; h < H; ++h) call.sink.push_back(random.uniform(-2, 2));
    chosen += " sink";
  }
  out.name = sentence("general case ", n, " (", letters(call), " size=", size, chosen, ")");
  add_gradients(out, random);
  return out;
}

}  // namespace attest::check
