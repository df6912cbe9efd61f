// SPDX-License-Identifier: MIT
// Blocks of real trained models: right ones are cleared, with their claim and without, and mistakes found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_file.h"
#include "attest/io/bytes.h"
#include "attest/io/json.h"
#include "attest/io/tensor_file.h"
#include "tests/check/block_dumps.h"
#include "tests/support/draws.h"
#include "tests/support/shared_files.h"

namespace attest::check {
namespace {

using test::BlockRows;
using test::Mistakes;
using Weights = BlockWeights<double>;

std::optional<std::filesystem::path> folder_of(const char* model) {
  return test::shared_path(std::filesystem::path("data/models") / model);
}

/// The tensors of a model, read without the checker's reader.
struct Model {
  io::NamedTensors file{};
  [[nodiscard]] Tensor<double> get(const std::string& name) const {
    const AnyTensor* found = file.find(name);
    return found == nullptr ? Tensor<double>() : found->to_f64(name).value();
  }
  /// nn.Linear's output × input as input × output, from this row on.
  [[nodiscard]] Tensor<double> linear(const std::string& name, std::int64_t first = 0,
                                      std::int64_t count = 0) const {
    const Tensor<double> w = get(name);
    if (count == 0) count = w.extent(0);
    Tensor<double> out({w.extent(1), count});
    for (std::int64_t i = 0; i < w.extent(1); ++i) {
      for (std::int64_t o = 0; o < count; ++o) out(i, o) = w(first + o, i);
    }
    return out;
  }
  [[nodiscard]] Tensor<double> part(const std::string& name, std::int64_t first,
                                    std::int64_t count) const {
    const Tensor<double> w = get(name);
    Tensor<double> out({count});
    std::copy_n(w.data() + first, count, out.data());
    return out;
  }
};

Model model_of(const std::filesystem::path& folder) {
  return {io::read_tensors((folder / "model.safetensors").string()).value()};
}

/// One block on trial: the file's tensors of this layer, and what a plain float32 program computes.
struct Trial {
  std::string name{};
  BlockConfig config{};
  Weights weights{};
  BlockRows x{};
  io::NamedTensors parameters{};
  BlockFileOptions least{};  ///< without which nothing can be read
  BlockFileOptions claim{};
  std::string unsaid{};  ///< the options that the numbers ask for, where nothing was claimed

