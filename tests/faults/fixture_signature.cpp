// SPDX-License-Identifier: MIT
// Prints what each fixture gives: the results alone, all digits of them. Two builds of the exact
// tier look alike on a fixture if they print the same below its name.
//
// The workbook's own two fixtures come first, with the six decimals that its listing shows: a
// reader who compares with it sees no more.
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/config.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/block.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers.h"
#include "attest/lab/positions.h"
#include "attest/lab/workbook.h"
#include "tests/support/fault_fixtures.h"
#include "tests/support/fixtures.h"
#include "tests/support/matrices.h"

namespace attest {
namespace {

using test::matrix_of;

/// As many digits as a column shows.
enum class Digits { six_decimals, all };

void print(const char* what, std::span<const double> values, Digits digits = Digits::all) {
  std::printf("%s", what);
  for (const double value : values) {
    if (std::isnan(value))
      std::printf(" nan");
    else
      std::printf(digits == Digits::all ? " %a" : " %.6f", value);
  }
  std::printf("\n");
}
void print(const char* what, const Tensor<double>& values, Digits digits = Digits::all) {
  print(what, values.elements(), digits);
}
void print(const char* what, const Failure& failure) {
  std::printf("%s %s: %s\n", what, failure.id.c_str(), failure.message.c_str());
}
void begin(const std::string& name) { std::printf("== %s\n", name.c_str()); }

/// Numbers without symmetry for gradients to start from.
Tensor<double> uneven(Shape shape) {
  Tensor<double> out(std::move(shape));
  int n = 0;
  for (double& x : out.elements()) x = (n++ * 7 % 11 - 4) * 0.25;
  return out;
}

void print_call(const AttentionCase& call) {
  const auto result = lab::attention(call.inputs(), call.options());
  if (!result) return print("attention", result.failure());
  print("output", result->output);
  print("weights", result->weights);
  print("log_sum_exp", result->log_sum_exp);
  const Tensor<double> d_output = uneven(result->output.shape());
  const Tensor<double> d_log_sum_exp = uneven(result->log_sum_exp.shape());
  const auto gradients = lab::attention_backward(call.inputs(), call.options(),
                                                 {d_output.view<4>(), d_log_sum_exp.view<3>()});
  if (!gradients) return print("attention_backward", gradients.failure());
  print("d_query", gradients->d_query);
  print("d_key", gradients->d_key);
  print("d_value", gradients->d_value);
  print("d_bias", gradients->d_bias);
  print("d_sink", gradients->d_sink);
}

void print_block(const Tensor<double>& rows, const lab::workbook::BlockParameters& parameters,
                 bool causal, Digits digits) {
  const auto result = lab::workbook::transformer_block(rows, parameters, {.causal = causal});
  if (!result) return print("block", result.failure());
  print("output", result->output, digits);
  for (const Tensor<double>& map : result->maps) print("weights", map, digits);
}

void print_workbook() {
  using namespace lab::workbook;
  begin("wb-pair");
  for (const bool causal : {false, true}) {
    const auto result =
        attention(fixture::query(), fixture::query(), fixture::value(), {.causal = causal});
    if (!result) {
      print("attention", result.failure());
      continue;
    }
    print("weights", result->weights, Digits::six_decimals);
    print("output", result->output, Digits::six_decimals);
  }
  begin("wb-block");
  print_block(fixture::rows(), {}, true, Digits::six_decimals);
}

void print_norms() {
  begin("norm");
  const Tensor<double> rows = test::fixture::norm_rows();
  print("workbook", lab::workbook::normalise(rows).values);
  const Tensor<double> gain = uneven({rows.extent(1)});
  const lab::NormParameters parameters{.gain = gain.view<1>(), .epsilon = 0.0625};
  const Tensor<double> d_y = uneven(rows.shape());
  const auto layer = lab::layer_norm(rows.view<2>(), parameters);
  const auto rms = lab::rms_norm(rows.view<2>(), parameters);
  const auto back = lab::layer_norm_backward(rows.view<2>(), parameters, d_y.view<2>());
  if (layer) print("layer_norm", layer->output);
  if (rms) print("rms_norm", rms->output);
  if (back) print("d_x", back->d_x);
}

/// A block of the general kind: norms before the layers, shared key heads, RoPE and GELU.
void print_model_block() {
  begin("model");
  BlockConfig config;
  config.model_dim = 3;
  config.heads = 2;
  config.head_dim = 4;
  config.value_dim = 3;
  config.ffn_dim = 5;
  config.placement = NormPlacement::pre;
  config.activation = Activation::gelu_erf;
  config.causal =
      false;  // no mistake can leave a row without a key, which this block must not have
  config.rope = RopeConfig{};
  BlockWeights<double> weights;
  weights.query_weight = uneven({3, 8});
  weights.key_weight = uneven({3, 4});
  weights.value_weight = uneven({3, 3});
  weights.output_weight = uneven({6, 3});
  weights.up_weight = uneven({3, 5});
  weights.down_weight = uneven({5, 3});
  const Tensor<double> x = matrix_of({{1, -0.5, 2}, {0.25, 1.5, -1}, {-2, 0.75, 1}, {3, 1, 0.5}});
  const auto result = lab::block(x.view<2>(), config, weights);
  if (!result) return print("block", result.failure());
  print("output", result->output);
}

void print_layers() {
  begin("bend");
  const Tensor<double> x = matrix_of({{-3, -1.25, -0.5, 0, 0.75, 2.5}});
  for (const Activation kind :
       {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    const auto y = lab::activate(x.view<2>(), kind);
    if (y) print("activate", *y);
  }
  begin("turn");
  print("alibi_slopes", lab::alibi_slopes(6));
  const Tensor<double> features = uneven({1, 1, 3, 6});
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    const auto turned = lab::rope(features.view<4>(), {.pairing = pairing, .rotary_dim = 4});
    if (turned) print("rope", *turned);
  }
  begin("loss");
  const Tensor<double> logits = matrix_of({{1, -2, 0.5}, {0, 3, 1}, {2, 2, -1}});
  const std::vector<std::int64_t> ids{2, -1, 0};
  const auto loss = lab::cross_entropy(logits.view<2>(), {{ids.data(), {3}}, -1});
  if (loss) print("loss", std::vector<double>{loss->loss});
  begin("sum");
  print("exact_sum", std::vector<double>{lab::exact_sum(std::vector<double>{1e16, 1, -1e16}),
                                         lab::exact_sum(std::vector<double>(10, 0.1))});
}

}  // namespace
}  // namespace attest

int main() {
  using namespace attest;
  print_workbook();
  for (const auto& [name, call] : test::fixture::attention_calls()) {
    begin(name);
    print_call(call);
  }
  for (const auto& [name, call] : test::fixture::fault_calls()) {
    begin(name);
    print_call(call);
  }
  begin("block");
  const auto block = test::fixture::block();
  print_block(block.rows, block.parameters, block.causal, Digits::all);
  begin("wide_block");
  const auto wide = test::fixture::wide_block();
  print_block(wide.rows, wide.parameters, wide.causal, Digits::all);
  print_norms();
  print_model_block();
  print_layers();
}
