// SPDX-License-Identifier: MIT
#include "attest/lab/block.h"

#include <cfenv>
#include <cmath>

#include "attest/lab/attention_row.h"
#include "attest/lab/workbook.h"
#include "block_support.h"

namespace attest::lab {
namespace {

using namespace testing;

// ---- the workbook -----------------------------------------------------------------------------

struct WorkbookBlock {
  BlockConfig config;
  BlockWeights<double> weights;
};

/// The workbook's block: each head's projection serves as query, key and value alike, and P1 and P2
/// side by side are the identity.
WorkbookBlock workbook_as_block() {
  const workbook::BlockParameters fixed;
  BlockConfig config;
  config.model_dim = config.ffn_dim = 4;
  config.heads = config.kv_heads = config.head_dim = config.value_dim = 2;
  Tensor<double> projections({4, 4});
  for (int c = 0; c < 4; ++c) {
    for (int d = 0; d < 2; ++d) {
      projections(c, d) = fixed.P1(c, d);
      projections(c, d + 2) = fixed.P2(c, d);
    }
  }
  BlockWeights<double> weights;
  weights.query_weight = weights.key_weight = weights.value_weight = projections;
  weights.output_weight = fixed.WO;
  weights.up_weight = fixed.W1;
  weights.down_weight = fixed.W2;
  return {config, weights};
}

TEST(Block, ReproducesTheWorkbook) {
  const auto [config, weights] = workbook_as_block();
  const Tensor<double> x = workbook::fixture::rows();
  const auto got = *block(view(x), config, weights);
  const double row2[] = {1.347147, 0.577349, -0.962248, -0.962248};  // printed to six decimals
  for (int c = 0; c < 4; ++c) EXPECT_NEAR(got.output(2, c), row2[c], 0.5e-6);
  EXPECT_NEAR(got.attention.weights(0, 0, 2, 2), 0.503490, 0.5e-6);
  EXPECT_EQ(got.attention.weights(0, 1, 2, 0), 1.0 / 3);

  const auto expected = *workbook::transformer_block(x);
  expect_same_bits(got.output, expected.output);
  const auto open = *workbook::transformer_block(x, {}, {.causal = false});
  BlockConfig seeing_all = config;
  seeing_all.causal = false;
  expect_same_bits(block(view(x), seeing_all, weights)->output, open.output);
}

// ---- what a block is --------------------------------------------------------------------------

std::vector<std::string> names_of(const BlockResult& result) {
  std::vector<std::string> names;
  for (const Stage& stage : result.stages) names.push_back(stage.name);
  return names;
}

TEST(Block, NamesItsStagesInOrderOfComputation) {
  Random random(1);
  BlockConfig config = small_config();
  const auto x = random_tensor(random, {3, 4});
  const auto post = *block(view(x), config, random_weights(random, config, Optional::none));
  EXPECT_EQ(names_of(post), (std::vector<std::string>{
                                "projection.query", "projection.key", "projection.value", "concat",
                                "output_projection", "residual1", "norm1.mean", "norm1.variance",
                                "norm1", "ffn.up", "ffn.relu", "ffn.down", "residual2",
                                "norm2.mean", "norm2.variance", "norm2", "output"}));

  config.placement = NormPlacement::sandwich;
  config.norm = Norm::rms_norm;
  config.gated = true;
  config.activation = Activation::silu;
  config.rope = RopeConfig{};
  const auto sandwich = *block(view(x), config, random_weights(random, config, Optional::none));
  EXPECT_EQ(names_of(sandwich), (std::vector<std::string>{"norm1.mean_square",
                                                          "norm1",
                                                          "projection.query",
                                                          "projection.key",
                                                          "projection.value",
                                                          "rope.query",
                                                          "rope.key",
                                                          "concat",
                                                          "output_projection",
                                                          "norm1_out.mean_square",
                                                          "norm1_out",
                                                          "residual1",
                                                          "norm2.mean_square",
                                                          "norm2",
                                                          "ffn.up",
                                                          "ffn.gate",
                                                          "ffn.silu",
                                                          "ffn.gated",
                                                          "ffn.down",
                                                          "norm2_out.mean_square",
                                                          "norm2_out",
                                                          "residual2",
                                                          "output"}));
  expect_same_bits(*sandwich.stage("output"), sandwich.output);
  EXPECT_EQ(sandwich.stage("projection.key")->shape(), (Shape{3, 2}));
  EXPECT_EQ(sandwich.stage("concat")->shape(), (Shape{3, 6}));
  EXPECT_EQ(sandwich.stage("norm1.mean"), nullptr);
}

TEST(Block, AnyRowOfAnyHeadCanBeLookedAt) {
  Random random(2);
  BlockConfig config = small_config();
  config.rope = RopeConfig{};
  const auto x = random_tensor(random, {3, 4});
  const auto result = *block(view(x), config, random_weights(random, config, Optional::all));
  const AttentionInputs<double> inputs = result.attention.inputs();
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto row = *attention_row(inputs, result.attention.options, {0, h, i});
      for (std::int64_t j = 0; j < 3; ++j) {
        EXPECT_EQ(row.weights[static_cast<std::size_t>(j)], result.attention.weights(0, h, i, j));
      }
      for (std::int64_t e = 0; e < 3; ++e) {
        EXPECT_EQ(row.output[static_cast<std::size_t>(e)], (*result.stage("concat"))(i, h * 3 + e));
      }
    }
  }
}

