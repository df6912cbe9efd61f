// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/judge.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// What stands for −∞ must lose its key: exp(found − peak) below half a unit of binary64's sum.
constexpr double lost = 44;  // > 53·ln 2 + ln of the number of keys beyond which sums notice

/// Works through some of the rows: those have places of their own, columns are counted for itself.
class Piece {
 public:
  Piece(const Dump& dump, const Noise& noise, NaNs nans, Judged& out)
      : dump_(dump), nans_(nans), out_(out), tolerances_(noise), columns_(out.wrong_columns) {}

  void row(Evaluation& evaluation, std::int64_t n, std::span<char> empty, std::span<char> hides);
  void add_columns(Judged& out) const;

 private:
  TableFit table(const RowView& view, std::size_t t, std::int64_t n);

  const Dump& dump_;
  NaNs nans_;
  Judged& out_;
  Noise::Row tolerances_;
  RowNoise limits_{};
  std::vector<std::vector<std::int64_t>> columns_;
};

void note_unusual(TableFit& fit, std::size_t n, std::vector<std::int64_t>& columns) {
  ++fit.unusual;
  if (fit.first < 0) fit.first = static_cast<std::int32_t>(n);
  ++columns[n];
}

TableFit Piece::table(const RowView& view, std::size_t t, std::int64_t n) {
  TableFit fit;
  const Stage stage = out_.tables[t].observed->stage;
  const std::span<const double> found = out_.tables[t].row(n);
  const std::span<const double> expected = view.row.of(stage);
  const bool nan_claimed =
      nans_ == NaNs::explained || (dump_.claim.call.empty_row == EmptyRow::nan && view.empty());
  for (std::size_t k = 0; k < found.size() && k < expected.size(); ++k) {
    const Standing standing = view.standing(stage, k, found[k], expected[k]);
    if (standing == Standing::left_out) continue;
    ++fit.compared;
    if (standing == Standing::same) {
      ++fit.telling;
      continue;
    }
    if (standing == Standing::both_nan) {
      if (!nan_claimed) ++fit.nan_both;
      continue;
    }
    if (standing == Standing::nan_apart) {
      ++fit.nan_apart;
      ++fit.far;
      ++fit.wrong;
      if (fit.typical_used != infinity) fit.farthest = static_cast<std::int32_t>(k);
      fit.typical_used = fit.worst_used = infinity;
      note_unusual(fit, k, columns_[t]);
      continue;
    }
    const double error = std::fabs(found[k] - expected[k]);
    const double typical = limits_.typical[k];
    const double usual = typical * out_.deviation;
    if (std::fabs(expected[k]) > usual) ++fit.telling;
    if (error == 0) continue;
    const double worst = std::max(usual, limits_.worst[k]);
    const double used = error / usual;
    fit.squares += (error / typical) * (error / typical);
    if (used > fit.typical_used) fit.farthest = static_cast<std::int32_t>(k);
    fit.typical_used = std::max(fit.typical_used, used);
    fit.worst_used = std::max(fit.worst_used, error / worst);
    fit.error = std::max(fit.error, error);
    if (!(error <= worst)) ++fit.wrong;
    if (!(error <= limits_.by_chance(k))) ++fit.far;
    if (!(used <= 1)) note_unusual(fit, k, columns_[t]);
  }
  return fit;
}

void Piece::row(Evaluation& evaluation, std::int64_t n, std::span<char> empty,
                std::span<char> hides) {
  const lab::RowPlace at = out_.rows.place(n);
  const StageRow& row = evaluation.row(at);
  const RowView view(row);
  tolerances_.begin(at, row);
  for (std::size_t t = 0; t < out_.tables.size(); ++t) {
    const Observed& observed = *out_.tables[t].observed;
    tolerances_.of(observed.stage, observed.dtype, limits_);
    out_.fits[t][at_index(n)] = table(view, t, n);
  }
  empty[at_index(n)] = view.empty() ? 1 : 0;
  const std::size_t keys = std::max(row.masked.size(), row.weights.size());
  for (std::size_t j = 0; j < keys && hides[at_index(n)] == 0; ++j) {
    hides[at_index(n)] = view.sees(j) ? 0 : 1;
  }
}

void Piece::add_columns(Judged& out) const {
  for (std::size_t t = 0; t < columns_.size(); ++t) {
    for (std::size_t k = 0; k < columns_[t].size(); ++k) out.wrong_columns[t][k] += columns_[t][k];
  }
}

}  // namespace

RowView::RowView(const StageRow& of) : row(of), peak(-infinity) {
  for (const double score : row.masked) peak = std::max(peak, score);
}

bool RowView::sees(std::size_t n) const {
  if (n < row.masked.size()) return row.masked[n] != -infinity;
  return n >= row.weights.size() || row.weights[n] != 0;
}

bool RowView::empty() const {
  const std::size_t keys = std::max(row.masked.size(), row.weights.size());
  for (std::size_t j = 0; j < keys; ++j) {
    if (sees(j)) return false;
  }
  return keys != 0;
}

