// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attest/check/at_index.h"
#include "attest/check/diagnose/fit.h"

namespace attest::check {
namespace {

/// How far beyond its noise a number may be before a recipe is dropped: what is near is worth a look
/// at the other rows, for the noise of a mistake's numbers is estimated.
constexpr double contradiction = 4;

/// Explanations this much apart in what they leave are as good.
constexpr double as_good = 1.05;

/// What a first row of a recipe costs at most before pairs of it are left out: a thousand of them, some
/// seconds.
constexpr double costly_work = 1e6;
/// The same for triples, of which there are some tens of times as many, and for what is searched itself.
constexpr double costly_search = 2e5;

/// What a row may cost for pairs that are unlikely: some 10⁴ of them in a second.
constexpr double small_row = 2e4;

double work_of_row(const lab::AttentionShape& shape) {
  return static_cast<double>(std::max<std::int64_t>(1, shape.S)) *
         static_cast<double>(shape.D + shape.E + 8);
}

double work_of_head(const lab::AttentionShape& shape) {
  return static_cast<double>(shape.T) * static_cast<double>(shape.S) *
         static_cast<double>(shape.D + 8) * static_cast<double>(std::max(shape.H, shape.B));
}

/// What the first row of a softmax over another axis costs: all rows that it runs over.
double work_of_columns(const lab::AttentionShape& shape, SoftmaxOver over) {
  const std::int64_t rows = over == SoftmaxOver::keys    ? 1
                            : over == SoftmaxOver::heads ? shape.H
                            : over == SoftmaxOver::batch ? shape.B
                                                         : shape.T;
  return work_of_row(shape) * static_cast<double>(rows);
}

/// Runs `recipe_of(n)` for n < count on all threads, and keeps what fits.
class Trials {
 public:
  Trials(const Dump& dump, const Samples& samples, ThreadPool& pool)
      : dump_(dump), samples_(samples), pool_(pool) {}

  /// Fills in the fits of these.
  void run(std::vector<Candidate>& candidates) {
    pool_.run(static_cast<std::int64_t>(candidates.size()), [&](std::int64_t n) {
      Candidate& candidate = candidates[at_index(n)];
      candidate.fit = fit_of(dump_, samples_, candidate.recipe, contradiction);
    });
    tried += static_cast<std::int64_t>(candidates.size());
  }

  /// `first[n]` with every one of `second` from `from(n)` on, of other axes. Keeps those that fit in
  /// `fitting` and the nearest in `near`.
  struct Kept {
    std::vector<Candidate> fitting{}, near{};
  };
  Kept combine(const std::vector<Candidate>& first, const std::vector<Candidate>& second,
               bool ordered, std::size_t nearest, const std::function<void(double)>& progress) {
    std::vector<Kept> parts(first.size());
    std::vector<std::int64_t> counts(first.size());
    pool_.run(static_cast<std::int64_t>(first.size()), [&](std::int64_t n) {
      counts[at_index(n)] = combine_one(first[at_index(n)], second, ordered ? at_index(n) + 1 : 0,
                                        nearest, parts[at_index(n)]);
      if (progress && n % 16 == 0) {
        progress(static_cast<double>(n) / static_cast<double>(first.size()));
      }
    });
    Kept out;
    for (Kept& part : parts) {
      std::move(part.fitting.begin(), part.fitting.end(), std::back_inserter(out.fitting));
      std::move(part.near.begin(), part.near.end(), std::back_inserter(out.near));
      keep_nearest(out.near, nearest);
    }
    for (const std::int64_t count : counts) tried += count;
    return out;
  }

  std::int64_t tried = 0;