TEST(Block, EveryWeightInfluencesTheOutput) {
  for (const NormPlacement placement :
       {NormPlacement::post, NormPlacement::pre, NormPlacement::sandwich}) {
    Random random(3);
    BlockConfig config = small_config();
    config.placement = placement;
    config.gated = true;
    config.activation = Activation::gelu_erf;
    config.softcap = 2;  // without a cap or RoPE a key's bias would cancel in the softmax
    const auto x = random_tensor(random, {3, 4});
    const auto weights = random_weights(random, config, Optional::all);
    const auto before = *block(view(x), config, weights);
    int count = 0;
    for (const BlockParameter& parameter : block_parameters(config)) {
      if (parameter.need == Need::unused) continue;
      SCOPED_TRACE(parameter.name);
      BlockWeights<double> changed = weights;
      changed.*parameter.tensor = random_tensor(random, parameter.shape);
      const auto after = *block(view(x), config, changed);
      double change = 0;
      for (std::size_t n = 0; n < after.output.size(); ++n) {
        change = std::max(change, std::abs(after.output.data()[n] - before.output.data()[n]));
      }
      EXPECT_GT(change, 1e-3);
      ++count;
    }
    EXPECT_EQ(count, placement == NormPlacement::sandwich ? 22 : 18);
  }
}

TEST(Block, EveryChoiceInfluencesTheOutput) {
  Random random(4);
  const BlockConfig config = small_config();
  const auto x = random_tensor(random, {3, 4});
  const auto weights = random_weights(random, config, Optional::none);
  const auto usual = block(view(x), config, weights)->output;
  const std::vector<std::pair<const char*, void (*)(BlockConfig&)>> choices{
      {"norm", [](BlockConfig& c) { c.norm = Norm::rms_norm; }},
      {"pre", [](BlockConfig& c) { c.placement = NormPlacement::pre; }},
      {"sandwich", [](BlockConfig& c) { c.placement = NormPlacement::sandwich; }},
      {"epsilon", [](BlockConfig& c) { c.epsilon = 0.1; }},
      {"gelu_erf", [](BlockConfig& c) { c.activation = Activation::gelu_erf; }},
      {"gelu_tanh", [](BlockConfig& c) { c.activation = Activation::gelu_tanh; }},
      {"silu", [](BlockConfig& c) { c.activation = Activation::silu; }},
      {"causal", [](BlockConfig& c) { c.causal = false; }},
      {"scale", [](BlockConfig& c) { c.scale = 2; }},
      {"softcap", [](BlockConfig& c) { c.softcap = 0.25; }},
      {"rope", [](BlockConfig& c) { c.rope = RopeConfig{}; }},
      {"alibi", [](BlockConfig& c) { c.alibi = true; }},
  };
  for (const auto& [name, choose] : choices) {
    SCOPED_TRACE(name);
    BlockConfig chosen = config;
    choose(chosen);
    const auto output = block(view(x), chosen, weights)->output;
    double change = 0;
    for (std::size_t n = 0; n < output.size(); ++n) {
      change = std::max(change, std::abs(output.data()[n] - usual.data()[n]));
    }
    EXPECT_GT(change, 1e-6);
  }
}

