// SPDX-License-Identifier: MIT
// What may be called rounding in a block: little wrong numbers are wrong, right programs are right.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <set>
#include <string>

#include "attest/check/block/block.h"
#include "tests/check/block_dumps.h"
#include "tests/support/draws.h"

namespace attest::check {
namespace {

using test::BlockRows;

struct Gpt2Like {
  BlockConfig config{};
  BlockWeights<double> weights{};
  BlockRows x{};
};

/// GPT-2's block, with weights large enough that scores and activations are.
Gpt2Like gpt2_like(std::uint64_t seed) {
  Random random(seed);
  Gpt2Like out;
  BlockConfig& c = out.config;
  c.model_dim = 24;
  c.heads = c.kv_heads = 4;
  c.head_dim = c.value_dim = 6;
  c.ffn_dim = 96;
  c.placement = NormPlacement::pre;
  c.activation = Activation::gelu_tanh;
  for (const lab::BlockParameter& p : lab::block_parameters(c)) {
    if (p.need == lab::Need::unused) continue;
    const bool gain = std::string_view(p.name).ends_with("gain");
    out.weights.*p.tensor = test::bell_tensor(random, p.shape, gain ? 1 : 0, 0.3);
  }
  out.x = test::drawn_rows(random, 10, c.model_dim);
  return out;
}

BlockDump output_of(const Gpt2Like& block) {
  return test::dump_of(block.config, block.weights, block.x, {}, {"output"});
}

Diagnosis diagnosed(const BlockDump& dump, std::int64_t most_mistakes = 1) {
  return diagnose_block(dump, {.most_mistakes = most_mistakes}).value();
}

TEST(DiagnoseBlock, ClearsLargeWeights) {
  double used = 0, farthest = 0;
  const std::uint64_t blocks = test::draws(200, 200);
  for (std::uint64_t seed = 1; seed <= blocks; ++seed) {
    const Diagnosis found = diagnosed(output_of(gpt2_like(seed)));
    ASSERT_EQ(found.judgement, Judgement::right) << "seed " << seed;
    used = std::max(used, found.stages.at(0).used);
    farthest = std::max(farthest, found.explanations.front().distance);
  }
  std::cout << blocks << " right float32 outputs: farthest " << farthest << " of noise, used "
            << used << " of the tolerance\n";
}

/// What a program makes of the same block that keeps its residual stream in bfloat16.
TEST(DiagnoseBlock, ClearsLargeWeightsInBfloat16) {
  for (std::uint64_t seed = 1; seed <= test::draws(60, 60); ++seed) {
    const Gpt2Like block = gpt2_like(seed);
    BlockDump dump =
        test::dump_of(block.config, block.weights, block.x, {{"block.stream_bf16", 0}}, {"output"});
    dump.precision = Precision::bf16;
    dump.stages[BlockStage::output].dtype = DType::bf16;
    EXPECT_EQ(diagnosed(dump).judgement, Judgement::right) << "seed " << seed;
    dump.precision = Precision::f32;
    dump.stages[BlockStage::output].dtype = DType::f32;
    EXPECT_NE(diagnosed(dump).judgement, Judgement::right) << "seed " << seed;
  }
}

TEST(DiagnoseBlock, FindsSmallWrongNumbersBehindLargeWeights) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const BlockDump right = output_of(gpt2_like(seed));
    const auto wrong = [&](const char* what, const auto& change) {
      BlockDump dump = right;
      Random random(seed, 7);
      Tensor<double>& out = dump.stages[BlockStage::output].values;
      for (std::int64_t t = 0; t < out.extent(0); ++t) {
        for (std::int64_t c = 0; c < out.extent(1); ++c) {
          out(t, c) = static_cast<double>(static_cast<float>(change(out(t, c), t, c, random)));
        }
      }
      const Diagnosis found = diagnosed(dump);
      EXPECT_EQ(found.judgement, Judgement::wrong_unexplained) << what << ", seed " << seed;
      EXPECT_EQ(found.first_wrong_stage, "output");
    };
    using I = std::int64_t;
    wrong("one number + 0.05",
          [](double y, I t, I c, Random&) { return t == 3 && c == 5 ? y + 0.05 : y; });
    wrong("one row · 1.01", [](double y, I t, I, Random&) { return t == 4 ? y * 1.01 : y; });
    wrong("all · 1.001", [](double y, I, I, Random&) { return y * 1.001; });
    wrong("noise of 1e-3", [](double y, I, I, Random& random) { return y + 1e-3 * random.bell(); });
  }
}

/// An epsilon of 1e-6 for 1e-5 shows; that it is not 1e-8 hides in rounding.
TEST(DiagnoseBlock, NamesNoneOfSeveralThatAreNearerThanNoise) {
  std::int64_t undecided = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Gpt2Like block = gpt2_like(seed);
    for (auto& row : block.x) {
      for (float& x : row) x *= 2.6F;
    }
    const Diagnosis found = diagnosed(test::dump_of(block.config, block.weights, block.x,
                                                    {{"norm.epsilon_other", 1e-6}}, {"norm1"}));
    if (found.judgement == Judgement::right) continue;
    if (found.judgement == Judgement::wrong_named && found.explanations.size() > 1) {
      EXPECT_GE(found.margin, 3) << "seed " << seed;
    }
    if (found.judgement != Judgement::undecided) continue;
    ++undecided;
    ASSERT_GE(found.explanations.size(), 2U);
    EXPECT_LT(found.explanations[1].apart, 3);
    EXPECT_GT(found.explanations[1].apart, 0);
    EXPECT_FALSE(found.would_decide.empty());
  }
  std::cout << "undecided " << undecided << " of 12\n";
  EXPECT_GT(undecided, 0);
}

}  // namespace
}  // namespace attest::check
