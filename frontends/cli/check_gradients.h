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

/// Gradients of this claim: laid out as what they are the gradients of, `layout` being the inputs'. Behind
/// a cache those of key and value may be of all keys or of the new ones. Nothing if there are none. Fails with missing-tensor, bad-output-shape, bad-rank.
[[nodiscard]] Result<std::optional<check::GradientDump>> place_gradients(
    FoundGradients found, const check::Claim& claim, const ChosenLayout& layout,
    std::vector<std::string>& remarks);

/// One verdict on a dump's tables, if it has any, and its gradients, if it has any: the tables of both, and
/// the explanation of what went wrong first.
[[nodiscard]] Result<check::Diagnosis> diagnose_both(
    const check::Dump& dump, const std::optional<check::GradientDump>& gradients,
    const check::DiagnoseOptions& options);

}  // namespace attest::cli