TEST(Block, AbsentBiasesAreZerosAndAbsentGainsOnes) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const BlockConfig config = random_config(random);
    const auto x = random_tensor(random, {3, config.model_dim});
    const auto absent = random_weights(random, config, Optional::none);
    BlockWeights<double> neutral = absent;
    for (const BlockParameter& parameter : block_parameters(config)) {
      if (parameter.need != Need::optional) continue;
      Tensor<double> values(parameter.shape);
      const bool gain = std::string(parameter.name).find("gain") != std::string::npos;
      for (double& value : values.elements()) value = gain ? 1 : 0;
      neutral.*parameter.tensor = values;
    }
    const auto a = *block(view(x), config, absent);
    const auto b = *block(view(x), config, neutral);
    for (std::size_t n = 0; n < a.output.size(); ++n) {
      EXPECT_EQ(a.output.data()[n], b.output.data()[n]);
    }
  }
}

TEST(Block, SharedKeyHeadsEqualRepeatedOnes) {
  Random random(5);
  const BlockConfig shared = small_config();
  BlockConfig repeated = shared;
  repeated.kv_heads = 2;
  const auto x = random_tensor(random, {3, 4});
  const auto weights = random_weights(random, shared, Optional::none);
  BlockWeights<double> doubled = weights;
  doubled.key_weight = Tensor<double>({4, 4});
  doubled.value_weight = Tensor<double>({4, 6});
  for (int c = 0; c < 4; ++c) {
    for (int d = 0; d < 4; ++d) doubled.key_weight(c, d) = weights.key_weight(c, d % 2);
    for (int e = 0; e < 6; ++e) doubled.value_weight(c, e) = weights.value_weight(c, e % 3);
  }
  expect_same_bits(block(view(x), shared, weights)->output,
                   block(view(x), repeated, doubled)->output);
}

TEST(Block, FutureRowsReachEarlierOnesOnlyWithoutCausal) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    BlockConfig config = random_config(random);
    config.alibi = false;  // a strong slope may hide a far row below one rounding
    const std::int64_t C = config.model_dim;
    const auto x = random_tensor(random, {3, C});
    const auto weights = random_weights(random, config, Optional::all);
    Tensor<double> changed = x;
    for (std::int64_t c = 0; c < C; ++c) changed(2, c) = random.uniform(-10, 10);
    const auto before = *block(view(x), config, weights);
    const auto after = *block(view(changed), config, weights);
    bool same = true;
    for (std::int64_t t = 0; t < 2; ++t) {
      for (std::int64_t c = 0; c < C; ++c) same &= before.output(t, c) == after.output(t, c);
    }
    EXPECT_EQ(same, config.causal);
  }
}

TEST(Block, HostRoundingModeChangesNoBit) {
  Random random(6);
  const BlockConfig config = small_config();
  const auto x = random_tensor(random, {3, 4});
  const auto weights = random_weights(random, config, Optional::all);
  const auto usual = *block_backward(view(x), config, weights, view(x));
  std::fesetround(FE_DOWNWARD);
  const auto downward = *block_backward(view(x), config, weights, view(x));
  std::fesetround(FE_TONEAREST);
  expect_same_bits(usual.d_x, downward.d_x);
  expect_same_bits(usual.d_weights.query_weight, downward.d_weights.query_weight);
}

