// SPDX-License-Identifier: MIT
// Single layers: every form of a norm, an activation, a rotation or a softmax is told from the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/block/layer.h"
#include "attest/io/json.h"
#include "attest/io/safetensors.h"
#include "tests/check/block_dumps.h"
#include "tests/support/onnx_nodes.h"

namespace attest::check {
namespace {

namespace fs = std::filesystem;
using test::BlockRows;
using test::Mistakes;

std::string label_of(const Explanation& explanation) {
  std::string out;
  for (const Made& made : explanation.mistakes) {
    out += out.empty() ? "" : " + ";
    out += made.mistake->name;
    if (!made.mistake->values.empty()) out += sentence(" (", made.value, ")");
  }
  return out;
}

bool names(const Diagnosis& found, const std::string& label) {
  if (found.judgement != Judgement::wrong_named) return false;
  const Explanation& best = found.explanations.front();
  return label_of(best) == label || std::count(best.same.begin(), best.same.end(), label) != 0;
}

/// The layer as the plain float32 program of block_plain.h computes it, with these mistakes.
struct PlainLayer {
  BlockConfig config{};
  BlockWeights<double> weights{};
  BlockRows x{};

  [[nodiscard]] LayerDump norm(const Mistakes& mistakes) const {
    const test::PlainBlock plain{config, weights, mistakes};
    return {.kind = LayerKind::norm,
            .input = test::tensor_of(x),
            .output = test::tensor_of(plain.norm("norm1", x)),
            .weight = weights.norm1_gain,
            .bias = weights.norm1_bias,
            .norm = config.norm,
            .epsilon = config.epsilon};
  }
  [[nodiscard]] LayerDump activation(const Mistakes& mistakes) const {
    const test::PlainBlock plain{config, weights, mistakes};
    BlockRows y = x;
    for (auto& row : y) {
      for (float& number : row) number = plain.act(number);
    }
    return {.kind = LayerKind::activation,
            .input = test::tensor_of(x),
            .output = test::tensor_of(y),
            .activation = config.activation};
  }
  [[nodiscard]] LayerDump rope(const Mistakes& mistakes) const {
    const test::PlainBlock plain{config, weights, mistakes};
    return {.kind = LayerKind::rope,
            .input = test::tensor_of(x),
            .output = test::tensor_of(
                mistakes.count("rope.none") != 0
                    ? x
                    : plain.turn(x, 3, mistakes.count("rope.query_offset") != 0 ? 1 : 0)),
            .rope = *config.rope,
            .heads = 3};
  }
};

PlainLayer drawn(std::uint64_t seed) {
  Random random(seed);
  PlainLayer out;
  out.config.model_dim = 18;
  out.config.heads = out.config.kv_heads = 3;
  out.config.head_dim = out.config.value_dim = 6;
  out.config.ffn_dim = 18;
  out.config.norm = static_cast<Norm>(random.between(0, 1));
  out.config.activation = static_cast<Activation>(random.between(0, 3));
  out.config.rope = RopeConfig{.pairing = static_cast<RopePairing>(random.between(0, 1)),
                               .rotary_dim = random.between(0, 1) == 1 ? 4 : 0};
  out.weights = test::drawn_weights(random, out.config);
  out.x = test::drawn_rows(random, random.between(5, 9), 18);
  return out;
}

/// Makes every mistake whose name begins so, in every layer of some seeds.
void name_all(const char* prefix,
              const std::function<LayerDump(const PlainLayer&, const Mistakes&)>& make,
              const std::vector<std::string>& wanted) {
  std::int64_t all = 0, alone = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const PlainLayer layer = drawn(seed);
    const Diagnosis right = diagnose_layer(make(layer, {})).value();
    EXPECT_EQ(right.judgement, Judgement::right) << prefix << " seed " << seed;
    for (const std::string& name : wanted) {
      const Mistake* const mistake = find_block_mistake(name);
      ASSERT_NE(mistake, nullptr) << name;
      const std::vector<double> values(mistake->values.begin(), mistake->values.end());
      for (const double value : values.empty() ? std::vector<double>{0} : values) {
        const Diagnosis found = diagnose_layer(make(layer, {{name, value}})).value();
        const std::string label = values.empty() ? name : sentence(name, " (", value, ")");
        // A mistake that this layer cannot make, or that is its claim, leaves it right.
        if (found.judgement == Judgement::right) continue;
        ++all;
        alone += names(found, label) && found.explanations.front().same.empty() ? 1 : 0;
        EXPECT_TRUE(names(found, label))
            << "seed " << seed << " " << label << ": "
            << (found.explanations.empty() ? "nothing" : label_of(found.explanations.front()));
      }
    }
  }
  std::cout << prefix << ": " << all << " named, " << alone << " of them alone\n";
  EXPECT_GE(all, 12 * static_cast<std::int64_t>(wanted.size()) / 2);
}

TEST(DiagnoseLayer, NamesEveryFormOfANorm) {
  name_all("norm", [](const PlainLayer& l, const Mistakes& m) { return l.norm(m); },
           {"norm.missing", "norm.rms_for_layer", "norm.layer_for_rms",
            "norm.deviation_for_root_mean_square", "norm.sample_variance", "norm.sum_for_mean",
            "norm.epsilon_outside", "norm.epsilon_missing", "norm.epsilon_other",
            "norm.root_missing", "norm.mean_not_subtracted", "norm.gain_missing",
            "norm.bias_missing", "norm.one_plus_gain", "norm.over_positions"});
}

TEST(DiagnoseLayer, NamesEveryActivation) {
  name_all("activation", [](const PlainLayer& l, const Mistakes& m) { return l.activation(m); },
           {"ffn.relu", "ffn.gelu_erf", "ffn.gelu_tanh", "ffn.gelu_quick", "ffn.silu",
            "ffn.leaky_relu", "ffn.activation_missing"});
}

TEST(DiagnoseLayer, NamesEveryRotation) {
  name_all("rope", [](const PlainLayer& l, const Mistakes& m) { return l.rope(m); },
           {"rope.none", "rope.interleaved_for_half", "rope.half_for_interleaved",
            "rope.applied_twice", "rope.backwards", "rope.query_offset", "rope.base",
            "rope.exponent_by_pair", "rope.mixed_layout_tables", "rope.last_features",
            "rope.all_features", "rope.frequencies_by_head_dim", "rope.across_heads"});
}

TEST(DiagnoseLayer, NamesEverySoftmax) {
  Random random(5);
  const BlockRows x = test::drawn_rows(random, 7, 9);
  const std::vector<std::string> forms = {"",
                                          "softmax.over_queries",
                                          "softmax.base2",
                                          "softmax.exp_with_log2e",
                                          "softmax.twice",
                                          "softmax.plus_one",
                                          "softmax.unnormalised",
                                          "softmax.sigmoid",
                                          "softmax.missing"};
  for (const std::string& form : forms) {
    BlockRows y = x;
    const bool down = form == "softmax.over_queries";
    for (std::size_t line = 0; line < (down ? 9U : 7U); ++line) {
      std::vector<float*> row;
      for (std::size_t k = 0; k < (down ? 7U : 9U); ++k)
        row.push_back(down ? &y[k][line] : &y[line][k]);
      const auto soften = [&] {
        float sum = form == "softmax.plus_one" ? 1.0F : 0.0F;
        for (float* number : row) {
          if (form == "softmax.base2") *number *= 0.6931471805599453F;
          if (form == "softmax.exp_with_log2e") *number *= 1.4426950408889634F;
          *number = std::exp(*number);
          sum += *number;
        }
        for (float* number : row) *number /= sum;
      };
      float peak = *row[0];
      for (const float* number : row) peak = std::max(peak, *number);
      if (form == "softmax.missing") continue;
      if (form == "softmax.sigmoid" || form == "softmax.unnormalised") {
        for (float* number : row) {
          *number =
              form == "softmax.sigmoid" ? 1 / (1 + std::exp(-*number)) : std::exp(*number - peak);
        }
        continue;
      }
      soften();
      if (form == "softmax.twice") soften();
    }
    const LayerDump dump{
        .kind = LayerKind::softmax, .input = test::tensor_of(x), .output = test::tensor_of(y)};
    const Diagnosis found = diagnose_layer(dump).value();
    if (form.empty()) {
      EXPECT_EQ(found.judgement, Judgement::right);
    } else {
      ASSERT_EQ(found.judgement, Judgement::wrong_named) << form;
      EXPECT_EQ(label_of(found.explanations[0]), form);
    }
  }
}

TEST(DiagnoseLayer, NamesGatedAndLinearLayers) {
  for (std::uint64_t seed = 21; seed <= 30; ++seed) {
    const PlainLayer layer = drawn(seed);
    Random random(seed, 1);
    const BlockRows up = test::drawn_rows(random, static_cast<std::int64_t>(layer.x.size()), 18);
    for (const char* name : {"", "ffn.activates_up", "ffn.both_active", "ffn.up_ignored",
                             "ffn.gate_ignored", "ffn.gate_added", "ffn.gelu_quick"}) {
      const std::string form = name;
      const Mistakes mistakes{{form, 0}};
      const test::PlainBlock plain{layer.config, layer.weights, mistakes};
      BlockRows y = layer.x;
      for (std::size_t t = 0; t < y.size(); ++t) {
        for (std::size_t k = 0; k < y[t].size(); ++k) {
          const float g = layer.x[t][k], u = up[t][k];
          y[t][k] = form == "ffn.activates_up"   ? plain.act(u) * g
                    : form == "ffn.both_active"  ? plain.act(g) * plain.act(u)
                    : form == "ffn.up_ignored"   ? plain.act(g)
                    : form == "ffn.gate_ignored" ? plain.act(u)
                    : form == "ffn.gate_added"   ? plain.act(g) + u
                                                 : plain.act(g) * u;
        }
      }
      const LayerDump dump{.kind = LayerKind::gated,
                           .input = test::tensor_of(layer.x),
                           .output = test::tensor_of(y),
                           .up = test::tensor_of(up),
                           .activation = layer.config.activation};
      const Diagnosis found = diagnose_layer(dump).value();
      EXPECT_TRUE(form.empty() ? found.judgement == Judgement::right : names(found, form))
          << "seed " << seed << " " << form;
    }
    for (const char* name : {"", "ffn.up_transposed", "ffn.up_bias_missing", "ffn.up_bias_twice"}) {
      const std::string form = name;
      const Mistakes mistakes{{form, 0}};
      const test::PlainBlock plain{layer.config, layer.weights, mistakes};
      const LayerDump dump{.kind = LayerKind::linear,
                           .input = test::tensor_of(layer.x),
                           .output = test::tensor_of(plain.linear("ffn.up", layer.x)),
                           .weight = layer.weights.up_weight,
                           .bias = layer.weights.up_bias};
      const Diagnosis found = diagnose_layer(dump).value();
      EXPECT_TRUE(form.empty() ? found.judgement == Judgement::right : names(found, form))
          << "seed " << seed << " " << form;
    }
  }
}

TEST(DiagnoseLayer, RefusesShapesThatCannotBe) {
  const PlainLayer layer = drawn(3);
  const auto id = [](const LayerDump& dump) {
    const auto found = diagnose_layer(dump);
    return found ? std::string("none") : found.failure().id;
  };
  LayerDump dump = layer.norm({});
  dump.weight = Tensor<double>({17});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = layer.norm({});
  dump.output = Tensor<double>();
  EXPECT_EQ(id(dump), "missing-tensor");
  dump = layer.norm({});
  dump.epsilon = -1;
  EXPECT_EQ(id(dump), "bad-option");
  dump = layer.rope({});
  dump.heads = 4;
  EXPECT_EQ(id(dump), "bad-option");
  dump = layer.rope({});
  dump.positions = {1, 2};
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump.positions.clear();
  dump.cos = Tensor<double>({1, 3});
  EXPECT_EQ(id(dump), "shape-mismatch");
  dump = layer.activation({});
  dump.kind = LayerKind::gated;
  EXPECT_EQ(id(dump), "missing-tensor");
}

// The ONNX project's own tests of these layers.

using Node = test::OnnxNode;

Tensor<double> as_rows(Tensor<double> t, std::int64_t columns) {
  const auto rows = static_cast<std::int64_t>(t.size()) / columns;
  return std::move(t).reshaped({rows, columns});
}

void on_all(const char* operation, std::size_t count,
            const std::function<std::optional<LayerDump>(const Node&)>& make) {
  const auto nodes = test::onnx_nodes(operation);
  if (nodes.empty()) GTEST_SKIP() << test::not_shared;
  std::size_t right = 0;
  for (const Node& node : nodes) {
    const auto dump = make(node);
    if (!dump) continue;
    const auto found = diagnose_layer(*dump);
    ASSERT_TRUE(found) << node.name << " " << found.failure().message;
    EXPECT_EQ(found->judgement, Judgement::right)
        << node.name << " used " << found->stages[0].used << " "
        << (found->explanations.empty() ? "" : label_of(found->explanations.front()));
    right += found->judgement == Judgement::right ? 1 : 0;
  }
  std::cout << operation << ": " << right << " of " << count << " right\n";
  EXPECT_EQ(right, count);
}

std::optional<LayerDump> norm_node(const Node& node, Norm kind) {
  LayerDump dump{.kind = LayerKind::norm, .norm = kind};
  const Tensor<double> gain = node.get("in.W");
  const auto C = static_cast<std::int64_t>(gain.size());
  dump.input = as_rows(node.get("in.X"), C);
  dump.output = as_rows(node.get("out.Y"), C);
  dump.weight = node.get("in.W").reshaped({C});
  if (node.has("in.B")) dump.bias = node.get("in.B").reshaped({C});
  dump.epsilon = node.attribute("epsilon", 1e-5);
  return dump;
}

TEST(DiagnoseLayer, ClearsOnnxNorms) {
  on_all("layer_normalization", 19,
         [](const Node& node) { return norm_node(node, Norm::layer_norm); });
  on_all("rms_normalization", 19, [](const Node& node) { return norm_node(node, Norm::rms_norm); });
}

TEST(DiagnoseLayer, ClearsOnnxGeluAndSwiglu) {
  on_all("gelu", 4, [](const Node& node) {
    const Tensor<double> x = node.get("in.x");
    return LayerDump{.kind = LayerKind::activation,
                     .input = as_rows(x, x.shape().back()),
                     .output = as_rows(node.get("out.y"), x.shape().back()),
                     .activation = node.name.find("tanh") != std::string::npos
                                       ? Activation::gelu_tanh
                                       : Activation::gelu_erf};
  });
  on_all("swiglu", 2, [](const Node& node) -> std::optional<LayerDump> {
    if (node.attribute("alpha", 1) != 1) return {};  // no activation of ours
    LayerDump dump{.kind = LayerKind::gated,
                   .input = node.get("in.a"),
                   .output = node.get("out.y"),
                   .up = node.get("in.b"),
                   .activation = Activation::silu};
    dump.dtype = node.file.find("out.y")->dtype();
    if (dump.dtype == DType::f16) dump.precision = Precision::f16;
    return dump;
  });
}

TEST(DiagnoseLayer, ClearsOnnxSoftmax) {
  on_all("softmax", 7, [](const Node& node) {
    const Tensor<double> x = node.get("in.x"), y = node.get("out.y");
    const std::size_t axis = node.axis(x.rank());
    const std::int64_t C = x.extent(axis);
    std::int64_t inner = 1;
    for (std::size_t a = axis + 1; a < x.rank(); ++a) inner *= x.extent(a);
    const auto N = static_cast<std::int64_t>(x.size()) / C;
    LayerDump dump{.kind = LayerKind::softmax,
                   .input = Tensor<double>({N, C}),
                   .output = Tensor<double>({N, C})};
    for (std::int64_t n = 0; n < N * C; ++n) {
      const std::int64_t row = n / C;
      const std::int64_t from = row / inner * C * inner + n % C * inner + row % inner;
      dump.input.data()[n] = x.data()[from];
      dump.output.data()[n] = y.data()[from];
    }
    return dump;
  });
}

TEST(DiagnoseLayer, ClearsOnnxRotaryEmbedding) {
  on_all("rotary_embedding", 8, [](const Node& node) {
    Tensor<double> x = node.get("in.input"), y = node.get("out.output");
    const bool flat = x.rank() == 3;
    const std::int64_t B = x.extent(0);
    const auto H = flat ? static_cast<std::int64_t>(node.attribute("num_heads", 0)) : x.extent(1);
    const std::int64_t T = x.extent(flat ? 1 : 2);
    const std::int64_t D = flat ? x.extent(2) / H : x.extent(3);
    const Tensor<double> cos = node.get("in.cos_cache"), sin = node.get("in.sin_cache");
    const std::int64_t half = cos.shape().back();
    LayerDump dump{.kind = LayerKind::rope,
                   .input = Tensor<double>({B * T, H * D}),
                   .output = Tensor<double>({B * T, H * D})};
    dump.heads = H;
    dump.rope.pairing =
        node.attribute("interleaved", 0) == 1 ? RopePairing::interleaved : RopePairing::half;
    dump.rope.rotary_dim = static_cast<std::int64_t>(node.attribute("rotary_embedding_dim", 0));
    dump.cos = dump.sin = Tensor<double>({B * T, half});
    const Tensor<double> places =
        node.has("in.position_ids") ? node.get("in.position_ids") : Tensor<double>();
    for (std::int64_t r = 0; r < B * T; ++r) {
      const auto place = places.size() == 0 ? r : static_cast<std::int64_t>(places.data()[r]);
      for (std::int64_t i = 0; i < half; ++i) {
        dump.cos(r, i) = cos.data()[place * half + i];
        dump.sin(r, i) = sin.data()[place * half + i];
      }
      for (std::int64_t n = 0; n < H * D; ++n) {
        const std::int64_t from =
            flat ? r * H * D + n : ((r / T * H + n / D) * T + r % T) * D + n % D;
        dump.input(r, n) = x.data()[from];
        dump.output(r, n) = y.data()[from];
      }
    }
    return dump;
  });
}

}  // namespace
}  // namespace attest::check
