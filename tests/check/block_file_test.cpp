// SPDX-License-Identifier: MIT
// Blocks are read from files as the usual libraries name and lay out their tensors.
#include "attest/check/block/block_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/check/block_dumps.h"

namespace attest::check {
namespace {

BlockConfig llama_config() {
  BlockConfig config;
  config.model_dim = 12;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 4;
  config.value_dim = 4;
  config.ffn_dim = 17;
  config.norm = Norm::rms_norm;
  config.placement = NormPlacement::pre;
  config.epsilon = 1e-6;
  config.activation = Activation::silu;
  config.gated = true;
  config.rope = RopeConfig{};
  return config;
}

BlockConfig gpt2_config() { return test::three_heads(48, Activation::gelu_tanh); }

Tensor<float> narrow(const Tensor<double>& from, Shape shape) {
  Tensor<float> out(std::move(shape));
  for (std::size_t n = 0; n < out.size(); ++n) out.data()[n] = static_cast<float>(from.data()[n]);
  return out;
}
Tensor<float> narrow(const Tensor<double>& from) { return narrow(from, from.shape()); }

Tensor<float> transposed(const Tensor<double>& from) {
  Tensor<float> out({from.extent(1), from.extent(0)});
  for (std::int64_t i = 0; i < from.extent(0); ++i) {
    for (std::int64_t o = 0; o < from.extent(1); ++o) out(o, i) = static_cast<float>(from(i, o));
  }
  return out;
}

Tensor<float> side_by_side(const Tensor<double>& a, const Tensor<double>& b,
                           const Tensor<double>& c) {
  const std::int64_t rows = a.rank() == 2 ? a.extent(0) : 1;
  std::vector<float> numbers;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (const Tensor<double>* part : {&a, &b, &c}) {
      const std::int64_t width = part->shape().back();
      for (std::int64_t n = 0; n < width; ++n) {
        numbers.push_back(static_cast<float>(part->data()[r * width + n]));
      }
    }
  }
  const auto width = static_cast<std::int64_t>(numbers.size()) / rows;
  return Tensor<float>(a.rank() == 2 ? Shape{rows, width} : Shape{width}, numbers);
}

bool said(const BlockFile& file, const char* text) {
  return std::any_of(file.said.begin(), file.said.end(), [&](const std::string& sentence) {
    return sentence.find(text) != std::string::npos;
  });
}

struct Block {
  BlockConfig config{};
  BlockWeights<double> weights{};
  test::BlockRows x{};
  Block(BlockConfig c, std::uint64_t seed) : config(std::move(c)) {
    Random random(seed);
    weights = test::drawn_weights(random, config);
    x = test::drawn_rows(random, 9, config.model_dim);
  }
};

io::NamedTensors llama_file(const Block& block, const test::Mistakes& mistakes) {
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, mistakes);
  const BlockWeights<double>& w = block.weights;
  const std::string layer = "model.layers.7.";
  io::NamedTensors file;
  file.add("hidden_states", narrow(dump.x, {1, 9, 12}));
  file.add(layer + "input_layernorm.weight", narrow(w.norm1_gain));
  file.add(layer + "post_attention_layernorm.weight", narrow(w.norm2_gain));
  file.add(layer + "self_attn.q_proj.weight", transposed(w.query_weight));
  file.add(layer + "self_attn.k_proj.weight", transposed(w.key_weight));
  file.add(layer + "self_attn.v_proj.weight", transposed(w.value_weight));
  file.add(layer + "self_attn.o_proj.weight", transposed(w.output_weight));
  file.add(layer + "mlp.gate_proj.weight", transposed(w.gate_weight));
  file.add(layer + "mlp.up_proj.weight", transposed(w.up_weight));
  file.add(layer + "mlp.down_proj.weight", transposed(w.down_weight));
  file.add("resid_mid", narrow(dump.stages.at(BlockStage::residual1).values, {1, 9, 12}));
  file.add("output", narrow(dump.stages.at(BlockStage::output).values, {1, 9, 12}));
  file.add("past_length", Tensor<float>({1}));
  return file;
}

