// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/tensor.h"

/// A transformer block as somebody writes it in float32, with loops, right or with mistakes in it. Written
/// from the formulas alone: it shares nothing with the checker that has to name its mistakes.
namespace attest::test {

using BlockRows = std::vector<std::vector<float>>;

/// Mistakes by their names: "norm.epsilon_other" → 1e-6.
using Mistakes = std::map<std::string, double, std::less<>>;

/// What every layer needs: which mistakes are made, norms, projections, and heads cut out of rows.
struct PlainLayers {
  const BlockConfig& c;
  const BlockWeights<double>& w;
  const Mistakes& mistakes;
  std::map<std::string, BlockRows> tables{};

  [[nodiscard]] bool has(std::string_view name) const {
    return mistakes.find(name) != mistakes.end();
  }
  [[nodiscard]] double value(std::string_view name, double otherwise) const {
    const auto found = mistakes.find(name);
    return found == mistakes.end() ? otherwise : found->second;
  }
  [[nodiscard]] bool norm_has(const std::string& place, const std::string& what) const {
    return has("norm." + what) || has(place + "." + what);
  }
  [[nodiscard]] static float item(const Tensor<double>& t, std::size_t n) {
    return static_cast<float>(t.data()[n]);
  }
  [[nodiscard]] float norm_parameter(const std::string& place, bool gain, std::size_t k) const {
    std::string from = place;
    if (norm_has(place, "parameters_exchanged")) {
      from = place == "norm1"       ? "norm2"
             : place == "norm2"     ? "norm1"
             : place == "norm1_out" ? "norm2_out"
                                    : "norm1_out";
    }
    const std::map<std::string, std::pair<const Tensor<double>*, const Tensor<double>*>> all = {
        {"norm1", {&w.norm1_gain, &w.norm1_bias}},
        {"norm2", {&w.norm2_gain, &w.norm2_bias}},
        {"norm1_out", {&w.norm1_out_gain, &w.norm1_out_bias}},
        {"norm2_out", {&w.norm2_out_gain, &w.norm2_out_bias}}};
    const Tensor<double>& t = gain ? *all.at(from).first : *all.at(from).second;
    if (t.size() == 0) return gain ? 1.0F : 0.0F;
    return item(t, k);
  }

  BlockRows norm(const std::string& place, BlockRows x) const {
    const auto is = [&](const char* what) { return norm_has(place, what); };
    if (is("missing")) return x;
    bool layer = c.norm == Norm::layer_norm;
    if (is("rms_for_layer")) layer = false;
    if (is("layer_for_rms")) layer = true;
    float eps = static_cast<float>(c.epsilon);
    if (has("norm.epsilon_other")) eps = static_cast<float>(value("norm.epsilon_other", 0));
    if (has(place + ".epsilon_other")) {
      eps = static_cast<float>(value(place + ".epsilon_other", 0));
    }
    const bool along = is("over_positions");
    const std::size_t lines = along ? x[0].size() : x.size();
    const std::size_t count = along ? x.size() : x[0].size();
    for (std::size_t n = 0; n < lines; ++n) {
      const auto at = [&](std::size_t k) -> float& { return along ? x[k][n] : x[n][k]; };
      float mean = 0, squares = 0;
      for (std::size_t k = 0; k < count; ++k) mean += at(k);
      mean /= static_cast<float>(count);
      const bool from_mean = layer || is("deviation_for_root_mean_square");
      for (std::size_t k = 0; k < count; ++k) {
        const float d = from_mean ? at(k) - mean : at(k);
        squares += d * d;
      }
      float variance = squares / static_cast<float>(is("sample_variance") ? count - 1 : count);
      if (is("sum_for_mean")) variance = squares;
      float divisor = std::sqrt(variance + eps);
      if (is("epsilon_outside")) divisor = std::sqrt(variance) + eps;
      if (is("epsilon_missing")) divisor = std::sqrt(variance);
      if (is("root_missing")) divisor = variance + eps;
      for (std::size_t k = 0; k < count; ++k) {
        const bool subtract = layer && !is("mean_not_subtracted");
        const std::size_t feature = along ? n : k;
        float gain = norm_parameter(place, true, feature);
        if (is("gain_missing")) gain = 1;
        if (is("one_plus_gain")) gain += 1;
        const float bias = is("bias_missing") ? 0 : norm_parameter(place, false, feature);
        at(k) = (subtract ? at(k) - mean : at(k)) / divisor * gain + bias;
      }
    }
    return x;
  }

  BlockRows linear(const std::string& name, const BlockRows& x) const {
    const std::map<std::string, std::pair<const Tensor<double>*, const Tensor<double>*>> all = {
        {"projection.query", {&w.query_weight, &w.query_bias}},
        {"projection.key", {&w.key_weight, &w.key_bias}},
        {"projection.value", {&w.value_weight, &w.value_bias}},
        {"projection.output", {&w.output_weight, &w.output_bias}},
        {"ffn.up", {&w.up_weight, &w.up_bias}},
        {"ffn.gate", {&w.gate_weight, &w.gate_bias}},
        {"ffn.down", {&w.down_weight, &w.down_bias}}};
    if (has(name + "_missing")) return x;
    std::string from = name;
    for (const char* other : {"query", "key", "value"}) {
      if (has(name + "_weights_of_" + other)) from = std::string("projection.") + other;
    }
    if (has(name + "_weights_of_up")) from = "ffn.up";
    if (has(name + "_weights_of_gate")) from = "ffn.gate";
    const Tensor<double>& weight = *all.at(from).first;
    const Tensor<double>& bias = *all.at(name).second;
    const bool attention = name[0] == 'p';
    const bool transposed =
        has(name + "_transposed") || (attention && has("projection.all_transposed"));
    const bool without = has(name + "_bias_missing") ||
                         has(attention ? "projection.bias_missing" : "ffn.bias_missing");
    const auto I = static_cast<std::size_t>(weight.extent(0));
    const auto O = static_cast<std::size_t>(weight.extent(1));
    BlockRows y(x.size(), std::vector<float>(O));
    for (std::size_t n = 0; n < x.size(); ++n) {
      for (std::size_t o = 0; o < O; ++o) {
        float sum = 0;
        for (std::size_t i = 0; i < I; ++i) {
          sum += x[n][i] * item(weight, transposed ? o * O + i : i * O + o);
        }
        if (bias.size() != 0 && !without) sum += item(bias, o);
        if (bias.size() != 0 && has(name + "_bias_twice")) sum += item(bias, o);
        y[n][o] = sum;
      }
    }
    return y;
  }

  static std::vector<float> flat(const BlockRows& x) {
    std::vector<float> out;
    for (const auto& row : x) out.insert(out.end(), row.begin(), row.end());
    return out;
  }

  /// [T, n·W] as n heads of [T, W]
  static std::vector<BlockRows> split(const BlockRows& x, std::size_t n, bool reshaped,
                                      bool by_feature) {
    const std::size_t T = x.size(), W = x[0].size() / n;
    const std::vector<float> memory = flat(x);
    std::vector<BlockRows> out(n, BlockRows(T, std::vector<float>(W)));
    for (std::size_t h = 0; h < n; ++h) {
      for (std::size_t t = 0; t < T; ++t) {
        for (std::size_t k = 0; k < W; ++k) {
          out[h][t][k] = reshaped     ? memory[(h * T + t) * W + k]
                         : by_feature ? memory[t * n * W + k * n + h]
                                      : memory[t * n * W + h * W + k];
        }
      }
    }
    return out;
  }
};

}  // namespace attest::test
