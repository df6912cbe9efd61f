// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/check/gradients/gradient_mistakes.h"
#include "attest/check/gradients/judge.h"

/// Which mistakes give the numbers of a dump.
namespace attest::check::gradients {

/// What is looked for.
struct Wanted {
  const Problem& problem;
  const AllCells& right;      ///< of the whole call
  std::vector<bool> wrong{};  ///< for each of dump.gradients
  Noise noise{};
  std::int64_t most_mistakes = 3;
  std::function<void(std::string_view, double)> progress{};
};

/// Mistakes that are made together, or one that makes one gradient wrong.
struct Suspect {
  GradientRecipe recipe{};
  std::vector<Made> made{};
  bool rounding = false;  ///< they change rounding alone
  bool rounds = false;    ///< one of them does
};

/// A suspect beside the dump.
struct Fit {
  std::vector<double> distance{};  ///< of each gradient: root mean square of (found − its) / noise
  std::vector<bool> fits{};        ///< every number of the gradient within `deviations`
  [[nodiscard]] bool all() const;
};

struct Found {
  std::vector<Explanation> explanations{};  ///< the best, and what comes next
  std::vector<Explanation> nearest{};
  bool by_rounding = false;  ///< the best changes rounding alone
  std::int64_t tried = 0;
  bool sampled = false;  ///< it looked at some queries and keys first; what it names, it saw on all
  std::vector<std::string> would_decide{};
  std::vector<std::string> remarks{};
};

/// Fit of what a recipe gives at the sample's cells.
[[nodiscard]] Fit fit_of(const Wanted& wanted, const Sample& sample, const Suspect& suspect,
                         const AllCells& cells);

/// The mistake that multiplies everything by a number that was fitted.
[[nodiscard]] const GradientMistake& other_factor();

/// What each wrong gradient would have to be multiplied by, to be what a recipe gives on a sample.
[[nodiscard]] std::vector<double> factors_beside(const Wanted& wanted, const Workspace& workspace,
                                                 const GradientRecipe& recipe);

/// One mistake each, by number: every value that it is tried with, those of equal recipes once. `labels`
/// takes the names of those that were left out, at the index of the one that was kept.
[[nodiscard]] std::vector<Suspect> singles(const Claim& claim,
                                           std::vector<std::vector<std::string>>& labels);

/// Searches one mistake, then one for each gradient, then two together. Nothing is named that was seen to
/// fit on a sample alone: it is evaluated on the whole call first, and so are others that fit as well.
/// What no sample can show is tried on the whole call where nothing simple fits; not in pairs.
[[nodiscard]] Found search(const Wanted& wanted, const Sample& sample);

/// Labels of single mistakes that give right numbers on this input.
[[nodiscard]] std::vector<std::string> invisible(const Problem& problem, const Noise& noise);

}  // namespace attest::check::gradients
