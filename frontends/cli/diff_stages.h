// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "frontends/cli/check_options.h"

namespace attest::cli {

/// `attest diff --stages`: two dumps stage by stage, and what explains the first that differs.
struct StagesOptions {
  bool chosen = false;
  DumpOptions dump;  ///< without a file: the same is said of both
};

/// Adds --stages and what it takes besides; the rest needs it.
CLI::Option* add_stages_options(CLI::App& command, StagesOptions& options);

int diff_stages(const std::string& first, const std::string& second, const StagesOptions& options,
                bool json);

}  // namespace attest::cli
