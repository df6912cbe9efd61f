// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/base/conventions.h"
#include "attest/check/probe/probe.h"

namespace attest::check {

/// A probe before any number is drawn: sizes, and every option of the claim but its tensors.
struct ProbePlan {
  std::optional<Convention> convention{};
  Probe probe{};
  bool empty_query = false;       ///< one query row shall see no key, by the mask
  bool hidden_nan = false;        ///< one hidden key and its value shall be NaN
  std::int64_t query_offset = 0;  ///< where query 0 stands when no key_lengths move it
};

/// Fails as make_probe.
[[nodiscard]] Result<ProbePlan> plan_of(const ProbeRequest& request);

/// Draws the tensors that the plan asks for, into its claim and its file.
[[nodiscard]] Result<Probe> drawn(ProbePlan plan);

}  // namespace attest::check
