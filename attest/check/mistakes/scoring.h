// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// What a program makes of its operands: scores, mask, softmax and mix.
struct ScoringRecipe {
  std::optional<double>
      scale{};  ///< nothing: the claim's; 1/√D of the program's own D if that is none
  std::optional<double> softcap{};  ///< nothing: the claim's
};

}  // namespace attest::check