 private:
  static double rank(const Candidate& candidate) {
    // Rows that fitted before one did not count for it.
    return candidate.fit.distance() /
           static_cast<double>(std::max<std::int64_t>(1, candidate.fit.rows));
  }
  static void keep_nearest(std::vector<Candidate>& near, std::size_t most) {
    std::stable_sort(near.begin(), near.end(),
                     [](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    if (near.size() > most) near.resize(most);
  }

  std::int64_t combine_one(const Candidate& first, const std::vector<Candidate>& second,
                           std::size_t from, std::size_t nearest, Kept& out) const {
    std::int64_t count = 0;
    for (std::size_t n = from; n < second.size(); ++n) {
      std::optional<Candidate> both = together(first, second[n]);
      if (!both) continue;
      ++count;
      both->fit = fit_of(dump_, samples_, both->recipe, contradiction);
      if (both->fit.fits()) out.fitting.push_back(*both);
      if (nearest == 0) continue;
      out.near.push_back(std::move(*both));
      if (out.near.size() > 4 * nearest) keep_nearest(out.near, nearest);
    }
    return count;
  }

  [[nodiscard]] std::optional<Candidate> together(const Candidate& a, const Candidate& b) const {
    for (const Made& one : a.mistakes) {
      for (const Made& other : b.mistakes) {
        if (one.mistake->axis == other.mistake->axis) return std::nullopt;
      }
    }
    Candidate out{.mistakes = a.mistakes, .recipe = a.recipe};
    for (const Made& made : b.mistakes) {
      if (!made.mistake->make(out.recipe, dump_.claim, made.value)) return std::nullopt;
      out.mistakes.push_back(made);
    }
    return out;
  }

  const Dump& dump_;
  const Samples& samples_;
  ThreadPool& pool_;
};

/// The mistakes that are met most, and together: triples of these are all tried.
constexpr std::array<std::string_view, 26> usual{"layout.heads_split_by_reshape",
                                                 "layout.heads_merged_by_reshape",
                                                 "layout.k_v_swapped",
                                                 "gqa.tile",
                                                 "scale.none",
                                                 "scale.twice",
                                                 "scale.sqrt_d_model",
                                                 "softcap.missing",
                                                 "softcap.after_mask",
                                                 "softcap.before_scale",
                                                 "mask.ignored",
                                                 "mask.inverted",
                                                 "mask.bool_added_as_float",
                                                 "causal.missing",
                                                 "causal.top_left",
                                                 "causal.ignores_past",
                                                 "causal.bottom_right",
                                                 "window.W+1_keys",
                                                 "window.missing",
                                                 "rope.interleaved_for_half",
                                                 "rope.offset_missing_q",
                                                 "bias.missing",
                                                 "alibi.missing",
                                                 "sink.missing",
                                                 "empty_rows.nan",
                                                 "label.qk_modes_swapped"};

bool is_usual(const Mistake& mistake) {
  return std::ranges::find(usual, mistake.name) != usual.end();
}
bool is_usual(const Candidate& candidate) { return is_usual(*candidate.mistakes.front().mistake); }

/// How often people met these mistakes, as far as is known: it decides between names of equal numbers.
int familiarity(const Candidate& candidate) {
  int out = 0;
  for (const Made& made : candidate.mistakes) {
    if (!made.mistake->seen_in.empty()) ++out;
    if (is_usual(*made.mistake)) out += 2;
  }
  return out;
}

/// So many that a mistake which shows in some rows alone shows in one of them.
std::size_t rows_of_signature(const lab::AttentionShape& shape) {
  return static_cast<std::size_t>(std::clamp(4e5 / work_of_row(shape), 6.0, 64.0));
}

/// The numbers of some rows, as far as two recipes that mean the same agree on them.
std::vector<double> signature_of(const Dump& dump, const Samples& samples, const Recipe& recipe) {
  const std::size_t rows = rows_of_signature(samples.rows.shape);
  std::vector<double> out;
  std::optional<Evaluation> evaluation = Evaluation::make(dump, recipe);
  for (std::size_t n = 0; evaluation && n < std::min(rows, samples.samples.size()); ++n) {
    const StageRow& row = evaluation->row(samples.samples[n].at);
    for (const Table& table : samples.tables) {
      const std::span<const double> numbers = row.of(table.observed->stage);
      out.insert(out.end(), numbers.begin(), numbers.end());
    }
  }
  return out;
}

bool same_signature(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (std::isnan(a[n]) && std::isnan(b[n])) continue;
    const double size = std::max(std::fabs(a[n]), std::fabs(b[n]));
    if (a[n] != b[n] && !(std::fabs(a[n] - b[n]) <= 1e-11 * size)) return false;
  }
  return true;
}

/// What is made together with others, and the classes of those that give the same numbers here.
struct Combinable {
  std::vector<Candidate> parts{};
  std::vector<std::vector<Candidate>> alike{};
};

/// Nothing that changes no number, and one of each class. What is met most is tried for itself: alone
/// it may be like another, or show nothing, and not beside a third. So may what empty rows give.
Combinable combinable(const Dump& dump, const Samples& samples,
                      const std::vector<Candidate>& singles, ThreadPool& pool) {
  std::vector<std::vector<double>> signatures(singles.size());
  pool.run(static_cast<std::int64_t>(singles.size()), [&](std::int64_t n) {
    if (is_costly(dump.claim, singles[at_index(n)].recipe)) return;
    signatures[at_index(n)] = signature_of(dump, samples, singles[at_index(n)].recipe);
  });
  const std::vector<double> claim = signature_of(dump, samples, {});
  Combinable out;
  std::vector<const std::vector<double>*> firsts;
  for (std::size_t n = 0; n < singles.size(); ++n) {
    const Mistake& mistake = *singles[n].mistakes.front().mistake;
    if (mistake.kind == MistakeKind::harmless || signatures[n].empty()) continue;
    const bool shows_later = mistake.axis == Axis::empty_rows || is_usual(singles[n]);
    const bool shows = !same_signature(signatures[n], claim);
    std::size_t same = 0;
    while (shows && same < firsts.size() && !same_signature(*firsts[same], signatures[n])) ++same;
    if (shows && same < firsts.size()) out.alike[same].push_back(singles[n]);
    if (shows && same == firsts.size()) {
      out.alike.push_back({singles[n]});
      firsts.push_back(&signatures[n]);
    }
    if (shows_later) out.parts.push_back(singles[n]);
  }
  for (std::vector<Candidate>& same : out.alike) {
    std::ranges::stable_sort(same, std::ranges::greater{}, familiarity);
    // The most familiar one stands for the class, unless it is there already.
    if (!is_usual(same.front()) &&
        same.front().mistakes.front().mistake->axis != Axis::empty_rows) {
      out.parts.push_back(same.front());
    }
  }
  std::ranges::stable_sort(out.parts, std::ranges::less{}, [](const Candidate& part) {
    return part.mistakes.front().mistake;  // in the order of the catalogue
  });
  return out;
}

/// All that change a number somewhere, or may beside another.
std::vector<Candidate> changing(const Claim& claim, const std::vector<Candidate>& singles) {
  std::vector<Candidate> out;
  std::ranges::copy_if(singles, std::back_inserter(out), [&](const Candidate& single) {
    return single.mistakes.front().mistake->kind != MistakeKind::harmless &&
           !is_costly(claim, single.recipe);
  });
  return out;
}

/// Those that stand for none of the classes: alone they are like another, beside some they are not.
std::vector<Candidate> left_out(const std::vector<Candidate>& all,
                                const std::vector<Candidate>& parts) {
  std::vector<Candidate> out;
  std::ranges::copy_if(all, std::back_inserter(out), [&](const Candidate& one) {
    return std::ranges::none_of(parts,
                                [&](const Candidate& part) { return part.label() == one.label(); });
  });
  return out;
}

/// The fewest mistakes, then the nearest; of those that are as near, the one with the fewest values, then
/// the one that is met most.
void nearest_first(std::vector<Candidate>& candidates) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) {
    least = std::min(least, candidate.fit.distance());
  }
  const double as_near = least * as_good;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) {
                     if (a.size() != b.size()) return a.size() < b.size();
                     const bool near_a = a.fit.distance() <= as_near;
                     const bool near_b = b.fit.distance() <= as_near;
                     if (near_a != near_b) return near_a;
                     if (near_a && values_in(a) != values_in(b)) return values_in(a) < values_in(b);
                     if (near_a) return familiarity(a) > familiarity(b);
                     return a.fit.distance() < b.fit.distance();
                   });
}

