// SPDX-License-Identifier: MIT
#include "attest/check/block/block_settle.h"

#include <utility>

#include "attest/base/text.h"
#include "attest/check/block/block_layout.h"
#include "attest/lab/block.h"

namespace attest::check::block {
namespace {

class Settler {
 public:
  Settler(BlockDump& dump, const BlockFileOptions& options, const TablesShown& tables,
          const Said& said)
      : dump_(dump), options_(options), tables_(tables), said_(said) {}

  Result<void> run() {
    settle_norms();
    settle_ffn();
    settle_attention();
    drop_unused();
    return settle_packing();
  }

 private:
  template <class... Parts>
  void say(const Parts&... parts) {
    said_.shown.push_back(sentence(parts...));
  }
  /// What neither a tensor nor an option shows, and the option that would.
  template <class... Parts>
  void assume(const Parts&... parts) {
    said_.assumed.push_back("assumed: " + sentence(parts...));
  }

  void settle_norms() {
    BlockConfig& c = dump_.config;
    const BlockWeights<double>& w = dump_.weights;
    const bool biased = w.norm1_bias.size() != 0 || w.norm2_bias.size() != 0;
    const bool gained = w.norm1_gain.size() != 0 || w.norm2_gain.size() != 0;
    c.norm = options_.norm.value_or(gained && !biased ? Norm::rms_norm : Norm::layer_norm);
    Assumed& assumed = dump_.assumed;
    assumed.norm = !options_.norm && !biased;
    if (assumed.norm) {
      assume("the norms are ",
             c.norm == Norm::rms_norm ? "RMSNorm, for they have a gain and no bias" : "LayerNorm",
             "; --norm says it");
    } else if (!options_.norm) {
      say("the norms are LayerNorm: they have a bias");
    }
    const bool sandwich = w.norm1_out_gain.size() != 0 || w.norm2_out_gain.size() != 0;
    c.placement =
        options_.placement.value_or(sandwich ? NormPlacement::sandwich : NormPlacement::pre);
    assumed.placement = !options_.placement && !sandwich;
    if (assumed.placement) {
      assume("the norms stand before each layer (pre-norm); --placement says it");
    } else if (!options_.placement) {
      say("each layer stands between two norms: there are four");
    }
    c.epsilon = options_.epsilon.value_or(c.norm == Norm::rms_norm ? 1e-6 : 1e-5);
    assumed.epsilon = !options_.epsilon.has_value();
    if (assumed.epsilon) assume("epsilon is ", c.epsilon, "; --epsilon says it");
  }

  void settle_ffn() {
    BlockConfig& c = dump_.config;
    Assumed& assumed = dump_.assumed;
    c.gated = dump_.weights.gate_weight.size() != 0 || tables_.gate;
    if (c.gated) say("the feed-forward layer is gated: there is a gate");
    c.activation = options_.activation.value_or(c.gated ? Activation::silu : Activation::gelu_erf);
    dump_.quick_gelu = options_.quick_gelu;
    assumed.activation = !options_.activation && !options_.quick_gelu;
    if (assumed.activation) {
      assume("the activation is ", c.gated ? "SiLU" : "GELU's exact form",
             "; --activation says it");
    }
    assumed.gate_order = tables_.gate_up && !options_.gate_second;
    if (assumed.gate_order) {
      assume("the first half of gate and up together is the gate; --gate-half says it");
    }
    if (options_.gate_second.value_or(false)) {
      std::swap(dump_.weights.up_weight, dump_.weights.gate_weight);
      std::swap(dump_.weights.up_bias, dump_.weights.gate_bias);
    }
  }

  void settle_attention() {
    BlockConfig& c = dump_.config;
    Assumed& assumed = dump_.assumed;
    c.causal = options_.causal.value_or(true);
    assumed.causal = !options_.causal.has_value();
    if (assumed.causal) assume("attention is causal; --causal or --causal none says it");
    c.scale = options_.scale;
    assumed.scale = !options_.scale;
    if (assumed.scale) assume("the scores are divided by √D; --scale says it");
    c.softcap = options_.softcap;
    c.alibi = options_.alibi.value_or(false);
    c.rope = options_.rope;
    assumed.positions = !options_.rope && !options_.alibi;
    if (assumed.positions && tables_.rope) c.rope = RopeConfig{};
    if (assumed.positions) {
      assume(c.rope ? "rotary positions of base 10000, feature i with i + D/2"
                    : "no rotary positions and no ALiBi",
             "; --rope half, --rope interleaved or --alibi says it");
    }
  }

  /// Parameters that the settled config has no place for are said, not used.
  void drop_unused() {
    for (const lab::BlockParameter& parameter : lab::block_parameters(dump_.config)) {
      Tensor<double>& tensor = dump_.weights.*parameter.tensor;
      if (parameter.need != lab::Need::unused || tensor.size() == 0) continue;
      say(parameter.name, " is not used: the block has no place for it");
      tensor = Tensor<double>();
    }
  }

  Result<void> settle_packing() {
    const BlockConfig& c = dump_.config;
    const bool even = c.heads == c.kv_heads && c.head_dim == c.value_dim;
    dump_.packed = options_.packing.value_or(tables_.packed.value_or(PackedOrder::blocked));
    if (dump_.packed != PackedOrder::blocked && !even) {
      return Failure{ErrorKind::value, "bad-option",
                     "[check block] query, key and value lie head by head only where there are as "
                     "many key/value heads as query heads, of one width"};
    }
    if (!tables_.qkv) return {};
    dump_.assumed.packing = !options_.packing && even && c.heads * c.head_dim > 1;
    const char* const order = dump_.packed == PackedOrder::blocked   ? "[3, H, D]"
                              : dump_.packed == PackedOrder::by_head ? "[H, 3, D]"
                                                                     : "[H, D, 3]";
    if (dump_.assumed.packing) {
      assume("query, key and value lie in one matrix as ", order,
             tables_.packed ? ", as in the table" : "", "; --packing says it");
    }
    if (dump_.packed == PackedOrder::by_head) repack(dump_, Packing::read_by_head);
    if (dump_.packed == PackedOrder::interleaved) repack(dump_, Packing::read_interleaved);
    return {};
  }

  BlockDump& dump_;
  const BlockFileOptions& options_;
  const TablesShown& tables_;
  const Said& said_;
};

}  // namespace

Result<void> settle(BlockDump& dump, const BlockFileOptions& options, const TablesShown& tables,
                    const Said& said) {
  return Settler(dump, options, tables, said).run();
}

}  // namespace attest::check::block