Standing RowView::standing(Stage stage, std::size_t n, double found, double expected) const {
  if (stage < Stage::masked && (found == -infinity || !sees(n))) return Standing::left_out;
  if (std::isnan(found) && std::isnan(expected)) return Standing::both_nan;
  if (std::isnan(found) || std::isnan(expected)) return Standing::nan_apart;
  if (stage == Stage::masked && expected == -infinity && peak != -infinity && found < peak - lost) {
    return Standing::left_out;
  }
  if (std::isinf(found) || std::isinf(expected)) {
    return found == expected ? Standing::same : Standing::nan_apart;
  }
  return Standing::compared;
}

TableFit Judged::total(std::size_t table) const {
  TableFit sum;
  for (const TableFit& fit : fits[table]) {
    sum.compared += fit.compared;
    sum.telling += fit.telling;
    sum.nan_apart += fit.nan_apart;
    sum.nan_both += fit.nan_both;
    sum.unusual += fit.unusual;
    sum.far += fit.far;
    sum.wrong += fit.wrong;
    sum.squares += fit.squares;
    sum.typical_used = std::max(sum.typical_used, fit.typical_used);
    sum.worst_used = std::max(sum.worst_used, fit.worst_used);
    sum.error = std::max(sum.error, fit.error);
  }
  return sum;
}

std::int64_t Judged::numbers() const {
  std::int64_t sum = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) sum += total(t).compared;
  return sum;
}

double Judged::distance() const {
  double squares = 0, count = 0;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TableFit sum = total(t);
    if (sum.nan_apart > 0) return infinity;
    squares += sum.squares;
    count += static_cast<double>(sum.compared);
  }
  return count == 0 ? 0 : std::sqrt(squares / count);
}

bool Judged::typical() const {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const TableFit sum = total(t);
    const double mean =
        std::sqrt(sum.squares / static_cast<double>(std::max<std::int64_t>(sum.compared, 1)));
    if (sum.unusual > 0 || !(mean <= largest_mean_deviation(sum.compared))) return false;
  }
  return true;
}

bool Judged::possible() const {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (total(t).wrong > 0) return false;
  }
  return true;
}

bool Judged::tells() const {
  if (tables.empty()) return false;
  std::int64_t compared = 0, telling = 0;
  for (std::size_t n = 0; n < empty.size(); ++n) {
    if (empty[n]) continue;
    compared += fits.back()[n].compared;
    telling += fits.back()[n].telling;
  }
  return compared == 0 || telling > 0;
}

std::vector<Table> tables_of(const Dump& dump) {
  std::vector<Table> out;
  const lab::AttentionShape& shape = dump.claim.shape;
  const std::int64_t rows = shape.B * shape.H * shape.T;
  const bool given = !dump.claim.has_query_and_key();
  for (const Observed& observed : dump.stages) {
    if (given && &observed == &dump.stages.front()) continue;
    const auto size = static_cast<std::int64_t>(observed.values.size());
    out.push_back({&observed, rows == 0 ? 0 : size / rows});
  }
  return out;
}

std::optional<Judged> judge(const Dump& dump, const Recipe& recipe, const Noise& noise, NaNs nans,
                            ThreadPool& pool, const Progress& progress) {
  Judged out{.rows = {dump.claim.shape}, .tables = tables_of(dump)};
  const std::int64_t rows = out.rows.count();
  std::int64_t numbers = 0;
  for (const Table& table : out.tables) {
    numbers += rows * table.width;
    out.fits.emplace_back(at_index(rows));
    out.wrong_columns.emplace_back(at_index(table.width));
  }
  out.deviation = largest_deviation(numbers);
  std::vector<char> empty(at_index(rows)), hides(at_index(rows));
  const std::int64_t pieces = std::clamp<std::int64_t>(rows / 16, 1, 4 * pool.threads());
  std::vector<Piece> parts;
  parts.reserve(at_index(pieces));
  for (std::int64_t n = 0; n < pieces; ++n) parts.emplace_back(dump, noise, nans, out);
  std::atomic<bool> fits{true};
  std::atomic<std::int64_t> done{0};
  std::mutex telling;
  pool.run(pieces, [&](std::int64_t n) {
    std::optional<Evaluation> evaluation = Evaluation::make(dump, recipe);
    if (!evaluation) {
      fits = false;
      return;
    }
    evaluation->leave_out_hidden_scores();  // they are not compared
    const Range range = partition(rows, pieces, n);
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      parts[at_index(n)].row(*evaluation, row, empty, hides);
    }
    done += range.end - range.begin;
    const std::scoped_lock lock(telling);
    if (progress) progress(static_cast<double>(done) / static_cast<double>(rows));
  });
  if (!fits) return std::nullopt;
  for (const Piece& part : parts) part.add_columns(out);
  out.empty.assign(empty.begin(), empty.end());
  out.hides.assign(hides.begin(), hides.end());
  return out;
}

}  // namespace attest::check