Block llama_block(std::uint64_t seed) {
  Block block(llama_config(), seed);
  for (Tensor<double> BlockWeights<double>::*bias :
       {&BlockWeights<double>::query_bias, &BlockWeights<double>::key_bias,
        &BlockWeights<double>::value_bias, &BlockWeights<double>::output_bias,
        &BlockWeights<double>::up_bias, &BlockWeights<double>::gate_bias,
        &BlockWeights<double>::down_bias}) {
    block.weights.*bias = Tensor<double>();
  }
  return block;
}

TEST(BlockFile, ReadsALlamaLayer) {
  const Block block = llama_block(1);
  const BlockFileOptions options{.heads = 4, .rope = RopeConfig{}};
  const BlockFile file = read_block(llama_file(block, {}), options).value();
  EXPECT_EQ(file.dump.config.kv_heads, 2);
  EXPECT_EQ(file.dump.config.head_dim, 4);
  EXPECT_EQ(file.dump.config.ffn_dim, 17);
  EXPECT_TRUE(file.dump.config.gated);
  EXPECT_EQ(file.dump.config.norm, Norm::rms_norm);
  EXPECT_TRUE(said(file, "output × input: the shape of model.layers.7.self_attn.q_proj.weight"));
  EXPECT_TRUE(said(file, "past_length is not used"));
  EXPECT_TRUE(said(file, "pre-norm"));
  EXPECT_TRUE(said(file, "there are 2 key/value heads"));
  EXPECT_EQ(diagnose_block(file.dump).value().judgement, Judgement::right);

  const BlockFile wrong =
      read_block(llama_file(block, {{"rope.interleaved_for_half", 0}}), options).value();
  const Diagnosis found = diagnose_block(wrong.dump).value();
  ASSERT_EQ(found.judgement, Judgement::wrong_named);
  EXPECT_EQ(found.explanations[0].mistakes[0].mistake->name, "rope.interleaved_for_half");
}

TEST(BlockFile, ReadsAGpt2LayerWithPackedProjections) {
  const Block block(gpt2_config(), 2);
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, {});
  const BlockWeights<double>& w = block.weights;
  io::NamedTensors file;
  file.add("x", narrow(dump.x));
  for (const auto& [name, tensor] : std::vector<std::pair<std::string, const Tensor<double>*>>{
           {"ln_1.weight", &w.norm1_gain},
           {"ln_1.bias", &w.norm1_bias},
           {"ln_2.weight", &w.norm2_gain},
           {"ln_2.bias", &w.norm2_bias},
           {"attn.c_proj.weight", &w.output_weight},
           {"attn.c_proj.bias", &w.output_bias},
           {"mlp.c_fc.weight", &w.up_weight},
           {"mlp.c_fc.bias", &w.up_bias},
           {"mlp.c_proj.weight", &w.down_weight},
           {"mlp.c_proj.bias", &w.down_bias}}) {
    file.add("transformer.h.3." + name, narrow(*tensor));
  }
  file.add("transformer.h.3.attn.c_attn.weight",
           side_by_side(w.query_weight, w.key_weight, w.value_weight));
  file.add("transformer.h.3.attn.c_attn.bias",
           side_by_side(w.query_bias, w.key_bias, w.value_bias));
  file.add("attn_weights",
           narrow(dump.stages.at(BlockStage::weights).values, {1, 3, 9, 9}));  // shows the heads
  file.add("output", narrow(dump.stages.at(BlockStage::output).values));
  const BlockFile read = read_block(file, {.activation = Activation::gelu_tanh}).value();
  EXPECT_EQ(read.dump.config.heads, 3);
  EXPECT_TRUE(said(read, "matrices are input × output"));
  EXPECT_TRUE(said(read, "c_attn.weight is cut into query, key and value"));
  const Diagnosis right = diagnose_block(read.dump).value();
  EXPECT_EQ(right.judgement, Judgement::right);

  EXPECT_EQ(right.unsaid, "");

  // The activation that is assumed without an option is another one: nobody claimed it.
  const Diagnosis found = diagnose_block(read_block(file, {}).value().dump).value();
  EXPECT_EQ(found.judgement, Judgement::right);
  EXPECT_EQ(
      found.unsaid,
      "you did not say the activation; these numbers are gelu-tanh: add --activation gelu-tanh");
}