TEST(Block, NoRowsGiveNoRows) {
  Random random(7);
  const BlockConfig config = small_config();
  const Tensor<double> x({0, 4});
  const auto weights = random_weights(random, config, Optional::all);
  EXPECT_EQ(block(view(x), config, weights)->output.shape(), (Shape{0, 4}));
  const auto gradients = *block_backward(view(x), config, weights, view(x));
  expect_same_bits(gradients.d_weights.up_weight, Tensor<double>({4, 5}));
}

// ---- failures ---------------------------------------------------------------------------------

TEST(Block, ShapeErrorsNameTheWeightAndBothShapes) {
  Random random(8);
  const BlockConfig config = small_config();
  const auto weights = random_weights(random, config, Optional::all);
  const Tensor<double> x({3, 4});
  for (const BlockParameter& parameter : block_parameters(config)) {
    if (parameter.need == Need::unused) continue;
    BlockWeights<double> wrong = weights;
    Shape shape = parameter.shape;
    ++shape.back();
    wrong.*parameter.tensor = Tensor<double>(shape);
    EXPECT_EQ(message_of(block(view(x), config, wrong)),
              "shape-mismatch: [block] " + std::string(parameter.name) + " must have shape " +
                  to_string(parameter.shape) + "; it has " + to_string(shape));
  }
  BlockWeights<double> missing = weights;
  missing.up_weight = {};
  EXPECT_EQ(message_of(block(view(x), config, missing)),
            "missing-tensor: [block] up_weight must have shape [4, 5]; it is absent");
  const Tensor<double> narrow({3, 3});
  EXPECT_EQ(message_of(block(view(narrow), config, weights)),
            "shape-mismatch: [block] x must have model_dim features; x has 3, model_dim is 4");
  EXPECT_EQ(message_of(block_backward(view(x), config, weights, view(narrow))),
            "shape-mismatch: [block_backward] x and d_output must have the same shape; x has "
            "[3, 4], d_output has [3, 3]");
}

TEST(Block, AParameterWithoutAPlaceIsAnError) {
  Random random(9);
  const Tensor<double> x({3, 4});
  BlockConfig config = small_config();
  config.norm = Norm::rms_norm;
  const auto weights = random_weights(random, config, Optional::all);
  for (const BlockParameter& parameter : block_parameters(config)) {
    if (parameter.need != Need::unused) continue;
    BlockWeights<double> more = weights;
    more.*parameter.tensor = Tensor<double>(parameter.shape);
    EXPECT_EQ(message_of(block(view(x), config, more)),
              "unused-parameter: [block] " + std::string(parameter.name) + " is given, shape " +
                  to_string(parameter.shape) + ", but this config has no place for it");
  }
}

TEST(Block, BadOptionsAreNamed) {
  Random random(10);
  const Tensor<double> x({3, 4});
  const auto weights = random_weights(random, small_config(), Optional::none);
  const auto message = [&](void (*spoil)(BlockConfig&)) {
    BlockConfig config = small_config();
    spoil(config);
    return message_of(block(view(x), config, weights));
  };
  EXPECT_EQ(message([](BlockConfig& c) { c.heads = 3, c.kv_heads = 2; }),
            "bad-option: [block] heads must be a multiple of kv_heads; heads is 3, kv_heads is 2");
  EXPECT_EQ(message([](BlockConfig& c) { c.ffn_dim = 0; }),
            "bad-option: [block] ffn_dim must be between 1 and 1048576; found 0");
  EXPECT_EQ(message([](BlockConfig& c) { c.epsilon = -1; }),
            "bad-option: [block] epsilon must be finite and at least 0; found -1");
  EXPECT_EQ(message([](BlockConfig& c) { c.softcap = 0; }),
            "bad-option: [block] softcap must be positive and finite; found 0");
  EXPECT_EQ(message([](BlockConfig& c) { c.scale = INFINITY; }),
            "bad-option: [block] scale must be finite; found inf");
  EXPECT_EQ(message([](BlockConfig& c) { c.rope = RopeConfig{.rotary_dim = 4}; }),
            "bad-option: [rope] rotary_dim must be even and between 2 and D = 2; found 4");
}

}  // namespace
}  // namespace attest::lab
