// SPDX-License-Identifier: MIT
// What tensors of a block are called in other people's files.
#include "attest/check/block/block_names.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "attest/base/config.h"
#include "attest/check/block/block.h"
#include "attest/check/block/block_file.h"
#include "attest/lab/block.h"

namespace attest::check::block {
namespace {

struct Synonyms {
  const char* meaning;
  std::initializer_list<const char*> names;
};

// The longest fitting name wins, so that attn.c_proj is not taken for mlp.c_proj.
const Synonyms parameter_names[] = {
    {"query", {"query", "q_proj", "q_lin", "to_q", "q", "query_proj", "projection.query"}},
    {"key", {"key", "k_proj", "k_lin", "to_k", "k", "key_proj", "projection.key"}},
    {"value", {"value", "v_proj", "v_lin", "to_v", "v", "value_proj", "projection.value"}},
    {"output",
     {"output", "o_proj", "out_proj", "out_lin", "to_out", "to_out.0", "attn.c_proj", "attn.proj",
      "attention.dense", "attention.output.dense", "self_attention.dense", "attn_out",
      "output_projection"}},
    {"qkv",
     {"qkv", "c_attn", "qkv_proj", "wqkv", "query_key_value", "in_proj", "to_qkv", "attn.qkv"}},
    {"up",
     {"up", "up_proj", "fc1", "c_fc", "fc_in", "intermediate.dense", "lin1", "linear1",
      "dense_h_to_4h", "ffn.up", "ffn", "w_up", "wi"}},
    {"gate", {"gate", "gate_proj", "ffn.gate", "w_gate"}},
    {"down",
     {"down", "down_proj", "fc2", "mlp.c_proj", "fc_out", "output.dense", "lin2", "linear2",
      "dense_4h_to_h", "ffn.down", "ffn_output", "w_down"}},
    {"gate_up", {"gate_up_proj", "gate_up"}},
    {"norm1",
     {"norm1", "ln_1", "ln1", "input_layernorm", "attention_norm", "attn_norm",
      "self_attn_layer_norm", "attention.output.layernorm", "attention.layernorm", "sa_layer_norm",
      "layer_norm1", "layernorm_before", "attention_layernorm"}},
    {"norm2",
     {"norm2", "ln_2", "ln2", "post_attention_layernorm", "ffn_norm", "final_layer_norm",
      "output.layernorm", "full_layer_layer_norm", "output_layer_norm", "layer_norm2",
      "layernorm_after", "mlp_norm", "pre_feedforward_layernorm", "ffn_layernorm"}},
    {"norm1_out", {"norm1_out", "post_attention_norm", "attn_post_norm"}},
    {"norm2_out", {"norm2_out", "post_feedforward_layernorm", "ffn_post_norm"}},
};

const Synonyms table_names[] = {
    {"x", {"x", "input", "inputs", "hidden_states", "block_input", "resid_pre", "hidden_in"}},
    {"norm1", {"norm1", "ln_1", "ln1", "input_layernorm", "attention_norm", "norm1_output"}},
    {"projection.qkv",
     {"projection.qkv", "qkv", "c_attn", "qkv_proj", "query_key_value", "to_qkv", "mixed_qkv"}},
    {"projection.query", {"projection.query", "query", "q", "q_proj"}},
    {"projection.key", {"projection.key", "key", "k", "k_proj"}},
    {"projection.value", {"projection.value", "value", "v", "v_proj"}},
    {"rope.query", {"rope.query", "query_rotated", "q_rot", "q_rope", "query_rope"}},
    {"rope.key", {"rope.key", "key_rotated", "k_rot", "k_rope", "key_rope"}},
    {"weights", {"weights", "attn_weights", "attention_weights", "attention_probs", "pattern"}},
    {"heads", {"heads", "head_outputs", "per_head", "heads_output"}},
    {"concat", {"concat", "merged", "merged_heads", "context", "context_layer", "z"}},
    {"output_projection",
     {"output_projection", "attn_out", "attn_output", "attention_output", "o_proj", "c_proj"}},
    {"norm1_out", {"norm1_out"}},
    {"residual1", {"residual1", "resid_mid", "residual_1", "hidden"}},
    {"norm2", {"norm2", "ln_2", "ln2", "post_attention_layernorm", "ffn_norm", "norm2_output"}},
    {"ffn.up", {"ffn.up", "up", "up_proj", "fc1", "c_fc", "mlp_pre"}},
    {"ffn.gate", {"ffn.gate", "gate", "gate_proj"}},
    {"ffn.activation",
     {"ffn.activation", "ffn.relu", "ffn.gelu", "ffn.silu", "activation", "act", "mlp_post"}},
    {"ffn.gated", {"ffn.gated", "gated"}},
    {"ffn.down", {"ffn.down", "down", "down_proj", "fc2", "mlp_out", "ffn_out", "mlp_output"}},
    {"norm2_out", {"norm2_out"}},
    {"residual2", {"residual2", "residual_2"}},
    {"output", {"output", "y", "out", "resid_post", "block_output", "hidden_out"}},
};

/// Whether the name is this one, or ends with it after a dot: 0, or the length that fits.
std::size_t fits(std::string_view name, std::string_view known) {
  if (!name.ends_with(known)) return 0;
  const bool whole = name.size() == known.size() || name[name.size() - known.size() - 1] == '.';
  return whole ? known.size() : 0;
}

template <std::size_t N>
std::string find(const Synonyms (&list)[N], std::string_view name) {
  std::string best;
  std::size_t length = 0;
  for (const Synonyms& entry : list) {
    for (const char* known : entry.names) {
      const std::size_t fit = fits(name, known);
      if (fit > length) best = entry.meaning, length = fit;
    }
  }
  return best;
}

/// wq, bq, w1, b1 …: parameters whose name says it all.
std::string short_name(std::string_view leaf, const NameContext& context) {
  if (leaf.size() < 2 || (leaf[0] != 'w' && leaf[0] != 'b')) return "";
  const char* const kind = leaf[0] == 'w' ? "_weight" : "_bias";
  std::string_view rest = leaf.substr(1);
  if (rest.size() > 1 && rest[0] == '_') rest.remove_prefix(1);
  const std::pair<const char*, const char*> known[] = {{"q", "query"},
                                                       {"k", "key"},
                                                       {"v", "value"},
                                                       {"o", "output"},
                                                       {"qkv", "qkv"},
                                                       {"2", "down"},
                                                       {"3", "up"},
                                                       {"up", "up"},
                                                       {"gate", "gate"},
                                                       {"down", "down"},
                                                       {"1", context.w1_is_gate ? "gate" : "up"}};
  for (const auto& [name, meaning] : known) {
    if (rest == name) return std::string(meaning) + kind;
  }
  return "";
}

}  // namespace

LayerName layer_of(std::string_view name) {
  LayerName out;
  std::size_t begin = 0;
  std::size_t rest = 0;
  while (begin < name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const bool digits =
        !part.empty() && part.size() < 9 && end < name.size() &&
        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    // to_out.0 is a part of a layer, not its number.
    if (digits && !name.substr(0, begin).ends_with("to_out.")) {
      out.layer = std::stoll(std::string(part));
      rest = end + 1;
    } else if (part.starts_with("layer") && part.size() > 5 && part.size() < 14 &&
               std::all_of(part.begin() + 5, part.end(),
                           [](unsigned char c) { return std::isdigit(c) != 0; })) {
      out.layer = std::stoll(std::string(part.substr(5)));
      rest = end + 1;
    }
    begin = end + 1;
  }
  out.rest = std::string(name.substr(std::min(rest, name.size())));
  for (const char* prefix : {"in.", "out."}) {
    if (out.rest.starts_with(prefix)) out.rest.erase(0, std::string_view(prefix).size());
  }
  return out;
}

std::string meaning_of(std::string_view rest, const NameContext& context) {
  std::string name(rest);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::pair<const char*, const char*> suffixes[] = {
      {".weight", "_weight"}, {"_weight", "_weight"}, {".kernel", "_weight"}, {".bias", "_bias"},
      {"_bias", "_bias"},     {".beta", "_bias"},     {".gain", "_weight"},   {"_gain", "_weight"},
      {".gamma", "_weight"},  {".scale", "_weight"}};
  for (const auto& [suffix, kind] : suffixes) {
    if (!std::string_view(name).ends_with(suffix)) continue;
    const std::string stem = name.substr(0, name.size() - std::string_view(suffix).size());
    const std::size_t dot = stem.rfind('.');
    const std::string leaf = dot == std::string::npos ? stem : stem.substr(dot + 1);
    std::string what = find(parameter_names, stem);
    if (what.empty()) what = short_name(leaf, context);
    if (what.ends_with("_weight")) what.resize(what.size() - 7);
    if (context.pre_ffn_norm && fits(stem, "post_attention_layernorm") != 0) what = "norm1_out";
    if (what.empty()) return "";
    const bool gain = what.starts_with("norm") && std::string_view(kind) == "_weight";
    return what + (gain ? "_gain" : kind);
  }
  std::string table = find(table_names, name);
  if (!table.empty()) return table;
  const std::size_t dot = name.rfind('.');
  return short_name(dot == std::string::npos ? name : name.substr(dot + 1), context);
}

}  // namespace attest::check::block

namespace attest::check {

std::vector<std::string> block_roles() {
  std::vector<std::string> out;
  BlockConfig any;
  any.model_dim = any.heads = any.kv_heads = any.head_dim = any.value_dim = any.ffn_dim = 1;
  for (const lab::BlockParameter& parameter : lab::block_parameters(any)) {
    out.emplace_back(parameter.name);
  }
  for (const char* packed :
       {"qkv_weight", "qkv_bias", "gate_up_weight", "gate_up_bias", "x", "projection.qkv"}) {
    out.emplace_back(packed);
  }
  for (int n = 0; n < block_stages; ++n) {
    out.emplace_back(name_of(static_cast<BlockStage>(n)));
  }
  return out;
}

}  // namespace attest::check
