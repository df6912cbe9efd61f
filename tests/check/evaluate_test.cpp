// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attest/base/random.h"
#include "attest/lab/attention.h"

namespace attest::check {
namespace {

Tensor<double> numbers(const Shape& shape, Random& random) {
  Tensor<double> out(shape);
  for (double& x : out.elements()) x = static_cast<double>(static_cast<float>(random.bell()));
  return out;
}

/// Any options at all, on small shapes.
AttentionCase any_case(Random& random) {
  AttentionCase call;
  const std::int64_t B = random.between(1, 3);
  const std::int64_t G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, 3);
  const std::int64_t T = random.between(1, 7);
  const std::int64_t S = random.between(1, 9);
  const std::int64_t D = random.between(1, 20);
  const std::int64_t E = random.between(1, 9);
  const auto likely = [&] { return random.between(0, 2) == 0; };
  call.query = numbers({B, H, T, D}, random);
  call.key = numbers({B, G, S, D}, random);
  call.value = numbers({B, G, S, E}, random);
  call.empty_row = likely() ? EmptyRow::nan : EmptyRow::zero;
  if (likely()) call.scale = random.uniform(-1, 2);
  if (likely()) call.softcap = random.uniform(0.2, 3);
  if (likely())
    call.bias = numbers({likely() ? 1 : B, likely() ? 1 : H, likely() ? 1 : T, S}, random);
  if (call.bias && likely()) call.bias->elements()[0] = -INFINITY;
  if (likely()) {
    for (std::int64_t h = 0; h < H; ++h) call.alibi_slopes.push_back(random.uniform());
  }
  if (likely()) {
    for (std::int64_t h = 0; h < H; ++h) call.sink.push_back(random.bell());
  }
  if (likely()) call.dropout = {.rate = 0.3, .seed = random.bits()};
  if (likely()) {
    Tensor<bool> visible({likely() ? 1 : B, likely() ? 1 : H, T, likely() ? 1 : S});
    for (bool& x : visible.elements()) x = random.between(0, 3) > 0;
    call.visible = visible;
  }
  Mask& mask = call.mask;
  mask.future_hidden = likely();
  const auto corner = random.between(0, 2);
  mask.corner = corner == 0   ? Corner::top_left
                : corner == 1 ? Corner::bottom_right
                              : Corner::at_offset;
  if (corner == 2) {
    for (std::int64_t b = 0; b < B; ++b) mask.query_offset.push_back(random.between(-3, 5));
  }
  if (likely()) mask.window.left = random.between(0, 4);
  if (likely()) mask.window.right = random.between(0, 4);
  if (likely()) {
    for (std::int64_t b = 0; b < B; ++b) mask.key_lengths.push_back(random.between(0, S));
  }
  if (likely()) {
    const std::int64_t q = random.between(0, T);
    const std::int64_t k = random.between(0, S);
    mask.packing = {.query_starts = {0, q, T}, .key_starts = {0, k, S}};
  }
  if (likely()) {
    for (std::int64_t i = 0; i < B * T; ++i) mask.documents.query.push_back(random.between(0, 2));
    for (std::int64_t j = 0; j < S; ++j) mask.documents.key.push_back(random.between(0, 2));
  }
  return call;
}

Dump dump_of(AttentionCase call) {
  Dump out;
  const Shape& q = call.query.shape();
  out.claim.shape = {.B = q[0],
                     .H = q[1],
                     .G = call.key.extent(1),
                     .T = q[2],
                     .S = call.key.extent(2),
                     .D = q[3],
                     .E = call.value.extent(3)};
  out.claim.call = std::move(call);
  return out;
}

void expect_near(double found, double expected, const std::string& where) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
        << where << ": " << found << " instead of " << expected;
    return;
  }
  EXPECT_NEAR(found, expected, 1e-13 * (1 + std::fabs(expected))) << where;
}

TEST(Evaluate, TheClaimItselfIsTheExactTiersAnswer) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const Dump dump = dump_of(any_case(random));
    const AttentionCase& call = dump.claim.call;
    const auto exact = lab::attention(call.inputs(), call.options()).value();
    auto evaluation = Evaluation::make(dump, {});
    ASSERT_TRUE(evaluation.has_value());
    const lab::AttentionShape& s = dump.claim.shape;
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t h = 0; h < s.H; ++h) {
        for (std::int64_t i = 0; i < s.T; ++i) {
          const StageRow& row = evaluation->row({b, h, i});
          const std::string where = "seed " + std::to_string(seed) + " row " + std::to_string(b) +
                                    "," + std::to_string(h) + "," + std::to_string(i);
          for (std::int64_t j = 0; j < s.S; ++j) {
            expect_near(row.weights[static_cast<std::size_t>(j)], exact.weights(b, h, i, j), where);
          }
          for (std::int64_t e = 0; e < s.E; ++e) {
            expect_near(row.output[static_cast<std::size_t>(e)], exact.output(b, h, i, e), where);
          }
          expect_near(row.log_sum_exp, exact.log_sum_exp(b, h, i), where);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attest::check
