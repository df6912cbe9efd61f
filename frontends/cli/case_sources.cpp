// SPDX-License-Identifier: MIT
#include "frontends/cli/case_sources.h"

#include <algorithm>
#include <utility>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

std::vector<std::string> aliases(const std::string& role) {
  std::vector<std::string> names{role, "in." + role};
  const auto also = [&](std::initializer_list<const char*> others) {
    names.insert(names.end(), others.begin(), others.end());
  };
  if (role == "query" || role == "key" || role == "value") {
    const std::string letter(1, role[0]);
    const std::string capital(1, static_cast<char>(role[0] - 'a' + 'A'));
    names.insert(names.end(), {letter, capital, "in." + letter, "in." + capital});
  }
  if (role == "mask") also({"allow", "attn_mask", "in.attn_mask", "in.allow"});
  if (role == "query_starts") also({"cu_seqlens_q", "cu_seqlens"});
  if (role == "key_starts") also({"cu_seqlens_k", "cu_seqlens"});
  if (role == "query_documents" || role == "key_documents") also({"document_ids"});
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

Result<std::optional<AnyTensor>> Sources::find(const std::string& role, const std::string& flag) {
  if (const auto named = options_.names.find(flag); named != options_.names.end()) {
    if (const AnyTensor* found = take(named->second)) return std::optional(*found);
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
    return std::optional(std::move(file->tensors[0].second));
  }
  for (const std::string& name : aliases(role)) {
    if (const AnyTensor* found = take(name)) {
      if (name != role) remarks_.push_back(sentence("reading '", name, "' as ", role));
      return std::optional(*found);
    }
  }
  return std::optional<AnyTensor>();
}

std::vector<std::string> Sources::remarks() {
  std::string rest;
  for (const auto& [name, tensor] : bundle_.tensors) {
    if (std::ranges::find(taken_, name) == taken_.end()) rest += " " + name;
  }
  if (!rest.empty()) remarks_.push_back("not used:" + rest);
  return std::move(remarks_);
}

std::string Sources::listing() const {
  std::string out;
  for (const auto& [name, tensor] : bundle_.tensors) {
    out += sentence(out.empty() ? "" : ", ", name, " ", to_string(tensor.shape()));
  }
  return out.empty() ? "nothing" : out;
}

const AnyTensor* Sources::take(const std::string& name) {
  const AnyTensor* found = bundle_.find(name);
  if (found != nullptr) taken_.push_back(name);
  return found;
}

}  // namespace attest::cli
