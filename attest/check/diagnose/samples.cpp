// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The root mean square of the finite numbers.
double size_of_row(std::span<const double> row) {
  double sum = 0;
  std::size_t count = 0;
  for (const double x : row) {
    if (!std::isfinite(x)) continue;
    sum += x * x;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

/// What the program multiplies its dot products by, as its tables show it.
double ratio_of(const StageRow& row) {
  double dots = 0, scaled = 0;
  for (std::size_t j = 0; j < row.dot.size() && j < row.scaled.size(); ++j) {
    if (!std::isfinite(row.dot[j]) || !std::isfinite(row.scaled[j])) continue;
    dots += std::fabs(row.dot[j]);
    scaled += std::fabs(row.scaled[j]);
  }
  return dots > 0 && scaled > 0 ? scaled / dots : 1;
}

/// Rows in the order in which they are taken, each once.
class Choice {
 public:
  Choice(std::int64_t rows, std::size_t most) : taken_(at_index(rows)), most_(most) {}
  void take(std::int64_t n) {
    if (n < 0 || n >= static_cast<std::int64_t>(taken_.size())) return;
    if (taken_[at_index(n)] || order_.size() >= most_) return;
    taken_[at_index(n)] = true;
    order_.push_back(n);
  }
  [[nodiscard]] const std::vector<std::int64_t>& order() const { return order_; }

 private:
  std::vector<bool> taken_;
  std::vector<std::int64_t> order_;
  std::size_t most_;
};

std::vector<std::int64_t> choose(const Judged& claim, std::size_t most) {
  const std::int64_t rows = claim.rows.count();
  Choice choice(rows, most);
  std::vector<std::int64_t> wrong, right;
  double farthest = -1;
  std::int64_t first = 0;
  for (std::int64_t n = 0; n < rows; ++n) {
    double squares = 0;
    bool unusual = false;
    for (const auto& fits : claim.fits) {
      const TableFit& fit = fits[at_index(n)];
      squares += fit.nan_apart > 0 ? 1e300 : fit.squares;
      unusual = unusual || fit.unusual > 0;
    }
    // Rows that see nothing say little of anything else.
    if (claim.empty[at_index(n)]) squares = std::min(squares, 0.0);
    if (squares > farthest) first = n;
    farthest = std::max(farthest, squares);
    (unusual ? wrong : right).push_back(n);
  }
  choice.take(first);
  const auto part = [&](const std::vector<std::int64_t>& of, std::size_t k, std::size_t parts) {
    if (!of.empty()) choice.take(of[std::min(of.size() - 1, of.size() * k / parts)]);
  };
  part(right, 1, 2);
  part(wrong, 1, 2);
  part(wrong, 0, 1);
  part(wrong, 1, 1);
  part(right, 0, 1);
  part(right, 1, 1);
  // Every batch, head and place some time: steps that share no factor with usual extents.
  const std::int64_t step = std::max<std::int64_t>(1, rows / static_cast<std::int64_t>(most));
  for (std::int64_t k = 0; k < rows && choice.order().size() < most; ++k) {
    if (step == 1) {
      choice.take(k * 7919 % rows);
    } else {
      choice.take(k * step + k * 31 % step);
    }
    if (step > 1 && k * step >= rows) break;
  }
  for (std::int64_t n = 0; step == 1 && n < rows; ++n) choice.take(n);
  return choice.order();
}

/// So many rows that a recipe is judged in some milliseconds.
std::size_t how_many(const lab::AttentionShape& shape) {
  const double work = static_cast<double>(std::max<std::int64_t>(1, shape.S)) *
                      static_cast<double>(shape.D + shape.E + 8);
  return static_cast<std::size_t>(std::clamp(4e6 / work, 32.0, 512.0));
}

}  // namespace

double SampleFit::distance() const {
  if (apart) return infinity;
  return numbers == 0 ? 0 : std::sqrt(squares / static_cast<double>(numbers));
}

bool SampleFit::fits() const {
  return !apart && largest <= 1 && distance() <= largest_mean_deviation(numbers);
}

bool Samples::add(SampleFit& fit, const StageRow& row, const Sample& sample, double most) const {
  const RowView view(row);
  const double larger = std::clamp(ratio_of(row) / sample.ratio, 1.0, 1e6);
  ++fit.rows;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Stage stage = tables[t].observed->stage;
    const std::span<const double> expected = row.of(stage);
    const SampleTable& table = sample.tables[t];
    if (expected.size() != table.found.size()) {
      fit.apart = true;
      return false;
    }
    const double size = size_of_row(expected);
    const bool wide = unit_of(tables[t].observed->dtype) < 0x1p-20;
    const double more = wide ? larger : 1;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const Standing standing = view.standing(stage, k, table.found[k], expected[k]);
      if (standing == Standing::left_out) continue;
      ++fit.numbers;
      if (standing == Standing::nan_apart) {
        fit.apart = true;
        return false;
      }
      if (standing != Standing::compared) continue;
      const double error = std::fabs(table.found[k] - expected[k]);
      if (error == 0) continue;
      const double sigma = more * noise(t, table.typical[k], std::fabs(expected[k]), size);
      fit.squares += (error / sigma) * (error / sigma);
      fit.largest = std::max(fit.largest, error / (sigma * deviation));
      if (!(fit.largest <= most)) return false;
    }
  }
  return true;
}

