// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/check/block/block.h"
#include "attest/lab/block.h"

/// A transformer block as somebody writes it in float32, with loops, right or with mistakes in it. Written
/// from the formulas alone: it shares nothing with the checker that has to name its mistakes.
namespace attest::test {

using Rows = std::vector<std::vector<float>>;

/// Mistakes by their names: "norm.epsilon_other" → 1e-6.
using Mistakes = std::map<std::string, double, std::less<>>;

struct PlainBlock {
  const BlockConfig& c;
  const BlockWeights<double>& w;
  const Mistakes& mistakes;
  std::map<std::string, Rows> tables{};

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

  Rows norm(const std::string& place, Rows x) const {
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

  Rows linear(const std::string& name, const Rows& x) const {
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
    Rows y(x.size(), std::vector<float>(O));
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

  static std::vector<float> flat(const Rows& x) {
    std::vector<float> out;
    for (const auto& row : x) out.insert(out.end(), row.begin(), row.end());
    return out;
  }

  /// [T, n·W] as n heads of [T, W]
  static std::vector<Rows> split(const Rows& x, std::size_t n, bool reshaped, bool by_feature) {
    const std::size_t T = x.size(), W = x[0].size() / n;
    const std::vector<float> memory = flat(x);
    std::vector<Rows> out(n, Rows(T, std::vector<float>(W)));
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

  /// Rotary positions on [T, n·D]
  Rows turn(Rows x, std::size_t n, int offset) const {
    const std::size_t heads = has("rope.across_heads") ? 1 : n;
    const std::size_t D = x[0].size() / heads;
    std::size_t R = c.rope->rotary_dim == 0 ? D : static_cast<std::size_t>(c.rope->rotary_dim);
    if (has("rope.all_features") || has("rope.across_heads")) R = D;
    if (has("rope.half_of_features")) R /= 2;
    const double base = value("rope.base", c.rope->base);
    bool half = c.rope->pairing == RopePairing::half;
    if (has("rope.interleaved_for_half")) half = false;
    if (has("rope.half_for_interleaved")) half = true;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        float* row = x[t].data() + h * D + (has("rope.last_features") ? D - R : 0);
        for (std::size_t i = 0; i < R / 2; ++i) {
          std::size_t which = i;
          if (has("rope.mixed_layout_tables")) which = half ? i / 2 : (2 * i) % (R / 2);
          double exponent = 2.0 * static_cast<double>(which) / static_cast<double>(R);
          if (has("rope.exponent_by_pair")) exponent /= 2;
          if (has("rope.frequencies_by_head_dim")) {
            exponent = 2.0 * static_cast<double>(which) / static_cast<double>(D);
          }
          auto angle =
              static_cast<float>((static_cast<double>(t) + offset) * std::pow(base, -exponent));
          if (has("rope.applied_twice")) angle *= 2;
          if (has("rope.backwards")) angle = -angle;
          float& a = row[half ? i : 2 * i];
          float& b = row[half ? i + R / 2 : 2 * i + 1];
          const float first = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = first;
        }
      }
    }
    return x;
  }

  [[nodiscard]] bool sees(std::size_t i, std::size_t j) const {
    if (has("causal.missing")) return true;
    if (has("causal.strict")) return j < i;
    if (has("causal.one_future")) return j <= i + 1;
    if (has("causal.reversed")) return j >= i;
    return !(c.causal || has("causal.added")) || j <= i;
  }

  [[nodiscard]] float scale() const {
    const auto D = static_cast<double>(c.head_dim);
    const auto H = static_cast<double>(c.heads);
    double s = c.scale.value_or(1 / std::sqrt(D));
    if (has("scale.none")) s = 1;
    if (has("scale.sqrt_model_dim")) s = 1 / std::sqrt(static_cast<double>(c.model_dim));
    if (has("scale.sqrt_all_heads")) s = 1 / std::sqrt(D * H);
    if (has("scale.twice")) s = 1 / D;
    if (has("scale.half")) s = std::pow(D, -0.25);
    if (has("scale.multiplied")) s = std::sqrt(D);
    if (has("scale.sqrt_heads")) s = 1 / std::sqrt(H);
    if (has("scale.sqrt_value_dim")) s = 1 / std::sqrt(static_cast<double>(c.value_dim));
    if (has("scale.default")) s = 1 / std::sqrt(D);
    if (has("scale.sign_flipped")) s = -s;
    return static_cast<float>(s);
  }

  [[nodiscard]] double slope(std::size_t h) const {
    if (!c.alibi || has("alibi.missing")) return 0;
    const auto H = static_cast<std::size_t>(c.heads);
    std::size_t n = 1;
    while (2 * n <= H) n *= 2;
    const auto power = [](double a, double b) { return std::pow(2.0, -8 * a / b); };
    double s = h < n ? power(static_cast<double>(h + 1), static_cast<double>(n))
                     : power(static_cast<double>(2 * (h - n) + 1), static_cast<double>(2 * n));
    if (has("alibi.geometric_non_pow2")) {
      s = power(static_cast<double>(h + 1), static_cast<double>(H));
    }
    return has("alibi.sign") ? -s : s;
  }

  std::vector<Rows> weights(const std::vector<Rows>& q, const std::vector<Rows>& k,
                            const std::vector<std::size_t>& group) const {
    const std::size_t H = q.size(), T = q[0].size();
    std::vector<Rows> p(H, Rows(T, std::vector<float>(T)));
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t j = 0; j < T; ++j) {
          float s = 0;
          for (std::size_t d = 0; d < q[h][i].size(); ++d) s += q[h][i][d] * k[group[h]][j][d];
          s *= scale();
          if (c.softcap && !has("softcap.missing")) {
            const auto cap = static_cast<float>(*c.softcap);
            s = cap * std::tanh(s / cap);
          }
          s -= static_cast<float>(slope(h)) *
               std::fabs(static_cast<float>(i) - static_cast<float>(j));
          const bool hidden = !sees(i, j) && !has("causal.after_softmax");
          p[h][i][j] = hidden ? -INFINITY : s;
        }
      }
    }
    const auto once = [](std::vector<float*>& numbers, float more) {
      float peak = more == 0 ? -INFINITY : 0, sum = 0;
      for (const float* x : numbers) peak = std::max(peak, *x);
      for (float* x : numbers) {
        *x = peak == -INFINITY ? 0 : std::exp(*x - peak);
        sum += *x;
      }
      if (more != 0) sum += more * std::exp(-peak);
      for (float* x : numbers) *x = sum == 0 ? 0 : *x / sum;
    };
    const auto line = [&](std::vector<float*> numbers) {
      float peak = -INFINITY;
      for (const float* x : numbers) peak = std::max(peak, *x);
      for (float* x : numbers) {
        if (has("softmax.base2")) *x *= 0.6931471805599453F;
        if (has("softmax.exp_with_log2e")) *x *= 1.4426950408889634F;
        if (has("softmax.sigmoid")) *x = 1 / (1 + std::exp(-*x));
        if (has("softmax.unnormalised")) *x = peak == -INFINITY ? 0 : std::exp(*x - peak);
      }
      if (has("softmax.sigmoid") || has("softmax.unnormalised")) return;
      once(numbers, has("softmax.plus_one") ? 1.0F : 0.0F);
      if (has("softmax.twice") && peak != -INFINITY) once(numbers, 0);
    };
    const bool over_heads = has("softmax.over_heads"), over_queries = has("softmax.over_queries");
    for (std::size_t a = 0; a < (over_heads ? T : H); ++a) {
      for (std::size_t b = 0; b < T; ++b) {
        std::vector<float*> numbers;
        for (std::size_t n = 0; n < (over_heads ? H : T); ++n) {
          numbers.push_back(over_heads ? &p[n][a][b] : over_queries ? &p[a][n][b] : &p[a][b][n]);
        }
        if (!has("softmax.missing")) line(numbers);
      }
    }
    const auto kept = static_cast<float>(1 / (1 - value("attention.dropout_scale", 0)));
    for (auto& head : p) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t j = 0; j < T; ++j) {
          if (head[i][j] == -INFINITY) head[i][j] = 0;
          if (has("causal.after_softmax") && !sees(i, j)) head[i][j] = 0;
          head[i][j] *= kept;
        }
      }
    }
    return p;
  }

  static Rows stacked(const std::vector<Rows>& heads) {
    Rows out;
    for (const Rows& head : heads) out.insert(out.end(), head.begin(), head.end());
    return out;
  }

  void repack(Rows& q, Rows& k, Rows& v) const {
    const auto H = static_cast<std::size_t>(c.heads), D = static_cast<std::size_t>(c.head_dim);
    for (std::size_t t = 0; t < q.size(); ++t) {
      const std::vector<float>* const parts[] = {&q[t], &k[t], &v[t]};
      std::vector<float> memory(3 * H * D);
      for (std::size_t p = 0; p < 3; ++p) {
        for (std::size_t n = 0; n < H * D; ++n) {
          std::size_t at = p * H * D + n;
          if (has("qkv.by_head_read_blocked")) at = n / D * 3 * D + p * D + n % D;
          if (has("qkv.interleaved_read_blocked")) at = n * 3 + p;
          memory[at] = (*parts[p])[n];
        }
      }
      std::vector<float> out[3];
      for (std::size_t p = 0; p < 3; ++p) {
        for (std::size_t n = 0; n < H * D; ++n) {
          std::size_t at = p * H * D + n;
          if (has("qkv.blocked_read_by_head")) at = n / D * 3 * D + p * D + n % D;
          if (has("qkv.blocked_read_interleaved")) at = n * 3 + p;
          out[p].push_back(memory[at]);
        }
      }
      q[t] = out[0], k[t] = out[1], v[t] = out[2];
    }
  }

  Rows attention(const Rows& in) {
    std::string names[] = {"projection.query", "projection.key", "projection.value"};
    if (has("roles.query_key_swapped")) std::swap(names[0], names[1]);
    if (has("roles.key_value_swapped")) std::swap(names[1], names[2]);
    if (has("roles.query_value_swapped")) std::swap(names[0], names[2]);
    Rows q = linear(names[0], in), k = linear(names[1], in), v = linear(names[2], in);
    repack_if_wanted(q, k, v);
    const auto H = static_cast<std::size_t>(c.heads), G = static_cast<std::size_t>(c.kv_heads);
    if (c.rope && has("rope.value_too")) v = turn(v, G, 0);
    tables["projection.query"] = q, tables["projection.key"] = k, tables["projection.value"] = v;
    if (c.rope && !has("rope.none")) {
      const int both = has("rope.positions_from_one") ? 1 : 0;
      if (!has("rope.key_only")) q = turn(q, H, both + (has("rope.query_offset") ? 1 : 0));
      if (!has("rope.query_only")) k = turn(k, G, both);
    }
    if (c.rope) tables["rope.query"] = q, tables["rope.key"] = k;
    const bool both = has("heads.split_and_merged_by_reshape");
    const bool reshaped = has("heads.split_by_reshape") || both;
    const bool by_feature = has("heads.split_by_feature");
    std::vector<std::size_t> group;
    for (std::size_t h = 0; h < H; ++h) {
      group.push_back(has("heads.all_use_kv0") ? 0 : has("heads.tiled") ? h % G : h / (H / G));
    }
    const auto values = split(v, G, reshaped, by_feature);
    const auto p =
        weights(split(q, H, reshaped, by_feature), split(k, G, reshaped, by_feature), group);
    tables["weights"] = stacked(p);
    const std::size_t T = in.size(), E = values[0][0].size();
    std::vector<Rows> heads(H, Rows(T, std::vector<float>(E)));
    Rows merged(T, std::vector<float>(H * E));
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t e = 0; e < E; ++e) {
          float sum = 0;
          for (std::size_t j = 0; j < T; ++j) sum += p[h][i][j] * values[group[h]][j][e];
          heads[h][i][e] = sum;
          const std::size_t place = (h * T + i) * E + e;
          if (has("heads.merged_by_reshape") || both) {
            merged[place / (H * E)][place % (H * E)] = sum;
          } else {
            merged[i][has("heads.merged_by_feature") ? e * H + h : h * E + e] = sum;
          }
        }
      }
    }
    tables["heads"] = stacked(heads), tables["concat"] = merged;
    return tables["output_projection"] = linear("projection.output", merged);
  }

  void repack_if_wanted(Rows& q, Rows& k, Rows& v) const {
    for (const auto& [name, number] : mistakes) {
      if (name.starts_with("qkv.")) repack(q, k, v);
    }
  }

  [[nodiscard]] float act(float x) const {
    Activation kind = c.activation;
    if (has("ffn.relu")) kind = Activation::relu;
    if (has("ffn.gelu_erf")) kind = Activation::gelu_erf;
    if (has("ffn.gelu_tanh")) kind = Activation::gelu_tanh;
    if (has("ffn.silu")) kind = Activation::silu;
    if (has("ffn.activation_missing")) return x;
    if (has("ffn.leaky_relu")) return x > 0 ? x : 0.01F * x;
    if (has("ffn.gelu_quick")) return x / (1 + std::exp(-1.702F * x));
    if (kind == Activation::relu) return std::max(x, 0.0F);
    if (kind == Activation::gelu_erf) return 0.5F * x * (1 + std::erf(x * 0.70710678F));
    if (kind == Activation::silu) return x / (1 + std::exp(-x));
    return 0.5F * x * (1 + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
  }

  Rows ffn(const Rows& in) {
    const bool exchanged = has("ffn.gate_up_exchanged");
    const Rows up = linear(exchanged ? "ffn.gate" : "ffn.up", in);
    tables["ffn.up"] = up;
    const auto each = [](Rows x, const auto& f) {
      for (auto& row : x) {
        for (float& number : row) number = f(number);
      }
      return x;
    };
    const auto f = [this](float x) { return act(x); };
    if (!c.gated) {
      const Rows active = each(up, f);
      tables["ffn.activation"] = active;
      return tables["ffn.down"] = linear("ffn.down", active);
    }
    const Rows gate = linear(exchanged ? "ffn.up" : "ffn.gate", in);
    const bool on_up = has("ffn.activates_up");
    Rows active = each(on_up ? up : gate, f);
    const Rows other = on_up ? gate : has("ffn.both_active") ? each(up, f) : up;
    tables["ffn.gate"] = gate;
    tables["ffn.activation"] = active;
    for (std::size_t t = 0; t < active.size(); ++t) {
      for (std::size_t k = 0; k < active[t].size(); ++k) {
        if (has("ffn.up_ignored")) continue;
        if (has("ffn.gate_ignored")) {
          active[t][k] = act(up[t][k]);
        } else if (has("ffn.gate_added")) {
          active[t][k] += other[t][k];
        } else {
          active[t][k] *= other[t][k];
        }
      }
    }
    tables["ffn.gated"] = active;
    return tables["ffn.down"] = linear("ffn.down", active);
  }

  Rows add(const std::string& name, const Rows& before, const Rows& normed, Rows change,
           const Rows& x) const {
    const std::string key = "block." + name;
    const auto kept = static_cast<float>(1 / (1 - value(key + "_dropout_scale", 0)));
    for (std::size_t t = 0; t < change.size(); ++t) {
      for (std::size_t k = 0; k < change[t].size(); ++k) {
        float& y = change[t][k];
        y *= has(key + "_without_layer") ? 0 : kept;
        const bool missing = has(key + "_missing") || has("block.residuals_missing");
        const Rows& base = has(key + "_from_x") ? x : has(key + "_from_normed") ? normed : before;
        if (!missing) y = base[t][k] * (has(key + "_doubled") ? 2.0F : 1.0F) + y;
        if (has("block.stream_bf16")) y = to_float(to_bfloat16(static_cast<double>(y)));
        if (has("block.stream_f16")) {
          y = static_cast<float>(to_double(to_half(static_cast<double>(y))));
        }
      }
    }
    return change;
  }

  void run(const Rows& x) {
    NormPlacement placement = c.placement;
    if (has("block.pre_norm")) placement = NormPlacement::pre;
    if (has("block.post_norm")) placement = NormPlacement::post;
    if (has("block.sandwich_norm")) placement = NormPlacement::sandwich;
    const bool post = placement == NormPlacement::post;
    const bool sandwich = placement == NormPlacement::sandwich;
    const Rows in = post ? x : norm("norm1", x);
    if (!post) tables["norm1"] = in;
    Rows change = attention(in);
    if (sandwich) change = tables["norm1_out"] = norm("norm1_out", change);
    Rows h = tables["residual1"] = add("residual1", x, in, change, x);
    const Rows residual = h;
    if (post) h = tables["norm1"] = norm("norm1", h);
    Rows ffn_in = post ? h : norm("norm2", has("block.parallel_two_norms") ? x : h);
    if (!post) tables["norm2"] = ffn_in;
    if (has("block.parallel_one_norm")) ffn_in = in;
    if (has("block.ffn_reads_residual")) ffn_in = residual;
    change = ffn(ffn_in);
    if (sandwich) change = tables["norm2_out"] = norm("norm2_out", change);
    Rows out = tables["residual2"] = add("residual2", h, ffn_in, change, x);
    if (post) out = tables["norm2"] = norm("norm2", out);
    tables["output"] = out;
  }
};

