// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"

/// What a block may be where nobody said what it is: the usual readings of its tensors.
namespace attest::check::block {

/// One way to read what nobody said.
struct ReadingChoice {
  std::string is{};   ///< "gelu-tanh"
  std::string say{};  ///< "--activation gelu-tanh"
  std::string
      mistake{};  ///< what it is if the assumed one was meant: "ffn.gelu_tanh"; "" if it has no name
  std::function<void(BlockConfig&)> config{};
  std::function<void(BlockRecipe&)> recipe{};  ///< of what no config says
  std::function<void(BlockDump&)> dump{};      ///< the same, made on a dump
};

/// One thing that nobody said.
struct ReadingAxis {
  std::string what{};                    ///< "the activation"
  bool fine = false;                     ///< choices may differ by less than rounding: epsilon
  std::vector<ReadingChoice> choices{};  ///< the assumed one first
};
[[nodiscard]] std::vector<ReadingAxis> axes_of(const BlockDump& dump);

/// A choice for every axis, by its place in the list.
using Picks = std::vector<std::size_t>;
[[nodiscard]] std::size_t changes_in(const Picks& picks);

[[nodiscard]] BlockRecipe recipe_of(const BlockDump& dump, std::span<const ReadingAxis> axes,
                                    const Picks& picks);
/// The dump as if this had been said: nothing is assumed in it.
[[nodiscard]] BlockDump read_as(const BlockDump& dump, std::span<const ReadingAxis> axes,
                                const Picks& picks);

/// "you did not say the activation; these numbers are gelu-tanh: add --activation gelu-tanh"; "" if all is
/// as assumed.
[[nodiscard]] std::string unsaid(std::span<const ReadingAxis> axes, const Picks& picks);

/// "if gelu was meant, gelu-tanh is a mistake, ffn.gelu_tanh: --activation gelu says so"; one for each change.
[[nodiscard]] std::vector<std::string> meant_otherwise(std::span<const ReadingAxis> axes,
                                                       const Picks& picks);

/// "assumed, for nobody said it: --placement pre, --causal"; "" if nothing was.
[[nodiscard]] std::string assumed_text(std::span<const ReadingAxis> axes, const Picks& picks);

/// "a, b and c"
[[nodiscard]] std::string listed(const std::vector<std::string>& parts);

}  // namespace attest::check::block
