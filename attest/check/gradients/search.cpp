// SPDX-License-Identifier: MIT
#include "attest/check/gradients/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "attest/base/text.h"
#include "attest/base/threads.h"
#include "attest/check/gradients/sample.h"

namespace attest::check::gradients {
namespace {

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }

std::string labels_of(const std::vector<Made>& mistakes) {
  std::string out;
  for (const Made& made : mistakes) out += (out.empty() ? "" : " + ") + made.label();
  return out;
}

class Search {
 public:
  Search(const Wanted& wanted, const Sample& sample)
      : wanted_(wanted),
        dump_(wanted.problem.dump),
        workspace_(make_workspace(wanted.problem, wanted.noise, sample)),
        few_(few_cells(workspace_)),
        all_(everything(wanted.problem.shape)),
        pool_(workspace_.whole() ? 1 : 0),
        passes_left_(most_whole_passes(wanted.problem)) {}

  Found run() {
    singles_ = singles(dump_.claim, labels_);
    add_factors();
    score_singles();
    std::optional<Cover> best = confirmed();
    if (!simple(best) && !workspace_.whole()) {
      score_mislaid();
      best = confirmed();
    }
    if (!simple(best) && !workspace_.whole()) {
      score_whole();
      best = confirmed();
    }
    if (!simple(best) && wanted_.most_mistakes > 1) {
      score_pairs();
      best = confirmed();
    }
    out_.sampled = !workspace_.whole();
    if (best) {
      explain(*best);
    } else {
      nearest();
    }
    if (unconfirmed_ > 0) {
      out_.remarks.push_back(
          sentence(unconfirmed_,
                   " more would fit the queries and keys that were looked at first; a call of "
                   "this size has no time for them"));
    }
    return std::move(out_);
  }

 private:
  struct Item {
    const Suspect* suspect = nullptr;
    Fit fit{};
    bool of_all = false;  ///< `fit` is that of the whole call
  };
  struct Cover {
    std::vector<std::pair<const Item*, std::vector<std::size_t>>>
        parts{};  // and what each explains
    std::int64_t cost = 0;
    double distance = 0;
  };

  void progress(std::string_view doing, double fraction) const {
    if (wanted_.progress) wanted_.progress(doing, fraction);
  }

  /// A gradient that is the right one times a number gets that number as a suspect.
  void add_factors() {
    for (const double factor : factors_beside(wanted_, workspace_, {})) {
      Suspect suspect;
      if (!other_factor().make(suspect.recipe, dump_.claim, factor)) continue;
      suspect.made = {{&other_factor().mistake, factor}};
      singles_.push_back(std::move(suspect));
      labels_.emplace_back();
    }
  }

  /// One mistake, or one for each gradient, seen on everything: no pair need be looked for.
  [[nodiscard]] static bool simple(const std::optional<Cover>& best) {
    return best && best->parts.size() == 1 && best->cost == 1;
  }

  void score_singles() {
    std::vector<std::optional<Fit>> fits(singles_.size());
    const auto block = static_cast<std::size_t>(4 * pool_.threads());
    for (std::size_t first = 0; first < singles_.size(); first += block) {
      progress("single mistakes",
               static_cast<double>(first) / static_cast<double>(singles_.size()));
      const std::size_t now = std::min(block, singles_.size() - first);
      pool_.run(static_cast<std::int64_t>(now), [&](std::int64_t n) {
        const std::size_t at = first + static_cast<std::size_t>(n);
        fits[at] = fit_on(workspace_, singles_[at]);
      });
    }
    out_.tried += count(singles_);
    for (std::size_t n = 0; n < singles_.size(); ++n) {
      if (fits[n]) {
        items_.push_back({&singles_[n], std::move(*fits[n]), workspace_.whole()});
      } else {
        without_sample_.push_back(&singles_[n]);
      }
    }
  }

  /// Of a sample: right results in the wrong place need no pass of their own.
  void score_mislaid() {
    std::erase_if(without_sample_, [&](const Suspect* suspect) {
      if (!only_mislays(suspect->recipe)) return false;
      AllCells cells = wanted_.right;
      mislay(wanted_.problem.shape, all_, suspect->recipe, cells);
      items_.push_back({suspect, fit_of(wanted_, all_, *suspect, cells), true});
      return true;
    });
  }

  /// Of a sample: what needs whole tables, as far as there is time.
  void score_whole() {
    for (const Suspect* suspect : without_sample_) {
      progress("mistakes of whole tables", 0);
      if (passes_left_ <=
          most_whole_passes(wanted_.problem) / 2) {  // the rest is to confirm others
        ++unconfirmed_;
        continue;
      }
      if (auto fit = fit_of_all(*suspect)) items_.push_back({suspect, std::move(*fit), true});
    }
    without_sample_.clear();
  }

