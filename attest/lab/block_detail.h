// SPDX-License-Identifier: MIT
#pragma once

#include <cassert>
#include <utility>

#include "attest/lab/block.h"
#include "attest/lab/layers.h"

/// What the two directions of a block share. Included by block*.cpp alone.
namespace attest::lab::detail {

/// Everything that a block must satisfy before any arithmetic; after it no layer can fail.
[[nodiscard]] Result<void> check_block(View<const double, 2> x, const BlockConfig& config,
                                       const BlockWeights<double>& weights);

/// The value of a call whose conditions `check_block` has shown to hold.
template <class T>
[[nodiscard]] T proven(Result<T> result) {
  assert(result.has_value());
  return *std::move(result);
}

/// A parameter that may be absent.
[[nodiscard]] inline View<const double, 1> optional_vector(const Tensor<double>& tensor) {
  return tensor.size() == 0 ? View<const double, 1>{} : tensor.view<1>();
}

/// The same numbers, row by row.
[[nodiscard]] Tensor<double> dense(View<const double, 2> x);

/// [T, H·W] seen as [1, H, T, W]: head h owns the features from h·W on. No element moves.
[[nodiscard]] View<const double, 4> split_heads(const Tensor<double>& rows, std::int64_t heads);

/// [1, H, T, W] written out as [T, H·W].
[[nodiscard]] Tensor<double> join_heads(const Tensor<double>& heads);

/// One of the block's norms: its name, and where its parameters are kept.
struct NormSite {
  const char* name;
  Tensor<double> BlockWeights<double>::*gain;
  Tensor<double> BlockWeights<double>::*bias;

  [[nodiscard]] NormParameters parameters(const BlockConfig& config,
                                          const BlockWeights<double>& weights) const {
    return {optional_vector(weights.*gain), optional_vector(weights.*bias), config.epsilon};
  }
};

/// A sub-layer with its residual and norms: attention is the first, feed-forward the second.
struct Sublayer {
  NormSite norm;         ///< before the layer, or after the residual
  NormSite norm_out;     ///< after the layer, sandwich only
  const char* layer;     ///< the stage that the layer ends with
  const char* residual;  ///< the stage that the sum is
};

inline constexpr Sublayer attention_sublayer{
    {"norm1", &BlockWeights<double>::norm1_gain, &BlockWeights<double>::norm1_bias},
    {"norm1_out", &BlockWeights<double>::norm1_out_gain, &BlockWeights<double>::norm1_out_bias},
    "output_projection",
    "residual1"};
inline constexpr Sublayer ffn_sublayer{
    {"norm2", &BlockWeights<double>::norm2_gain, &BlockWeights<double>::norm2_bias},
    {"norm2_out", &BlockWeights<double>::norm2_out_gain, &BlockWeights<double>::norm2_out_bias},
    "ffn.down",
    "residual2"};

/// A linear layer of the block: the stage it makes, and where its parameters are kept.
struct LinearSite {
  const char* stage;
  Tensor<double> BlockWeights<double>::*weight;
  Tensor<double> BlockWeights<double>::*bias;
};

inline constexpr LinearSite query_site{"projection.query", &BlockWeights<double>::query_weight,
                                       &BlockWeights<double>::query_bias};
inline constexpr LinearSite key_site{"projection.key", &BlockWeights<double>::key_weight,
                                     &BlockWeights<double>::key_bias};
inline constexpr LinearSite value_site{"projection.value", &BlockWeights<double>::value_weight,
                                       &BlockWeights<double>::value_bias};
inline constexpr LinearSite output_site{"output_projection", &BlockWeights<double>::output_weight,
                                        &BlockWeights<double>::output_bias};
inline constexpr LinearSite up_site{"ffn.up", &BlockWeights<double>::up_weight,
                                    &BlockWeights<double>::up_bias};
inline constexpr LinearSite gate_site{"ffn.gate", &BlockWeights<double>::gate_weight,
                                      &BlockWeights<double>::gate_bias};
inline constexpr LinearSite down_site{"ffn.down", &BlockWeights<double>::down_weight,
                                      &BlockWeights<double>::down_bias};

/// "ffn.relu", "ffn.gelu" (both kinds) or "ffn.silu".
[[nodiscard]] const char* activation_stage(Activation kind);

}  // namespace attest::lab::detail
