// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/gradients/gradients.h"
#include "attest/check/mistakes/claim.h"
#include "attest/io/named_tensors.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// A dump read from files.
struct LoadedDump {
  check::Dump dump;
  std::optional<check::GradientDump> gradients{};
  bool claimed = false;                      ///< whether options or the file say what is meant
  bool precision_said = false;               ///< likewise, what it computes in
  bool of_probe = false;                     ///< the file says so
  bool boolean_mask = false;                 ///< whether hiding by a boolean mask is part of it
  std::vector<std::int64_t> packed_heads{};  ///< as ChosenLayout has them
  std::vector<std::string> remarks;          ///< what was taken for granted
  std::vector<UnreadTensor> unread{};        ///< what the file holds besides
};

/// Reads the tensors that somebody's attention was given and produced, finds out how they lie, and what
/// they are claimed to be.
///
/// Fails with missing-tensor (and what would do), bad-layout, bad-dtype, no-numbers, nothing-to-compare,
/// or as load_case and the readers of files do.
[[nodiscard]] Result<LoadedDump> load_dump(const DumpOptions& options);

/// Leaves the tensors whose names begin with the prefix, without it. Fails with no-such-tensor.
[[nodiscard]] Result<void> keep_prefixed(io::NamedTensors& bundle, const std::string& prefix);

}  // namespace attest::cli
