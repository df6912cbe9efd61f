// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attest/lab/oracle.h"

// Values and gradients that tests/golden/make_oracle_goldens.py found with other formulas, another
// arithmetic (mpmath) and another way to gradients (differences with 130 digits).
namespace attest::lab::oracle {
namespace {

struct Golden {
  std::string operation;
  std::string part;
  std::vector<std::string> numbers;
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
#include "tests/golden/oracle_goldens.inc"
  };
  return all;
}

using Parts = std::map<std::string, OracleTensor>;

/// The generator's stream: number k is a multiple of 1/64 in [−2, 2].
Tensor<double> stream(std::int64_t seed, Shape shape, double factor = 1, double plus = 0) {
  Tensor<double> out(std::move(shape));
  std::int64_t k = 0;
  for (double& x : out.elements()) {
    const std::int64_t hash = (seed * 7919 + k * 104729 + k * k * 31 + seed * k * 17) % 257 - 128;
    x = plus + factor * static_cast<double>(hash) / 64;
    ++k;
  }
  return out;
}

struct Dims {
  std::int64_t B, H, G, T, S, D, E;
};

/// The tensors of a golden attention call, and its options, whose bias may point to `bias`.
struct GoldenCall {
  Dims n;
  AttentionOptions<double> options{};
  Tensor<double> bias{};
};

Parts run_attention(const GoldenCall& call) {
  const Dims& n = call.n;
  const Tensor<double> query = stream(1, {n.B, n.H, n.T, n.D});
  const Tensor<double> key = stream(2, {n.B, n.G, n.S, n.D});
  const Tensor<double> value = stream(3, {n.B, n.G, n.S, n.E});
  const AttentionInputs<double> inputs{query.view<4>(), key.view<4>(), value.view<4>()};
  AttentionOptions<double> options = call.options;
  if (call.bias.rank() == 4) options.bias = call.bias.view<4>();
  const Attention out = attention(inputs, options).value();
  const Tensor<double> d_output = stream(90, {n.B, n.H, n.T, n.E});
  const Tensor<double> d_log_sum_exp = stream(91, {n.B, n.H, n.T});
  const AttentionGradients d =
      attention_backward(inputs, options, d_output.view<4>(), d_log_sum_exp.view<3>()).value();
  return {{"output", out.output}, {"log_sum_exp", out.log_sum_exp}, {"d_query", d.d_query},
          {"d_key", d.d_key},     {"d_value", d.d_value},           {"d_bias", d.d_bias},
          {"d_sink", d.d_sink}};
}

std::vector<double> numbers(std::int64_t seed, std::int64_t count) {
  const Tensor<double> all = stream(seed, {count});
  return {all.elements().begin(), all.elements().end()};
}

constexpr Dims small{2, 2, 1, 2, 3, 3, 2};

Parts masked_attention(const std::string& name) {
  GoldenCall call{small};
  if (name == "grouped") call.n = {1, 4, 2, 2, 3, 2, 1};
  if (name == "square") {
    call.n = {1, 1, 1, 3, 3, 2, 2};
    call.options.mask = Mask::causal();
  } else if (name == "bottom_right") {
    call.options.mask = Mask::causal_bottom_right();
    call.options.mask.key_lengths = {2, 3};
  } else if (name == "at_offset") {
    call.options.mask = Mask::causal_at(0);
    call.options.mask.query_offset = {1, -1};
    call.options.empty_row = EmptyRow::zero;
  } else if (name == "window") {
    call.n = {1, 1, 1, 4, 5, 2, 1};
    call.options.mask.corner = Corner::at_offset;
    call.options.mask.query_offset = {1};
    call.options.mask.window = {1, 2};
  }
  return run_attention(call);
}

Parts attention_with_options(const std::string& name) {
  GoldenCall call{small};
  AttentionOptions<double>& options = call.options;
  Tensor<bool> visible({2, 1, 2, 3});
  if (name == "visible_and_bias") {
    const Tensor<double> coins = stream(7, {12});
    for (std::size_t k = 0; k < 12; ++k) visible.elements()[k] = coins.elements()[k] > -1;
    options.mask.visible = std::as_const(visible).view<4>();
    call.bias = stream(4, {1, 2, 1, 3});
  } else if (name == "scale_and_softcap") {
    options.scale = 0.375;
    options.softcap = 1.25;
    call.bias = stream(4, {1, 1, 2, 3});
  } else if (name == "alibi") {
    options.mask = Mask::causal_at(1);
    options.alibi_slopes = {0.5, 0.0625};
  } else if (name == "sink") {
    options.sink = numbers(5, 2);
  } else if (name == "huge_scores") {
    call.bias = stream(4, {2, 1, 2, 3}, 1, 2e7);
  } else if (name == "all_options") {
    call.n = {2, 4, 2, 2, 4, 2, 2};
    options.mask = Mask::causal_bottom_right();
    options.mask.key_lengths = {3, 4};
    options.mask.window.left = 2;
    options.scale = 0.375;
    options.softcap = 1.25;
    options.sink = numbers(5, 4);
    options.alibi_slopes = {0.125, 0.25, 0.375, 0.5};
    call.bias = stream(4, {2, 1, 2, 4});
  }
  return run_attention(call);
}

Parts run_activation(Activation kind) {
  const Tensor<double> x = stream(6, {9}, 4);
  return {{"output", activation(kind, x).value()},
          {"d_x", activation_backward(kind, x, stream(90, {9})).value()}};
}

Parts run_norm(const Normalisation& layer) {
  const Tensor<double> x = stream(1, {2, 4});
  const auto d = norm_backward(x, layer, stream(90, {2, 4})).value();
  return {{"output", norm(x, layer).value()},
          {"d_input", d.d_input},
          {"d_gain", d.d_gain},
          {"d_bias", d.d_bias}};
}

Parts run_rope(const Tensor<double>& x, const RopeConfig& config, std::int64_t offset) {
  return {{"output", rope(x, config, offset).value()},
          {"d_x", rope_backward(x, config, offset, stream(90, x.shape())).value()}};
}

Parts run_cross_entropy() {
  const Tensor<double> logits = stream(1, {3, 4}, 2);
  Tensor<std::int64_t> targets({3});
  targets(0) = 2;
  targets(2) = -100;
  OracleTensor mean({1});
  mean(0) = cross_entropy(logits, targets, -100).value().mean;
  return {{"mean", mean}, {"d_logits", cross_entropy_backward(logits, targets, -100).value()}};
}

Parts run_matrices(const std::string& name) {
  if (name == "matmul") {
    const Tensor<double> left = stream(1, {2, 3});
    const Tensor<double> right = stream(2, {3, 2});
    const auto d = matmul_backward(left, right, stream(90, {2, 2})).value();
    return {{"output", matmul(left, right).value()}, {"d_left", d.d_left}, {"d_right", d.d_right}};
  }
  const Tensor<double> x = stream(1, {2, 3});
  const Linear layer{stream(2, {3, 2}), stream(3, {2})};
  const auto d = linear_backward(x, layer, stream(90, {2, 2})).value();
  return {{"output", linear(x, layer).value()},
          {"d_input", d.d_input},
          {"d_weight", d.d_weight},
          {"d_bias", d.d_bias}};
}

Parts run_softmax() {
  const Tensor<double> x = stream(1, {2, 4}, 3);
  return {{"output", softmax(x).value()}, {"d_x", softmax_backward(x, stream(90, {2, 4})).value()}};
}

Parts run_gated() {
  const Tensor<double> gate = stream(1, {5});
  const Tensor<double> up = stream(2, {5});
  const auto d = gated_backward(Activation::gelu_tanh, gate, up, stream(90, {5})).value();
  return {{"output", gated(Activation::gelu_tanh, gate, up).value()},
          {"d_gate", d.d_gate},
          {"d_up", d.d_up}};
}

Parts run_block(const BlockConfig& config, const BlockParameters<Shape>& shapes) {
  const Tensor<double> x = stream(1, {3, 4});
  BlockWeights<double> weights;
  std::int64_t seed = 20;
  for_each_parameter(shapes, weights, [&](auto, const Shape& shape, Tensor<double>& tensor) {
    if (!shape.empty()) tensor = stream(seed, shape);
    ++seed;
  });
  const BlockGradients d = block_backward(x, config, weights, stream(90, {3, 4})).value();
  Parts parts{{"output", block(x, config, weights).value().output}, {"d_input", d.d_input}};
  for_each_parameter(d.d_weights, d.d_weights, [&](const char* name, const auto& part, auto&) {
    parts[std::string("d_") + name] = part;
  });
  return parts;
}

Parts run_post_block() {
  BlockParameters<Shape> w;
  w.query_weight = w.key_weight = w.value_weight = w.output_weight = {4, 4};
  w.up_weight = {4, 3};
  w.down_weight = {3, 4};
  return run_block({.model_dim = 4,
                    .heads = 2,
                    .kv_heads = 2,
                    .head_dim = 2,
                    .value_dim = 2,
                    .ffn_dim = 3,
                    .scale = {},
                    .softcap = {},
                    .rope = {}},
                   w);
}

Parts run_pre_block() {
  BlockParameters<Shape> w;
  w.query_weight = {4, 8};
  w.key_weight = {4, 4};
  w.value_weight = {4, 1};
  w.output_weight = {2, 4};
  w.norm1_gain = w.norm2_gain = {4};
  w.up_weight = w.gate_weight = {4, 3};
  w.down_weight = {3, 4};
  return run_block({.model_dim = 4,
                    .heads = 2,
                    .kv_heads = 1,
                    .head_dim = 4,
                    .value_dim = 1,
                    .ffn_dim = 3,
                    .norm = Norm::rms_norm,
                    .placement = NormPlacement::pre,
                    .epsilon = 1e-6,
                    .activation = Activation::silu,
                    .gated = true,
                    .scale = {},
                    .softcap = 2,
                    .rope = RopeConfig{}},
                   w);
}

Parts run_sandwich_block() {
  BlockParameters<Shape> w;
  w.query_weight = w.key_weight = w.value_weight = {4, 3};
  w.query_bias = w.key_bias = w.value_bias = {3};
  w.output_weight = {3, 4};
  w.output_bias = w.down_bias = {4};
  w.norm1_gain = w.norm1_bias = w.norm2_gain = w.norm2_bias = {4};
  w.norm1_out_gain = w.norm1_out_bias = w.norm2_out_gain = w.norm2_out_bias = {4};
  w.up_weight = {4, 2};
  w.up_bias = {2};
  w.down_weight = {2, 4};
  return run_block({.model_dim = 4,
                    .heads = 3,
                    .kv_heads = 3,
                    .head_dim = 1,
                    .value_dim = 1,
                    .ffn_dim = 2,
                    .placement = NormPlacement::sandwich,
                    .activation = Activation::gelu_tanh,
                    .causal = false,
                    .scale = 0.75,
                    .softcap = {},
                    .rope = {},
                    .alibi = true},
                   w);
}

Parts run_workbook_block() {
  const Tensor<double> x = stream(1, {3, 4});
  const WorkbookBlock block{stream(2, {4, 2}), stream(3, {4, 2}), stream(4, {4, 4}),
                            stream(5, {4, 3}), stream(6, {3, 4})};
  const auto d = workbook_block_backward(x, block, stream(90, {3, 4})).value();
  return {{"output", workbook_block(x, block).value().output},
          {"d_input", d.d_input},
          {"d_projection1", d.d_projection1},
          {"d_projection2", d.d_projection2},
          {"d_output_weight", d.d_output_weight},
          {"d_up_weight", d.d_up_weight},
          {"d_down_weight", d.d_down_weight}};
}

/// What the oracle says of a golden operation.
Parts run(const std::string& name) {
  const std::map<std::string, std::function<Parts()>> others{
      {"matmul", [] { return run_matrices("matmul"); }},
      {"linear", [] { return run_matrices("linear"); }},
      {"softmax", run_softmax},
      {"gated", run_gated},
      {"cross_entropy", run_cross_entropy},
      {"layer_norm",
       [] {
         return run_norm({Norm::layer_norm, stream(2, {4}), stream(3, {4}), 1e-5});
       }},
      {"rms_norm",
       [] {
         return run_norm({Norm::rms_norm, stream(2, {4}), {}, 1e-5});
       }},
      {"relu", [] { return run_activation(Activation::relu); }},
      {"gelu_erf", [] { return run_activation(Activation::gelu_erf); }},
      {"gelu_tanh", [] { return run_activation(Activation::gelu_tanh); }},
      {"silu", [] { return run_activation(Activation::silu); }},
      {"rope_half",
       [] {
         return run_rope(stream(1, {2, 2, 6}), {}, 5);
       }},
      {"rope_interleaved",
       [] {
         return run_rope(stream(1, {2, 6}), {RopePairing::interleaved, 4, 500}, 1000000);
       }},
      {"block.post", run_post_block},
      {"block.pre", run_pre_block},
      {"block.sandwich", run_sandwich_block},
      {"workbook_block", run_workbook_block}};
  if (const auto found = others.find(name); found != others.end()) return found->second();
  const std::string option = name.substr(name.find('.') + 1);
  const std::set<std::string> masks{"plain",        "grouped",   "square",
                                    "bottom_right", "at_offset", "window"};
  return masks.contains(option) ? masked_attention(option) : attention_with_options(option);
}

/// A golden has 46 digits, so it is off by 5·10⁻⁴⁶ of itself; the oracle by 10⁻⁵⁰ of its largest
/// term, which is below 10⁴ in these cases but for the scores of 2·10⁷.
void expect_near(const OracleTensor& found, const Golden& golden) {
  ASSERT_EQ(found.values.size(), golden.numbers.size());
  for (std::size_t k = 0; k < golden.numbers.size(); ++k) {
    if (golden.numbers[k] == "-inf") {
      EXPECT_EQ(found.values[k], -infinity()) << "element " << k;
      continue;
    }
    const Real expected(golden.numbers[k]);
    EXPECT_LE(abs(found.values[k] - expected), Real("5e-46") * abs(expected) + Real("1e-46"))
        << "element " << k << ": " << digits(found.values[k], 50) << ", golden "
        << golden.numbers[k];
  }
}

TEST(OracleGolden, ValuesAndGradientsAgreeWithMpmath) {
  std::string current;
  Parts parts;
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.operation + " " + golden.part);
    if (golden.operation != current) parts = run(current = golden.operation);
    ASSERT_TRUE(parts.contains(golden.part));
    expect_near(parts[golden.part], golden);
  }
}

TEST(OracleGolden, EveryOperationIsThere) {
  std::set<std::string> operations;
  for (const Golden& golden : goldens()) operations.insert(golden.operation);
  EXPECT_EQ(operations.size(), 29U);
}

}  // namespace
}  // namespace attest::lab::oracle