  [[nodiscard]] BlockFile read(const Mistakes& mistakes, const BlockFileOptions& options) const {
    const BlockDump dump = test::dump_of(config, weights, x, mistakes);
    io::NamedTensors file = parameters;
    file.add("x", AnyTensor::from_f64(dump.x, DType::f32));
    for (const BlockStage stage : {BlockStage::residual1, BlockStage::output}) {
      file.add(std::string(name_of(stage)),
               AnyTensor::from_f64(dump.stages.at(stage).values, DType::f32));
    }
    return read_block(file, options).value();
  }
  [[nodiscard]] BlockRows output() const {
    const Tensor<double> out =
        test::dump_of(config, weights, x, {}, {"output"}).stages.at(BlockStage::output).values;
    BlockRows rows(x.size(), std::vector<float>(x[0].size()));
    for (std::size_t n = 0; n < out.size(); ++n) {
      rows[n / x[0].size()][n % x[0].size()] = static_cast<float>(out.data()[n]);
    }
    return rows;
  }
};

/// Tensors whose names begin so.
io::NamedTensors of_layer(const Model& model, const std::string& prefix) {
  io::NamedTensors out;
  for (const auto& [name, tensor] : model.file.tensors) {
    if (name.starts_with(prefix)) out.add(name, tensor);
  }
  return out;
}

BlockRows embedded(const Tensor<double>& table, const std::vector<std::int64_t>& ids,
                   double factor) {
  BlockRows out;
  for (const std::int64_t id : ids) {
    std::vector<float> row;
    for (std::int64_t c = 0; c < table.extent(1); ++c) {
      row.push_back(static_cast<float>(factor * table(id, c)));
    }
    out.push_back(std::move(row));
  }
  return out;
}

/// Llama's family: five layers of width 64, eight heads over four.
std::vector<Trial> stories() {
  const auto folder = folder_of("stories260K");
  if (!folder) return {};
  const Model model = model_of(*folder);
  Trial trial;
  BlockConfig& c = trial.config;
  c.model_dim = 64, c.heads = 8, c.kv_heads = 4, c.head_dim = c.value_dim = 8, c.ffn_dim = 172;
  c.norm = Norm::rms_norm, c.placement = NormPlacement::pre, c.activation = Activation::silu;
  c.gated = true, c.rope = RopeConfig{};
  trial.least = {.heads = 8};
  trial.claim = {.heads = 8,
                 .norm = c.norm,
                 .placement = c.placement,
                 .epsilon = c.epsilon,
                 .activation = c.activation,
                 .causal = true,
                 .rope = c.rope,
                 .scale = 1 / std::sqrt(8.0)};
  trial.unsaid = "add --epsilon 1e-05 --rope half";
  trial.x =
      embedded(model.get("model.embed_tokens.weight"),
               {1, 403, 407, 261, 378, 436, 399, 265, 282, 388, 426, 359, 417, 300, 23, 7}, 1);
  std::vector<Trial> out;
  for (int layer = 0; layer < 5; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    trial.name = "stories260K layer " + std::to_string(layer);
    trial.parameters = of_layer(model, at);
    Weights& w = trial.weights;
    w.norm1_gain = model.get(at + "input_layernorm.weight");
    w.norm2_gain = model.get(at + "post_attention_layernorm.weight");
    w.query_weight = model.linear(at + "self_attn.q_proj.weight");
    w.key_weight = model.linear(at + "self_attn.k_proj.weight");
    w.value_weight = model.linear(at + "self_attn.v_proj.weight");
    w.output_weight = model.linear(at + "self_attn.o_proj.weight");
    w.up_weight = model.linear(at + "mlp.up_proj.weight");
    w.gate_weight = model.linear(at + "mlp.gate_proj.weight");
    w.down_weight = model.linear(at + "mlp.down_proj.weight");
    out.push_back(trial);
    trial.x = trial.output();
  }
  return out;
}

/// BERT's family: one encoder layer of width 256, eight heads, whose epsilon is 1e-12.
std::vector<Trial> albert() {
  const auto folder = folder_of("rxnmapper-albert");
  if (!folder) return {};
  const Model model = model_of(*folder);
  Trial trial;
  BlockConfig& c = trial.config;
  c.model_dim = 256, c.heads = c.kv_heads = 8, c.head_dim = c.value_dim = 32, c.ffn_dim = 512;
  c.placement = NormPlacement::post, c.activation = Activation::gelu_erf, c.causal = false;
  c.epsilon = 1e-12;
  trial.name = "rxnmapper-albert";
  // All of its matrices but those of the feed-forward layer are square, which show the order.
  trial.least = {.heads = 8};
  trial.claim = {.heads = 8,
                 .norm = c.norm,
                 .placement = c.placement,
                 .epsilon = c.epsilon,
                 .activation = c.activation,
                 .causal = false,
                 .scale = 1 / std::sqrt(32.0),
                 .alibi = false};
  trial.unsaid = "--placement post --causal none";
  const std::string at = "albert.encoder.albert_layer_groups.0.albert_layers.0.";
  trial.parameters = of_layer(model, at);
  Weights& w = trial.weights;
  const std::pair<const char*, std::pair<Tensor<double> Weights::*, Tensor<double> Weights::*>>
      all[] = {{"attention.query", {&Weights::query_weight, &Weights::query_bias}},
               {"attention.key", {&Weights::key_weight, &Weights::key_bias}},
               {"attention.value", {&Weights::value_weight, &Weights::value_bias}},
               {"attention.dense", {&Weights::output_weight, &Weights::output_bias}},
               {"ffn", {&Weights::up_weight, &Weights::up_bias}},
               {"ffn_output", {&Weights::down_weight, &Weights::down_bias}}};
  for (const auto& [name, parts] : all) {
    w.*parts.first = model.linear(at + name + ".weight");
    w.*parts.second = model.get(at + name + ".bias");
  }
  w.norm1_gain = model.get(at + "attention.LayerNorm.weight");
  w.norm1_bias = model.get(at + "attention.LayerNorm.bias");
  w.norm2_gain = model.get(at + "full_layer_layer_norm.weight");
  w.norm2_bias = model.get(at + "full_layer_layer_norm.bias");
  // Hidden states of its own size and correlation: the mapping of word embeddings, then three layers.
  const Tensor<double> words = model.get("albert.embeddings.word_embeddings.weight");
  const Tensor<double> mapping = model.linear("albert.encoder.embedding_hidden_mapping_in.weight");
  for (const BlockRows rows = embedded(words, {12, 40, 41, 17, 300, 88, 5, 13, 41, 200, 9}, 20);
       const std::vector<float>& row : rows) {
    std::vector<float> wide(256);
    for (std::size_t o = 0; o < wide.size(); ++o) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        wide[o] += row[i] * static_cast<float>(mapping.data()[i * 256 + o]);
      }
    }
    trial.x.push_back(std::move(wide));
  }
  for (int layer = 0; layer < 3; ++layer) trial.x = trial.output();
  return {trial};
}

