// SPDX-License-Identifier: MIT
#include "attest/check/block/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/text.h"

namespace attest::check::block {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Choice = std::vector<std::size_t>;  // candidates, in the order in which they are made

/// What one choice does to every link.
struct Outcome {
  Choice choice{};
  std::vector<Fit> fits{};
  std::vector<char> changes{};  ///< other numbers than the claim's

  [[nodiscard]] bool explains() const {
    return std::all_of(fits.begin(), fits.end(), [](const Fit& fit) { return fit.good(); });
  }
  [[nodiscard]] std::size_t good_links() const {
    return static_cast<std::size_t>(
        std::count_if(fits.begin(), fits.end(), [](const Fit& fit) { return fit.good(); }));
  }
  [[nodiscard]] double distance() const {
    double squares = 0;
    for (const Fit& fit : fits) squares += fit.distance * fit.distance;
    return fits.empty() ? 0 : std::sqrt(squares / static_cast<double>(fits.size()));
  }
};

/// How far two tables are apart, relative to the first.
double apart(const Numbers& a, const Numbers& b) {
  if (a.value.size() != b.value.size()) return infinity;
  double squares = 0, size = 0;
  for (std::size_t n = 0; n < a.value.size(); ++n) {
    const double d = a.value[n] - b.value[n];
    if (d != d) {  // a NaN, or ∞ − ∞
      if ((a.value[n] != a.value[n]) != (b.value[n] != b.value[n])) return infinity;
      continue;
    }
    squares += d * d;
    size += a.value[n] * a.value[n];
  }
  return squares == 0 ? 0 : std::sqrt(squares / std::max(size, 1e-300));
}

class Searcher {
 public:
  Searcher(const Trial& trial, const DiagnoseOptions& options) : trial_(trial), options_(options) {
    const Recompute run = trial.start(trial.claim, Noise::with);
    for (std::size_t l = 0; l < trial.links.size(); ++l) {
      claimed_.push_back(run(l));
      claim_.fits.push_back(fit_of(trial.links[l].found, claimed_.back(), trial.zones));
      double spread = 0, size = 0;
      for (std::size_t n = 0; n < claimed_.back().value.size(); ++n) {
        spread += claimed_.back().variance[n];
        size += trial.links[l].found.value[n] * trial.links[l].found.value[n];
      }
      // Beyond this no table is looked at with its noise: fifty times the claim's, and of its own size.
      reject_.push_back(size > 0 ? 50 * std::sqrt(spread / size) + 200 * trial.unit : infinity);
      if (!(reject_.back() == reject_.back())) reject_.back() = infinity;
    }
  }

  std::int64_t tried = 0;

  void report(std::string_view doing, std::size_t done, std::size_t all) const {
    if (options_.progress) {
      options_.progress(doing, static_cast<double>(done) / static_cast<double>(all));
    }
  }

  /// Every mistake alone; those that change no number of this dump only if they are wanted.
  enum class Unseen { left_out, kept };
  std::vector<Outcome> singles(Unseen unseen) {
    std::vector<Outcome> out;
    for (std::size_t c = 0; c < trial_.candidates.size(); ++c) {
      report("single mistakes", c, trial_.candidates.size());
      Outcome one = whole({c});
      if (one.fits.empty()) continue;
      const bool seen =
          std::any_of(one.changes.begin(), one.changes.end(), [](char yes) { return yes != 0; });
      if (!seen && unseen == Unseen::left_out) continue;
      out.push_back(std::move(one));
    }
    return out;
  }

  /// Pairs that could explain every link: one of the two does alone and the other leaves it, or both
  /// change it, or one leads other numbers there.
  std::vector<Outcome> pairs(const std::vector<Outcome>& singles, std::vector<Outcome>& best) {
    std::vector<Outcome> out;
    for (std::size_t a = 0; a < singles.size(); ++a) {
      report("pairs of mistakes", a, singles.size());
      for (std::size_t b = a + 1; b < singles.size(); ++b) {
        if (!could_explain(singles[a], singles[b])) continue;
        Choice choice = singles[a].choice;
        choice.push_back(singles[b].choice.front());
        consider(std::move(choice), out, best);
      }
    }
    return out;
  }

  std::vector<Outcome> extend(const std::vector<Outcome>& best,
                              const std::vector<Outcome>& singles) {
    std::vector<Outcome> out, unused;
    for (std::size_t n = 0; n < best.size(); ++n) {
      report("three mistakes", n, best.size());
      for (const Outcome& single : singles) {
        const std::size_t next = single.choice.front();
        if (std::count(best[n].choice.begin(), best[n].choice.end(), next) != 0) continue;
        Choice choice = best[n].choice;
        choice.push_back(next);
        consider(std::move(choice), out, unused);
      }
    }
    return out;
  }

