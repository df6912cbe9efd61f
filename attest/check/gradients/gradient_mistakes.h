// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "attest/check/gradients/recipe.h"
#include "attest/check/mistakes/catalogue.h"

namespace attest::check {

/// One way in which people get the backward pass wrong.
///
/// `mistake` says what any mistake says; it has no `make` of its own, for this one changes another recipe.
struct GradientMistake {
  Mistake mistake{};
  /// False if the claim has nothing that it could be made on. The recipe is then unspecified.
  bool (*make)(gradients::GradientRecipe& recipe, const Claim& claim, double value) = nullptr;
};

/// All of them; of two that give the same numbers the likelier comes first.
[[nodiscard]] std::span<const GradientMistake> gradient_mistakes();

namespace gradients {

// The table's parts, one a file; gradient_mistakes() joins them.
[[nodiscard]] std::span<const GradientMistake> score_mistakes();  ///< softmax, scale, softcap, sink
[[nodiscard]] std::span<const GradientMistake> sum_mistakes();    ///< heads, bias, value, blocks
[[nodiscard]] std::span<const GradientMistake> forget_mistakes();  ///< mask, empty rows, dropout
[[nodiscard]] std::span<const GradientMistake>
result_mistakes();  ///< factors, layout, rotation, rounding

}  // namespace gradients

}  // namespace attest::check
