// SPDX-License-Identifier: MIT
// The stages of a block, and the recipe that a config claims.
#include <algorithm>
#include <cmath>

#include "attest/check/block/program.h"

namespace attest::check {

std::string_view name_of(BlockStage stage) noexcept {
  constexpr std::string_view names[] = {"norm1",          "projection.query",
                                        "projection.key", "projection.value",
                                        "rope.query",     "rope.key",
                                        "weights",        "heads",
                                        "concat",         "output_projection",
                                        "norm1_out",      "residual1",
                                        "norm2",          "ffn.up",
                                        "ffn.gate",       "ffn.activation",
                                        "ffn.gated",      "ffn.down",
                                        "norm2_out",      "residual2",
                                        "output"};
  return names[static_cast<int>(stage)];
}

std::int64_t BlockDump::rows() const {
  if (x.size() != 0) return static_cast<std::int64_t>(x.size()) / x.shape().back();
  for (const auto& [stage, table] : stages) {
    if (stage != BlockStage::weights && stage != BlockStage::heads) return table.values.extent(0);
  }
  for (const auto& [stage, table] : stages) return table.values.extent(0) / config.heads;
  return 0;
}

namespace block {
namespace {

ActivationForm form_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return ActivationForm::relu;
    case Activation::gelu_erf:
      return ActivationForm::gelu_erf;
    case Activation::gelu_tanh:
      return ActivationForm::gelu_tanh;
    case Activation::silu:
      return ActivationForm::silu;
  }
  return ActivationForm::none;
}

}  // namespace

BlockRecipe claimed(const BlockConfig& config) {
  BlockRecipe out;
  out.placement = config.placement;
  for (NormRecipe& norm : out.norms) norm.kind = config.norm, norm.epsilon = config.epsilon;
  AttendRecipe& attend = out.attend;
  attend.scale = config.scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim)));
  attend.softcap = config.softcap;
  attend.visible = config.causal ? AttendRecipe::Visible::causal : AttendRecipe::Visible::all;
  attend.alibi = config.alibi;
  attend.rope.none = !config.rope.has_value();
  if (config.rope) {
    attend.rope.pairing = config.rope->pairing;
    attend.rope.rotary_dim = config.rope->rotary_dim;
    attend.rope.base = config.rope->base;
  }
  out.ffn.activation = form_of(config.activation);
  out.ffn.gated = config.gated;
  return out;
}

BlockRecipe claimed(const BlockDump& dump) {
  BlockRecipe out = claimed(dump.config);
  if (dump.quick_gelu) out.ffn.activation = ActivationForm::gelu_quick;
  return out;
}

std::vector<BlockStage> stages_of(const BlockConfig& config) {
  using S = BlockStage;
  const bool post = config.placement == NormPlacement::post;
  const bool sandwich = config.placement == NormPlacement::sandwich;
  std::vector<S> out;
  if (!post) out.push_back(S::norm1);
  out.insert(out.end(), {S::query, S::key, S::value});
  if (config.rope) out.insert(out.end(), {S::rope_query, S::rope_key});
  out.insert(out.end(), {S::weights, S::heads, S::concat, S::output_projection});
  if (sandwich) out.push_back(S::norm1_out);
  out.push_back(S::residual1);
  out.push_back(post ? S::norm1 : S::norm2);
  out.push_back(S::up);
  if (config.gated) out.push_back(S::gate);
  out.push_back(S::activation);
  if (config.gated) out.push_back(S::gated);
  out.push_back(S::down);
  if (sandwich) out.push_back(S::norm2_out);
  out.push_back(S::residual2);
  if (post) out.push_back(S::norm2);
  out.push_back(S::output);
  return out;
}

std::pair<std::int64_t, std::int64_t> shape_of(BlockStage stage, const BlockConfig& c,
                                               std::int64_t rows, std::int64_t sequences) {
  using S = BlockStage;
  switch (stage) {
    case S::query:
    case S::rope_query:
      return {rows, c.heads * c.head_dim};
    case S::key:
    case S::rope_key:
      return {rows, c.kv_heads * c.head_dim};
    case S::value:
      return {rows, c.kv_heads * c.value_dim};
    case S::weights:
      return {rows * c.heads, rows / std::max<std::int64_t>(sequences, 1)};
    case S::heads:
      return {rows * c.heads, c.value_dim};
    case S::concat:
      return {rows, c.heads * c.value_dim};
    case S::up:
    case S::gate:
    case S::activation:
    case S::gated:
      return {rows, c.ffn_dim};
    default:
      return {rows, c.model_dim};
  }
}

}  // namespace block
}  // namespace attest::check