  /// Nothing if there is no time left.
  std::optional<Fit> fit_of_all(const Suspect& suspect) {
    if (passes_left_ == 0) {
      ++unconfirmed_;
      return std::nullopt;
    }
    --passes_left_;
    const AllCells cells = whole_pass(wanted_.problem, wanted_.noise, suspect.recipe);
    return fit_of(wanted_, all_, suspect, cells);
  }

  /// Puts the whole call's fit in the place of the sample's.
  void confirm(Item& item) {
    if (item.of_all) return;
    item.of_all = true;
    if (auto fit = fit_of_all(*item.suspect)) {
      item.fit = std::move(*fit);
    } else {
      item.fit.fits.assign(item.fit.fits.size(), false);
    }
  }

  /// The best cover that holds on the whole call.
  std::optional<Cover> confirmed() {
    for (;;) {
      std::optional<Cover> best = cover();
      bool held = true;
      for (std::size_t part = 0; best && part < best->parts.size(); ++part) {
        Item& item = items_[static_cast<std::size_t>(best->parts[part].first - items_.data())];
        held = held && item.of_all;
        confirm(item);
      }
      if (held) return best;
    }
  }

  /// The least number of mistakes that explain every wrong gradient; of equals, one that explains all
  /// gradients, then the nearest.
  [[nodiscard]] std::optional<Cover> cover() const {
    std::vector<std::size_t> open;
    for (std::size_t n = 0; n < wanted_.wrong.size(); ++n) {
      if (wanted_.wrong[n]) open.push_back(n);
    }
    std::optional<Cover> best;
    for (const Item& item : items_) {
      if (!item.fit.all()) continue;
      Cover whole{{{&item, open}}, count(item.suspect->made), distance_of(item, open)};
      if (!best || better(whole, *best)) best = whole;
    }
    if (best && best->cost == 1) return best;
    const std::int64_t most = wanted_.most_mistakes;
    Cover so_far;
    extend(so_far, open, best ? std::min(most, best->cost - 1) : most, best);
    return best;
  }

  /// Explains the first open gradient by each item that fits it, and goes on with the rest.
  void extend(const Cover& so_far, const std::vector<std::size_t>& open, std::int64_t most,
              std::optional<Cover>& best) const {
    if (open.empty()) {
      if (!best || better(so_far, *best)) best = so_far;
      return;
    }
    std::vector<std::vector<std::size_t>> seen;  // items that explain the same are alike
    for (const Item& item : items_) {
      if (so_far.cost + count(item.suspect->made) > most || !item.fit.fits[open.front()]) continue;
      std::vector<std::size_t> explained, left;
      for (const std::size_t n : open) (item.fit.fits[n] ? explained : left).push_back(n);
      if (std::ranges::find(seen, explained) != seen.end()) continue;
      seen.push_back(explained);
      Cover next = so_far;
      next.parts.emplace_back(&item, explained);
      next.cost += count(item.suspect->made);
      next.distance += distance_of(item, explained);
      extend(next, left, most, best);
    }
  }

