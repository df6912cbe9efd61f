// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"

/// What a block may be where nobody said what it is: numbers of another choice do not convict.
namespace attest::check::block {

/// One thing that was assumed, chosen otherwise.
struct OtherChoice {
  std::string what{};  ///< "the activation"
  std::string is{};    ///< "gelu-tanh"
  std::string say{};   ///< "--activation gelu-tanh"
};

struct Reading {
  BlockRecipe recipe{};
  std::vector<OtherChoice> choices{};
};

/// Every combination of what was assumed, but for the claim itself; those with the fewest changes first.
[[nodiscard]] std::vector<Reading> other_readings(const BlockDump& dump);

/// "you did not say the activation; these numbers are gelu-tanh: add --activation gelu-tanh", for the first
/// of those that fit; the others are mentioned.
[[nodiscard]] std::string unsaid(std::span<const Reading> fitting);

/// "assumed, for nobody said it: --placement pre, --causal"; "" if nothing was.
[[nodiscard]] std::string assumed_text(const BlockDump& dump);

}  // namespace attest::check::block
