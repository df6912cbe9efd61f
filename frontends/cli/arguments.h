// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace attest::cli {

/// The program's arguments, last first (as CLI11 wants a vector), with options whose value may be
/// left out written unambiguously: `--causal FILE` is a bare `--causal` and a file, while
/// `--causal bottom-right` and `--causal 3` are one option with its value.
[[nodiscard]] std::vector<std::string> normalised_arguments(int argc, char** argv);

}  // namespace attest::cli