  [[nodiscard]] static double distance_of(const Item& item, const std::vector<std::size_t>& of) {
    double squares = 0;
    for (const std::size_t n : of) squares += item.fit.distance[n] * item.fit.distance[n];
    return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(of.size(), 1)));
  }

  /// Whether a number was fitted that no mistake gives.
  [[nodiscard]] static bool guessed(const Cover& cover) {
    return std::ranges::any_of(cover.parts, [](const auto& part) {
      return std::ranges::any_of(part.first->suspect->made, [](const Made& made) {
        return made.mistake == &other_factor().mistake;
      });
    });
  }

  /// Fewer mistakes, then fewer parts; of like distances the one that comes first in the table.
  [[nodiscard]] static bool better(const Cover& a, const Cover& b) {
    if (a.cost != b.cost) return a.cost < b.cost;
    if (a.parts.size() != b.parts.size()) return a.parts.size() < b.parts.size();
    if (guessed(a) != guessed(b)) return guessed(b);
    return a.distance < b.distance / 2;
  }

  /// Two mistakes in one recipe. Most pairs are seen to fail on a few rows and keys.
  void score_pairs() {
    std::vector<const Suspect*> ranked;
    for (const Item* item : by_merit()) ranked.push_back(item->suspect);
    const std::size_t most = most_paired(few_);
    if (ranked.size() > most) ranked.resize(most);
    score_factors(ranked);
    for (std::size_t b = 1; b < ranked.size(); ++b) {
      progress("pairs of mistakes", static_cast<double>(b) / static_cast<double>(ranked.size()));
      std::vector<Suspect> both;
      for (std::size_t a = 0; a < b; ++a) {
        auto one = together(*ranked[a], *ranked[b]);
        auto other = together(*ranked[b], *ranked[a]);
        if (other && one && other->recipe == one->recipe) other.reset();
        if (one) both.push_back(*std::move(one));
        if (other) both.push_back(*std::move(other));
      }
      score(both);
    }
  }

  /// Each with a number that everything is multiplied by besides: the one that fits a wrong gradient.
  void score_factors(const std::vector<const Suspect*>& ranked) {
    std::vector<std::vector<double>> factors(ranked.size());
    pool_.run(count(ranked), [&](std::int64_t n) {
      factors[static_cast<std::size_t>(n)] =
          factors_beside(wanted_, workspace_, ranked[static_cast<std::size_t>(n)]->recipe);
    });
    std::vector<Suspect> both;
    for (std::size_t n = 0; n < ranked.size(); ++n) {
      if (ranked[n]->rounding || ranked[n]->made.front().mistake == &other_factor().mistake)
        continue;
      for (const double factor : factors[n]) {
        if (auto one = together(*ranked[n], {.made = {{&other_factor().mistake, factor}}})) {
          both.push_back(*std::move(one));
        }
      }
    }
    score(both);
  }

  /// Keeps the pairs that explain something, on the few cells and then on the sample.
  void score(const std::vector<Suspect>& both) {
    std::vector<std::optional<Fit>> fits(both.size());
    pool_.run(count(both), [&](std::int64_t n) {
      const Suspect& pair = both[static_cast<std::size_t>(n)];
      const auto some = fit_on(few_, pair);
      if (some && !explains_something(*some)) return;
      fits[static_cast<std::size_t>(n)] = fit_on(workspace_, pair);
    });
    out_.tried += count(both);
    for (std::size_t n = 0; n < both.size(); ++n) {
      if (!fits[n] || !explains_something(*fits[n])) continue;
      pairs_.push_back(std::make_unique<Suspect>(both[n]));
      items_.push_back({pairs_.back().get(), std::move(*fits[n]), workspace_.whole()});
    }
  }

  /// Singles, those first that come near most gradients.
  [[nodiscard]] std::vector<const Item*> by_merit() const {
    std::vector<std::pair<double, const Item*>> ranked;
    for (const Item& item : items_) {
      double sum = 0;
      for (std::size_t n = 0; n < item.fit.fits.size(); ++n) {
        sum += item.fit.fits[n] ? 0 : std::log1p(std::min(item.fit.distance[n], 1e30));
      }
      ranked.emplace_back(sum, &item);
    }
    std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
    std::vector<const Item*> out;
    for (const auto& [merit, item] : ranked) out.push_back(item);
    return out;
  }

  [[nodiscard]] std::optional<Suspect> together(const Suspect& first, const Suspect& second) const {
    if (first.rounding && second.rounding) return std::nullopt;
    Suspect both{.rounds = first.rounding || second.rounding};
    for (const Suspect* one : {&first, &second}) {
      const auto entries = gradient_mistakes();
      const Made& made = one->made.front();
      const auto at = std::ranges::find_if(
          entries, [&](const GradientMistake& entry) { return &entry.mistake == made.mistake; });
      if (!at->make(both.recipe, dump_.claim, made.value)) return std::nullopt;
      both.made.push_back(made);
    }
    if (both.recipe == first.recipe || both.recipe == second.recipe) return std::nullopt;
    return both;
  }

  /// Nothing if the workspace lacks what the recipe needs.
  [[nodiscard]] std::optional<Fit> fit_on(const Workspace& workspace,
                                          const Suspect& suspect) const {
    const auto cells = evaluate(workspace, suspect.recipe);
    if (!cells) return std::nullopt;
    return fit_of(wanted_, workspace.sample, suspect, *cells);
  }

  [[nodiscard]] bool explains_something(const Fit& fit) const {
    for (std::size_t n = 0; n < fit.fits.size(); ++n) {
      if (wanted_.wrong[n] && fit.fits[n]) return true;
    }
    return false;
  }

  void explain(const Cover& best) {
    Explanation first{.distance = best.distance};
    std::vector<std::string> of_parts;
    out_.by_rounding = true;
    for (const auto& [item, explained] : best.parts) {
      out_.by_rounding = out_.by_rounding && item->suspect->rounding;
      for (const Made& made : item->suspect->made) first.mistakes.push_back(made);
      if (!item->fit.all()) {
        std::string names;
        for (const std::size_t n : explained) {
          names += (names.empty() ? "" : ", ") + dump_.gradients[n].name;
        }
        first.fitted.push_back(sentence("in ", names, " alone: ", labels_of(item->suspect->made)));
      }
      add_same(*item, explained, first);
    }
    out_.explanations.push_back(std::move(first));
    if (best.parts.size() == 1) add_next(*best.parts.front().first);
  }

  /// Others of as many mistakes that explain the same, and what would tell them from it.
  void add_same(const Item& best, const std::vector<std::size_t>& explained, Explanation& into) {
    const auto own = evaluate(workspace_, best.suspect->recipe);
    const auto explains = [&](const Item& item) {
      return best.fit.all() ? item.fit.all() : fits_all(item, explained);
    };
    for (Item& item : items_) {
      if (&item == &best || item.suspect->made.size() != best.suspect->made.size()) continue;
      if (item.suspect->rounding != best.suspect->rounding || !explains(item)) continue;
      confirm(item);
      if (!explains(item)) continue;
      into.same.push_back(labels_of(item.suspect->made));
      const auto others = evaluate(workspace_, item.suspect->recipe);
      if (own && others) tell_apart(*own, *others, into.same.back());
    }
    for (const Made& made : best.suspect->made) {
      for (std::size_t n = 0; n < singles_.size(); ++n) {
        const Made& own_name = singles_[n].made.front();
        if (own_name.mistake != made.mistake || own_name.value != made.value) continue;
        into.same.insert(into.same.end(), labels_[n].begin(), labels_[n].end());
      }
    }
  }

  [[nodiscard]] static bool fits_all(const Item& item, const std::vector<std::size_t>& which) {
    return std::ranges::all_of(which, [&](std::size_t n) { return item.fit.fits[n]; });
  }

  /// A gradient that was not dumped, in which two explanations differ.
  void tell_apart(const AllCells& a, const AllCells& b, const std::string& label) {
    for (std::size_t of = 0; of < a.size(); ++of) {
      const auto is = [&](const ObservedGradient& g) {
        return static_cast<std::size_t>(g.of) == of;
      };
      if (std::ranges::any_of(dump_.gradients, is) || a[of].value.size() != b[of].value.size())
        continue;
      if (apart(a[of], b[of]) <= deviations) continue;
      out_.would_decide.push_back(
          sentence(name_of(static_cast<GradientOf>(of)), " tells ", label, " apart"));
      return;
    }
  }

  /// Root mean square of differences, in deviations of the first.
  static double apart(const Cells& a, const Cells& b) {
    double squares = 0;
    for (std::size_t n = 0; n < a.value.size(); ++n) {
      const double x = std::min(used(b.value[n], a.value[n], a.noise[n]), 1e150);
      squares += x * x;
    }
    return a.value.empty() ? 0 : std::sqrt(squares / static_cast<double>(a.value.size()));
  }

  /// The nearest single mistake that does not explain the dump, or the claim.
  void add_next(const Item& best) {
    const auto own = evaluate(workspace_, best.suspect->recipe);
    const Suspect claim;
    std::optional<Explanation> next;
    const auto consider = [&](const Suspect& suspect) {
      const auto cells = evaluate(workspace_, suspect.recipe);
      if (!own || !cells) return;
      double furthest = 0;
      for (const ObservedGradient& found : dump_.gradients) {
        const auto of = static_cast<std::size_t>(found.of);
        if ((*own)[of].value.size() != (*cells)[of].value.size()) return;
        furthest = std::max(furthest, apart((*own)[of], (*cells)[of]));
      }
      if (furthest <= 1 || (next && next->apart <= furthest)) return;
      next = Explanation{.mistakes = suspect.made, .distance = furthest, .apart = furthest};
    };
    consider(claim);
    for (const Item& item : items_) {
      if (!item.fit.all() && item.suspect->made.size() == 1) consider(*item.suspect);
    }
    if (next) out_.explanations.push_back(std::move(*next));
  }

  /// What comes nearer than the claim, though it does not fit; else the claim.
  void nearest() {
    const auto distance_of = [](const Fit& fit) {
      double squares = 0;
      for (const double x : fit.distance) squares += x * x;
      return std::sqrt(squares);
    };
    const auto claim = fit_on(workspace_, {});
    const double least = claim ? distance_of(*claim) : std::numeric_limits<double>::infinity();
    for (const Item* item : by_merit()) {
      const double distance = distance_of(item->fit);
      if (!(distance < 0.99 * least)) continue;
      out_.nearest.push_back({.mistakes = item->suspect->made, .distance = distance});
      if (out_.nearest.size() == 3) return;
    }
    if (out_.nearest.empty()) out_.nearest.push_back({.distance = least});
  }

  const Wanted& wanted_;
  const GradientDump& dump_;
  Workspace workspace_;
  Workspace few_;
  Sample all_;
  ThreadPool pool_;
  int passes_left_;
  std::int64_t unconfirmed_ = 0;
  std::vector<const Suspect*> without_sample_{};
  std::vector<Suspect> singles_{};
  std::vector<std::vector<std::string>> labels_{};
  std::vector<std::unique_ptr<Suspect>> pairs_{};
  std::vector<Item> items_{};
  Found out_{};
};

}  // namespace

Found search(const Wanted& wanted, const Sample& sample) { return Search(wanted, sample).run(); }

}  // namespace attest::check::gradients
