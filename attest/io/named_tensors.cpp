// SPDX-License-Identifier: MIT
#include "attest/io/named_tensors.h"

#include <algorithm>

namespace attest::io {
namespace {

Result<void> check_texts(std::vector<std::string_view> names, std::string_view what,
                         const Origin& origin) {
  for (const std::string_view name : names) {
    if (!is_utf8(name)) {
      return origin.refuse("not-utf-8", "the ", what, " ", in_quotes(name), " is not UTF-8");
    }
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return origin.refuse("duplicate-key", "there are two ", what, "s ", in_quotes(*twin));
}

}  // namespace

const AnyTensor* NamedTensors::find(std::string_view name) const noexcept {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

void NamedTensors::add(std::string name, AnyTensor tensor) {
  tensors.emplace_back(std::move(name), std::move(tensor));
}

Result<void> check_names(const NamedTensors& tensors, const Origin& origin) {
  std::vector<std::string_view> names;
  names.reserve(tensors.tensors.size());
  for (const auto& entry : tensors.tensors) names.emplace_back(entry.first);
  if (auto checked = check_texts(std::move(names), "tensor name", origin); !checked) {
    return checked;
  }
  std::vector<std::string_view> keys;
  keys.reserve(tensors.metadata.size());
  for (const auto& [key, text] : tensors.metadata) {
    if (!is_utf8(text)) {
      return origin.refuse("not-utf-8", "the metadata under ", in_quotes(key), " is not UTF-8");
    }
    keys.emplace_back(key);
  }
  return check_texts(std::move(keys), "metadata key", origin);
}

}  // namespace attest::io
