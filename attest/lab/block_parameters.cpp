// SPDX-License-Identifier: MIT
// What a block is made of: its parameters, and the checks that come before any arithmetic.
#include "attest/lab/block_detail.h"
#include "attest/lab/layers_check.h"
#include "attest/lab/positions.h"

namespace attest::lab {
namespace {

using detail::bad_option;
using detail::shape_mismatch;

Result<void> check_config(const BlockConfig& config) {
  const std::pair<const char*, std::int64_t> extents[] = {
      {"model_dim", config.model_dim}, {"heads", config.heads},
      {"kv_heads", config.kv_heads},   {"head_dim", config.head_dim},
      {"value_dim", config.value_dim}, {"ffn_dim", config.ffn_dim}};
  constexpr std::int64_t largest = std::int64_t{1} << 20U;  // keeps every product of two in range
  for (const auto& [name, extent] : extents) {
    if (extent >= 1 && extent <= largest) continue;
    return bad_option("block", name, " must be between 1 and ", largest, "; found ", extent);
  }
  if (config.heads % config.kv_heads != 0) {
    return bad_option("block", "heads must be a multiple of kv_heads; heads is ", config.heads,
                      ", kv_heads is ", config.kv_heads);
  }
  if (!(config.epsilon >= 0 && detail::finite(config.epsilon))) {
    return bad_option("block", "epsilon must be finite and at least 0; found ", config.epsilon);
  }
  if (config.scale && !detail::finite(*config.scale)) {
    return bad_option("block", "scale must be finite; found ", *config.scale);
  }
  if (config.softcap && !(*config.softcap > 0 && detail::finite(*config.softcap))) {
    return bad_option("block", "softcap must be positive and finite; found ", *config.softcap);
  }
  if (config.rope) {
    if (auto ok = rope_frequencies(*config.rope, config.head_dim); !ok) return ok.failure();
  }
  return {};
}

Result<void> check_parameter(const BlockParameter& parameter, const Tensor<double>& tensor) {
  const bool absent = tensor.size() == 0;
  if (absent && parameter.need != Need::required) return {};
  if (absent) {
    return Failure{ErrorKind::value, "missing-tensor",
                   sentence("[block] ", parameter.name, " must have shape ",
                            to_string(parameter.shape), "; it is absent")};
  }
  if (parameter.need == Need::unused) {
    return Failure{ErrorKind::value, "unused-parameter",
                   sentence("[block] ", parameter.name, " is given, shape ",
                            to_string(tensor.shape()), ", but this config has no place for it")};
  }
  if (tensor.shape() == parameter.shape) return {};
  return shape_mismatch("block", parameter.name, " must have shape ", to_string(parameter.shape),
                        "; it has ", to_string(tensor.shape()));
}

}  // namespace

std::vector<BlockParameter> block_parameters(const BlockConfig& config) {
  using W = BlockWeights<double>;
  const std::int64_t C = config.model_dim;
  const std::int64_t F = config.ffn_dim;
  const std::int64_t queries = config.heads * config.head_dim;     // H·D
  const std::int64_t keys = config.kv_heads * config.head_dim;     // G·D
  const std::int64_t values = config.kv_heads * config.value_dim;  // G·E
  const std::int64_t mixed = config.heads * config.value_dim;      // H·E
  const bool sandwich = config.placement == NormPlacement::sandwich;
  const auto only_if = [](bool used, Need need) { return used ? need : Need::unused; };
  const Need norm_bias = only_if(config.norm == Norm::layer_norm, Need::optional);
  const Need out_gain = only_if(sandwich, Need::optional);
  const Need out_bias = only_if(sandwich, norm_bias);
  const Need gate_weight = only_if(config.gated, Need::required);
  const Need gate_bias = only_if(config.gated, Need::optional);
  return {
      {"query_weight", &W::query_weight, {C, queries}, Need::required},
      {"query_bias", &W::query_bias, {queries}, Need::optional},
      {"key_weight", &W::key_weight, {C, keys}, Need::required},
      {"key_bias", &W::key_bias, {keys}, Need::optional},
      {"value_weight", &W::value_weight, {C, values}, Need::required},
      {"value_bias", &W::value_bias, {values}, Need::optional},
      {"output_weight", &W::output_weight, {mixed, C}, Need::required},
      {"output_bias", &W::output_bias, {C}, Need::optional},
      {"norm1_gain", &W::norm1_gain, {C}, Need::optional},
      {"norm1_bias", &W::norm1_bias, {C}, norm_bias},
      {"norm2_gain", &W::norm2_gain, {C}, Need::optional},
      {"norm2_bias", &W::norm2_bias, {C}, norm_bias},
      {"norm1_out_gain", &W::norm1_out_gain, {C}, out_gain},
      {"norm1_out_bias", &W::norm1_out_bias, {C}, out_bias},
      {"norm2_out_gain", &W::norm2_out_gain, {C}, out_gain},
      {"norm2_out_bias", &W::norm2_out_bias, {C}, out_bias},
      {"up_weight", &W::up_weight, {C, F}, Need::required},
      {"up_bias", &W::up_bias, {F}, Need::optional},
      {"gate_weight", &W::gate_weight, {C, F}, gate_weight},
      {"gate_bias", &W::gate_bias, {F}, gate_bias},
      {"down_weight", &W::down_weight, {F, C}, Need::required},
      {"down_bias", &W::down_bias, {C}, Need::optional},
  };
}

Result<void> detail::check_block(View<const double, 2> x, const BlockConfig& config,
                                 const BlockWeights<double>& weights) {
  if (auto ok = check_config(config); !ok) return ok;
  if (auto ok = check_given("block", Named{"x", x}); !ok) return ok;
  if (x.extent(1) != config.model_dim) {
    return shape_mismatch("block", "x must have model_dim features; x has ", x.extent(1),
                          ", model_dim is ", config.model_dim);
  }
  for (const BlockParameter& parameter : block_parameters(config)) {
    if (auto ok = check_parameter(parameter, weights.*parameter.tensor); !ok) return ok;
  }
  return {};
}

}  // namespace attest::lab
