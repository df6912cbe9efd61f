// SPDX-License-Identifier: MIT
// What nobody said of a block is read in all usual ways; a mistake is none of them, or is said to be one.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_file.h"
#include "tests/check/block_dumps.h"
#include "tests/support/draws.h"

namespace attest::check {
namespace {

using test::Mistakes;

BlockConfig gpt_config() { return test::three_heads(20, Activation::gelu_erf); }

struct Block {
  BlockConfig config{};
  BlockWeights<double> weights{};
  test::BlockRows x{};
};

Block drawn(const BlockConfig& config, std::uint64_t seed, std::int64_t rows = 9) {
  Random random(seed);
  Block out{config, test::drawn_weights(random, config), {}};
  out.x = test::drawn_rows(random, rows, config.model_dim);
  return out;
}

/// The tensors of a block in our own names; f32 unless said.
io::NamedTensors file_of(const Block& block, const Mistakes& mistakes,
                         const std::set<std::string>& tables, DType dtype = DType::f32) {
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, mistakes, tables);
  io::NamedTensors file;
  const auto add = [&](const std::string& name, const Tensor<double>& values) {
    file.add(name, AnyTensor::from_f64(values, dtype));
  };
  add("x", dump.x);
  for (const lab::BlockParameter& parameter : lab::block_parameters(block.config)) {
    if (parameter.need == lab::Need::unused) continue;
    add(parameter.name, block.weights.*parameter.tensor);
  }
  for (const auto& [stage, table] : dump.stages) add(std::string(name_of(stage)), table.values);
  return file;
}

Diagnosis judged(const io::NamedTensors& file, const BlockFileOptions& options) {
  return diagnose_block(read_block(file, options).value().dump).value();
}

bool remarks(const Diagnosis& found, const std::string& text) {
  return std::any_of(found.remarks.begin(), found.remarks.end(), [&](const std::string& remark) {
    return remark.find(text) != std::string::npos;
  });
}

bool is_wrong(const Diagnosis& found) {
  return found.judgement == Judgement::wrong_named ||
         found.judgement == Judgement::wrong_unexplained;
}

/// A reading: the options that claim it, what a program of it does, and the options that claim another.
struct Reading {
  const char* say;
  std::function<void(BlockConfig&)> config{};
  Mistakes mistakes{};
  std::function<void(BlockFileOptions&)> otherwise{};
  const char* mistake = "";
};

const std::vector<Reading>& readings() {
  using C = BlockConfig;
  using O = BlockFileOptions;
  static const std::vector<Reading> list{
      {"", [](C&) {}, {}, [](O& o) { o.activation = Activation::relu; }, "ffn.gelu_erf"},
      {"--activation relu",
       [](C& c) { c.activation = Activation::relu; },
       {},
       [](O& o) { o.activation = Activation::gelu_erf; },
       "ffn.relu"},
      {"--activation gelu-tanh",
       [](C& c) { c.activation = Activation::gelu_tanh; },
       {},
       [](O& o) { o.activation = Activation::gelu_erf; },
       "ffn.gelu_tanh"},
      {"--activation gelu-quick",
       [](C&) {},
       {{"ffn.gelu_quick", 0}},
       [](O& o) { o.activation = Activation::gelu_erf; },
       "ffn.gelu_quick"},
      {"--placement post",
       [](C& c) { c.placement = NormPlacement::post; },
       {},
       [](O& o) { o.placement = NormPlacement::pre; },
       "block.post_norm"},
      {"--causal none",
       [](C& c) { c.causal = false; },
       {},
       [](O& o) { o.causal = true; },
       "causal.missing"},
      {"--epsilon 0.001",
       [](C& c) { c.epsilon = 1e-3; },
       {},
       [](O& o) { o.epsilon = 1e-5; },
       "norm.epsilon_other"},
      {"--scale 1", [](C& c) { c.scale = 1; }, {}, [](O& o) { o.scale = 0.5; }, "scale.none"},
      {"--alibi", [](C& c) { c.alibi = true; }, {}, {}, ""},
      {"--rope half",
       [](C& c) { c.rope = RopeConfig{}; },
       {},
       [](O& o) { o.rope = RopeConfig{.pairing = RopePairing::interleaved}; },
       "rope.half_for_interleaved"},
      {"--rope interleaved",
       [](C& c) { c.rope = RopeConfig{.pairing = RopePairing::interleaved}; },
       {},
       [](O& o) { o.rope = RopeConfig{}; },
       "rope.interleaved_for_half"},
      {"--rope half --rope-base 500000",
       [](C& c) { c.rope = RopeConfig{.base = 500000}; },
       {},
       [](O& o) { o.rope = RopeConfig{}; },
       "rope.base"},
      {"--activation relu --placement post --causal none --epsilon 0.001",
       [](C& c) {
         c.activation = Activation::relu;
         c.placement = NormPlacement::post;
         c.causal = false;
         c.epsilon = 1e-3;
       },
       {},
       {},
       ""}};
  return list;
}

TEST(BlockReadings, TheOneThatGivesTheNumbersIsRightAndSaid) {
  for (const Reading& reading : readings()) {
    BlockConfig config = gpt_config();
    reading.config(config);
    for (const auto& tables : {std::set<std::string>{"output"}, {"residual1", "output"}, {}}) {
      const io::NamedTensors file = file_of(drawn(config, 5), reading.mistakes, tables);
      const Diagnosis found = judged(file, {.heads = 3});
      EXPECT_EQ(found.judgement, Judgement::right) << reading.say << ": " << found.unsaid;
      // Turned tables show that queries and keys are turned.
      const bool shown = config.rope && tables.empty();
      const bool usual = shown && config.rope->pairing == RopePairing::half &&
                         config.rope->base == RopeConfig{}.base;
      const std::string say(usual ? "" : reading.say);
      EXPECT_EQ(found.unsaid.empty(), say.empty()) << found.unsaid;
      EXPECT_TRUE(say.empty() || found.unsaid.ends_with("add " + say)) << found.unsaid;
      EXPECT_TRUE(remarks(found, "assumed, for nobody said it: "));
      // Where the assumed one has a flag and this one a name, the mistake that it may be is said.
      const bool one = !shown && say.find("--", 2) == std::string::npos && !say.empty();
      const std::string mistake(reading.mistake);
      if (one && mistake.find("rope") == std::string::npos && !mistake.empty()) {
        EXPECT_TRUE(remarks(found, "is the mistake " + mistake)) << say;
      }
    }
  }
}

TEST(BlockReadings, SaidOtherwiseItIsTheMistake) {
  for (const Reading& reading : readings()) {
    if (!reading.otherwise) continue;
    BlockConfig config = gpt_config();
    reading.config(config);
    BlockFileOptions options{.heads = 3};
    reading.otherwise(options);
    const Diagnosis found =
        judged(file_of(drawn(config, 5), reading.mistakes, {"output"}), options);
    ASSERT_EQ(found.judgement, Judgement::wrong_named) << reading.say;
    EXPECT_EQ(found.unsaid, "");
    ASSERT_EQ(found.explanations[0].mistakes.size(), 1U) << reading.say;
    EXPECT_EQ(found.explanations[0].mistakes[0].mistake->name, reading.mistake);
  }
}

/// No usual reading does what these do, so that not saying anything clears none of them.
TEST(BlockReadings, AMistakeStaysOne) {
  const char* const mistakes[] = {"block.residual1_missing", "block.residual2_doubled",
                                  "norm.sample_variance",    "heads.merged_by_reshape",
                                  "causal.strict",           "projection.output_transposed",
                                  "norm1.gain_missing",      "ffn.down_bias_missing",
                                  "softmax.over_queries",    "scale.twice"};
  std::size_t turn = 0;
  for (const Reading& reading : readings()) {
    BlockConfig config = gpt_config();
    reading.config(config);
    for (const char* mistake : mistakes) {
      if (turn++ % test::stride(4) != 0) continue;
      if (!config.causal && std::string_view(mistake) == "causal.strict") continue;
      Mistakes made = reading.mistakes;
      made[mistake] = 0;
      const Diagnosis found = judged(file_of(drawn(config, 5), made, {"output"}), {.heads = 3});
      EXPECT_TRUE(is_wrong(found)) << reading.say << " " << mistake << ": " << found.unsaid;
    }
  }
}

/// The family of a Llama block is found behind one mistake.
TEST(BlockReadings, AMistakeOfAFamilyIsNamed) {
  BlockConfig config = gpt_config();
  config.norm = Norm::rms_norm;
  config.gated = true;
  config.activation = Activation::silu;
  config.rope = RopeConfig{};
  config.epsilon = 1e-5;
  for (const char* mistake : {"block.residual1_missing", "projection.output_transposed",
                              "ffn.gate_up_exchanged", "heads.merged_by_reshape"}) {
    const io::NamedTensors file = file_of(drawn(config, 8), {{mistake, 0}}, {"output"});
    const Diagnosis found = judged(file, {.heads = 3});
    ASSERT_EQ(found.judgement, Judgement::wrong_named) << mistake;
    EXPECT_EQ(found.explanations[0].mistakes[0].mistake->name, mistake);
    EXPECT_TRUE(remarks(found, "--rope half")) << mistake;
  }
}

TEST(BlockReadings, ThatGiveTheSameNumbersAreToldApartByNobody) {
  // In bfloat16 the two forms of GELU are nearer to each other than rounding.
  const Block block = drawn(gpt_config(), 5);
  Diagnosis found = judged(file_of(block, {}, {"output"}, DType::bf16), {.heads = 3});
  EXPECT_EQ(found.judgement, Judgement::undecided);
  EXPECT_NE(found.unsaid.find("gelu (--activation gelu), gelu-tanh (--activation gelu-tanh)"),
            std::string::npos)
      << found.unsaid;
  // One row has one position, sees itself alone, and is not scaled: all choices give the same.
  found = judged(file_of(drawn(gpt_config(), 5, 1), {}, {"output"}), {.heads = 3});
  EXPECT_EQ(found.judgement, Judgement::right) << found.unsaid;
  EXPECT_TRUE(remarks(found, "how positions enter makes no difference to these numbers"));
  EXPECT_TRUE(remarks(found, "the scale makes no difference to these numbers"));
}

}  // namespace
}  // namespace attest::check
