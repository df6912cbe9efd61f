// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/judge.h"
#include "attest/check/diagnose/stages.h"

namespace attest::check {

/// What a verdict is made of: a dump beside its claim.
struct Evidence {
  const Dump& dump;
  const Noise& noise;
  const Judged& claim;
  const std::vector<Link>& links;
  std::optional<std::size_t> wrong_link{};
};

/// Fills in judgement, explanations, margin, what would decide, and remarks.
///
/// Right if rounding typically does as much. Right by rounding if some order of careful arithmetic
/// may do as much, and nothing explains the numbers twice as well. Else wrong: named by the
/// fewest mistakes that explain all tables together, or, if nothing does, the first table that is
/// wrong by itself; undecided if another explanation is nearer than `cannot_tell`.
void give_verdict(const Evidence& evidence, const DiagnoseOptions& options, ThreadPool& pool,
                  Diagnosis& out);

}  // namespace attest::check
