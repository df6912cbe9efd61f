// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/excuse.h"

#include <algorithm>
#include <cmath>

#include "attest/base/text.h"
#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr std::size_t most_rows = 64;

/// Whether `other` in the place of `right` would be noticed, and be excused.
bool would_pass(const std::vector<double>& right, std::span<const double> other,
                const RowNoise& limits, double deviation) {
  bool differs = false;
  for (std::size_t k = 0; k < right.size() && k < other.size(); ++k) {
    const double error = std::fabs(other[k] - right[k]);
    if (!(error <= limits.by_chance(k))) return false;
    differs = differs || error > deviation * limits.typical[k];
  }
  return differs;
}

/// The rows of the output that are unusual: evenly some of them.
std::vector<std::int64_t> unusual_rows(const Judged& claim, std::size_t table) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 0; n < claim.rows.count(); ++n) {
    if (claim.fits[table][at_index(n)].unusual > 0) all.push_back(n);
  }
  if (all.size() <= most_rows) return all;
  std::vector<std::int64_t> out;
  for (std::size_t k = 0; k < most_rows; ++k) {
    out.push_back(all[k * (all.size() - 1) / (most_rows - 1)]);
  }
  return out;
}

}  // namespace

Excuse excuse_of(const Dump& dump, const Judged& claim, const Noise& noise) {
  Excuse out;
  for (std::size_t t = 0; t < claim.tables.size(); ++t) out.far += claim.total(t).far;
  std::optional<Evaluation> evaluation = Evaluation::make(dump, {});
  if (!evaluation || claim.tables.empty()) return out;
  const std::size_t last = claim.tables.size() - 1;
  const Observed& output = *claim.tables[last].observed;
  if (output.stage != Stage::output) return out;
  const lab::AttentionShape& shape = claim.rows.shape;
  Noise::Row tolerances(noise);
  RowNoise limits;
  for (const std::int64_t n : unusual_rows(claim, last)) {
    const lab::RowPlace at = claim.rows.place(n);
    const StageRow& row = evaluation->row(at);
    tolerances.begin(at, row);
    tolerances.of(Stage::output, output.dtype, limits);
    const std::vector<double> right = row.output, zeros(right.size());
    const auto passes = [&](std::span<const double> other) {
      return would_pass(right, other, limits, claim.deviation);
    };
    const bool blind = passes(zeros) ||
                       passes(evaluation->row({at.b, at.h, (at.i + 1) % shape.T}).output) ||
                       passes(evaluation->row({at.b, (at.h + 1) % shape.H, at.i}).output);
    out.blind += blind ? 1 : 0;
    ++out.rows;
  }
  return out;
}

std::vector<std::string> Excuse::remarks() const {
  std::vector<std::string> out;
  if (far > 0) {
    out.push_back(sentence(
        far, far == 1 ? " number is" : " numbers are",
        " farther off than 16-bit roundings on the way come to by chance, though not farther than "
        "all of them can be at their worst together"));
  }
  if (blind > 0) {
    out.push_back(sentence("rounding on the way may change ", blind, " of ", rows,
                           " unusual rows so much that the numbers of another query or head, or "
                           "zeros, would pass in their place"));
  }
  return out;
}

std::vector<std::string> Excuse::would_decide(const Dump& dump) const {
  std::vector<std::string> out;
  const Precision precision = dump.claim.precision;
  if (precision == Precision::f16 || precision == Precision::bf16) {
    out.emplace_back(
        "the same inputs through the same program in f32, or --precision f32 if it "
        "keeps scores and weights in that");
  }
  const auto dumped = [&](Stage stage) {
    return std::ranges::any_of(dump.stages,
                               [&](const Observed& table) { return table.stage == stage; });
  };
  if (!dumped(Stage::weights)) {
    out.emplace_back("the weights of this call: the output is then judged from them");
  }
  if (out.empty()) out.emplace_back("inputs of ordinary size: `attest probe` writes some");
  return out;
}

}  // namespace attest::check
