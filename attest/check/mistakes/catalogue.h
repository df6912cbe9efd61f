// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attest/check/mistakes/recipe.h"

namespace attest::check {

/// What a mistake is about. Mistakes of different axes can be made together.
enum class Axis {
  layout,
  roles,  ///< query, key and value taken for each other
  heads,  ///< which head reads which
  keys,   ///< keys lost, or made up
  rope,
  scale,
  softcap,
  bias,
  alibi,
  mask,
  causal,
  window,
  packing,  ///< documents
  softmax,
  exponent,    ///< powers of 2 for powers of e
  empty_rows,  ///< what a query gets that sees no key
  sink,
  dropout,
  rounding,
  output,
  label,  ///< a table is another stage than its name says
  gradient,
  block,
};
[[nodiscard]] std::string_view name_of(Axis axis) noexcept;

enum class MistakeKind {
  wrong,     ///< other numbers than the claim's
  harmless,  ///< another way to the same numbers in exact arithmetic
  rounding,  ///< the claim's numbers, but for rounding
};

/// One way in which people get attention wrong.
struct Mistake {
  std::string_view name{};  ///< "causal.top_left", the one that docs/mistakes.md lists
  Axis axis = Axis::layout;
  MistakeKind kind = MistakeKind::wrong;
  std::string_view what{};      ///< one sentence: what the program does
  std::string_view look_for{};  ///< one sentence: where to look in the code
  std::string_view seen_in{};   ///< public reports, "owner/repository#number, …"; may be empty

  /// Values that the mistake is tried with: block sizes, widths. Empty: it has none.
  std::span<const double> values{};
  /// Makes the mistake; `value` is one of `values`, or 0. False if the claim has nothing that it could be
  /// made on: no mask, one head, T = S. The recipe is then unspecified.
  bool (*make)(Recipe& recipe, const Claim& claim, double value) = nullptr;
};

/// All of them, by axis, then by name.
[[nodiscard]] std::span<const Mistake> catalogue();

/// The mistake of that name, or null.
[[nodiscard]] const Mistake* find_mistake(std::string_view name);

/// A mistake as it was made: "tail.zero_keys_counted (16)", "gradient.other_factor (0.371)".
struct Made {
  const Mistake* mistake = nullptr;
  double value = 0;  ///< of the list of its values, or fitted
  [[nodiscard]] std::string label() const;
};

}  // namespace attest::check
