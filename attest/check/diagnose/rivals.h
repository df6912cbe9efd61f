// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <vector>

#include "attest/check/diagnose/search.h"

/// What else gives the same numbers, or nearly, on one input.
namespace attest::check {

struct Rival {
  Candidate candidate{};
  double apart = 0;   ///< root mean square of the difference to the best, over what is left of it
  bool same = false;  ///< in exact arithmetic
};

/// Explanations nearer than so many times what is left are not told apart.
inline constexpr double cannot_tell = 3;

/// The others by their distance from the best, nearest first.
///
/// Formula       apart = √(Σ (other − best)²/noise² / Σ (found − best)²/noise²), the denominator at
///               least what storing the found numbers does (its mean square is unit²·number²/3)
[[nodiscard]] std::vector<Rival> rivals_of(const Dump& dump, const Samples& samples,
                                           const Candidate& best, std::span<const Candidate> others,
                                           ThreadPool& pool);

/// Of explanations that give the best's numbers on this input: whether each gives them on any input of these
/// sizes and masks, for it does on one drawn anew. All false where there is no query to draw.
[[nodiscard]] std::vector<bool> same_on_any_input(const Dump& dump, const Samples& samples,
                                                  const Candidate& best,
                                                  std::span<const Candidate> others,
                                                  ThreadPool& pool);

/// "mask.fill (-10000, -1e+09), rope.base" of labels, three values at most behind its name; no more than
/// fit into so many characters, and how many were left out.
[[nodiscard]] std::string joined_labels(const std::vector<std::string>& labels,
                                        std::size_t most_characters);

/// What would tell two recipes apart: tables that the dump lacks, or another input.
[[nodiscard]] std::string would_tell(const Dump& dump, const Samples& samples,
                                     const Candidate& best, const Candidate& other);

}  // namespace attest::check
