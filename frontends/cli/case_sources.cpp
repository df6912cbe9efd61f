// SPDX-License-Identifier: MIT
#include "frontends/cli/case_sources.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

/// What people call the tensor of a role, besides the role's own name.
std::vector<std::string> other_names(const std::string& role) {
  static const std::map<std::string, std::vector<std::string>> names{
      {"query", {"q", "Q", "query_states", "query_layer"}},
      {"key", {"k", "K", "key_states", "key_layer"}},
      {"value", {"v", "V", "value_states", "value_layer"}},
      {"mask", {"allow", "attn_mask", "attention_mask"}},
      {"bias", {"attn_bias", "attention_bias", "position_bias"}},
      {"sink", {"sinks", "head_sink"}},
      {"key_lengths", {"nonpad_kv_seqlen", "cache_seqlens", "seqused_k"}},
      {"query_starts", {"cu_seqlens_q", "cu_seqlens"}},
      {"key_starts", {"cu_seqlens_k", "cu_seqlens"}},
      {"query_documents", {"document_ids", "segment_ids"}},
      {"key_documents", {"document_ids", "segment_ids"}},
      {"past_key", {"past_k", "k_cache", "key_cache"}},
      {"past_value", {"past_v", "v_cache", "value_cache"}},
      {"query_positions", {"q_positions", "position_ids", "positions"}},
      {"key_positions", {"k_positions", "position_ids", "positions"}},
      {"cos", {"cos_cache", "rope_cos"}},
      {"sin", {"sin_cache", "rope_sin"}},
      {"dot", {"scores_raw", "raw_scores", "attn_raw", "qk"}},
      {"scaled", {"scores_scaled", "scaled_scores", "attn_scaled"}},
      {"capped", {"scores_capped", "capped_scores", "attn_capped"}},
      {"biased", {"scores_biased", "biased_scores", "attn_biased"}},
      {"masked", {"scores_masked", "masked_scores", "attn_masked"}},
      {"scores", {"attn_scores", "attention_scores", "attn_logits", "qk_matmul_output"}},
      {"weights",
       {"attn_weights", "attention_weights", "attn_probs", "attention_probs", "probs",
        "attn_softmax", "attentions"}},
      {"log_sum_exp", {"lse", "LSE", "softmax_lse", "logsumexp"}},
      {"output",
       {"out", "attn_output", "attention_output", "context_layer", "context", "Y", "y", "O", "o"}},
      {"d_output", {"grad_output", "dout", "dO", "do"}},
      {"d_query", {"grad_query", "dq", "dQ"}},
      {"d_key", {"grad_key", "dk", "dK"}},
      {"d_value", {"grad_value", "dv", "dV"}},
      {"d_bias", {"grad_bias", "dbias"}},
      {"d_sink", {"grad_sink", "dsink"}}};
  const auto found = names.find(role);
  return found == names.end() ? std::vector<std::string>() : found->second;
}

/// Whether a program produces the tensor of that role, rather than being given it.
bool is_produced(const std::string& role) {
  static const std::vector<std::string> produced{
      "dot",         "scaled", "capped",  "biased", "masked",  "scores", "weights",
      "log_sum_exp", "output", "d_query", "d_key",  "d_value", "d_bias", "d_sink"};
  return std::ranges::find(produced, role) != produced.end();
}

/// Every name that stands for a role, the most telling first: its own, then others, each also with the
/// side of the node that an exported test puts in front.
std::vector<std::string> aliases(const std::string& role) {
  std::vector<std::string> names;
  const std::string side = is_produced(role) ? "out." : "in.";
  const auto add = [&](const std::string& name) { names.insert(names.end(), {name, side + name}); };
  add(role);
  for (const std::string& name : other_names(role)) add(name);
  return names;
}

}  // namespace

Sources::Sources(const CaseOptions& options, io::NamedTensors bundle)
    : options_(options), bundle_(std::move(bundle)) {
  limits_.npz.max_total_bytes = static_cast<std::uint64_t>(options.unpack_limit_gib.value_or(16))
                                << 30U;
}

