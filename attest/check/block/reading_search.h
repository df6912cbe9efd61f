// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attest/check/block/readings.h"
#include "attest/check/block/search.h"

/// Which of the usual readings of a dump gives its numbers.
namespace attest::check::block {

struct Readings {
  Picks picks{};      ///< by which the dump is judged: the fewest changes, then the nearest
  bool fits = false;  ///< it gives every number
  /// Choices of one axis that give the same numbers beside the picked one, the rest being as picked.
  std::vector<std::pair<std::size_t, std::vector<std::size_t>>> alike{};
  std::vector<Picks> others{};  ///< that fit with as few changes, and differ in two axes or more
  std::int64_t tried = 0;
};

/// Tries them by the number of changes: all of one number, epsilon after the rest, for it changes little.
/// Ends with the first number of changes that fits. If none fits, `picks` makes the most tables right.
[[nodiscard]] Readings search_readings(const Trial& trial, const BlockDump& dump,
                                       std::span<const ReadingAxis> axes,
                                       const DiagnoseOptions& options);

/// Whether readings that fit differ elsewhere: some, but not all, choices of an axis give these numbers.
/// Epsilon is no such axis: what rounding hides on this input is a remark.
[[nodiscard]] bool ambiguous(std::span<const ReadingAxis> axes, const Readings& readings);

/// "you did not say the activation: gelu (--activation gelu) and gelu-tanh (--activation gelu-tanh) give the
/// same numbers here, and differ elsewhere"
[[nodiscard]] std::string ambiguous_text(std::span<const ReadingAxis> axes,
                                         const Readings& readings);

/// "1e-08, 1e-12 and 0 for epsilon give the same numbers here": of axes that do not make it ambiguous.
[[nodiscard]] std::vector<std::string> alike_texts(std::span<const ReadingAxis> axes,
                                                   const Readings& readings);

/// Readings that whole families of models have, which a wrong dump may have been meant as.
[[nodiscard]] std::vector<Picks> families(std::span<const ReadingAxis> axes);

}  // namespace attest::check::block
