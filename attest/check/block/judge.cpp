// SPDX-License-Identifier: MIT
#include "attest/check/block/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attest/base/text.h"
#include "attest/check/diagnose/rivals.h"

namespace attest::check::block {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// How much of its tolerance one number uses; infinite for a NaN that only one side has.
double used_at(const Judged& t, std::size_t n) {
  const double found = t.link->found.value[n];
  const double expected = t.expected->elements()[n];
  if (found != found && expected != expected) return 0;
  if (found == expected) return 0;
  const double apart = std::fabs(found - expected);
  const double most = t.zones.most(*t.tolerance, n);
  if (!(apart < infinity)) return infinity;
  return most > 0 ? apart / most : infinity;
}

Cell cell_at(const Judged& t, std::size_t n) {
  const auto place = static_cast<std::int64_t>(n);
  const std::int64_t row = place / t.link->found.columns, column = place % t.link->found.columns;
  return {.address = t.address(row, column),
          .found = t.link->found.value[n],
          .expected = t.expected->elements()[n],
          .tolerance = t.zones.most(*t.tolerance, n),
          .sentence = t.sentence(row, column)};
}

/// "rows 3 to 7", or the like, if the set is a part of all that a sentence can say.
std::string range_text(const char* word, const std::set<std::int64_t>& places, std::int64_t all) {
  if (places.empty() || static_cast<std::int64_t>(places.size()) == all) return "";
  const std::int64_t first = *places.begin(), last = *places.rbegin();
  const bool whole = last - first + 1 == static_cast<std::int64_t>(places.size());
  if (places.size() == 1) return sentence("only ", word, " ", first);
  if (!whole) return "";
  if (last == all - 1) return sentence("only from ", word, " ", first, " on");
  return sentence("only ", word, "s ", first, " to ", last);
}

}  // namespace

Judgements judge(const Judged& t) {
  Judgements out;
  StageJudgement& j = out.judgement;
  j.name = t.link->name;
  j.stage = t.link->stage;
  const std::vector<double>& found = t.link->found.value;
  j.compared = static_cast<std::int64_t>(found.size());
  std::optional<std::size_t> first, worst;
  Numbers expected = *t.tolerance;
  std::copy_n(t.expected->data(), found.size(), expected.value.begin());
  for (std::size_t n = 0; n < found.size(); ++n) {
    const bool apart = (found[n] != found[n]) != (expected.value[n] != expected.value[n]);
    if (apart) ++j.nan_apart;
    const double used = used_at(t, n);
    const double distance = std::fabs(found[n] - expected.value[n]);
    if (distance == distance) j.worst = std::max(j.worst, distance);
    if (!worst || used > j.used) worst = n;
    j.used = std::max(j.used, used);
    if (used <= 1) continue;
    ++j.wrong;
    if (!first) first = n;
  }
  if (first) j.first_wrong = cell_at(t, *first);
  if (worst) j.worst_cell = cell_at(t, *worst);
  out.fit = fit_of(t.link->found, expected, t.zones);
  return out;
}

std::vector<double> used_by_row(const Numbers& found, const Numbers& made, const Zones& zones) {
  std::vector<double> out(static_cast<std::size_t>(found.rows), 0);
  for (std::size_t n = 0; n < found.value.size(); ++n) {
    const double a = found.value[n], b = made.value[n];
    if (a == b || (a != a && b != b)) continue;
    const double apart = std::fabs(a - b), most = zones.most(made, n);
    const double used = apart < infinity && most > 0 ? apart / most : infinity;
    double& kept = out[n / static_cast<std::size_t>(found.columns)];
    kept = std::max(kept, used);
  }
  return out;
}

std::vector<std::string> places_of(const Judged& t, const Layout& layout) {
  std::set<std::int64_t> rows, parts, sequences;
  const std::int64_t columns = t.link->found.columns;
  const std::int64_t all_rows = t.link->found.rows;
  const std::int64_t per = layout.stacked ? layout.rows * layout.parts : layout.rows;
  for (std::size_t n = 0; n < t.link->found.value.size(); ++n) {
    if (used_at(t, n) <= 1) continue;
    const auto place = static_cast<std::int64_t>(n);
    const std::int64_t row = place / columns;
    rows.insert(row % layout.rows);
    sequences.insert(row / per);
    parts.insert(layout.stacked
                     ? row / layout.rows % layout.parts
                     : place % columns / std::max<std::int64_t>(columns / layout.parts, 1));
  }
  std::vector<std::string> out;
  for (const std::string& text :
       {range_text("sequence", sequences, all_rows / per), range_text("row", rows, layout.rows),
        range_text(layout.part.c_str(), parts, layout.parts)}) {
    if (!text.empty()) out.push_back(text);
  }
  return out;
}

void conclude(const Trial& trial, const std::vector<Fit>& fits, const DiagnoseOptions& options,
              Diagnosis& out) {
  bool beyond = false;
  double farthest = 0, unusual = 0;
  for (const StageJudgement& stage : out.stages) {
    if (stage.wrong == 0) continue;
    beyond = true;
    if (out.first_wrong_stage.empty()) out.first_wrong_stage = stage.stage;
  }
  for (const Fit& fit : fits) {
    farthest = std::max(farthest, fit.distance);
    unusual = std::max(unusual, fit.unusual);
  }
  if (!beyond && farthest <= Fit::good_distance && unusual <= 1) {
    out.judgement = Judgement::right;
    Explanation claim;
    claim.distance = farthest;
    if (trial.large) {
      out.remarks.emplace_back(
          "which mistakes would not show on this input was not looked for: it is large");
    } else {
      claim.same = invisible(trial, out.tried);
    }
    out.explanations.push_back(std::move(claim));
    return;
  }
  DiagnoseOptions limited = options;
  if (!beyond) limited.most_mistakes = 1;  // within the tolerance only a clear name convicts
  Found found = search(trial, limited);
  out.tried += found.tried;
  const bool clear =
      !found.explanations.empty() && (beyond || found.explanations.front().distance < farthest / 3);
  if (!clear) {
    out.judgement = beyond ? Judgement::wrong_unexplained : Judgement::right_by_rounding;
    return;
  }
  out.judgement = Judgement::wrong_named;
  out.explanations = std::move(found.explanations);
  out.margin = out.explanations.size() > 1 ? out.explanations[1].apart : farthest;
  if (out.explanations.size() > 1 && out.margin < cannot_tell) {
    out.judgement = Judgement::undecided;
    out.would_decide.emplace_back(
        "a dump in a wider number type, with more of the block's tables, or with larger inputs");
  }
  if (out.first_wrong_stage.empty()) {
    for (std::size_t n = 0; n < fits.size(); ++n) {
      if (fits[n].distance <= Fit::good_distance) continue;
      out.first_wrong_stage = trial.links[n].stage;
      break;
    }
  }
  if (!out.explanations.front().same.empty()) {
    out.would_decide.emplace_back(
        "a dump with more of the block's tables, or with other rows, tells the rest apart");
  }
}

std::string tolerance_text(Precision precision, const Zones& zones) {
  const Rounding u = rounding_of(precision);
  return sentence(
      "number by number, what the roundings of the plain loop come to with unit roundoff ",
      three_digits(u.sum), " in sums and ", three_digits(u.store),
      " in stored tables: the largest of so many random deviations, ",
      three_digits(std::sqrt(zones.terms)), " times for what numbers of a row share (√",
      zones.terms, ", the longest sum), or the running error bound where it is less");
}

}  // namespace attest::check::block
