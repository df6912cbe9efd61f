// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attest/base/text.h"
#include "attest/check/at_index.h"
#include "attest/check/diagnose/excuse.h"
#include "attest/check/diagnose/fit.h"
#include "attest/check/diagnose/rivals.h"
#include "attest/check/diagnose/verdict.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double far_better = 2;  // times nearer than the claim
constexpr int most_rounds = 4;    // of a search that a row outside the samples contradicted
constexpr std::size_t most_confirmed = 6;
constexpr std::size_t most_shown = 4;
constexpr std::size_t labels_shown = 90;  // characters: two lines with what is said of them
/// What comes nearest is told if it leaves so small a part of the difference, or so little of rounding.
constexpr double worth_telling = 4;

bool only_rounding(const Candidate& candidate) {
  return std::ranges::all_of(
             candidate.mistakes,
             [](const Made& made) { return made.mistake->kind != MistakeKind::wrong; }) &&
         candidate.fitted.empty();
}

/// Roundings to the claimed type itself, which a program of that type may make.
bool is_own_rounding(Precision precision, const Candidate& candidate) {
  if (precision == Precision::f64 || precision == Precision::f32) return false;
  return only_rounding(candidate) && std::ranges::all_of(candidate.mistakes, [&](const Made& made) {
           const std::string_view name = made.mistake->name;
           return !name.starts_with("num.") ||
                  name.ends_with("_" + std::string(name_of(precision)));
         });
}

bool only_harmless(const Candidate& candidate) {
  return std::ranges::all_of(candidate.mistakes, [](const Made& made) {
    return made.mistake->kind == MistakeKind::harmless;
  });
}

/// What was found on one dump, whole or a link.
struct Named {
  std::optional<Candidate> best{};
  Judged judged{};  // the best on all rows
  double distance = infinity;
  Searched searched{};
  bool confirmed = false;
};

std::optional<std::int64_t> worst_row(const Judged& judged) {
  std::optional<std::int64_t> out;
  double used = 1;
  for (std::int64_t n = 0; n < judged.rows.count(); ++n) {
    for (const auto& fits : judged.fits) {
      const double here = fits[at_index(n)].typical_used;
      if (here > used) {
        used = here;
        out = n;
      }
    }
  }
  return out;
}

/// Of explanations that this input cannot tell from the nearest, the one with the fewest values comes
/// first: a constant of one's own can imitate what needs none.
void prefer_plain(const Dump& dump, const Samples& samples, std::vector<Candidate>& fitting,
                  ThreadPool& pool) {
  if (fitting.size() < 2) return;
  std::size_t least = values_in(fitting.front());
  std::string plain;
  for (const Rival& rival : rivals_of(dump, samples, fitting.front(), fitting, pool)) {
    const bool close = rival.same || rival.apart < cannot_tell;
    if (!close || values_in(rival.candidate) >= least) continue;
    if (rival.candidate.size() > fitting.front().size()) continue;
    least = values_in(rival.candidate);
    plain = rival.candidate.label();
  }
  const auto found = std::ranges::find_if(
      fitting, [&](const Candidate& candidate) { return candidate.label() == plain; });
  if (found != fitting.end()) std::rotate(fitting.begin(), found, found + 1);
}

/// So many names of the same numbers are listed at most.
constexpr std::size_t most_variants = 64;

/// A mistake, and before all others of the class that gives its numbers here.
std::vector<Made> names_of(const Searched& searched, const Made& own) {
  const auto is_own = [&](const Candidate& one) {
    return one.mistakes.front().label() == own.label();
  };
  std::vector<Made> out{own};
  for (const std::vector<Candidate>& alike : searched.alike) {
    if (std::ranges::none_of(alike, is_own)) continue;
    for (const Candidate& other : alike) {
      if (!is_own(other)) out.push_back(other.mistakes.front());
    }
  }
  return out;
}

/// The same mistakes, each replaced by those that give its numbers here.
std::vector<Candidate> variants_of(const Dump& dump, const Searched& searched,
                                   const Candidate& best) {
  std::vector<std::vector<Made>> lists{{}};
  for (const Made& own : best.mistakes) {
    std::vector<std::vector<Made>> longer;
    for (const Made& name : names_of(searched, own)) {
      for (const std::vector<Made>& list : lists) {
        if (longer.size() == most_variants) break;
        longer.push_back(list);
        longer.back().push_back(name);
      }
    }
    lists = std::move(longer);
  }
  std::vector<Candidate> out;
  for (std::size_t n = 1; n < lists.size(); ++n) {  // the first is the best itself
    Candidate other{.mistakes = lists[n], .fitted = best.fitted};
    const bool made = best.fitted.empty() && std::ranges::all_of(lists[n], [&](const Made& one) {
                        return one.mistake->make(other.recipe, dump.claim, one.value);
                      });
    if (made) out.push_back(std::move(other));
  }
  return out;
}

