// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attest::check::block {

/// A name of a file without its layer: "model.layers.3.mlp.up_proj.weight" is 3 and "mlp.up_proj.weight".
struct LayerName {
  std::optional<std::int64_t> layer{};
  std::string rest{};
};
[[nodiscard]] LayerName layer_of(std::string_view name);

/// What a name of a file means: "query_weight", "x", "ffn.up", or the packed "qkv_weight", "qkv_bias",
/// "gate_up_weight", "gate_up_bias", "projection.qkv"; empty if nothing is known of it.
/// `w1_is_gate` says that the file has a w3 beside w1 and w2, as Llama's; `pre_ffn_norm` that it has a norm
/// of the feed-forward layer's own, as Gemma's, so that post_attention_layernorm is the sandwich's.
struct NameContext {
  bool w1_is_gate = false;
  bool pre_ffn_norm = false;
};
[[nodiscard]] std::string meaning_of(std::string_view rest, const NameContext& context);

}  // namespace attest::check::block
