// SPDX-License-Identifier: MIT
#include "attest/check/block/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/block/measure.h"

namespace attest::check::block {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Of a large dump, pairs have one of the nearest single mistakes in them.
constexpr std::size_t most_firsts = 12;

class Searcher {
 public:
  Searcher(const Trial& trial, const DiagnoseOptions& options)
      : trial_(trial), options_(options), measurer_(trial) {}

  [[nodiscard]] std::int64_t tried() const { return measurer_.tried; }

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
    std::vector<std::size_t> firsts(singles.size());
    std::iota(firsts.begin(), firsts.end(), 0);
    if (trial_.large) {
      std::stable_sort(firsts.begin(), firsts.end(), [&](std::size_t a, std::size_t b) {
        return nearer(singles[a], singles[b]);
      });
      firsts.resize(std::min(firsts.size(), most_firsts));
      std::sort(firsts.begin(), firsts.end());
    }
    for (const std::size_t a : firsts) {
      report("pairs of mistakes", a, singles.size());
      for (std::size_t b = trial_.large ? 0 : a + 1; b < singles.size(); ++b) {
        const bool twice = b <= a && std::binary_search(firsts.begin(), firsts.end(), b);
        if (twice || !could_explain(singles[std::min(a, b)], singles[std::max(a, b)])) continue;
        Choice choice = singles[std::min(a, b)].choice;
        choice.push_back(singles[std::max(a, b)].choice.front());
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

  bool make(const Choice& choice, BlockRecipe& recipe) const {
    recipe = trial_.claim;
    for (const std::size_t c : choice) {
      const Candidate& candidate = trial_.candidates[c];
      if (!candidate.mistake->make(recipe, trial_.config, candidate.value)) return false;
    }
    return true;
  }

 private:
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
    Outcome out = measurer_.measure(recipe);
    if (!out.fits.empty()) out.choice = std::move(choice);
    return out;
  }

  [[nodiscard]] bool could_explain(const Outcome& a, const Outcome& b) const {
    for (const Outcome* one : {&a, &b}) {
      if (trial_.candidates[one->choice.front()].mistake->reroutes) return true;
    }
    for (std::size_t l = 0; l < measurer_.claim().fits.size(); ++l) {
      if (a.changes[l] != 0 && b.changes[l] != 0) continue;
      const Fit& alone = a.changes[l] != 0   ? a.fits[l]
                         : b.changes[l] != 0 ? b.fits[l]
                                             : measurer_.claim().fits[l];
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
    if (best.size() == kept && !nearer(made, best.back())) return;
    if (best.size() == kept) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), made, nearer), std::move(made));
  }

  const Trial& trial_;
  const DiagnoseOptions& options_;
  Measurer measurer_;
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
  constexpr int most_refused = 3;  // each costs a whole evaluation
  if (outcomes.empty()) return {};
  std::stable_sort(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
    return a.distance() < b.distance() * (1 - 1e-9);
  });
  for (int refused = 0; trial.confirms && !outcomes.empty(); ++refused) {
    BlockRecipe recipe;
    const bool fits = refused < most_refused && searcher.make(outcomes.front().choice, recipe) &&
                      trial.confirms(recipe);
    if (fits) break;
    if (refused >= most_refused) outcomes.clear();
    if (!outcomes.empty()) outcomes.erase(outcomes.begin());
  }
  if (outcomes.empty()) return {};
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

Found search(const Trial& trial, const DiagnoseOptions& options) {
  Searcher searcher(trial, options);
  Found out;
  std::vector<Outcome> singles = searcher.singles(Searcher::Unseen::left_out);
  std::vector<Outcome> good;
  std::copy_if(singles.begin(), singles.end(), std::back_inserter(good),
               [](const Outcome& outcome) { return outcome.explains(); });
  std::vector<Outcome> best;
  if (good.empty() && options.most_mistakes >= 2) good = searcher.pairs(singles, best);
  if (good.empty() && options.most_mistakes >= 3 && !trial.large)
    good = searcher.extend(best, singles);
  out.tried = searcher.tried();
  out.explanations = ranked(trial, searcher, std::move(good));
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
  tried += searcher.tried();
  return out;
}

}  // namespace attest::check::block
