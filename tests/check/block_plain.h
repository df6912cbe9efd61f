// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attest/base/dtype.h"
#include "tests/check/block_plain_attention.h"

namespace attest::test {

/// The whole block, with its feed-forward layer and residuals.
struct PlainBlock : PlainAttention {
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

  BlockRows ffn(const BlockRows& in) {
    const bool exchanged = has("ffn.gate_up_exchanged");
    const BlockRows up = linear(exchanged ? "ffn.gate" : "ffn.up", in);
    tables["ffn.up"] = up;
    const auto each = [](BlockRows x, const auto& f) {
      for (auto& row : x) {
        for (float& number : row) number = f(number);
      }
      return x;
    };
    const auto f = [this](float x) { return act(x); };
    if (!c.gated) {
      const BlockRows active = each(up, f);
      tables["ffn.activation"] = active;
      return tables["ffn.down"] = linear("ffn.down", active);
    }
    const BlockRows gate = linear(exchanged ? "ffn.up" : "ffn.gate", in);
    const bool on_up = has("ffn.activates_up");
    BlockRows active = each(on_up ? up : gate, f);
    const BlockRows other = on_up ? gate : has("ffn.both_active") ? each(up, f) : up;
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

  BlockRows add(const std::string& name, const BlockRows& before, const BlockRows& normed,
                BlockRows change, const BlockRows& x) const {
    const std::string key = "block." + name;
    const auto kept = static_cast<float>(1 / (1 - value(key + "_dropout_scale", 0)));
    for (std::size_t t = 0; t < change.size(); ++t) {
      for (std::size_t k = 0; k < change[t].size(); ++k) {
        float& y = change[t][k];
        y *= has(key + "_without_layer") ? 0 : kept;
        const bool missing = has(key + "_missing") || has("block.residuals_missing");
        const BlockRows& base = has(key + "_from_x")        ? x
                                : has(key + "_from_normed") ? normed
                                                            : before;
        if (!missing) y = base[t][k] * (has(key + "_doubled") ? 2.0F : 1.0F) + y;
        if (has("block.stream_bf16")) y = to_float(to_bfloat16(static_cast<double>(y)));
        if (has("block.stream_f16")) {
          y = static_cast<float>(to_double(to_half(static_cast<double>(y))));
        }
      }
    }
    return change;
  }

  void run(const BlockRows& x) {
    NormPlacement placement = c.placement;
    if (has("block.pre_norm")) placement = NormPlacement::pre;
    if (has("block.post_norm")) placement = NormPlacement::post;
    if (has("block.sandwich_norm")) placement = NormPlacement::sandwich;
    const bool post = placement == NormPlacement::post;
    const bool sandwich = placement == NormPlacement::sandwich;
    const BlockRows in = post ? x : norm("norm1", x);
    if (!post) tables["norm1"] = in;
    BlockRows change = attention(in);
    if (sandwich) change = tables["norm1_out"] = norm("norm1_out", change);
    BlockRows h = tables["residual1"] = add("residual1", x, in, change, x);
    const BlockRows residual = h;
    if (post) h = tables["norm1"] = norm("norm1", h);
    BlockRows ffn_in = post ? h : norm("norm2", has("block.parallel_two_norms") ? x : h);
    if (!post) tables["norm2"] = ffn_in;
    if (has("block.parallel_one_norm")) ffn_in = in;
    if (has("block.ffn_reads_residual")) ffn_in = residual;
    change = ffn(ffn_in);
    if (sandwich) change = tables["norm2_out"] = norm("norm2_out", change);
    BlockRows out = tables["residual2"] = add("residual2", h, ffn_in, change, x);
    if (post) out = tables["norm2"] = norm("norm2", out);
    tables["output"] = out;
  }
};

}  // namespace attest::test
