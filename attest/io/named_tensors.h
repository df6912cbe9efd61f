// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/io/origin.h"

namespace attest::io {

/// What a file of tensors holds: names and tensors in the order of the file, and text about them.
struct NamedTensors {
  std::vector<std::pair<std::string, AnyTensor>> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  /// The tensor of that name, or null. Cost: a walk along the names.
  [[nodiscard]] const AnyTensor* find(std::string_view name) const noexcept;

  /// Appends. Two tensors of one name can be added, but no file can hold them: writing refuses.
  void add(std::string name, AnyTensor tensor);
};

/// Fails if two tensors, or two metadata entries, share a name ("duplicate-key"), or if one of
/// these texts is not UTF-8 ("not-utf-8"): what every writer here asks first.
[[nodiscard]] Result<void> check_names(const NamedTensors& tensors, const Origin& origin);

}  // namespace attest::io
