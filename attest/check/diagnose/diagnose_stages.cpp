// SPDX-License-Identifier: MIT
// A dump table by table: what is wrong by itself, and the exact tier's numbers for it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "attest/base/text.h"
#include "attest/check/at_index.h"
#include "attest/check/diagnose/stages.h"

namespace attest::check {
namespace {

constexpr std::size_t most_exact_rows = 12;

/// The table that this one is made of, if it is dumped.
std::optional<std::size_t> source_of(const Dump& dump, std::size_t to) {
  const Stage stage = dump.stages[to].stage;
  std::optional<std::size_t> out;
  for (std::size_t n = 0; n < to; ++n) {
    const Stage before = dump.stages[n].stage;
    if (before == Stage::log_sum_exp) continue;
    if (stage == Stage::log_sum_exp && before == Stage::weights) continue;
    out = n;
  }
  return out;
}

/// The rows that the exact tier confirms: the farthest of every table, its first unusual one, and a
/// spread of others.
std::vector<std::int64_t> rows_that_decide(const Judged& judged) {
  std::set<std::int64_t> out;
  const std::int64_t rows = judged.rows.count();
  for (const auto& fits : judged.fits) {
    std::int64_t worst = -1, first = -1;
    double used = 0;
    for (std::int64_t n = 0; n < rows; ++n) {
      const TableFit& fit = fits[at_index(n)];
      if (fit.unusual > 0 && first < 0) first = n;
      if (fit.typical_used > used) {
        used = fit.typical_used;
        worst = n;
      }
    }
    if (worst >= 0) out.insert(worst);
    if (first >= 0) out.insert(first);
  }
  for (std::int64_t k = 0; k < 6; ++k) out.insert((rows - 1) * k / 5);
  std::vector<std::int64_t> chosen(out.begin(), out.end());
  if (chosen.size() > 2 * most_exact_rows) chosen.resize(2 * most_exact_rows);
  return chosen;
}

/// Looks at rows of both tiers, and makes cells of them.
class Cells {
 public:
  Cells(const Dump& dump, const Judged& judged, const Noise& noise, const ExactRows& exact,
        Evaluation& evaluation)
      : judged_(judged),
        exact_(exact),
        evaluation_(evaluation),
        tolerances_(noise),
        own_noise_(dump, Arithmetic{.sums = 0x1p-52, .tiny = 0x1p-1022}),
        own_tolerances_(own_noise_) {}

  /// Whether exact tier and evaluation agree on this row.
  Result<void> confirm(std::int64_t n) {
    const lab::RowPlace at = judged_.rows.place(n);
    const StageRow& evaluated = evaluation_.row(at);
    const ExactRows::Row exact = exact_.row(at, evaluated);
    own_tolerances_.begin(at, evaluated);
    for (const Table& table : judged_.tables) {
      const Stage stage = table.observed->stage;
      own_tolerances_.of(stage, DType::f64, limits_);
      const std::span<const double> one = exact.stages.of(stage), other = evaluated.of(stage);
      for (std::size_t k = 0; k < one.size() && k < other.size(); ++k) {
        if (stage < Stage::masked && !RowView(evaluated).sees(k)) continue;
        const bool agree = (std::isnan(one[k]) && std::isnan(other[k])) || one[k] == other[k] ||
                           std::fabs(one[k] - other[k]) <= 4 * limits_.worst[k];
        if (agree) continue;
        return Failure{
            ErrorKind::value, "tiers-disagree",
            sentence("[check] the exact tier gives ", one[k], " for ",
                     exact_.address(stage, at, static_cast<std::int64_t>(k)),
                     ", the evaluation of the claim ", other[k], "; no verdict is built on this")};
      }
    }
    return {};
  }

  Cell cell(std::size_t table, std::int64_t n, std::int64_t k) {
    const lab::RowPlace at = judged_.rows.place(n);
    const Observed& observed = *judged_.tables[table].observed;
    const StageRow& evaluated = evaluation_.row(at);
    const ExactRows::Row exact = exact_.row(at, evaluated);
    tolerances_.begin(at, evaluated);
    tolerances_.of(observed.stage, observed.dtype, limits_);
    const std::size_t place = at_index(k);
    return {.address = exact_.address(observed.stage, at, k),
            .found = judged_.tables[table].row(n)[place],
            .expected = exact.stages.of(observed.stage)[place],
            .tolerance = limits_.typical[place] * judged_.deviation,
            .sentence = exact_.sentence_of(observed.stage, at, k, exact)};
  }

