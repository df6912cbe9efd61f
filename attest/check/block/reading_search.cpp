// SPDX-License-Identifier: MIT
#include "attest/check/block/reading_search.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "attest/base/text.h"
#include "attest/check/block/measure.h"

namespace attest::check::block {
namespace {

/// So many of the nearest readings are tried with every epsilon.
constexpr std::size_t most_refined = 8;

class ReadingSearch {
 public:
  ReadingSearch(const Trial& trial, const BlockDump& dump, std::span<const ReadingAxis> axes,
                const DiagnoseOptions& options)
      : dump_(dump), axes_(axes), options_(options), measurer_(trial) {}

  Readings run(std::size_t most_changes) {
    const Picks assumed(axes_.size(), 0);
    for (std::size_t changes = 0; changes <= std::min(most_changes, axes_.size()); ++changes) {
      if (options_.progress) {
        options_.progress("what was not said",
                          static_cast<double>(changes) / static_cast<double>(axes_.size() + 1));
      }
      enumerate(assumed, 0, changes);
      refine();
      if (std::any_of(known_.begin(), known_.end(),
                      [](const auto& one) { return one.second.explains(); })) {
        break;
      }
    }
    Readings out = chosen();
    out.tried = measurer_.tried;
    return out;
  }

 private:
  /// Every reading with so many changes in the axes from this one on.
  void enumerate(Picks picks, std::size_t from, std::size_t changes) {
    if (changes == 0) {
      measure(picks);
      return;
    }
    for (std::size_t a = from; a < axes_.size(); ++a) {
      if (axes_[a].fine) continue;
      for (std::size_t c = 1; c < axes_[a].choices.size(); ++c) {
        Picks next = picks;
        next[a] = c;
        enumerate(std::move(next), a + 1, changes - 1);
      }
    }
  }

  /// Outcomes without fits do not fit the shapes, and are not kept.
  const Outcome* measure(const Picks& picks) {
    const auto found = known_.find(picks);
    if (found != known_.end()) return &found->second;
    Outcome outcome = measurer_.measure(recipe_of(dump_, axes_, picks));
    if (outcome.fits.empty()) return nullptr;
    return &known_.emplace(picks, std::move(outcome)).first->second;
  }

  [[nodiscard]] std::vector<const Picks*> by_nearness() const {
    std::vector<const Picks*> out;
    for (const auto& one : known_) out.push_back(&one.first);
    std::stable_sort(out.begin(), out.end(), [this](const Picks* a, const Picks* b) {
      return nearer(known_.at(*a), known_.at(*b));
    });
    return out;
  }

  void refine() {
    std::vector<Picks> nearest;  // with the assumed epsilon: one of each kind
    for (const Picks* near : by_nearness()) {
      if (nearest.size() < most_refined && !refined(*near)) nearest.push_back(*near);
    }
    for (const Picks& picks : nearest) {
      for (std::size_t a = 0; a < axes_.size(); ++a) {
        if (!axes_[a].fine) continue;
        for (std::size_t c = 0; c < axes_[a].choices.size(); ++c) {
          Picks next = picks;
          next[a] = c;
          measure(next);
        }
      }
    }
  }

  [[nodiscard]] bool refined(const Picks& picks) const {
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      if (axes_[a].fine && picks[a] != 0) return true;
    }
    return false;
  }

  [[nodiscard]] bool differs_coarsely(const Picks& a, const Picks& b) const {
    std::size_t axes = 0;
    for (std::size_t n = 0; n < axes_.size(); ++n) axes += a[n] != b[n] && !axes_[n].fine ? 1 : 0;
    return axes >= 2;
  }

  Readings chosen() {
    Readings out;
    const std::vector<const Picks*> order = by_nearness();
    if (order.empty()) return {Picks(axes_.size(), 0), false, {}, {}, 0};
    // Of those that are as good, the one with the fewest changes, then the nearest.
    const std::size_t good = known_.at(*order.front()).good_links();
    const Picks* best = nullptr;
    for (const Picks* picks : order) {
      if (known_.at(*picks).good_links() < good) break;
      if (best == nullptr || changes_in(*picks) < changes_in(*best)) best = picks;
    }
    out.picks = *best;
    out.fits = known_.at(*best).explains();
    if (!out.fits) return out;
    for (const Picks* picks : order) {
      if (known_.at(*picks).explains() && differs_coarsely(*picks, out.picks)) {
        out.others.push_back(*picks);
      }
    }
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      std::vector<std::size_t> same;
      for (std::size_t c = 0; c < axes_[a].choices.size(); ++c) {
        if (c == out.picks[a]) continue;
        Picks next = out.picks;
        next[a] = c;
        const Outcome* outcome = measure(next);
        if (outcome != nullptr && outcome->explains()) same.push_back(c);
      }
      if (!same.empty()) out.alike.emplace_back(a, std::move(same));
    }
    return out;
  }

