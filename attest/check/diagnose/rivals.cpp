// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/rivals.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "attest/base/random.h"
#include "attest/base/text.h"
#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::size_t rows_looked_at = 64;

/// Two recipes are the same if storing their numbers hides the difference, and no table wider than
/// binary64's own sums would show it.
double same_numbers(const Samples& samples) {
  double unit = 0x1p-53;
  for (const Table& table : samples.tables) unit = std::max(unit, unit_of(table.observed->dtype));
  return std::clamp(unit / 4, 1e-12, 0x1p-26);
}

double largest_in(std::span<const double> row) {
  double out = 0;
  for (const double x : row) {
    if (std::isfinite(x)) out = std::max(out, std::fabs(x));
  }
  return out;
}

/// The best's numbers and their noise, row by row.
struct Reference {
  struct Row {
    std::vector<std::vector<double>> numbers{}, noise{};  // [tables]
  };
  std::vector<Row> rows{};
  double left = 0;  // Σ (found − best)² / noise²
  std::int64_t count = 0;
};

Reference reference_of(const Dump& dump, const Samples& samples, const Recipe& best) {
  Reference out;
  std::optional<Evaluation> evaluation = Evaluation::make(dump, best);
  if (!evaluation) return out;
  const std::size_t rows = std::min(rows_looked_at, samples.samples.size());
  double stored = 0;
  for (std::size_t n = 0; n < rows; ++n) {
    const Sample& sample = samples.samples[n];
    const StageRow& row = evaluation->row(sample.at);
    Reference::Row& kept = out.rows.emplace_back();
    for (std::size_t t = 0; t < samples.tables.size(); ++t) {
      const Observed& observed = *samples.tables[t].observed;
      const std::span<const double> numbers = row.of(observed.stage);
      kept.numbers.emplace_back(numbers.begin(), numbers.end());
      std::vector<double>& noise = kept.noise.emplace_back();
      const double size = largest_in(numbers);
      const double unit = std::max(unit_of(observed.dtype), 0x1p-53);
      for (std::size_t k = 0; k < numbers.size(); ++k) {
        noise.push_back(samples.noise(t, sample.tables[t].typical[k], std::fabs(numbers[k]), size));
        const double found = sample.tables[t].found[k];
        if (!std::isfinite(found) || !std::isfinite(numbers[k]) || !(noise[k] > 0)) continue;
        const double error = (found - numbers[k]) / noise[k];
        out.left += error * error;
        stored += (unit * found / noise[k]) * (unit * found / noise[k]) / 3;
        ++out.count;
      }
    }
  }
  out.left = std::max(out.left, stored);
  return out;
}

struct Apart {
  double squares = 0;
  double largest = 0;  // relative to the row
  bool pattern = false;
};

void add_row(Apart& apart, std::span<const double> best, std::span<const double> other,
             std::span<const double> noise) {
  if (best.size() != other.size()) {
    apart.pattern = true;
    return;
  }
  const double size = std::max(largest_in(best), 1e-300);
  for (std::size_t k = 0; k < best.size(); ++k) {
    if (std::isnan(best[k]) && std::isnan(other[k])) continue;
    if (best[k] == other[k]) continue;
    if (!std::isfinite(best[k]) || !std::isfinite(other[k])) {
      apart.pattern = true;
      return;
    }
    const double error = std::fabs(best[k] - other[k]);
    apart.largest = std::max(apart.largest, error / size);
    if (!noise.empty() && noise[k] > 0) apart.squares += (error / noise[k]) * (error / noise[k]);
  }
}

Apart compare(const Dump& dump, const Samples& samples, const Reference& reference,
              const Recipe& other) {
  Apart out;
  std::optional<Evaluation> evaluation = Evaluation::make(dump, other);
  if (!evaluation) return {.pattern = true};
  // A row of these costs a head: some must do.
  const std::size_t rows = std::min<std::size_t>(is_costly(dump.claim, other) ? 2 : rows_looked_at,
                                                 reference.rows.size());
  for (std::size_t n = 0; n < rows && !out.pattern; ++n) {
    const StageRow& row = evaluation->row(samples.samples[n].at);
    for (std::size_t t = 0; t < samples.tables.size(); ++t) {
      add_row(out, reference.rows[n].numbers[t], row.of(samples.tables[t].observed->stage),
              reference.rows[n].noise[t]);
    }
  }
  return out;
}

}  // namespace

