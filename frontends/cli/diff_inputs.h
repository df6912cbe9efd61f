// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/check/diagnose/compare_inputs.h"

namespace attest::cli {

using InputDifferences = std::vector<check::InputDifference>;

/// The first tensor that the two were not given alike, or nullptr.
[[nodiscard]] const check::InputDifference* first_different(const InputDifferences& inputs);

/// Rows of the table of `attest diff --stages`, below its header.
[[nodiscard]] std::string rows_of(const InputDifferences& inputs);
/// A JSON list.
[[nodiscard]] std::string json_list_of(const InputDifferences& inputs);

}  // namespace attest::cli
