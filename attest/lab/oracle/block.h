// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "attest/base/config.h"
#include "attest/lab/oracle/activations.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/attention.h"
#include "attest/lab/oracle/layers.h"

namespace attest::lab::oracle {

/// One thing for each parameter of a block: its array, its gradient, its shape. The names, shapes
/// and meanings are those of attest::BlockWeights.
template <class Thing>
struct BlockParameters {
  Thing query_weight, query_bias, key_weight, key_bias, value_weight, value_bias;
  Thing output_weight, output_bias;
  Thing norm1_gain, norm1_bias, norm2_gain, norm2_bias;
  Thing norm1_out_gain, norm1_out_bias, norm2_out_gain, norm2_out_bias;
  Thing up_weight, up_bias, gate_weight, gate_bias, down_weight, down_bias;
};

/// Calls visit(name, part of left, part of right) for the 22 parameters, in the order above.
template <class Left, class Right, class Visit>
void for_each_parameter(Left& left, Right& right, Visit visit) {
  visit("query_weight", left.query_weight, right.query_weight);
  visit("query_bias", left.query_bias, right.query_bias);
  visit("key_weight", left.key_weight, right.key_weight);
  visit("key_bias", left.key_bias, right.key_bias);
  visit("value_weight", left.value_weight, right.value_weight);
  visit("value_bias", left.value_bias, right.value_bias);
  visit("output_weight", left.output_weight, right.output_weight);
  visit("output_bias", left.output_bias, right.output_bias);
  visit("norm1_gain", left.norm1_gain, right.norm1_gain);
  visit("norm1_bias", left.norm1_bias, right.norm1_bias);
  visit("norm2_gain", left.norm2_gain, right.norm2_gain);
  visit("norm2_bias", left.norm2_bias, right.norm2_bias);
  visit("norm1_out_gain", left.norm1_out_gain, right.norm1_out_gain);
  visit("norm1_out_bias", left.norm1_out_bias, right.norm1_out_bias);
  visit("norm2_out_gain", left.norm2_out_gain, right.norm2_out_gain);
  visit("norm2_out_bias", left.norm2_out_bias, right.norm2_out_bias);
  visit("up_weight", left.up_weight, right.up_weight);
  visit("up_bias", left.up_bias, right.up_bias);
  visit("gate_weight", left.gate_weight, right.gate_weight);
  visit("gate_bias", left.gate_bias, right.gate_bias);
  visit("down_weight", left.down_weight, right.down_weight);
  visit("down_bias", left.down_bias, right.down_bias);
}

namespace formula {

template <class Scalar>
struct BlockValues {
  Array<Scalar> output;   // [T, C]
  Array<Scalar> weights;  // [1, H, T, T]
};

/// [T, H·W] -> [1, H, T, W]: head h owns the features from h·W on.
template <class Scalar>
[[nodiscard]] Array<Scalar> split_heads(const Array<Scalar>& x, std::int64_t heads) {
  const std::int64_t length = x.extent(0);
  const std::int64_t width = x.extent(1) / heads;
  Array<Scalar> out({1, heads, length, width});
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t c = 0; c < width; ++c) out(0, h, t, c) = x(t, h * width + c);
    }
  }
  return out;
}

/// [1, H, T, W] -> [T, H·W], its inverse.
template <class Scalar>
[[nodiscard]] Array<Scalar> merge_heads(const Array<Scalar>& x) {
  const std::int64_t width = x.extent(3);
  Array<Scalar> out({x.extent(2), x.extent(1) * width});
  for (std::int64_t h = 0; h < x.extent(1); ++h) {
    for (std::int64_t t = 0; t < x.extent(2); ++t) {
      for (std::int64_t c = 0; c < width; ++c) out(t, h * width + c) = x(0, h, t, c);
    }
  }
  return out;
}

/// attention(y·Wq, y·Wk, y·Wv)·Wo, with rotated queries and keys if the block has RoPE.
template <class Scalar>
[[nodiscard]] BlockValues<Scalar> self_attention(const Array<Scalar>& y,  // [T, C]
                                                 const BlockConfig& config,
                                                 const BlockParameters<Array<Scalar>>& w) {
  AttentionArrays<Scalar> in;
  in.query = split_heads(linear(y, w.query_weight, w.query_bias), config.heads);
  in.key = split_heads(linear(y, w.key_weight, w.key_bias), config.kv_heads);
  in.value = split_heads(linear(y, w.value_weight, w.value_bias), config.kv_heads);
  if (config.rope) {
    in.query = rope(in.query, *config.rope, 0);
    in.key = rope(in.key, *config.rope, 0);
  }
  AttentionRules rules;
  rules.mask.future_hidden = config.causal;
  rules.scale = config.scale;
  rules.softcap = config.softcap;
  if (config.alibi) rules.alibi_slopes = alibi_slopes(config.heads);
  const AttentionValues<Scalar> heads = attention(in, rules);
  return {linear(merge_heads(heads.output), w.output_weight, w.output_bias), heads.weights};
}

