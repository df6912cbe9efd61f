// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attest/base/threads.h"
#include "attest/check/diagnose/samples.h"
#include "attest/check/mistakes/catalogue.h"

/// Which mistakes give a dump's numbers.
namespace attest::check {

/// Mistakes made together, perhaps with a constant that was fitted.
struct Candidate {
  std::vector<Made> mistakes{};
  std::vector<std::string> fitted{};
  Recipe recipe{};
  SampleFit fit{};

  [[nodiscard]] std::size_t size() const { return mistakes.size() + fitted.size(); }
  [[nodiscard]] std::string label() const;
};

/// How many values somebody had to choose for it: what has more can imitate what has fewer.
[[nodiscard]] std::size_t values_in(const Candidate& candidate);

/// Whether a row of it needs a whole head, all heads, or all batches, or a search of its own, and the
/// claim is so large that this matters.
[[nodiscard]] bool is_costly(const Claim& claim, const Recipe& recipe);

/// Every mistake that can be made on this claim alone, each with each of its values. Of two tables, the
/// first given, none is said to be another: that would make the second given too.
[[nodiscard]] std::vector<Candidate> single_mistakes(const Dump& dump);

struct SearchOptions {
  std::int64_t most_mistakes = 3;
  std::function<void(std::string_view doing, double fraction)> progress{};
};

struct Searched {
  std::vector<Candidate> fitting{};  ///< of the fewest mistakes that explain; the nearest first
  std::vector<Candidate> singles{};  ///< all that could be made, with their fits of a few rows
  std::vector<std::vector<Candidate>> alike{};  ///< singles that give the same numbers here
  std::int64_t tried = 0;
  bool complete = true;  ///< no family was left out for its cost
};

/// One mistake, then constants, then pairs, then triples; ends with the first step that explains, or
/// where rows are small, after constants, with the pairs that give a constant of no name its value.
///
/// A recipe is dropped at the first row that contradicts it. Triples are the nearest pairs with every
/// third mistake, and all of the usual ones.
/// Determinism   a function of its arguments, for any number of threads.
[[nodiscard]] Searched search(const Dump& dump, const Samples& samples,
                              const SearchOptions& options, ThreadPool& pool);

/// A recipe's fit to the samples; one that cannot be carried out is apart.
[[nodiscard]] SampleFit fit_of(const Dump& dump, const Samples& samples, const Recipe& recipe,
                               double most);

}  // namespace attest::check
