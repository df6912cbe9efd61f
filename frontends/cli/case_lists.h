// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "frontends/cli/case_sources.h"

namespace attest::cli {

/// A list of numbers that belongs to a call beside its tensors.
struct ListRole {
  std::string name;           ///< of the tensor: "key_lengths"
  std::string flag;           ///< of the option that names a tensor: "key-lengths-tensor"
  std::size_t most_axes = 1;  ///< 2: one list for each batch
};

/// What the command line gives (`given`, if it is not empty), or else the file; never both silently.
/// Fails with two-sources, bad-rank, or bad-option for what is no whole number.
[[nodiscard]] Result<std::vector<double>> list_of(Sources& sources, const CaseOptions& options,
                                                  const ListRole& role,
                                                  const std::vector<double>& given);
[[nodiscard]] Result<std::vector<std::int64_t>> list_of(Sources& sources,
                                                        const CaseOptions& options,
                                                        const ListRole& role,
                                                        const std::vector<std::int64_t>& given);

}  // namespace attest::cli