inline Tensor<double> tensor_of(const Rows& rows) {
  Tensor<double> out(
      {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  for (std::size_t n = 0; n < out.size(); ++n) {
    out.data()[n] = static_cast<double>(rows[n / rows[0].size()][n % rows[0].size()]);
  }
  return out;
}

inline Tensor<double> bell_tensor(Random& random, const Shape& shape, double middle, double width) {
  Tensor<double> out(shape);
  for (double& x : out.elements()) {
    x = static_cast<double>(static_cast<float>(middle + width * random.bell()));
  }
  return out;
}

/// Weights of the sizes that trained models have, all biases and gains there.
inline BlockWeights<double> drawn_weights(Random& random, const BlockConfig& config) {
  BlockWeights<double> out;
  for (const lab::BlockParameter& p : lab::block_parameters(config)) {
    if (p.need == lab::Need::unused) continue;
    const std::string_view name = p.name;
    const bool matrix = p.shape.size() == 2;
    const double width = matrix ? 1.2 / std::sqrt(static_cast<double>(p.shape[0])) : 0.3;
    out.*p.tensor = bell_tensor(random, p.shape, name.ends_with("gain") ? 1 : 0, width);
  }
  return out;
}

/// A dump of what the program computed, with these of its tables; all of them if none is named.
inline check::BlockDump dump_of(const BlockConfig& config, const BlockWeights<double>& weights,
                                const Rows& x, const Mistakes& mistakes,
                                const std::set<std::string>& wanted = {}) {
  PlainBlock program{config, weights, mistakes};
  program.run(x);
  check::BlockDump dump;
  dump.config = config;
  dump.weights = weights;
  dump.x = tensor_of(x);
  for (int n = 0; n < check::block_stages; ++n) {
    const auto stage = static_cast<check::BlockStage>(n);
    const std::string name(check::name_of(stage));
    const auto found = program.tables.find(name);
    if (found == program.tables.end() || (!wanted.empty() && wanted.count(name) == 0)) continue;
    dump.stages[stage] = {.values = tensor_of(found->second), .name = name};
  }
  return dump;
}

inline Rows drawn_rows(Random& random, std::int64_t T, std::int64_t C) {
  Rows out(static_cast<std::size_t>(T), std::vector<float>(static_cast<std::size_t>(C)));
  for (auto& row : out) {
    const double middle = random.uniform(-0.7, 0.7);
    for (float& x : row) x = static_cast<float>(middle + 1.3 * random.bell());
  }
  return out;
}

}  // namespace attest::test
