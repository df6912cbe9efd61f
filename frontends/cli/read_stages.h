// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "attest/base/result.h"
#include "attest/check/difference.h"

namespace attest::cli {

/// Reads a dump for comparison: a trace written by `attest trace --json`, or a tensor file of any
/// format. Fails as the parsers do; "bad-trace" if a trace's line is not what the command writes.
[[nodiscard]] Result<check::NamedStages> read_stages(const std::string& path);

}  // namespace attest::cli
