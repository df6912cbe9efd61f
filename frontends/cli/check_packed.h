// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "frontends/cli/check_dump.h"

namespace attest::cli {

/// Of tensors of rank 3 that were read as heads apart and judged wrong: the head count with which, read as
/// [B, T, H*D], they are right, as claimed or in one of the usual readings. Nothing if there is none.
[[nodiscard]] std::optional<std::int64_t> heads_that_clear(const DumpOptions& options,
                                                           const LoadedDump& loaded);

/// Whether every number of a dump is what is claimed, or what one of the usual readings gives.
[[nodiscard]] bool is_right_as_claimed(LoadedDump& loaded);

/// What such a count is told to the user.
[[nodiscard]] std::string packed_sentence(std::int64_t heads);

/// Makes the verdict on such a dump one that waits for the claim.
void consider_packed(const DumpOptions& options, const LoadedDump& loaded,
                     check::Diagnosis& diagnosis);

}  // namespace attest::cli
