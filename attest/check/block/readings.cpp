// SPDX-License-Identifier: MIT
#include "attest/check/block/readings.h"

#include <algorithm>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/block/block_layout.h"
#include "attest/check/block/program.h"

namespace attest::check::block {
namespace {

ReadingChoice flagged(const char* flag, const std::string& word, std::string mistake = "") {
  return {word, sentence(flag, " ", word), std::move(mistake), {}, {}, {}};
}

/// The one that is assumed stands first.
void assumed_first(ReadingAxis& axis, std::size_t assumed) {
  const auto first = axis.choices.begin();
  const auto at = first + static_cast<std::ptrdiff_t>(assumed);
  std::rotate(first, at, at + 1);
}

/// An axis of the config: every word with its value, of which the dump has one.
template <class Value>
struct Word {
  const char* word;
  Value value;
  const char* mistake;
};
template <class Value, std::size_t N>
ReadingAxis axis_of(const char* what, const char* flag, Value BlockConfig::*member,
                    const BlockConfig& config, const Word<Value> (&words)[N]) {
  ReadingAxis out{what, false, {}};
  std::size_t assumed = 0;
  for (const Word<Value>& word : words) {
    if (word.value == config.*member) assumed = out.choices.size();
    ReadingChoice choice = flagged(flag, word.word, word.mistake);
    choice.config = [member, value = word.value](BlockConfig& c) { c.*member = value; };
    out.choices.push_back(std::move(choice));
  }
  assumed_first(out, assumed);
  return out;
}

ReadingAxis norms(const BlockConfig& c) {
  return axis_of<Norm>("the norm", "--norm", &BlockConfig::norm, c,
                       {{"layer", Norm::layer_norm, "norm.layer_for_rms"},
                        {"rms", Norm::rms_norm, "norm.rms_for_layer"}});
}

ReadingAxis placements(const BlockConfig& c) {
  return axis_of<NormPlacement>("where the norms stand", "--placement", &BlockConfig::placement, c,
                                {{"pre", NormPlacement::pre, "block.pre_norm"},
                                 {"post", NormPlacement::post, "block.post_norm"}});
}

ReadingAxis activations(const BlockConfig& c) {
  ReadingAxis out =
      axis_of<Activation>("the activation", "--activation", &BlockConfig::activation, c,
                          {{"relu", Activation::relu, "ffn.relu"},
                           {"gelu", Activation::gelu_erf, "ffn.gelu_erf"},
                           {"gelu-tanh", Activation::gelu_tanh, "ffn.gelu_tanh"},
                           {"silu", Activation::silu, "ffn.silu"}});
  ReadingChoice quick = flagged("--activation", "gelu-quick", "ffn.gelu_quick");
  quick.recipe = [](BlockRecipe& r) { r.ffn.activation = ActivationForm::gelu_quick; };
  quick.dump = [](BlockDump& d) { d.quick_gelu = true; };
  out.choices.push_back(std::move(quick));
  return out;
}

ReadingAxis visibilities(const BlockConfig& c) {
  ReadingAxis out{"whether it is causal", false, {}};
  out.choices = {
      {"causal", "--causal", "causal.added", [](BlockConfig& o) { o.causal = true; }, {}, {}},
      {"not causal",
       "--causal none",
       "causal.missing",
       [](BlockConfig& o) { o.causal = false; },
       {},
       {}}};
  assumed_first(out, c.causal ? 0 : 1);
  return out;
}

ReadingAxis epsilons(const BlockConfig& c) {
  ReadingAxis out{"epsilon", true, {}};
  const auto add = [&](double epsilon) {
    ReadingChoice choice = flagged("--epsilon", sentence(epsilon), "norm.epsilon_other");
    choice.config = [epsilon](BlockConfig& o) { o.epsilon = epsilon; };
    out.choices.push_back(std::move(choice));
  };
  add(c.epsilon);
  for (const double epsilon : {1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 0.0}) {
    if (epsilon != c.epsilon) add(epsilon);
  }
  return out;
}

/// None, ALiBi, or rotary in the bases of Llama 2, Llama 3 and Qwen, in both pairings.
ReadingAxis positions(const BlockConfig& c) {
  ReadingAxis out{"how positions enter", false, {}};
  const auto set = [](std::optional<RopeConfig> rope, bool alibi) {
    return [rope, alibi](BlockConfig& o) { o.rope = rope, o.alibi = alibi; };
  };
  if (!c.rope) {
    out.choices.push_back(
        {"without rotary positions and without ALiBi", "", "", set({}, false), {}, {}});
    out.choices.push_back({"with ALiBi", "--alibi", "", set({}, true), {}, {}});
  }
  for (const double base : {10000.0, 500000.0, 1000000.0}) {
    for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
      if (c.head_dim % 2 != 0) continue;
      const char* const word = pairing == RopePairing::half ? "half" : "interleaved";
      const bool usual = base == 10000.0;
      const char* const mistake = !c.rope  ? ""
                                  : !usual ? "rope.base"
                                  : pairing == RopePairing::interleaved
                                      ? "rope.interleaved_for_half"
                                      : "";
      const auto whole = static_cast<std::int64_t>(base);
      out.choices.push_back(
          {sentence("rotary, ", word, usual ? "" : sentence(", of base ", whole)),
           sentence("--rope ", word, usual ? "" : sentence(" --rope-base ", whole)),
           mistake,
           set(RopeConfig{.pairing = pairing, .base = base}, false),
           {},
           {}});
    }
  }
  return out;
}

ReadingAxis scales() {
  ReadingAxis out{"the scale", false, {}};
  out.choices.push_back(
      {"scaled by 1/√D", "", "scale.default", [](BlockConfig& o) { o.scale.reset(); }, {}, {}});
  out.choices.push_back(
      {"not scaled", "--scale 1", "scale.none", [](BlockConfig& o) { o.scale = 1; }, {}, {}});
  return out;
}

ReadingAxis packings(const BlockDump& dump) {
  ReadingAxis out{"how query, key and value are packed", false, {}};
  const auto add = [&](const char* axes, const char* word, const char* mistake, Packing packing) {
    out.choices.push_back({sentence("packed ", axes),
                           sentence("--packing ", word),
                           mistake,
                           {},
                           [packing](BlockRecipe& r) { r.attend.packing = packing; },
                           [packing](BlockDump& d) { repack(d, packing); }});
  };
  switch (dump.packed) {
    case PackedOrder::blocked:
      add("[3, H, D]", "blocked", "", Packing::blocked);
      add("[H, 3, D]", "by-head", "qkv.blocked_read_by_head", Packing::read_by_head);
      add("[H, D, 3]", "interleaved", "qkv.blocked_read_interleaved", Packing::read_interleaved);
      break;
    case PackedOrder::by_head:
      add("[H, 3, D]", "by-head", "", Packing::blocked);
      add("[3, H, D]", "blocked", "qkv.by_head_read_blocked", Packing::by_head_read_blocked);
      break;
    case PackedOrder::interleaved:
      add("[H, D, 3]", "interleaved", "", Packing::blocked);
      add("[3, H, D]", "blocked", "qkv.interleaved_read_blocked",
          Packing::interleaved_read_blocked);
      break;
  }
  return out;
}

ReadingAxis gate_orders() {
  ReadingAxis out{"which half of the packed projection is the gate", false, {}};
  out.choices.push_back({"gate first", "--gate-half first", "", {}, {}, {}});
  out.choices.push_back({"up first",
                         "--gate-half second",
                         "ffn.gate_up_exchanged",
                         {},
                         [](BlockRecipe& r) { r.ffn.exchanged = true; },
                         [](BlockDump& d) {
                           std::swap(d.weights.up_weight, d.weights.gate_weight);
                           std::swap(d.weights.up_bias, d.weights.gate_bias);
                         }});
  return out;
}

}  // namespace

