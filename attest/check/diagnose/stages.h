// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/exact.h"
#include "attest/check/diagnose/judge.h"

/// A dump stage by stage: which table is wrong, and which only follows from a wrong one.
namespace attest::check {

/// A table that follows from the one before it, as a dump of its own: the first as given.
struct Link {
  std::size_t from = 0, to = 0;  ///< in Dump::stages
  Dump dump{};
};
/// One for each table that follows from another; none if that is what the whole dump is.
[[nodiscard]] std::vector<Link> links_of(const Dump& dump);

/// The judged tables of a dump, with their cells from the exact tier. Fails (tiers-disagree) if that
/// and the evaluation are apart by more than rounding.
struct Staged {
  std::vector<StageJudgement>
      stages{};  ///< as Dump::stages; what is given is compared with nothing
  std::optional<std::size_t> first_wrong{};  ///< in Dump::stages
  std::optional<std::size_t> wrong_link{};   ///< in the links: the first that is wrong by itself
};
[[nodiscard]] Result<Staged> judge_stages(const Dump& dump, const Judged& judged,
                                          const Noise& noise, const std::vector<Link>& links,
                                          ThreadPool& pool);

}  // namespace attest::check