  /// Every link, with noise where it is near.
  Outcome measure(const BlockRecipe& recipe) {
    Outcome out;
    ++tried;
    const Recompute quick = trial_.start(recipe, Noise::without);
    Recompute careful;
    for (std::size_t l = 0; l < trial_.links.size(); ++l) {
      Numbers numbers = quick(l);
      if (numbers.empty()) return {};
      out.changes.push_back(apart(claimed_[l], numbers) > 1e-14 ? 1 : 0);
      if (out.changes.back() == 0) {
        out.fits.push_back(claim_.fits[l]);
        continue;
      }
      const double distance = apart(trial_.links[l].found, numbers);
      if (!(distance <= reject_[l])) {
        out.fits.push_back({distance / std::max(reject_[l], 1e-300) * 50, infinity, infinity});
        continue;
      }
      if (!careful) careful = trial_.start(recipe, Noise::with);
      out.fits.push_back(fit_of(trial_.links[l].found, careful(l), trial_.zones));
    }
    return out;
  }

  /// How far the numbers of one outcome are from another's: root mean squares, in the table where it is most.
  struct Apart {
    double noise = 0;  ///< over noise
    double left = 0;   ///< over what is left of the first
  };
  Apart between(const Outcome& first, const Outcome& second) {
    BlockRecipe one, other;
    if (!make(first.choice, one) || !make(second.choice, other)) return {infinity, infinity};
    const Recompute near = trial_.start(one, Noise::with);
    const Recompute far = trial_.start(other, Noise::without);
    Apart out;
    for (std::size_t l = 0; l < trial_.links.size(); ++l) {
      const double noise = root_mean_square(near(l), far(l));
      out.noise = std::max(out.noise, noise);
      out.left = std::max(out.left, noise / std::max(first.fits[l].distance, 1e-3));
    }
    return out;
  }

 private:
  bool make(const Choice& choice, BlockRecipe& recipe) const {
    recipe = trial_.claim;
    for (const std::size_t c : choice) {
      const Candidate& candidate = trial_.candidates[c];
      if (!candidate.mistake->make(recipe, trial_.config, candidate.value)) return false;
    }
    return true;
  }

  /// Of (y − x) over the noise of x.
  [[nodiscard]] double root_mean_square(const Numbers& x, const Numbers& y) const {
    if (x.value.size() != y.value.size()) return infinity;
    double squares = 0;
    for (std::size_t n = 0; n < x.value.size(); ++n) {
      const double d = std::fabs(x.value[n] - y.value[n]);
      if (d == 0 || (x.value[n] != x.value[n] && y.value[n] != y.value[n])) continue;
      const double noise = x.deviation_at(n) * trial_.zones.safety;
      const double share = d < infinity && noise > 0 ? std::min(d / noise, 1e6) : 1e6;
      squares += share * share;
    }
    return x.value.empty() ? 0 : std::sqrt(squares / static_cast<double>(x.value.size()));
  }

  Outcome whole(Choice choice) {
    BlockRecipe recipe;
    if (!make(choice, recipe)) return {};
    Outcome out = measure(recipe);
    if (!out.fits.empty()) out.choice = std::move(choice);
    return out;
  }

  [[nodiscard]] bool could_explain(const Outcome& a, const Outcome& b) const {
    for (const Outcome* one : {&a, &b}) {
      if (trial_.candidates[one->choice.front()].mistake->reroutes) return true;
    }
    for (std::size_t l = 0; l < claim_.fits.size(); ++l) {
      if (a.changes[l] != 0 && b.changes[l] != 0) continue;
      const Fit& alone = a.changes[l] != 0   ? a.fits[l]
                         : b.changes[l] != 0 ? b.fits[l]
                                             : claim_.fits[l];
      if (!alone.good()) return false;
    }
    return true;
  }

  void consider(Choice choice, std::vector<Outcome>& out, std::vector<Outcome>& best) {
    Outcome made = whole(std::move(choice));
    if (made.fits.empty()) return;
    if (made.explains()) {
      out.push_back(std::move(made));
      return;
    }
    constexpr std::size_t kept = 32;
    const auto better = [](const Outcome& a, const Outcome& b) {
      if (a.good_links() != b.good_links()) return a.good_links() > b.good_links();
      return a.distance() < b.distance();
    };
    if (best.size() == kept && !better(made, best.back())) return;
    if (best.size() == kept) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), made, better), std::move(made));
  }

  const Trial& trial_;
  const DiagnoseOptions& options_;
  std::vector<Numbers> claimed_{};
  Outcome claim_{};
  std::vector<double> reject_{};
};

Explanation explanation_of(const Trial& trial, const Outcome& outcome) {
  Explanation out;
  for (const std::size_t c : outcome.choice) out.mistakes.push_back(trial.candidates[c].made());
  out.distance = outcome.distance();
  return out;
}