/// An encoder that normalises before its layers: six of width 32, eight heads, packed projections.
std::vector<Trial> transliteration() {
  const auto folder = folder_of("aren-transliteration");
  if (!folder) return {};
  const Model model = model_of(*folder);
  Trial trial;
  BlockConfig& c = trial.config;
  c.model_dim = 32, c.heads = c.kv_heads = 8, c.head_dim = c.value_dim = 4, c.ffn_dim = 128;
  c.placement = NormPlacement::pre, c.activation = Activation::relu, c.causal = false;
  trial.claim = {.heads = 8,
                 .norm = c.norm,
                 .placement = c.placement,
                 .epsilon = c.epsilon,
                 .activation = c.activation,
                 .causal = false,
                 .scale = 0.5,
                 .alibi = false,
                 .packing = PackedOrder::blocked};
  trial.least = {.heads = 8};
  trial.unsaid = "add --activation relu --causal none";
  trial.x =
      embedded(model.get("encoder.embeddings.weight"), {5, 11, 23, 8, 30, 2, 17}, std::sqrt(32.0));
  std::vector<Trial> out;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string at = "encoder.layer_" + std::to_string(layer) + ".";
    trial.name = "aren-transliteration encoder layer " + std::to_string(layer);
    trial.parameters = of_layer(model, at);
    for (BlockFileOptions* options : {&trial.claim, &trial.least}) {
      options->names.clear();
      const std::pair<const char*, const char*> names[] = {{"qkv", "self_attention.linear_0."},
                                                           {"output", "self_attention.linear_1."},
                                                           {"up", "ffn.linear_0."},
                                                           {"down", "ffn.linear_1."}};
      for (const auto& [role, name] : names) {
        options->names[std::string(role) + "_weight"] = at + name + "weight";
        options->names[std::string(role) + "_bias"] = at + name + "bias";
      }
      options->names["norm1_gain"] = at + "self_attention.layer_norm.gamma";
      options->names["norm1_bias"] = at + "self_attention.layer_norm.beta";
      options->names["norm2_gain"] = at + "ffn.layer_norm.gamma";
      options->names["norm2_bias"] = at + "ffn.layer_norm.beta";
    }
    Weights& w = trial.weights;
    const std::string packed = at + "self_attention.linear_0.";
    Tensor<double> Weights::*const matrices[] = {&Weights::query_weight, &Weights::key_weight,
                                                 &Weights::value_weight};
    Tensor<double> Weights::*const biases[] = {&Weights::query_bias, &Weights::key_bias,
                                               &Weights::value_bias};
    for (int n = 0; n < 3; ++n) {
      w.*matrices[n] = model.linear(packed + "weight", n * 32, 32);
      w.*biases[n] = model.part(packed + "bias", n * 32, 32);
    }
    w.output_weight = model.linear(at + "self_attention.linear_1.weight");
    w.output_bias = model.get(at + "self_attention.linear_1.bias");
    w.up_weight = model.linear(at + "ffn.linear_0.weight");
    w.up_bias = model.get(at + "ffn.linear_0.bias");
    w.down_weight = model.linear(at + "ffn.linear_1.weight");
    w.down_bias = model.get(at + "ffn.linear_1.bias");
    w.norm1_gain = model.get(at + "self_attention.layer_norm.gamma");
    w.norm1_bias = model.get(at + "self_attention.layer_norm.beta");
    w.norm2_gain = model.get(at + "ffn.layer_norm.gamma");
    w.norm2_bias = model.get(at + "ffn.layer_norm.beta");
    out.push_back(trial);
    trial.x = trial.output();
  }
  return out;
}