 private:
  const Judged& judged_;
  const ExactRows& exact_;
  Evaluation& evaluation_;
  Noise::Row tolerances_;
  Noise own_noise_;
  Noise::Row own_tolerances_;
  RowNoise limits_{};
};

StageJudgement judgement_of(const Judged& judged, std::size_t table, Cells& cells) {
  const TableFit sum = judged.total(table);
  StageJudgement out{.compared = sum.compared,
                     .wrong = sum.unusual,
                     .nan_apart = sum.nan_apart,
                     .worst = sum.error,
                     .used = sum.typical_used};
  std::int64_t farthest = -1, first = -1;
  double used = 0;
  for (std::int64_t n = 0; n < judged.rows.count(); ++n) {
    const TableFit& fit = judged.fits[table][at_index(n)];
    out.rows.push_back(static_cast<float>(fit.typical_used));
    if (first < 0 && fit.unusual > 0) first = n;
    if (fit.typical_used <= used) continue;
    used = fit.typical_used;
    farthest = n;
  }
  const auto fit_at = [&](std::int64_t n) { return judged.fits[table][at_index(n)]; };
  if (first >= 0) out.first_wrong = cells.cell(table, first, fit_at(first).first);
  if (farthest >= 0) out.worst_cell = cells.cell(table, farthest, fit_at(farthest).farthest);
  return out;
}

}  // namespace

namespace {

/// From masked scores or weights on, what is hidden is what the table says.
void forget_mask(Dump& dump) {
  AttentionCase& call = dump.claim.call;
  const Observed& given = dump.stages.front();
  call.mask = {};
  call.bias.reset();
  call.visible.reset();
  call.alibi_slopes.clear();
  call.softcap.reset();
  if (given.stage == Stage::weights) {
    call.dropout = {};
    return;
  }
  Tensor<bool> visible(given.values.shape());
  for (std::size_t n = 0; n < visible.size(); ++n) {
    visible.data()[n] = given.values.data()[n] != -std::numeric_limits<double>::infinity();
  }
  call.visible = std::move(visible);
}

}  // namespace

std::vector<Link> links_of(const Dump& dump) {
  std::vector<Link> out;
  for (std::size_t to = 0; to < dump.stages.size(); ++to) {
    const std::optional<std::size_t> from = source_of(dump, to);
    if (!from) continue;
    const bool whole = !dump.claim.has_query_and_key() && dump.stages.size() == 2;
    if (whole) continue;
    Link link{.from = *from, .to = to};
    link.dump.claim.shape = dump.claim.shape;
    link.dump.claim.past = dump.claim.past;
    link.dump.claim.precision = dump.claim.precision;
    AttentionCase& call = link.dump.claim.call;
    call = dump.claim.call;
    call.query = Tensor<double>();
    call.key = Tensor<double>();
    if (dump.stages[to].stage != Stage::output) call.value = Tensor<double>();
    link.dump.stages = {dump.stages[*from], dump.stages[to]};
    if (dump.stages[*from].stage >= Stage::masked) forget_mask(link.dump);
    out.push_back(std::move(link));
  }
  return out;
}

Result<Staged> judge_stages(const Dump& dump, const Judged& judged, const Noise& noise,
                            const std::vector<Link>& links, ThreadPool& pool) {
  auto exact = ExactRows::make(dump);
  if (!exact) return exact.failure();
  std::optional<Evaluation> evaluation = Evaluation::make(dump, {});
  if (!evaluation) return Failure{ErrorKind::value, "bad-option", "[check] the claim fits no call"};
  Cells cells(dump, judged, noise, *exact, *evaluation);
  for (const std::int64_t n : rows_that_decide(judged)) {
    if (auto agreed = cells.confirm(n); !agreed) return agreed.failure();
  }
  Staged out;
  for (std::size_t n = 0; n < dump.stages.size(); ++n) {
    StageJudgement stage;
    for (std::size_t t = 0; t < judged.tables.size(); ++t) {
      if (judged.tables[t].observed == &dump.stages[n]) stage = judgement_of(judged, t, cells);
    }
    stage.name = dump.stages[n].name.empty() ? std::string(name_of(dump.stages[n].stage))
                                             : dump.stages[n].name;
    stage.stage = name_of(dump.stages[n].stage);
    bool inherited = false;
    for (std::size_t l = 0; l < links.size() && stage.wrong > 0; ++l) {
      if (links[l].to != n) continue;
      const Noise own(links[l].dump);
      const std::optional<Judged> link = judge(links[l].dump, {}, own, NaNs::explained, pool);
      inherited = link && link->typical();
      const std::string from = out.stages[links[l].from].name;
      stage.link = (inherited ? "follows from " : "does not follow from ") + from;
      if (!inherited && !out.wrong_link) out.wrong_link = l;
    }
    if (stage.wrong > 0 && !inherited && !out.first_wrong) out.first_wrong = n;
    out.stages.push_back(std::move(stage));
  }
  return out;
}

}  // namespace attest::check
