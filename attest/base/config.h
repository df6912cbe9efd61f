// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/tensor.h"

namespace attest {

enum class Norm {
  layer_norm,  ///< (x − mean) / √(variance + ε), population variance
  rms_norm,    ///< x / √(mean of squares + ε)
};

/// Where a block normalises: before each sub-layer, after each residual, or on both sides of each
/// sub-layer inside the residual (sandwich).
enum class NormPlacement { post, pre, sandwich };

enum class Activation {
  relu,       ///< max(0, x)
  gelu_erf,   ///< x/2 · (1 + erf(x/√2))
  gelu_tanh,  ///< x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
  silu,       ///< x / (1 + exp(−x))
};

/// Which features turn together: i with i + R/2, or 2i with 2i + 1 (R the rotated width).
enum class RopePairing { half, interleaved };

/// Rotary positions: pair i of a row at position p turns by the angle p · base^(−2i/R).
struct RopeConfig {
  RopePairing pairing = RopePairing::half;
  std::int64_t rotary_dim = 0;  ///< R, even; the first R features turn; 0: all of D
  double base = 10000;
};

/// A transformer block: attention and a feed-forward layer, each with a residual and norms.
///
///     post      h = norm1(x + attention(x))         out = norm2(h + ffn(h))
///     pre       h = x + attention(norm1(x))         out = h + ffn(norm2(h))
///     sandwich  h = x + norm1_out(attention(norm1(x)))   out = h + norm2_out(ffn(norm2(h)))
///
///     ffn(y) = activation(y·up) · down,   gated: (activation(y·gate) ⊙ (y·up)) · down
struct BlockConfig {
  std::int64_t model_dim = 0;  ///< C
  std::int64_t heads = 1;      ///< H
  std::int64_t kv_heads = 1;   ///< G, divides H
  std::int64_t head_dim = 0;   ///< D
  std::int64_t value_dim = 0;  ///< E
  std::int64_t ffn_dim = 0;    ///< F
  Norm norm = Norm::layer_norm;
  NormPlacement placement = NormPlacement::post;
  double epsilon = 1e-5;  ///< inside the root
  Activation activation = Activation::relu;
  bool gated = false;
  bool causal = true;  ///< query i sees keys j ≤ i
  std::optional<double> scale;
  std::optional<double> softcap;
  std::optional<RopeConfig> rope;
  bool alibi = false;  ///< the published slopes for H heads
};

/// The parameters of a block. A matrix is stored input × output: y = x·W + b, as in the workbook.
/// A tensor without elements is absent: no bias, or a gain of one.
template <class T>
struct BlockWeights {
  Tensor<T> query_weight;    // [C, H·D]
  Tensor<T> query_bias;      // [H·D]
  Tensor<T> key_weight;      // [C, G·D]
  Tensor<T> key_bias;        // [G·D]
  Tensor<T> value_weight;    // [C, G·E]
  Tensor<T> value_bias;      // [G·E]
  Tensor<T> output_weight;   // [H·E, C]
  Tensor<T> output_bias;     // [C]
  Tensor<T> norm1_gain;      // [C]
  Tensor<T> norm1_bias;      // [C], layer_norm only
  Tensor<T> norm2_gain;      // [C]
  Tensor<T> norm2_bias;      // [C]
  Tensor<T> norm1_out_gain;  // [C], sandwich only
  Tensor<T> norm1_out_bias;  // [C]
  Tensor<T> norm2_out_gain;  // [C]
  Tensor<T> norm2_out_bias;  // [C]
  Tensor<T> up_weight;       // [C, F]
  Tensor<T> up_bias;         // [F]
  Tensor<T> gate_weight;     // [C, F], gated only
  Tensor<T> gate_bias;       // [F]
  Tensor<T> down_weight;     // [F, C]
  Tensor<T> down_bias;       // [C]
};

}  // namespace attest
