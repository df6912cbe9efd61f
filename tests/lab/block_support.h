// SPDX-License-Identifier: MIT
#pragma once

#include "attest/lab/block.h"
#include "layers_support.h"

// Blocks for tests: one small config, any config, and weights that fit.
namespace attest::lab::testing {

inline BlockConfig small_config() {
  BlockConfig config;
  config.model_dim = 4;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 2;
  config.value_dim = 3;
  config.ffn_dim = 5;
  return config;
}

enum class Optional { all, some, none };

inline BlockWeights<double> random_weights(Random& random, const BlockConfig& config,
                                           Optional given) {
  BlockWeights<double> weights;
  for (const BlockParameter& parameter : block_parameters(config)) {
    const bool chosen = given == Optional::all || (given == Optional::some && random.between(0, 1));
    if (parameter.need == Need::unused || (parameter.need == Need::optional && !chosen)) continue;
    weights.*parameter.tensor = random_tensor(random, parameter.shape);
  }
  return weights;
}

/// Any of the choices that a config has, with small extents.
inline BlockConfig random_config(Random& random) {
  const auto maybe = [&] { return random.between(0, 1) == 1; };
  BlockConfig config;
  config.model_dim = random.between(3, 6);
  config.kv_heads = random.between(1, 2);
  config.heads = config.kv_heads * random.between(1, 2);
  config.head_dim = 2 * random.between(1, 2);
  config.value_dim = random.between(1, 3);
  config.ffn_dim = random.between(1, 5);
  config.norm = maybe() ? Norm::layer_norm : Norm::rms_norm;
  config.placement = static_cast<NormPlacement>(random.between(0, 2));
  config.epsilon = maybe() ? 1e-5 : 0.1;
  config.activation = static_cast<Activation>(random.between(0, 3));
  config.gated = maybe();
  config.causal = maybe();
  if (maybe()) config.scale = random.uniform(0.1, 1);
  if (maybe()) config.softcap = random.uniform(1, 5);
  if (maybe()) {
    config.rope = RopeConfig{.pairing = maybe() ? RopePairing::half : RopePairing::interleaved,
                             .rotary_dim = maybe() ? 0 : 2};
  }
  config.alibi = maybe();
  return config;
}

}  // namespace attest::lab::testing