/// And of all others of as many mistakes that fit; each once, and none that is among those itself.
std::vector<Candidate> all_variants(const Dump& dump, const Searched& searched,
                                    const Candidate& best) {
  std::vector<Candidate> out = variants_of(dump, searched, best);
  std::set<std::string> labels;
  for (const Candidate& own : out) labels.insert(own.label());
  for (const Candidate& fitting : searched.fitting) labels.insert(fitting.label());
  for (const Candidate& fitting : searched.fitting) {
    if (fitting.size() != best.size() || fitting.label() == best.label()) continue;
    for (Candidate& variant : variants_of(dump, searched, fitting)) {
      if (out.size() >= 4 * most_variants) return out;
      if (labels.insert(variant.label()).second) out.push_back(std::move(variant));
    }
  }
  return out;
}

/// Searches the samples and confirms on all rows; a row that contradicts joins the samples.
Named name(const Dump& dump, const Noise& noise, Samples& samples, const DiagnoseOptions& options,
           ThreadPool& pool) {
  Named out;
  const SearchOptions search_options{options.most_mistakes, options.progress};
  std::int64_t tried = 0;
  for (int round = 0; round < most_rounds; ++round) {
    out.searched = search(dump, samples, search_options, pool);
    tried += out.searched.tried;
    out.searched.tried = tried;
    prefer_plain(dump, samples, out.searched.fitting, pool);
    std::optional<std::int64_t> contradiction;
    for (std::size_t n = 0; n < std::min(most_confirmed, out.searched.fitting.size()); ++n) {
      const Candidate& candidate = out.searched.fitting[n];
      std::optional<Judged> judged = judge(dump, candidate.recipe, noise, NaNs::explained, pool);
      if (!judged) continue;
      if (judged->possible() || (samples.all && candidate.fit.fits())) {
        out.best = candidate;
        out.distance = judged->distance();
        out.judged = std::move(*judged);
        out.confirmed = true;
        return out;
      }
      if (!contradiction) contradiction = worst_row(*judged);
    }
    if (!contradiction || samples.all) return out;
    add_sample(dump, noise, *contradiction, samples);
  }
  return out;
}

Explanation explanation_of(const Claim& claim, const Candidate& candidate, double distance,
                           double apart) {
  Explanation out{.mistakes = candidate.mistakes,
                  .distance = distance,
                  .apart = apart,
                  .fitted = candidate.fitted};
  if (out.fitted.empty()) out.fitted = constants_of(claim, candidate.recipe);
  return out;
}

/// What of the catalogue this input cannot tell from a right dump.
void remark_on_coincidences(const Evidence& evidence, bool of_probe, ThreadPool& pool,
                            Diagnosis& out) {
  const Samples samples = choose_samples(evidence.dump, evidence.claim, evidence.noise);
  std::vector<Candidate> singles = single_mistakes(evidence.dump);
  out.tried += static_cast<std::int64_t>(singles.size());
  pool.run(static_cast<std::int64_t>(singles.size()), [&](std::int64_t n) {
    Candidate& candidate = singles[at_index(n)];
    candidate.fit = fit_of(evidence.dump, samples, candidate.recipe, 1);
  });
  std::erase_if(singles, [](const Candidate& candidate) {
    return !candidate.fit.fits() || only_harmless(candidate);
  });
  if (singles.empty()) return;
  std::vector<Candidate> same;
  std::vector<std::string> near;
  for (const Rival& rival : rivals_of(evidence.dump, samples, {}, singles, pool)) {
    if (rival.same && !only_rounding(rival.candidate)) same.push_back(rival.candidate);
    if (!rival.same && rival.apart < cannot_tell) near.push_back(rival.candidate.label());
  }
  const std::vector<bool> always = same_on_any_input(evidence.dump, samples, {}, same, pool);
  std::vector<std::string> here, anywhere;
  for (std::size_t n = 0; n < same.size(); ++n) {
    (always[n] ? anywhere : here).push_back(same[n].label());
  }
  if (!here.empty()) {
    out.remarks.push_back(sentence("the same numbers would come of ",
                                   joined_labels(here, labels_shown),
                                   of_probe ? "" : "; on the input of `attest probe` they differ"));
  }
  if (!anywhere.empty()) {
    out.remarks.push_back(sentence("no finite numbers of these sizes would show: ",
                                   joined_labels(anywhere, labels_shown)));
  }
  if (!near.empty()) {
    out.remarks.push_back(sentence("this input cannot tell these from rounding: ",
                                   joined_labels(near, labels_shown)));
  }
}

