// SPDX-License-Identifier: MIT
#pragma once

#include "attest/check/mistakes/operands.h"
#include "attest/check/mistakes/scoring.h"

namespace attest::check {

/// How a program, right or wrong, computes attention from the tensors of a claim: what it reads
/// (operands), and what it makes of it (scoring).
///
/// A default Recipe is the claim itself. A mistake is a function that changes a few fields, so that
/// several can be made at once; how they are evaluated is code of its own, which shares nothing with
/// the tiers that judge (docs/adr/0017).
struct Recipe {
  OperandRecipe operands{};
  ScoringRecipe scoring{};
};

}  // namespace attest::check