/// A block in our own names, with these tables.
io::NamedTensors own_file(const Block& block, const test::Mistakes& mistakes,
                          const std::set<std::string>& tables) {
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, mistakes, tables);
  io::NamedTensors file;
  file.add("x", narrow(dump.x));
  for (const lab::BlockParameter& parameter : lab::block_parameters(block.config)) {
    if (parameter.need == lab::Need::unused) continue;
    file.add(parameter.name, narrow(block.weights.*parameter.tensor));
  }
  for (const auto& [stage, table] : dump.stages) {
    file.add(std::string(name_of(stage)), narrow(table.values));
  }
  return file;
}

TEST(BlockFile, APackingThatNobodySaidDoesNotConvict) {
  BlockConfig config = gpt2_config();
  const Block block(config, 6);
  for (const char* mistake : {"qkv.blocked_read_by_head", "qkv.blocked_read_interleaved"}) {
    io::NamedTensors file = own_file(block, {{mistake, 0}}, {"output"});
    const BlockWeights<double>& w = block.weights;
    io::NamedTensors packed;
    for (const auto& [name, tensor] : file.tensors) {
      const bool part =
          name.starts_with("query_") || name.starts_with("key_") || name.starts_with("value_");
      if (!part) packed.add(name, tensor);
    }
    packed.add("qkv_weight", side_by_side(w.query_weight, w.key_weight, w.value_weight));
    packed.add("qkv_bias", side_by_side(w.query_bias, w.key_bias, w.value_bias));
    const BlockFileOptions options{.heads = 3, .activation = config.activation};
    const Diagnosis found = diagnose_block(read_block(packed, options).value().dump).value();
    EXPECT_EQ(found.judgement, Judgement::right) << mistake;
    EXPECT_NE(found.unsaid.find("how query, key and value are packed"), std::string::npos);
    // Said, it convicts.
    BlockFileOptions claimed = options;
    claimed.packing = PackedOrder::blocked;
    const Diagnosis wrong = diagnose_block(read_block(packed, claimed).value().dump).value();
    ASSERT_EQ(wrong.judgement, Judgement::wrong_named) << mistake;
    EXPECT_EQ(wrong.explanations[0].mistakes[0].mistake->name, mistake);
    const BlockFile apart = read_block(file, options).value();
    EXPECT_EQ(diagnose_block(apart.dump).value().judgement, Judgement::wrong_named) << mistake;
  }
}

TEST(BlockFile, ReadsAPackedTable) {
  const Block block(gpt2_config(), 7);
  const BlockFileOptions options{.heads = 3, .activation = block.config.activation};
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, {});
  const auto& s = dump.stages;
  const auto side = side_by_side(s.at(BlockStage::query).values, s.at(BlockStage::key).values,
                                 s.at(BlockStage::value).values);
  io::NamedTensors file = own_file(block, {}, {"output"});
  file.add("qkv", side);
  BlockFile read = read_block(file, options).value();
  EXPECT_EQ(read.dump.stages.size(), 4U);
  EXPECT_EQ(diagnose_block(read.dump).value().judgement, Judgement::right);

  read.dump.stages.at(BlockStage::key).values(2, 3) += 0.1;
  EXPECT_EQ(diagnose_block(read.dump).value().first_wrong_stage, "projection.key");

  io::NamedTensors narrower = own_file(block, {}, {"output"});
  narrower.add("qkv", narrow(s.at(BlockStage::query).values));
  read = read_block(narrower, options).value();
  EXPECT_EQ(read.dump.stages.size(), 1U);
  EXPECT_TRUE(said(read, "qkv is not used: query, key and value side by side would be [9, "));
}