/// Ranks what else there is beside the best explanation.
void add_rivals(const Evidence& evidence, const Dump& dump, const Samples& samples,
                const Named& named, ThreadPool& pool, Diagnosis& out) {
  const Candidate& best = *named.best;
  std::vector<Candidate> others;
  others.push_back({});  // the claim
  const auto is_best = [&](const Candidate& other) { return other.label() == best.label(); };
  for (const Candidate& single : named.searched.singles) {
    if (!is_best(single) && !only_harmless(single)) others.push_back(single);
  }
  for (const Candidate& fitting : named.searched.fitting) {
    if (fitting.size() > 1 && !is_best(fitting)) others.push_back(fitting);
  }
  for (Candidate& variant : all_variants(dump, named.searched, best)) {
    if (!is_best(variant)) others.push_back(std::move(variant));
  }
  Explanation& first = out.explanations.front();
  std::vector<const Candidate*> close;
  bool margin_known = false;
  const std::vector<Rival> rivals = rivals_of(dump, samples, best, others, pool);
  for (const Rival& rival : rivals) {
    if (rival.same) {
      first.same.push_back(rival.candidate.label());
      continue;
    }
    // What has more to choose is no rival: it lies near everything.
    const bool is_rival =
        rival.candidate.size() <= best.size() &&
        (rival.candidate.size() < best.size() || values_in(rival.candidate) <= values_in(best));
    if (is_rival && !margin_known) out.margin = rival.apart;
    margin_known = margin_known || is_rival;
    if (is_rival && rival.apart < cannot_tell) close.push_back(&rival.candidate);
    if (out.explanations.size() < most_shown) {
      const SampleFit fit = fit_of(dump, samples, rival.candidate.recipe, infinity);
      out.explanations.push_back(
          explanation_of(evidence.dump.claim, rival.candidate, fit.distance(), rival.apart));
    }
  }
  for (const Candidate* other : close) {
    if (out.would_decide.size() < 3) {
      out.would_decide.push_back(would_tell(dump, samples, best, *other));
    }
  }
  if (!close.empty()) out.judgement = Judgement::undecided;
  std::vector<Candidate> same;
  for (const Rival& rival : rivals) {
    if (rival.same && !only_rounding(rival.candidate)) same.push_back(rival.candidate);
  }
  const std::vector<bool> always = same_on_any_input(dump, samples, best, same, pool);
  std::vector<std::string> anywhere;
  for (std::size_t n = 0; n < same.size(); ++n) {
    if (always[n]) {
      anywhere.push_back(same[n].label());
    } else if (out.would_decide.size() < 3) {
      out.would_decide.push_back(would_tell(dump, samples, best, same[n]));
    }
  }
  if (!anywhere.empty()) {
    out.would_decide.push_back(sentence("nothing of these sizes: for all finite numbers ",
                                        best.label(), " is there the same as ",
                                        joined_labels(anywhere, labels_shown)));
  }
}

void add_nearest(const Evidence& evidence, const Samples& samples, const Searched& searched,
                 Diagnosis& out) {
  std::vector<Candidate> singles = searched.singles;
  std::stable_sort(singles.begin(), singles.end(), [](const Candidate& a, const Candidate& b) {
    if (a.fit.rows != b.fit.rows) return a.fit.rows > b.fit.rows;
    return a.fit.distance() < b.fit.distance();
  });
  std::vector<Explanation> nearest;
  for (std::size_t n = 0; n < std::min<std::size_t>(12, singles.size()); ++n) {
    const SampleFit fit = fit_of(evidence.dump, samples, singles[n].recipe, infinity);
    nearest.push_back(explanation_of(evidence.dump.claim, singles[n], fit.distance(), infinity));
  }
  std::stable_sort(nearest.begin(), nearest.end(), [](const Explanation& a, const Explanation& b) {
    return a.distance < b.distance;
  });
  // What leaves most of the difference explains nothing: to name it would mislead.
  const double of_claim = fit_of(evidence.dump, samples, {}, infinity).distance();
  std::erase_if(nearest, [&](const Explanation& near) {
    if (!std::isfinite(near.distance)) return true;  // NaN where the dump has none, or back
    return !(near.distance <= of_claim / worth_telling || near.distance <= worth_telling);
  });
  if (nearest.size() > 3) nearest.resize(3);
  out.nearest = std::move(nearest);
}