/// activation(y·up)·down, or gated: (activation(y·gate) ⊙ (y·up))·down.
template <class Scalar>
[[nodiscard]] Array<Scalar> feed_forward(const Array<Scalar>& y,  // [T, C]
                                         const BlockConfig& config,
                                         const BlockParameters<Array<Scalar>>& w) {
  const Array<Scalar> up = linear(y, w.up_weight, w.up_bias);  // [T, F]
  const Array<Scalar> inner =
      config.gated ? gated(config.activation, linear(y, w.gate_weight, w.gate_bias), up)
                   : activation(config.activation, up);
  return linear(inner, w.down_weight, w.down_bias);
}

/// A block, as attest::BlockConfig draws it.
template <class Scalar>
[[nodiscard]] BlockValues<Scalar> block(const Array<Scalar>& x,  // [T, C]
                                        const BlockConfig& config,
                                        const BlockParameters<Array<Scalar>>& w) {
  const auto norm = [&](const Array<Scalar>& y, const Array<Scalar>& gain,
                        const Array<Scalar>& bias) {
    return config.norm == Norm::layer_norm ? layer_norm(y, gain, bias, Real(config.epsilon))
                                           : rms_norm(y, gain, bias, Real(config.epsilon));
  };
  if (config.placement == NormPlacement::post) {
    const BlockValues<Scalar> mixed = self_attention(x, config, w);
    const Array<Scalar> h = norm(add(x, mixed.output), w.norm1_gain, w.norm1_bias);
    const Array<Scalar> y = add(h, feed_forward(h, config, w));
    return {norm(y, w.norm2_gain, w.norm2_bias), mixed.weights};
  }
  const bool sandwich = config.placement == NormPlacement::sandwich;
  BlockValues<Scalar> mixed = self_attention(norm(x, w.norm1_gain, w.norm1_bias), config, w);
  if (sandwich) mixed.output = norm(mixed.output, w.norm1_out_gain, w.norm1_out_bias);
  const Array<Scalar> h = add(x, mixed.output);
  Array<Scalar> y = feed_forward(norm(h, w.norm2_gain, w.norm2_bias), config, w);
  if (sandwich) y = norm(y, w.norm2_out_gain, w.norm2_out_bias);
  return {add(h, y), mixed.weights};
}

/// The workbook's fixed block. Each head uses its projection of x as query, key and value alike:
///
///     h = normalise(x + [attention(x·P1), attention(x·P2)]·WO)     out = normalise(h + max(0,
///     h·W1)·W2)
template <class Scalar>
[[nodiscard]] BlockValues<Scalar> workbook_block(
    const Array<Scalar>& x,                      // [T, C]
    const std::vector<Array<Scalar>>& matrices,  // P1, P2 [C, D]; WO [2D, C]; W1 [C, F]; W2 [F, C]
    const Real& epsilon, bool causal) {
  const std::int64_t length = x.extent(0);
  const std::int64_t width = matrices[0].extent(1);
  Array<Scalar> projected({1, 2, length, width});
  for (std::int64_t h = 0; h < 2; ++h) {
    const Array<Scalar> rows = matmul(x, matrices[static_cast<std::size_t>(h)]);  // [T, D]
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t d = 0; d < width; ++d) projected(0, h, t, d) = rows(t, d);
    }
  }
  AttentionRules rules;
  if (causal) rules.mask = Mask::causal();
  const AttentionValues<Scalar> heads =
      attention(AttentionArrays<Scalar>{projected, projected, projected, {}, {}}, rules);
  const Array<Scalar> mixed = matmul(merge_heads(heads.output), matrices[2]);
  const Array<Scalar> hidden = normalise(add(x, mixed), epsilon);
  const Array<Scalar> activated = activation(Activation::relu, matmul(hidden, matrices[3]));
  return {normalise(add(hidden, matmul(activated, matrices[4])), epsilon), heads.weights};
}

}  // namespace formula
}  // namespace attest::lab::oracle
