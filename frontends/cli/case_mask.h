// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/conventions.h"
#include "attest/base/mask.h"
#include "attest/base/result.h"
#include "frontends/cli/case_sources.h"

namespace attest::cli {

/// What the mask's rules of position are read from.
struct MaskSources {
  const CaseOptions& options;
  const std::optional<Convention>& convention;
  Sources& files;
  std::int64_t queries = 0;  ///< T
  std::int64_t keys = 0;     ///< S
};

/// Each sets its part of the mask. Fails with the id and the sentence that the command prints.
[[nodiscard]] Result<void> place_causal(const MaskSources& from, Mask& mask);
[[nodiscard]] Result<void> place_window(const MaskSources& from, Mask& mask);
[[nodiscard]] Result<void> place_lengths(const MaskSources& from, Mask& mask);
[[nodiscard]] Result<void> place_documents(const MaskSources& from, Mask& mask);

}  // namespace attest::cli
