// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/claim.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// A dump read from files.
struct LoadedDump {
  check::Dump dump;
  bool claimed = false;              ///< whether options or the file say what is meant
  bool boolean_mask = false;         ///< whether hiding by a boolean mask is part of it
  std::vector<std::string> remarks;  ///< what was taken for granted
};

/// Reads the tensors that somebody's attention was given and produced, finds out how they lie, and what
/// they are claimed to be.
///
/// Fails with missing-tensor (and what would do), bad-layout, bad-dtype, no-numbers, nothing-to-compare,
/// or as load_case and the readers of files do.
[[nodiscard]] Result<LoadedDump> load_dump(const DumpOptions& options);

}  // namespace attest::cli
