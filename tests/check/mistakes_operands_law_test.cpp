// SPDX-License-Identifier: MIT What holds of every mistake in the operands: it changes the numbers,
// or is refused, and reads nothing that is not there.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "attest/base/random.h"
#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

std::vector<const Mistake*> operand_mistakes() {
  std::vector<const Mistake*> out;
  for (const auto part :
       {layout_mistakes(), roles_mistakes(), heads_mistakes(), keys_mistakes(), rope_mistakes()}) {
    for (const Mistake& mistake : part) out.push_back(&mistake);
  }
  return out;
}

std::vector<double> values_of(const Mistake& mistake) {
  if (mistake.values.empty()) return {0};
  return {mistake.values.begin(), mistake.values.end()};
}

Dump random_dump(const lab::AttentionShape& shape, std::int64_t past, std::uint64_t seed) {
  Random random(seed);
  Dump dump;
  Claim& claim = dump.claim;
  claim.shape = shape;
  claim.past = past;
  claim.call.query = Tensor<double>({shape.B, shape.H, shape.T, shape.D});
  claim.call.key = Tensor<double>({shape.B, shape.G, shape.S, shape.D});
  claim.call.value = Tensor<double>({shape.B, shape.G, shape.S, shape.E});
  for (Tensor<double>* tensor : {&claim.call.query, &claim.call.key, &claim.call.value}) {
    for (double& x : tensor->elements()) x = random.bell();
  }
  claim.call.mask = Mask::causal_bottom_right();
  claim.call.empty_row = EmptyRow::zero;
  return dump;
}

Dump with_rope(Dump dump, const RopeConfig& config) {
  const lab::AttentionShape& shape = dump.claim.shape;
  RopeClaim rope{.config = config};
  for (std::int64_t i = 0; i < shape.T; ++i) rope.query_positions.push_back(dump.claim.past + i);
  for (std::int64_t j = 0; j < shape.S; ++j) rope.key_positions.push_back(j);
  dump.claim.rope = rope;
  return dump;
}

/// All positions so many later.
Dump moved(Dump dump, std::int64_t by) {
  for (std::int64_t& position : dump.claim.rope->query_positions) position += by;
  for (std::int64_t& position : dump.claim.rope->key_positions) position += by;
  return dump;
}

std::vector<double> output_of(const Dump& dump, Evaluation evaluation) {
  std::vector<double> out;
  const lab::AttentionShape& s = dump.claim.shape;
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t i = 0; i < s.T; ++i) {
        const auto& row = evaluation.row({b, h, i}).output;
        out.insert(out.end(), row.begin(), row.end());
      }
    }
  }
  return out;
}

/// Claims among which every mistake has one that it can be made on.
std::vector<Dump> generic_dumps() {
  const lab::AttentionShape square{.B = 3, .H = 6, .G = 6, .T = 7, .S = 7, .D = 4, .E = 4};
  const lab::AttentionShape groups{.B = 2, .H = 12, .G = 4, .T = 7, .S = 7, .D = 4, .E = 4};
  const lab::AttentionShape decode{.B = 2, .H = 6, .G = 3, .T = 4, .S = 9, .D = 8, .E = 8};
  return {random_dump(square, 0, 1),
          random_dump(groups, 0, 2),
          random_dump(decode, 5, 3),
          with_rope(random_dump(square, 0, 4), {}),
          with_rope(random_dump(decode, 5, 5), {.rotary_dim = 4}),
          with_rope(random_dump(decode, 5, 6), {.pairing = RopePairing::interleaved, .base = 50}),
          moved(with_rope(random_dump(decode, 5, 7), {.base = 5e5}), 1001)};
}

TEST(OperandMistakeLaws, EachChangesTheNumbersUnlessItIsHarmless) {
  std::map<std::string, int> made;
  for (const Dump& dump : generic_dumps()) {
    auto right = Evaluation::make(dump, {});
    ASSERT_TRUE(right.has_value());
    const auto claimed = output_of(dump, std::move(*right));
    for (const Mistake* mistake : operand_mistakes()) {
      for (const double value : values_of(*mistake)) {
        const std::string label = std::string(mistake->name) + " " + std::to_string(value);
        Recipe recipe;
        if (!mistake->make(recipe, dump.claim, value)) continue;
        EXPECT_FALSE(recipe.operands == OperandRecipe{}) << label;
        auto evaluation = Evaluation::make(dump, recipe);
        if (!evaluation) continue;
        const auto found = output_of(dump, std::move(*evaluation));
        ASSERT_EQ(found.size(), claimed.size());
        double apart = 0;
        for (std::size_t n = 0; n < found.size(); ++n) {
          ASSERT_TRUE(std::isfinite(found[n])) << label;
          apart = std::max(apart, std::fabs(found[n] - claimed[n]));
        }
        ++made[std::string(mistake->name)];
        if (mistake->kind == MistakeKind::harmless) {
          EXPECT_LE(apart, 0x1p-53 * 1000) << label;
        } else {
          EXPECT_GE(apart, 1e-6) << label;
        }
      }
    }
  }
  for (const Mistake* mistake : operand_mistakes()) {
    EXPECT_GT(made[std::string(mistake->name)], 0) << mistake->name << " was never made";
  }
}

/// Under the sanitizers this sees every read beyond a tensor.
TEST(OperandMistakeLaws, EveryPairIsReadableOnOddShapesOrRefused) {
  const auto mistakes = operand_mistakes();
  Random random(20170612);
  int rows = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    const std::int64_t G = random.between(1, 3), S = random.between(1, 5);
    const std::int64_t D = random.between(1, 4);
    const bool self = random.between(0, 1) == 0;
    const std::int64_t past = self || S == 1 ? 0 : random.between(0, S - 1);
    const lab::AttentionShape shape{.B = random.between(1, 3),
                                    .H = G * random.between(1, 3),
                                    .G = G,
                                    .T = self ? S : random.between(1, S),
                                    .S = S,
                                    .D = D,
                                    .E = self ? D : random.between(1, 4)};
    Dump dump = random_dump(shape, past, static_cast<std::uint64_t>(turn));
    if (D % 2 == 0 && random.between(0, 1) == 0) dump = with_rope(std::move(dump), {});
    Recipe recipe;
    for (int n = 0; n < 2; ++n) {
      const auto at = random.between(0, static_cast<std::int64_t>(mistakes.size()) - 1);
      const Mistake& mistake = *mistakes[static_cast<std::size_t>(at)];
      const auto values = values_of(mistake);
      const auto which = random.between(0, static_cast<std::int64_t>(values.size()) - 1);
      const Recipe before = recipe;
      if (!mistake.make(recipe, dump.claim, values[static_cast<std::size_t>(which)])) {
        recipe = before;
      }
    }
    auto evaluation = Evaluation::make(dump, recipe);
    if (!evaluation) continue;
    for (const double x : output_of(dump, std::move(*evaluation))) {
      ASSERT_TRUE(std::isfinite(x)) << "turn " << turn;
    }
    ++rows;
  }
  EXPECT_GT(rows, 2000);
}

}  // namespace
}  // namespace attest::check
