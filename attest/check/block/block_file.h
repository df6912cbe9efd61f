// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/check/block/block.h"
#include "attest/io/named_tensors.h"

namespace attest::check {

/// How matrices lie in a file: y = x·W, or y = x·Wᵀ as nn.Linear stores them.
enum class WeightOrder { input_output, output_input };

/// What is known of a block beside its tensors; what is not is inferred or assumed, and said.
struct BlockFileOptions {
  std::map<std::string, std::string>
      names{};  ///< "query_weight", "x" or "ffn.up" → name in the file
  std::optional<WeightOrder> weight_order{};
  std::optional<std::int64_t> layer{};  ///< of a file with several
  std::optional<std::int64_t> heads{};
  std::optional<std::int64_t> kv_heads{};
  std::optional<Norm> norm{};
  std::optional<NormPlacement> placement{};
  std::optional<double> epsilon{};
  std::optional<Activation> activation{};
  bool quick_gelu = false;  ///< x·σ(1.702 x) in place of it
  std::optional<bool> causal{};
  std::optional<RopeConfig> rope{};
  std::optional<double> scale{};
  std::optional<double> softcap{};
  std::optional<bool> alibi{};
  std::optional<Precision> precision{};
  std::optional<PackedOrder> packing{};  ///< of qkv_weight, qkv_bias and projection.qkv
  std::optional<bool> gate_second{};     ///< of gate_up_weight: up stands first
};

struct BlockFile {
  BlockDump dump{};
  /// A sentence for each guess: what was assumed, with the option that says it; then layouts and tensors
  /// that are not used; last, in one sentence, what names were taken for.
  std::vector<std::string> said{};
};

/// What a tensor of a block's file can be: "query_weight", "qkv_bias", "x", "ffn.up" …
[[nodiscard]] std::vector<std::string> block_roles();

/// Makes a dump of the tensors of a file.
///
/// Names         ours (query_weight, norm1_gain, x, and the tables' of BlockStage), those of the usual
///               libraries (q_proj.weight, ln_1.bias, c_attn, gate_up_proj, wq …), or as the options map
///               them. A layer's number in front is left out. c_attn, in_proj and qkv hold query, key and
///               value side by side, gate_up_proj gate and up. So does a table called qkv that is as wide.
/// Shapes        tables [T, …] or [B, T, …]; query, key, value and heads also by head, [B, H, T, D] or
///               [H, T, D]; weights [B, H, T, T] or [H, T, T].
/// Edge cases    a matrix that is not square shows whether matrices are input × output; if all are square it
///               must be said.
/// Fails         unknown-role, ambiguous-layout, ambiguous-layer, missing-tensor, missing-option (heads), duplicate-name,
///               shape-mismatch, type.
[[nodiscard]] Result<BlockFile> read_block(const io::NamedTensors& tensors,
                                           const BlockFileOptions& options = {});

}  // namespace attest::check