  const BlockDump& dump_;
  std::span<const ReadingAxis> axes_;
  const DiagnoseOptions& options_;
  Measurer measurer_;
  std::map<Picks, Outcome> known_{};
};

bool decides(const ReadingAxis& axis, const std::vector<std::size_t>& alike) {
  return !axis.fine && alike.size() + 1 < axis.choices.size();
}

/// "gelu (--activation gelu)"
std::string with_flag(const ReadingChoice& choice) {
  return choice.say.empty() ? choice.is : sentence(choice.is, " (", choice.say, ")");
}

}  // namespace

Readings search_readings(const Trial& trial, const BlockDump& dump,
                         std::span<const ReadingAxis> axes, const DiagnoseOptions& options) {
  return ReadingSearch(trial, dump, axes, options).run(axes.size());
}

bool ambiguous(std::span<const ReadingAxis> axes, const Readings& readings) {
  if (!readings.others.empty()) return true;
  return std::any_of(readings.alike.begin(), readings.alike.end(),
                     [&](const auto& alike) { return decides(axes[alike.first], alike.second); });
}

std::string ambiguous_text(std::span<const ReadingAxis> axes, const Readings& readings) {
  std::vector<std::string> parts;
  for (const auto& [a, alike] : readings.alike) {
    if (!decides(axes[a], alike)) continue;
    std::vector<std::string> choices{with_flag(axes[a].choices[readings.picks[a]])};
    for (const std::size_t c : alike) choices.push_back(with_flag(axes[a].choices[c]));
    parts.push_back(sentence("you did not say ", axes[a].what, ": ", listed(choices),
                             " give the same numbers here, and differ elsewhere"));
  }
  if (!readings.others.empty()) {
    std::string all = assumed_text(axes, readings.picks);
    for (const Picks& other : readings.others) all += "; or " + assumed_text(axes, other);
    parts.push_back("two readings or more give these numbers: " + all);
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "; ") + part;
  return out;
}

std::vector<std::string> alike_texts(std::span<const ReadingAxis> axes, const Readings& readings) {
  std::vector<std::string> out;
  for (const auto& [a, alike] : readings.alike) {
    if (decides(axes[a], alike)) continue;
    std::vector<std::string> choices{axes[a].choices[readings.picks[a]].is};
    for (const std::size_t c : alike) choices.push_back(axes[a].choices[c].is);
    out.push_back(axes[a].fine ? sentence(listed(choices), " for ", axes[a].what,
                                          " give the same numbers here, to within rounding")
                               : sentence(axes[a].what, " makes no difference to these numbers"));
  }
  return out;
}

std::vector<Picks> families(std::span<const ReadingAxis> axes) {
  const auto with = [&](Picks picks, std::string_view what, std::string_view is) {
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (axes[a].what != what) continue;
      for (std::size_t c = 0; c < axes[a].choices.size(); ++c) {
        if (axes[a].choices[c].is == is) picks[a] = c;
      }
    }
    return picks;
  };
  const Picks assumed(axes.size(), 0);
  std::vector<Picks> out{assumed, with(assumed, "the activation", "gelu-tanh")};
  const Picks encoder =
      with(with(assumed, "where the norms stand", "post"), "whether it is causal", "not causal");
  out.push_back(encoder);
  out.push_back(with(encoder, "epsilon", "1e-12"));
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].what != "how positions enter") continue;
    for (std::size_t c = 0; c < axes[a].choices.size(); ++c) {
      Picks picks = assumed;
      picks[a] = c;
      for (const char* epsilon : {"1e-05", "1e-06"}) out.push_back(with(picks, "epsilon", epsilon));
    }
  }
  std::vector<Picks> once;
  for (const Picks& picks : out) {
    if (std::find(once.begin(), once.end(), picks) == once.end()) once.push_back(picks);
  }
  return once;
}

}  // namespace attest::check::block