std::vector<Trial> all_trials() {
  std::vector<Trial> out = stories();
  for (auto more : {albert(), transliteration()}) out.insert(out.end(), more.begin(), more.end());
  return out;
}

bool is_wrong(const Diagnosis& found) {
  return found.judgement == Judgement::wrong_named ||
         found.judgement == Judgement::wrong_unexplained;
}

TEST(BlockModels, RightOnesAreCleared) {
  const std::vector<Trial> trials = all_trials();
  if (trials.empty()) GTEST_SKIP() << test::not_shared;
  for (const Trial& trial : trials) {
    const Diagnosis claimed = diagnose_block(trial.read({}, trial.claim).dump).value();
    EXPECT_EQ(claimed.judgement, Judgement::right) << trial.name;
    EXPECT_EQ(claimed.unsaid, "");
    const Diagnosis read = diagnose_block(trial.read({}, trial.least).dump).value();
    EXPECT_EQ(read.judgement, Judgement::right) << trial.name << ": " << read.unsaid;
    EXPECT_NE(read.unsaid.find(trial.unsaid), std::string::npos)
        << trial.name << ": " << read.unsaid;
  }
}

TEST(BlockModels, MistakesAreFoundWithAndWithoutAClaim) {
  const std::vector<Trial> trials = all_trials();
  if (trials.empty()) GTEST_SKIP() << test::not_shared;
  const char* const mistakes[] = {"block.residual1_missing",      "heads.merged_by_reshape",
                                  "projection.output_transposed", "norm.sample_variance",
                                  "block.residual2_doubled",      "norm2.gain_missing"};
  std::size_t turn = 0, named = 0, made = 0;
  for (const Trial& trial : trials) {
    for (const char* mistake : mistakes) {
      if (turn++ % test::stride(5) != 0) continue;
      const Mistakes one{{mistake, 0}};
      const Diagnosis claimed = diagnose_block(trial.read(one, trial.claim).dump).value();
      ASSERT_EQ(claimed.judgement, Judgement::wrong_named) << trial.name << " " << mistake;
      const Explanation& best = claimed.explanations.front();
      EXPECT_TRUE(best.mistakes[0].mistake->name == mistake ||
                  std::count(best.same.begin(), best.same.end(), mistake) != 0)
          << trial.name << " " << mistake << ": " << best.mistakes[0].label();
      const Diagnosis read = diagnose_block(trial.read(one, trial.least).dump).value();
      EXPECT_TRUE(is_wrong(read)) << trial.name << " " << mistake << ": " << read.unsaid;
      ++made;
      named += read.judgement == Judgement::wrong_named ? 1 : 0;
    }
  }
  std::cout << named << " of " << made << " named without a claim\n";
}

/// Little-endian floats in base64, as the source of gpt-nano-sort has its tensors.
std::vector<float> floats_of(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6U | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> static_cast<unsigned>(count) & 255U));
  }
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