Result<Sources> Sources::open(const CaseOptions& options) {
  Sources out(options, {});
  if (!options.file.empty()) {
    auto bundle = io::read_tensors(options.file, out.limits_);
    if (!bundle) return bundle.failure();
    out.bundle_ = *std::move(bundle);
  }
  return out;
}

Result<std::optional<Sources::Named>> Sources::find_named(const std::string& role,
                                                          const std::string& flag) {
  if (const auto named = options_.names.find(flag); named != options_.names.end()) {
    if (const AnyTensor* found = take(named->second))
      return std::optional(Named{*found, named->second});
    auto file = io::read_tensors(named->second, limits_);
    if (!file && !options_.file.empty()) {
      return bad("no-such-tensor",
                 sentence("--", flag, " ", named->second, ": no tensor of ", options_.file,
                          " has that name, and as a file: ", file.failure().message));
    }
    if (!file) return file.failure();
    if (file->tensors.size() != 1) {
      return bad("not-one-tensor", sentence("--", flag, " ", named->second, " holds ",
                                            file->tensors.size(), " tensors; one is expected"));
    }
    return std::optional(Named{std::move(file->tensors[0].second), named->second});
  }
  for (const std::string& name : aliases(role)) {
    if (const AnyTensor* found = take(name)) {
      if (name != role) remarks_.push_back(sentence("reading '", name, "' as ", role));
      return std::optional(Named{*found, name});
    }
  }
  return std::optional<Named>();
}

Result<std::optional<AnyTensor>> Sources::find(const std::string& role, const std::string& flag) {
  auto found = find_named(role, flag);
  if (!found) return found.failure();
  if (!*found) return std::optional<AnyTensor>();
  return std::optional((**std::move(found)).tensor);
}

io::NamedTensors Sources::rest() {
  io::NamedTensors out;
  for (auto& [name, tensor] : bundle_.tensors) {
    if (std::ranges::find(taken_, name) == taken_.end()) out.add(name, std::move(tensor));
  }
  bundle_.tensors.clear();
  return out;
}

std::vector<std::string> Sources::remarks() {
  constexpr std::size_t most = 12;
  std::string rest;
  std::size_t count = 0;
  for (const auto& [name, tensor] : bundle_.tensors) {
    if (std::ranges::find(taken_, name) != taken_.end()) continue;
    if (++count <= most) rest += " " + name;
  }
  if (count > most) rest += sentence(" and ", count - most, " more");
  if (!rest.empty()) remarks_.push_back("not used:" + rest);
  return std::move(remarks_);
}

std::vector<UnreadTensor> Sources::unread() const {
  std::vector<UnreadTensor> out;
  for (const auto& [name, tensor] : bundle_.tensors) {
    if (std::ranges::find(taken_, name) == taken_.end()) out.push_back({name, tensor.shape()});
  }
  return out;
}

std::string Sources::listing() const {
  std::string out;
  for (const auto& [name, tensor] : bundle_.tensors) {
    out += sentence(out.empty() ? "" : ", ", name, " ", to_string(tensor.shape()));
  }
  for (const auto& [flag, name] : options_.names) {
    if (!holds(name)) out += sentence(out.empty() ? "--" : ", --", flag, " ", name);
  }
  return out.empty() ? "nothing" : out;
}

std::string prefix_of_a_call(const io::NamedTensors& bundle) {
  const std::string roles[] = {"query", "key", "value", "scaled", "masked", "weights", "output"};
  std::map<std::string, std::set<std::string>> found;  // prefix → roles
  for (const auto& [name, tensor] : bundle.tensors) {
    const std::size_t end = name.find_last_of("./");
    if (end == std::string::npos) continue;
    for (const std::string& role : roles) {
      const std::vector<std::string> names = aliases(role);
      if (std::ranges::find(names, name.substr(end + 1)) == names.end()) continue;
      found[name.substr(0, end + 1)].insert(role);
    }
  }
  for (const auto& [prefix, its] : found) {
    if (its.size() >= 2) return prefix;
  }
  return "";
}

const AnyTensor* Sources::take(const std::string& name) {
  const AnyTensor* found = bundle_.find(name);
  if (found != nullptr) taken_.push_back(name);
  return found;
}

}  // namespace attest::cli
