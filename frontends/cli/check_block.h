// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "attest/check/diagnose/diagnosis.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// What only a whole transformer block has. Heads, rope, scale, softcap, ALiBi, causal and precision are
/// said as for attention.
struct BlockOptions {
  bool chosen = false;
  std::optional<std::int64_t> layer;
  std::string weights_are;  ///< "", input-output or output-input
  std::string norm, placement, activation, packing, gate_half;
  std::optional<double> epsilon;
  std::map<std::string, std::string> names;  ///< role → tensor of the file
};
void add_block_options(CLI::App& command, BlockOptions& options);

struct BlockVerdict {
  std::string compared;  ///< "a block of 3 rows, C 4, …"
  check::Diagnosis diagnosis;
};

/// Reads the block of options.inputs.file and judges it; guesses become notes on standard error. Fails as
/// check::read_block and diagnose_block do, and with not-used for options that no block has.
[[nodiscard]] Result<BlockVerdict> check_block(const DumpOptions& dump, const BlockOptions& options,
                                               std::int64_t most_mistakes);

}  // namespace attest::cli
