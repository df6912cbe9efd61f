// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/claim.h"
#include "frontends/cli/case_sources.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// What a file says of rotary positions.
struct RopeTables {
  std::optional<AnyTensor> cos{}, sin{};
  std::vector<std::int64_t> query_positions{}, key_positions{};
};

[[nodiscard]] Result<RopeTables> rope_tables_of(Sources& sources, const DumpOptions& options);

/// Adds rotary positions to the claim, if options or tables speak of them. Fails with bad-option,
/// bad-rope-table.
[[nodiscard]] Result<void> choose_rope(const DumpOptions& options, const RopeTables& tables,
                                       check::Claim& claim, std::vector<std::string>& remarks);

}  // namespace attest::cli