SampleFit Samples::fit(Evaluation& evaluation, double most) const {
  SampleFit out;
  for (const Sample& sample : samples) {
    if (!add(out, evaluation.row(sample.at), sample, most)) break;
  }
  return out;
}

namespace {

Sample sample_of(const StageRow& row, std::int64_t n, Noise::Row& tolerances,
                 const Samples& samples) {
  Sample out{.at = samples.rows.place(n)};
  out.ratio = ratio_of(row);
  tolerances.begin(out.at, row);
  for (const Table& table : samples.tables) {
    RowNoise limits;
    tolerances.of(table.observed->stage, table.observed->dtype, limits);
    out.tables.push_back({table.row(n), std::move(limits.typical)});
  }
  return out;
}

}  // namespace

Samples choose_samples(const Dump& dump, const Judged& claim, const Noise& noise) {
  Samples out{.rows = claim.rows, .tables = claim.tables, .deviation = claim.deviation};
  const std::vector<std::int64_t> order = choose(claim, how_many(dump.claim.shape));
  out.all = static_cast<std::int64_t>(order.size()) == claim.rows.count();
  std::optional<Evaluation> evaluation = Evaluation::make(dump, {});
  if (!evaluation) return out;
  Noise::Row tolerances(noise);
  std::vector<double> noises(out.tables.size()), sizes(out.tables.size());
  for (const std::int64_t n : order) {
    const StageRow& row = evaluation->row(claim.rows.place(n));
    out.samples.push_back(sample_of(row, n, tolerances, out));
    for (std::size_t t = 0; t < out.tables.size(); ++t) {
      const double noisy = size_of_row(out.samples.back().tables[t].typical);
      const double size = size_of_row(row.of(out.tables[t].observed->stage));
      noises[t] += noisy * noisy;
      sizes[t] += size * size;
    }
  }
  for (std::size_t t = 0; t < out.tables.size(); ++t) {
    const double least = std::max(unit_of(out.tables[t].observed->dtype), 0x1p-53);
    const double share = std::sqrt(noises[t] / sizes[t]);
    out.share.push_back(std::isfinite(share) ? std::max(share, least) : 8 * least);
  }
  return out;
}

void add_sample(const Dump& dump, const Noise& noise, std::int64_t row, Samples& samples) {
  std::optional<Evaluation> evaluation = Evaluation::make(dump, {});
  if (!evaluation || samples.samples.empty()) return;
  Noise::Row tolerances(noise);
  const StageRow& numbers = evaluation->row(samples.rows.place(row));
  samples.samples.insert(samples.samples.begin() + 1, sample_of(numbers, row, tolerances, samples));
}

}  // namespace attest::check