/// A file's text without the checker: every tensor of the source, as PyTorch stores it.
io::NamedTensors nano_parameters(const std::filesystem::path& folder) {
  const auto bytes = io::read_file((folder / "gpt-nano-sort-model.json").string()).value();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  io::NamedTensors out;
  for (const char* name :
       {"ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias", "attn.c_attn.weight",
        "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias", "mlp.c_fc.weight",
        "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"}) {
    const std::string whole = std::string("transformer.h.0.") + name;
    const std::size_t at = text.find("\"" + whole + "\"");
    const std::size_t data = text.find("\"data\"", at);
    const std::size_t first = text.find('"', data + 6) + 1;
    const std::vector<float> numbers =
        floats_of(std::string_view(text).substr(first, text.find('"', first) - first));
    Shape shape{static_cast<std::int64_t>(numbers.size())};
    if (whole.ends_with("c_attn.weight")) shape = {144, 48};
    if (whole.ends_with("attn.c_proj.weight")) shape = {48, 48};
    if (whole.ends_with("c_fc.weight")) shape = {192, 48};
    if (whole.ends_with("mlp.c_proj.weight")) shape = {48, 192};
    out.add(whole, Tensor<float>(shape, numbers));
  }
  return out;
}

/// PyTorch's own numbers of every table of a block: nothing of them was made here.
TEST(BlockModels, PyTorchsTablesOfABlockAreRight) {
  const auto folder = folder_of("gpt-nano-sort");
  if (!folder) GTEST_SKIP() << test::not_shared;
  const auto tables =
      io::read_tensors((*folder / "peer_pytorch_f32_partials.safetensors").string()).value();
  io::NamedTensors file = nano_parameters(*folder);
  const std::pair<const char*, const char*> names[] = {{"x", "x"},
                                                       {"norm1", "ln1"},
                                                       {"weights", "attSm"},
                                                       {"concat", "y"},
                                                       {"residual1", "attnResid"},
                                                       {"norm2", "ln2"},
                                                       {"ffn.up", "fc"},
                                                       {"ffn.activation", "gelu"},
                                                       {"ffn.down", "mlp"},
                                                       {"output", "block0"},
                                                       {"output_projection", "yProj"}};
  for (const auto& [role, name] : names) file.add(role, *tables.find(name));
  const auto judged = [&](const char* more, const BlockFileOptions& options) {
    io::NamedTensors all = file;
    if (std::string_view(more) == "qkv") all.add("qkv", *tables.find("qkv"));
    if (std::string_view(more) == "q, k, v") {
      for (const char* name : {"q", "k", "v"}) all.add(name, *tables.find(name));
    }
    return diagnose_block(read_block(all, options).value().dump).value();
  };
  for (const char* more : {"", "qkv", "q, k, v"}) {
    const Diagnosis claimed = judged(more, {.norm = Norm::layer_norm,
                                            .placement = NormPlacement::pre,
                                            .epsilon = 1e-5,
                                            .activation = Activation::gelu_tanh,
                                            .causal = true,
                                            .scale = 0.25,
                                            .alibi = false,
                                            .packing = PackedOrder::blocked});
    EXPECT_EQ(claimed.judgement, Judgement::right) << more << " " << claimed.first_wrong_stage;
    const Diagnosis read = judged(more, {});
    EXPECT_EQ(read.judgement, Judgement::right) << more << " " << read.unsaid;
    EXPECT_TRUE(read.unsaid.ends_with("add --activation gelu-tanh")) << more << read.unsaid;
    const Diagnosis wrong = judged(more, {.activation = Activation::gelu_erf});
    ASSERT_EQ(wrong.judgement, Judgement::wrong_named) << more;
    EXPECT_EQ(wrong.explanations[0].mistakes[0].mistake->name, "ffn.gelu_tanh");
    EXPECT_EQ(wrong.first_wrong_stage, "ffn.activation");
  }
}

}  // namespace
}  // namespace attest::check