std::vector<Candidate> those_that_fit(const std::vector<Candidate>& candidates) {
  std::vector<Candidate> out;
  for (const Candidate& candidate : candidates) {
    const MistakeKind kind = candidate.mistakes.front().mistake->kind;
    if (candidate.fit.fits() && kind != MistakeKind::harmless) out.push_back(candidate);
  }
  return out;
}

}  // namespace

bool is_costly(const Claim& claim, const Recipe& recipe) {
  const SoftmaxOver over = recipe.scoring.softmax.over;
  if (over != SoftmaxOver::keys && work_of_columns(claim.shape, over) > costly_work) return true;
  return recipe.scoring.mix.fitted_dropout && work_of_head(claim.shape) > costly_search;
}

std::size_t values_in(const Candidate& candidate) {
  const auto has_values = [](const Made& made) { return !made.mistake->values.empty(); };
  const auto values = std::ranges::count_if(candidate.mistakes, has_values);
  return static_cast<std::size_t>(values) + candidate.fitted.size() +
         (candidate.recipe.scoring.mix.fitted_dropout ? 1U : 0U);
}

std::string Candidate::label() const {
  std::string out;
  for (const Made& made : mistakes) out += (out.empty() ? "" : " + ") + made.label();
  for (const std::string& one : fitted) out += (out.empty() ? "" : " + ") + one;
  return out.empty() ? "as claimed" : out;
}

