// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/check/mistakes/claim.h"
#include "frontends/cli/case_sources.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

struct FoundStage {
  check::Stage stage = check::Stage::output;
  AnyTensor tensor;
  std::string name;
};

/// The tables that the implementation produced, in order of computation. Which table 'scores' or 'attn'
/// is, is guessed from what else there is and what it holds, and remarked; --scores-are says it.
/// Fails with two-sources if two tensors would be the same stage.
[[nodiscard]] Result<std::vector<FoundStage>> find_stages(Sources& sources,
                                                          const DumpOptions& options,
                                                          std::vector<std::string>& remarks);

/// Whether anything can be recomputed and compared. Fails with missing-tensor, saying what would do,
/// or nothing-to-compare.
/// What is said where query and key are missing and no two tables follow from one another.
[[nodiscard]] Failure nothing_follows(const std::string& listing);

/// Without query, key and scores nothing says what log_sum_exp should be: it is left out, and that is said.
void leave_out_sums(check::Dump& dump, std::vector<std::string>& remarks);

[[nodiscard]] Result<void> can_judge(const check::Dump& dump, const std::string& listing);

}  // namespace attest::cli
