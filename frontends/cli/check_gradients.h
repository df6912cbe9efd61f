// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/gradients/gradients.h"
#include "frontends/cli/case_sources.h"
#include "frontends/cli/check_layout.h"
#include "frontends/cli/check_options.h"

namespace attest::cli {

/// What a file holds of a backward pass, as it lies there.
struct FoundGradients {
  std::optional<AnyTensor> d_output{};
  struct Found {
    check::GradientOf of = check::GradientOf::query;
    AnyTensor tensor;
    std::string name;
  };
  std::vector<Found> gradients{};
};
[[nodiscard]] Result<FoundGradients> find_gradients(Sources& sources);

/// Gradients of this claim: laid out as what they are the gradients of, `layout` being the inputs'.
/// Nothing if there are none. Fails with missing-tensor, bad-output-shape, bad-rank.
[[nodiscard]] Result<std::optional<check::GradientDump>> place_gradients(
    FoundGradients found, const check::Claim& claim, const ChosenLayout& layout,
    std::vector<std::string>& remarks);

/// One verdict of two: the tables of both, and the explanation of what went wrong first.
[[nodiscard]] check::Diagnosis joined(check::Diagnosis forward, check::Diagnosis backward);

}  // namespace attest::cli