SampleFit fit_of(const Dump& dump, const Samples& samples, const Recipe& recipe, double most) {
  std::optional<Evaluation> evaluation = Evaluation::make(dump, recipe);
  if (!evaluation) return {.apart = true};
  return samples.fit(*evaluation, most);
}

std::vector<Candidate> single_mistakes(const Dump& dump) {
  const Claim& claim = dump.claim;
  const bool labels = claim.has_query_and_key() || dump.stages.size() > 2;
  const bool sums = std::ranges::any_of(
      dump.stages, [](const Observed& table) { return table.stage == Stage::log_sum_exp; });
  constexpr std::array no_value{0.0};
  std::vector<Candidate> out;
  for (const Mistake& mistake : catalogue()) {
    const bool of_sums = sums && mistake.name.starts_with("label.lse_");
    if (mistake.make == nullptr) continue;
    if (mistake.axis == Axis::label && !labels && !of_sums) continue;
    std::span<const double> values = mistake.values;
    if (values.empty()) values = no_value;
    for (const double value : values) {
      Candidate candidate{.mistakes = {{&mistake, value}}};
      if (mistake.make(candidate.recipe, claim, value)) out.push_back(std::move(candidate));
    }
  }
  return out;
}

Searched search(const Dump& dump, const Samples& samples, const SearchOptions& options,
                ThreadPool& pool) {
  Searched out;
  Trials trials(dump, samples, pool);
  const auto say = [&](std::string_view doing, double fraction) {
    if (options.progress) options.progress(doing, fraction);
  };
  out.singles = single_mistakes(dump);
  trials.run(out.singles);
  out.fitting = those_that_fit(out.singles);
  say("single mistakes", 1);
  const auto done = [&] {
    nearest_first(out.fitting);
    out.tried = trials.tried;
    return !out.fitting.empty();
  };
  if (done() || options.most_mistakes < 1) return out;

  say("constants", 0);
  const std::vector<Candidate> constants = fit_constants(dump, samples, pool, trials.tried);
  out.fitting = constants;
  if (done() && work_of_row(dump.claim.shape) > small_row) return out;
  if (options.most_mistakes < 2) return out;

  out.complete = std::ranges::none_of(
      out.singles, [&](const Candidate& single) { return is_costly(dump.claim, single.recipe); });
  Combinable combined = combinable(dump, samples, out.singles, pool);
  out.alike = std::move(combined.alike);
  const std::vector<Candidate>& parts = combined.parts;
  Trials::Kept pairs =
      trials.combine(parts, parts, true, 64, [&](double part) { say("pairs of mistakes", part); });
  // A constant that nobody has a name for may be what two mistakes amount to: those are said too.
  out.fitting = std::move(pairs.fitting);
  out.fitting.insert(out.fitting.end(), constants.begin(), constants.end());
  if (done()) return out;
  if (work_of_row(dump.claim.shape) <= small_row) {
    const std::vector<Candidate> all = changing(dump.claim, out.singles);
    out.fitting = trials.combine(left_out(all, parts), all, false, 0, {}).fitting;
    if (done()) return out;
  }
  out.fitting = fit_constants_beside(dump, samples, out.singles, pool, trials.tried);
  if (done() || options.most_mistakes < 3) return out;

  const auto tell = [&](double part) { say("three mistakes", part); };
  std::erase_if(pairs.near, [&](const Candidate& pair) {
    const SoftmaxOver over = pair.recipe.scoring.softmax.over;
    return over != SoftmaxOver::keys && work_of_columns(dump.claim.shape, over) > costly_search;
  });
  Trials::Kept triples = trials.combine(pairs.near, parts, false, 0, tell);
  out.fitting = std::move(triples.fitting);
  if (done()) return out;
  std::vector<Candidate> met;
  std::ranges::copy_if(parts, std::back_inserter(met),
                       [](const Candidate& candidate) { return is_usual(candidate); });
  std::vector<Candidate> two = trials.combine(met, met, true, met.size() * met.size(), {}).near;
  out.fitting = trials.combine(two, met, false, 0, tell).fitting;
  done();
  return out;
}

}  // namespace attest::check