std::vector<Rival> rivals_of(const Dump& dump, const Samples& samples, const Candidate& best,
                             std::span<const Candidate> others, ThreadPool& pool) {
  const Reference reference = reference_of(dump, samples, best.recipe);
  const double same = same_numbers(samples);
  std::vector<Rival> out(others.size());
  pool.run(static_cast<std::int64_t>(others.size()), [&](std::int64_t n) {
    Rival& rival = out[at_index(n)];
    rival.candidate = others[at_index(n)];
    const Apart apart = compare(dump, samples, reference, rival.candidate.recipe);
    rival.same = !apart.pattern && apart.largest <= same;
    rival.apart = apart.pattern ? infinity
                  : rival.same  ? 0
                                : std::sqrt(apart.squares / std::max(reference.left, 1e-300));
  });
  std::stable_sort(out.begin(), out.end(),
                   [](const Rival& a, const Rival& b) { return a.apart < b.apart; });
  return out;
}

std::vector<bool> same_on_any_input(const Dump& dump, const Samples& samples, const Candidate& best,
                                    std::span<const Candidate> others, ThreadPool& pool) {
  std::vector<bool> out(others.size());
  if (others.empty() || !dump.claim.has_query_and_key()) return out;
  Dump fresh = dump;
  Random random(1);
  AttentionCase& call = fresh.claim.call;
  for (Tensor<double>* each : {&call.query, &call.key, &call.value}) {
    for (double& x : each->elements()) x = random.bell();
  }
  const std::vector<Rival> rivals = rivals_of(fresh, samples, best, others, pool);
  for (const Rival& rival : rivals) {
    for (std::size_t n = 0; n < others.size(); ++n) {
      if (rival.same && rival.candidate.label() == others[n].label()) out[n] = true;
    }
  }
  return out;
}

std::string joined_labels(const std::vector<std::string>& labels, std::size_t most_characters) {
  constexpr std::ptrdiff_t most_values = 3;
  std::vector<std::pair<std::string, std::string>> names;  // and the values of each
  for (const std::string& label : labels) {
    const std::size_t at = label.find(" + ") == std::string::npos ? label.find(" (") : label.npos;
    const std::string name = label.substr(0, at);
    const std::string value = at == label.npos ? "" : label.substr(at + 2, label.size() - at - 3);
    const auto known =
        std::ranges::find_if(names, [&](const auto& entry) { return entry.first == name; });
    if (known == names.end()) {
      names.emplace_back(name, value);
    } else if (!value.empty() && std::ranges::count(known->second, ',') < most_values) {
      const bool last = std::ranges::count(known->second, ',') == most_values - 1;
      known->second += ", " + (last ? "..." : value);
    }
  }
  std::string out;
  std::size_t shown = 0;
  for (const auto& [name, values] : names) {
    const std::string text = values.empty() ? name : sentence(name, " (", values, ")");
    if (shown > 0 && out.size() + text.size() > most_characters) continue;
    out += (shown++ == 0 ? "" : ", ") + text;
  }
  if (shown < names.size()) out += sentence(" and ", names.size() - shown, " more");
  return out;
}

std::string would_tell(const Dump& dump, const Samples& samples, const Candidate& best,
                       const Candidate& other) {
  constexpr std::array later{Stage::weights, Stage::log_sum_exp, Stage::masked, Stage::scaled,
                             Stage::dot};
  std::optional<Evaluation> one = Evaluation::make(dump, best.recipe);
  std::optional<Evaluation> two = Evaluation::make(dump, other.recipe);
  if (!one || !two) return "";
  for (const Stage stage : later) {
    const bool dumped = std::ranges::any_of(
        dump.stages, [&](const Observed& observed) { return observed.stage == stage; });
    if (dumped || (!dump.claim.has_query_and_key() && stage <= dump.stages.front().stage)) continue;
    for (std::size_t n = 0; n < std::min(rows_looked_at, samples.samples.size()); ++n) {
      Apart apart;
      const lab::RowPlace at = samples.samples[n].at;
      add_row(apart, one->row(at).of(stage), two->row(at).of(stage), {});
      if (apart.pattern || apart.largest > 1e-3) {
        return sentence("the ", name_of(stage), " of this call: they differ between ", best.label(),
                        " and ", other.label());
      }
    }
  }
  return sentence("another input: here nothing differs enough between ", best.label(), " and ",
                  other.label());
}

}  // namespace attest::check
