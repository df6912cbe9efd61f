// SPDX-License-Identifier: MIT
// Large blocks: mistakes are looked for in some rows, and what is found is confirmed in all.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_mistakes.h"
#include "attest/check/block/program.h"
#include "tests/check/block_dumps.h"

namespace attest::check {
namespace {

using block::by_head;
using block::Noise;
using block::Numbers;
using block::Program;
using block::Reach;
using block::RowSet;
using test::BlockRows;
using test::Mistakes;

BlockConfig small_config(std::uint64_t seed) {
  Random random(seed);
  BlockConfig config;
  config.model_dim = 12;
  config.heads = config.kv_heads = 3;
  config.head_dim = config.value_dim = 4;
  config.ffn_dim = 12;
  config.norm = static_cast<Norm>(random.between(0, 1));
  config.placement = static_cast<NormPlacement>(random.between(0, 2));
  config.activation = static_cast<Activation>(random.between(0, 3));
  config.gated = random.between(0, 1) == 1;
  config.causal = random.between(0, 2) != 0;
  if (random.between(0, 1) == 1) config.rope = RopeConfig{};
  if (!config.rope) config.alibi = random.between(0, 1) == 1;
  return config;
}

/// Two sequences of seven rows, with the tables of one.
BlockDump two_sequences(const BlockConfig& config, std::uint64_t seed) {
  Random random(seed);
  const auto weights = test::drawn_weights(random, config);
  BlockDump dump =
      test::dump_of(config, weights, test::drawn_rows(random, 14, config.model_dim), {}, {"norm2"});
  dump.stages.clear();
  dump.sequences = 2;
  return dump;
}

/// Whatever the recipe, what is computed for some rows is bit for bit what is computed for all.
TEST(BlockRowsLookedAt, AreAsAmongAllOthers) {
  std::int64_t compared = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const BlockConfig config = small_config(seed);
    BlockDump dump = two_sequences(config, seed);
    // With a table of the dump in between, and without.
    for (const bool with_table : {false, true}) {
      if (with_table) {
        Program all(dump, block::claimed(dump), Reach::links, Noise::without);
        const Numbers& weights = all.stage(BlockStage::weights);
        Tensor<double> table({weights.rows, weights.columns}, weights.value);
        dump.stages[BlockStage::weights] = {.values = table, .name = "weights"};
      }
      for (const auto& candidate : block::candidates_of(config)) {
        block::BlockRecipe recipe = block::claimed(config);
        if (!candidate.mistake->make(recipe, config, candidate.value)) continue;
        const RowSet sample{false, {1, 5, 9}};
        for (const Noise noise : {Noise::without, Noise::with}) {
          Program claim(dump, block::claimed(dump), Reach::links, noise, nullptr, sample);
          Program whole(dump, recipe, Reach::links, noise);
          Program some(dump, recipe, Reach::links, noise, &claim, sample);
          for (const BlockStage stage : block::stages_of(config)) {
            const bool stacked = stage == BlockStage::weights || stage == BlockStage::heads;
            const Numbers expected =
                block::picked(whole.stage(stage), {}, stacked ? by_head(dump, sample) : sample);
            const Numbers& found = some.stage(stage);
            ASSERT_EQ(found.value, expected.value)
                << "seed " << seed << " " << candidate.label() << " " << name_of(stage);
            ASSERT_EQ(found.variance, expected.variance) << candidate.label();
            ASSERT_EQ(found.bound, expected.bound) << candidate.label();
            compared += static_cast<std::int64_t>(found.value.size());
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100000);
}

/// A block of 2^25.3 products.
struct Large {
  BlockConfig config{};
  BlockWeights<double> weights{};
  BlockRows x{};
  Large() {
    Random random(9);
    config.model_dim = 256;
    config.heads = config.kv_heads = 4;
    config.head_dim = config.value_dim = 64;
    config.ffn_dim = 1024;
    config.placement = NormPlacement::pre;
    config.activation = Activation::gelu_tanh;
    weights = test::drawn_weights(random, config);
    x = test::drawn_rows(random, 40, config.model_dim);
  }
  [[nodiscard]] BlockDump dump(const Mistakes& mistakes) const {
    return test::dump_of(config, weights, x, mistakes, {"output"});
  }
};

TEST(DiagnoseBlock, NamesMistakesOfALargeBlock) {
  const Large block;
  for (const char* mistake : {"block.residual1_missing", "heads.merged_by_reshape",
                              "softmax.over_queries", "norm2.over_positions", "causal.one_future",
                              "projection.output_transposed", "ffn.gelu_erf", "scale.none"}) {
    const Diagnosis found =
        diagnose_block(block.dump({{mistake, 0}}), {.most_mistakes = 1}).value();
    ASSERT_EQ(found.judgement, Judgement::wrong_named) << mistake;
    EXPECT_TRUE(found.sampled);
    EXPECT_EQ(found.explanations[0].mistakes[0].mistake->name, mistake);
    EXPECT_NE(found.stages[0].first_wrong->sentence, "");
  }
}

TEST(DiagnoseBlock, NamesAPairOfALargeBlock) {
  const Large block;
  const Mistakes both{{"block.residual1_missing", 0}, {"ffn.gelu_erf", 0}};
  const Diagnosis found = diagnose_block(block.dump(both), {.most_mistakes = 2}).value();
  ASSERT_EQ(found.judgement, Judgement::wrong_named);
  EXPECT_EQ(found.explanations[0].mistakes.size(), 2U);
}

/// One mistake explains the first rows, and not one row later on: that is no explanation.
TEST(DiagnoseBlock, ConfirmsInAllRowsOfALargeBlock) {
  const Large block;
  BlockDump dump = block.dump({{"block.residual1_missing", 0}});
  dump.stages.at(BlockStage::output).values(35, 7) += 0.5;
  const Diagnosis found = diagnose_block(dump, {.most_mistakes = 1}).value();
  EXPECT_EQ(found.judgement, Judgement::wrong_unexplained);
}

TEST(DiagnoseBlock, FindsOneWrongRowOfALargeBlock) {
  const Large block;
  BlockDump dump = block.dump({});
  Tensor<double>& out = dump.stages.at(BlockStage::output).values;
  for (std::int64_t c = 0; c < out.extent(1); ++c) out(37, c) *= 1.01;
  const Diagnosis found = diagnose_block(dump, {.most_mistakes = 1}).value();
  EXPECT_EQ(found.judgement, Judgement::wrong_unexplained);
  ASSERT_EQ(found.where.size(), 1U);
  EXPECT_EQ(found.where[0], "only row 37");
}

}  // namespace
}  // namespace attest::check