/// If all tables together have no explanation, perhaps the first that is wrong by itself has one.
void explain_link(const Evidence& evidence, const DiagnoseOptions& options, ThreadPool& pool,
                  Diagnosis& out) {
  if (!evidence.wrong_link) return;
  const Link& link = evidence.links[*evidence.wrong_link];
  const Noise noise(link.dump);
  const std::optional<Judged> judged = judge(link.dump, {}, noise, NaNs::as_claimed, pool);
  if (!judged) return;
  Samples samples = choose_samples(link.dump, *judged, noise);
  const Named named = name(link.dump, noise, samples, options, pool);
  out.tried += named.searched.tried;
  if (!named.best) return;
  out.judgement = Judgement::wrong_named;
  out.remarks.push_back(sentence("explained from ", out.stages[link.from].name, " to ",
                                 out.stages[link.to].name,
                                 " alone: nothing explains all tables together"));
  out.explanations = {explanation_of(link.dump.claim, *named.best, named.distance, 0)};
  add_rivals(evidence, link.dump, samples, named, pool, out);
}

/// Not nearer than any arithmetic of its number type must come: right, if rounding is an excuse that
/// not everything would have.
void excuse(const Evidence& evidence, Diagnosis& out) {
  const Excuse excuse = excuse_of(evidence.dump, evidence.claim, evidence.noise);
  if (excuse.holds()) {
    out.judgement = Judgement::right_by_rounding;
    return;
  }
  out.judgement = Judgement::undecided;
  out.would_decide = excuse.would_decide(evidence.dump);
  for (std::string& remark : excuse.remarks()) out.remarks.push_back(std::move(remark));
}

bool is_right_pattern(const Judged& judged) {
  for (std::size_t t = 0; t < judged.tables.size(); ++t) {
    if (judged.total(t).nan_both > 0) return false;
  }
  return true;
}

}  // namespace

void give_verdict(const Evidence& evidence, const DiagnoseOptions& options, ThreadPool& pool,
                  Diagnosis& out) {
  const Judged& claim = evidence.claim;
  if (claim.typical()) {
    if (!is_right_pattern(claim)) {
      out.judgement = Judgement::undecided;
      out.remarks.emplace_back(
          "the claim itself gives NaN in places: a NaN that meets a NaN proves nothing");
      out.would_decide.emplace_back("the same call with finite numbers in all that is visible");
      return;
    }
    out.tells = claim.tells();
    if (!out.tells) {
      out.judgement = Judgement::undecided;
      out.remarks.emplace_back(
          "nothing is beyond its tolerance, and zeros would not be either: scores or values are "
          "too "
          "large or too small for this number type to say more");
      out.would_decide.emplace_back("inputs of ordinary size: `attest probe` writes some");
      return;
    }
    out.judgement = Judgement::right;
    remark_on_coincidences(evidence, options.of_probe, pool, out);
    return;
  }
  Samples samples = choose_samples(evidence.dump, claim, evidence.noise);
  const Named named = name(evidence.dump, evidence.noise, samples, options, pool);
  out.tried += named.searched.tried;
  out.sampled = !samples.all && !named.confirmed;
  const bool possible = claim.possible();
  const Precision precision = evidence.dump.claim.precision;
  if (!named.best) {
    if (possible) {
      excuse(evidence, out);
      return;
    }
    out.judgement = Judgement::wrong_unexplained;
    add_nearest(evidence, samples, named.searched, out);
    explain_link(evidence, options, pool, out);
    return;
  }
  out.explanations = {explanation_of(evidence.dump.claim, *named.best, named.distance, 0)};
  const bool better = named.distance * far_better < claim.distance();
  const bool own_rounding = is_own_rounding(precision, *named.best);
  if (possible && own_rounding) {
    out.judgement = Judgement::right_by_rounding;
    return;
  }
  if (possible && !better) {
    // What gives the claim's own numbers here is not worth a word.
    if (named.distance < 0.99 * claim.distance()) {
      out.remarks.push_back(sentence(named.best->label(),
                                     " gives these numbers too, but not twice as nearly: rounding "
                                     "alone explains them as well"));
    }
    out.explanations.clear();
    excuse(evidence, out);
    return;
  }
  const bool fits = named.judged.typical();
  if (!better && !fits) {
    out.explanations.clear();
    out.judgement = Judgement::wrong_unexplained;
    add_nearest(evidence, samples, named.searched, out);
    explain_link(evidence, options, pool, out);
    return;
  }
  out.judgement = Judgement::wrong_named;
  add_rivals(evidence, evidence.dump, samples, named, pool, out);
}

}  // namespace attest::check