std::vector<ReadingAxis> axes_of(const BlockDump& dump) {
  const BlockConfig& c = dump.config;
  const Assumed& assumed = dump.assumed;
  std::vector<ReadingAxis> out;
  if (assumed.activation) out.push_back(activations(c));
  if (assumed.placement) out.push_back(placements(c));
  if (assumed.causal) out.push_back(visibilities(c));
  if (assumed.norm) out.push_back(norms(c));
  if (assumed.epsilon) out.push_back(epsilons(c));
  if (assumed.positions) out.push_back(positions(c));
  if (assumed.scale) out.push_back(scales());
  if (assumed.packing) out.push_back(packings(dump));
  if (assumed.gate_order) out.push_back(gate_orders());
  out.erase(std::remove_if(out.begin(), out.end(),
                           [](const ReadingAxis& axis) { return axis.choices.size() < 2; }),
            out.end());
  return out;
}

std::size_t changes_in(const Picks& picks) {
  return static_cast<std::size_t>(
      std::count_if(picks.begin(), picks.end(), [](std::size_t pick) { return pick != 0; }));
}

BlockRecipe recipe_of(const BlockDump& dump, std::span<const ReadingAxis> axes,
                      const Picks& picks) {
  BlockDump said;
  said.config = dump.config;
  said.quick_gelu = dump.quick_gelu;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    if (choice.config) choice.config(said.config);
  }
  BlockRecipe out = claimed(said);
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    if (picks[a] != 0 && choice.recipe) choice.recipe(out);
  }
  return out;
}

BlockDump read_as(const BlockDump& dump, std::span<const ReadingAxis> axes, const Picks& picks) {
  BlockDump out = dump;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    if (choice.config) choice.config(out.config);
    if (picks[a] != 0 && choice.dump) choice.dump(out);
  }
  out.assumed = {};
  return out;
}

std::string listed(const std::vector<std::string>& parts) {
  std::string out;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    out += sentence(n == 0 ? "" : n + 1 == parts.size() ? " and " : ", ", parts[n]);
  }
  return out;
}

std::string unsaid(std::span<const ReadingAxis> axes, const Picks& picks) {
  std::vector<std::string> what, is;
  std::string say;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (picks[a] == 0) continue;
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    what.push_back(axes[a].what);
    is.push_back(choice.is);
    say += sentence(say.empty() ? "" : " ", choice.say);
  }
  if (what.empty()) return "";
  return sentence("you did not say ", listed(what), "; these numbers are ", listed(is), ": add ",
                  say);
}

std::vector<std::string> meant_otherwise(std::span<const ReadingAxis> axes, const Picks& picks) {
  std::vector<std::string> out;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    const ReadingChoice& assumed = axes[a].choices.front();
    if (picks[a] == 0 || choice.mistake.empty()) continue;
    out.push_back(sentence("if ", assumed.is, " was meant, ", choice.is, " is the mistake ",
                           choice.mistake,
                           assumed.say.empty() ? "" : sentence("; ", assumed.say, " says so")));
  }
  return out;
}

std::string assumed_text(std::span<const ReadingAxis> axes, const Picks& picks) {
  std::vector<std::string> parts;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const ReadingChoice& choice = axes[a].choices[picks[a]];
    parts.push_back(choice.say.empty() ? choice.is : choice.say);
  }
  return parts.empty() ? "" : sentence("assumed, for nobody said it: ", listed(parts));
}

}  // namespace attest::check::block