std::string label_of(const Trial& trial, const Outcome& outcome) {
  std::string out;
  for (const std::size_t c : outcome.choice) {
    out += sentence(out.empty() ? "" : " + ", trial.candidates[c].label());
  }
  return out;
}

/// The best first, then the others as near as they are to it. Numbers that differ by less than a tenth of
/// their noise are the same.
std::vector<Explanation> ranked(const Trial& trial, Searcher& searcher,
                                std::vector<Outcome> outcomes) {
  constexpr double same_numbers = 0.1;
  constexpr std::size_t most_compared = 64, most_shown = 8;
  if (outcomes.empty()) return {};
  std::stable_sort(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
    return a.distance() < b.distance() * (1 - 1e-9);
  });
  if (outcomes.size() > most_compared) outcomes.resize(most_compared);
  std::vector<Explanation> out{explanation_of(trial, outcomes.front())};
  for (std::size_t n = 1; n < outcomes.size(); ++n) {
    const Searcher::Apart apart = searcher.between(outcomes.front(), outcomes[n]);
    if (apart.noise <= same_numbers) {
      out.front().same.push_back(label_of(trial, outcomes[n]));
      continue;
    }
    out.push_back(explanation_of(trial, outcomes[n]));
    out.back().apart = apart.left;
  }
  std::stable_sort(out.begin() + 1, out.end(),
                   [](const Explanation& a, const Explanation& b) { return a.apart < b.apart; });
  if (out.size() > most_shown) out.resize(most_shown);
  return out;
}

}  // namespace

Fit fit_of(const Numbers& found, const Numbers& recomputed, const Zones& zones) {
  if (recomputed.value.size() != found.value.size()) return {infinity, infinity, infinity};
  Fit out;
  double squares = 0;
  for (std::size_t n = 0; n < found.value.size(); ++n) {
    const double a = found.value[n], b = recomputed.value[n];
    if (a != a && b != b) continue;
    const double d = std::fabs(a - b);
    if (d == 0 || a == b) continue;
    if (!(d < infinity)) return {infinity, infinity, infinity};
    const double most = zones.most(recomputed, n), typical = zones.typical(recomputed, n);
    const double deviation = recomputed.deviation_at(n) * zones.safety;
    out.used = std::max(out.used, most > 0 ? d / most : infinity);
    out.unusual = std::max(out.unusual, typical > 0 ? d / typical : infinity);
    const double share = deviation > 0 ? std::min(d / deviation, 1e6) : 1e6;
    squares += share * share;
  }
  if (!found.value.empty()) {
    out.distance = std::sqrt(squares / static_cast<double>(found.value.size()));
  }
  return out;
}

Found search(const Trial& trial, const DiagnoseOptions& options) {
  Searcher searcher(trial, options);
  Found out;
  std::vector<Outcome> singles = searcher.singles(Searcher::Unseen::left_out);
  std::vector<Outcome> good;
  std::copy_if(singles.begin(), singles.end(), std::back_inserter(good),
               [](const Outcome& outcome) { return outcome.explains(); });
  std::vector<Outcome> best;
  if (good.empty() && options.most_mistakes >= 2) good = searcher.pairs(singles, best);
  if (good.empty() && options.most_mistakes >= 3) good = searcher.extend(best, singles);
  out.tried = searcher.tried;
  out.explanations = ranked(trial, searcher, std::move(good));
  return out;
}

std::vector<Reading> fitting(const Trial& trial, const DiagnoseOptions& options,
                             std::int64_t& tried) {
  if (trial.readings.empty()) return {};
  Searcher searcher(trial, options);
  std::vector<std::pair<double, const Reading*>> good;
  for (const Reading& reading : trial.readings) {
    searcher.report("what was assumed", static_cast<std::size_t>(searcher.tried),
                    trial.readings.size());
    if (!good.empty() && reading.choices.size() > good.front().second->choices.size()) break;
    const Outcome outcome = searcher.measure(reading.recipe);
    if (!outcome.fits.empty() && outcome.explains()) {
      good.emplace_back(outcome.distance(), &reading);
    }
  }
  tried += searcher.tried;
  std::stable_sort(good.begin(), good.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Reading> out;
  for (const auto& one : good) out.push_back(*one.second);
  return out;
}

std::vector<std::string> invisible(const Trial& trial, std::int64_t& tried) {
  const DiagnoseOptions quiet;
  Searcher searcher(trial, quiet);
  std::vector<std::string> out;
  for (const Outcome& outcome : searcher.singles(Searcher::Unseen::kept)) {
    const bool wrong =
        trial.candidates[outcome.choice.front()].mistake->text.kind == MistakeKind::wrong;
    if (wrong && outcome.explains()) out.push_back(label_of(trial, outcome));
  }
  tried += searcher.tried;
  return out;
}

}  // namespace attest::check::block
