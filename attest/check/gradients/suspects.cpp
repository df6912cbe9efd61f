// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/check/gradients/search.h"

namespace attest::check::gradients {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// Of numbers that a rounding recipe gives, so many may fall on the other side of a rounding's edge, by
// no more than this many deviations.
constexpr double turned_over = 0.03;
constexpr double turned_over_by = 40;

/// Root mean square of used fractions, and whether none is beyond what is allowed.
struct Measure {
  double distance = infinity;
  bool fits = false;
};

Measure measure(const ObservedGradient& found, std::span<const std::size_t> at, const Cells& cells,
                bool rounding) {
  double squares = 0, worst = 0;
  std::int64_t beyond = 0, compared = 0;
  for (std::size_t n = 0; n < at.size(); ++n) {
    if (!found.given(at[n])) continue;
    ++compared;
    const double deviation = used(found.values.elements()[at[n]], cells.value[n], cells.noise[n]);
    if (deviation == infinity) return {};
    squares += deviation * deviation;
    worst = std::max(worst, deviation);
    if (deviation > deviations) ++beyond;
  }
  const double allowed = rounding ? turned_over * static_cast<double>(compared) : 0;
  const bool fits =
      static_cast<double>(beyond) <= allowed && (beyond == 0 || worst < turned_over_by);
  return {compared == 0 ? 0 : std::sqrt(squares / static_cast<double>(compared)), fits};
}

/// Whether all numbers are of that 16-bit type: what was stored in it.
bool all_of_type(const ObservedGradient& found, DType type) {
  return std::ranges::all_of(found.values.elements(), [&](double x) {
    const double y = type == DType::bf16 ? to_double(to_bfloat16(x)) : to_double(to_half(x));
    return x == y || std::isnan(x);
  });
}

}  // namespace

bool Fit::all() const {
  return std::ranges::all_of(fits, [](bool each) { return each; });
}

Fit fit_of(const Wanted& wanted, const Sample& sample, const Suspect& suspect,
           const AllCells& cells) {
  const Problem& problem = wanted.problem;
  Fit out;
  for (const ObservedGradient& found : problem.dump.gradients) {
    const auto of = static_cast<std::size_t>(found.of);
    Measure measured;
    if (found.of == GradientOf::bias && cells[of].value.empty()) measured = {0, true};
    const auto& rounded = suspect.recipe.results[of].rounded;
    if (!measured.fits && found.values.shape() == shape_of(problem, suspect.recipe, found.of) &&
        (!rounded || all_of_type(found, *rounded))) {
      const auto at = places(problem, sample, suspect.recipe, found.of);
      measured = measure(found, at, cells[of], suspect.rounds);
    }
    out.distance.push_back(measured.distance);
    out.fits.push_back(measured.fits);
  }
  return out;
}

const GradientMistake& other_factor() {
  const auto all = gradient_mistakes();
  return *std::ranges::find_if(all, [](const GradientMistake& entry) {
    return entry.mistake.name == "gradient.other_factor";
  });
}

std::vector<double> factors_beside(const Wanted& wanted, const Workspace& workspace,
                                   const GradientRecipe& recipe) {
  std::vector<double> out;
  const Problem& problem = wanted.problem;
  const auto cells_of_all = evaluate(workspace, recipe);
  for (std::size_t n = 0; cells_of_all && n < problem.dump.gradients.size(); ++n) {
    const ObservedGradient& found = problem.dump.gradients[n];
    const bool alike = found.values.shape() == shape_of(problem, recipe, found.of);
    if (!wanted.wrong[n] || !alike) continue;
    const Cells& cells = (*cells_of_all)[static_cast<std::size_t>(found.of)];
    const auto at = places(problem, workspace.sample, recipe, found.of);
    double across = 0, own = 0;
    for (std::size_t m = 0; m < cells.value.size(); ++m) {
      if (!found.given(at[m])) continue;
      across += found.values.elements()[at[m]] * cells.value[m];
      own += cells.value[m] * cells.value[m];
    }
    const double factor = across / own;
    if (std::isfinite(factor) && factor != 0) out.push_back(factor);
  }
  return out;
}

std::vector<Suspect> singles(const Claim& claim, std::vector<std::vector<std::string>>& labels) {
  std::vector<Suspect> out;
  for (const GradientMistake& entry : gradient_mistakes()) {
    static constexpr double without[] = {0};
    const auto values =
        entry.mistake.values.empty() ? std::span<const double>(without) : entry.mistake.values;
    for (const double value : values) {
      Suspect suspect;
      suspect.rounding = suspect.rounds = entry.mistake.kind == MistakeKind::rounding;
      if (!entry.make(suspect.recipe, claim, value) || suspect.recipe == GradientRecipe{}) continue;
      suspect.made = {{&entry.mistake, value}};
      const auto twin = std::ranges::find_if(
          out, [&](const Suspect& other) { return other.recipe == suspect.recipe; });
      if (twin != out.end()) {
        labels[static_cast<std::size_t>(twin - out.begin())].push_back(
            suspect.made.front().label());
        continue;
      }
      out.push_back(std::move(suspect));
      labels.emplace_back();
    }
  }
  return out;
}

std::vector<std::string> invisible(const Problem& problem, const Noise& noise) {
  const Workspace workspace = make_workspace(problem, noise, everything(problem.shape));
  const auto right = evaluate(workspace, {});
  std::vector<std::vector<std::string>> labels;
  std::vector<std::string> out;
  for (const Suspect& suspect : singles(problem.dump.claim, labels)) {
    const auto cells = evaluate(workspace, suspect.recipe);
    if (suspect.rounding || !cells || !right) continue;
    bool same = true;
    for (const ObservedGradient& found : problem.dump.gradients) {
      const auto of = static_cast<std::size_t>(found.of);
      const auto &a = (*right)[of], &b = (*cells)[of];
      same = same && a.value.size() == b.value.size();
      for (std::size_t n = 0; same && n < a.value.size(); ++n) {
        same = !found.given(n) || used(b.value[n], a.value[n], deviations * a.noise[n]) <= 1;
      }
    }
    if (same) out.push_back(suspect.made.front().label());
  }
  return out;
}

}  // namespace attest::check::gradients