TEST(BlockFile, SaysWhatWasAssumedFirstAndNamesOnce) {
  const BlockFile read = read_block(llama_file(llama_block(1), {}), {.heads = 4}).value();
  bool assumptions = true;
  std::int64_t count = 0, names = 0;
  for (const std::string& text : read.said) {
    const bool is_assumed = text.starts_with("assumed: ");
    EXPECT_TRUE(assumptions || !is_assumed) << text;
    EXPECT_TRUE(!is_assumed || text.find("--") != std::string::npos) << text;
    assumptions = is_assumed;
    count += is_assumed ? 1 : 0;
    names += text.find("mlp.up_proj.weight is up_weight") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(count, 7);  // norm, placement, epsilon, activation, causal, scale, rope
  EXPECT_EQ(names, 1);
  EXPECT_TRUE(read.said.back().starts_with("names: "));
}

TEST(BlockFile, ReadsOurOwnNamesAndMappedOnes) {
  const Block block(gpt2_config(), 3);
  const BlockDump dump = test::dump_of(block.config, block.weights, block.x, {});
  io::NamedTensors file;
  file.add("rows of mine", narrow(dump.x));
  for (const lab::BlockParameter& parameter : lab::block_parameters(block.config)) {
    if (parameter.need == lab::Need::unused) continue;
    file.add(parameter.name, narrow(block.weights.*parameter.tensor));
  }
  for (const auto& [stage, table] : dump.stages) {
    file.add(std::string(name_of(stage)), narrow(table.values));
  }
  const BlockFileOptions options{
      .names = {{"x", "rows of mine"}}, .heads = 3, .activation = Activation::gelu_tanh};
  const BlockFile read = read_block(file, options).value();
  EXPECT_EQ(read.dump.stages.size(), dump.stages.size());
  const Diagnosis found = diagnose_block(read.dump).value();
  EXPECT_EQ(found.judgement, Judgement::right) << found.first_wrong_stage;
  EXPECT_EQ(read.dump.x.size(), dump.x.size());
}

TEST(BlockFile, RefusesWhatItWouldHaveToGuessSilently) {
  const Block block = llama_block(4);
  const auto id = [](const io::NamedTensors& file, const BlockFileOptions& options) {
    const auto read = read_block(file, options);
    return read ? std::string("none") : read.failure().id;
  };
  const io::NamedTensors right = llama_file(block, {});
  EXPECT_EQ(id(right, {}), "missing-option") << "the number of heads";
  EXPECT_EQ(id(right, {.heads = 5}), "bad-option");
  EXPECT_EQ(id(right, {.names = {{"x", "nowhere"}}, .heads = 4}), "missing-tensor");
  EXPECT_EQ(id(right, {.names = {{"foo", "output"}}, .heads = 4}), "unknown-role");

  io::NamedTensors two = right;
  two.add("model.layers.8.mlp.up_proj.weight", Tensor<float>({17, 12}));
  EXPECT_EQ(id(two, {.heads = 4}), "ambiguous-layer");
  EXPECT_EQ(id(two, {.layer = 7, .heads = 4}), "none");

  io::NamedTensors square;
  square.add("x", Tensor<float>({5, 12}));
  square.add("q_proj.weight", Tensor<float>({12, 12}));
  square.add("query", Tensor<float>({5, 12}));
  EXPECT_EQ(id(square, {.heads = 3}), "ambiguous-layout");
  EXPECT_EQ(id(square, {.weight_order = WeightOrder::output_input, .heads = 3}), "none");

  io::NamedTensors twice = right;
  twice.add("x", Tensor<float>({9, 12}));
  EXPECT_EQ(id(twice, {.heads = 4}), "duplicate-name");

  io::NamedTensors mixed;
  mixed.add("x", Tensor<float>({5, 12}));
  mixed.add("up_proj.weight", Tensor<float>({17, 12}));
  mixed.add("gate_proj.weight", Tensor<float>({12, 17}));
  EXPECT_EQ(id(mixed, {.heads = 3}), "ambiguous-layout");

  io::NamedTensors shapes = right;
  shapes.add("ffn.up", Tensor<float>({9, 3}));
  EXPECT_EQ(id(shapes, {.heads = 4}), "shape-mismatch");
  io::NamedTensors flat;
  flat.add("x", Tensor<float>({12}));
  flat.add("norm1", Tensor<float>({5, 12}));
  EXPECT_EQ(id(flat, {.heads = 3}), "shape-mismatch");
  EXPECT_EQ(id({}, {}), "missing-tensor");
}

}  // namespace
}  // namespace attest::check
