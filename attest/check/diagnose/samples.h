// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attest/check/diagnose/judge.h"

/// Some rows of a dump, which decide about thousands of recipes.
namespace attest::check {

/// One table in one row: what the dump holds, and what rounding does to it.
struct SampleTable {
  std::span<const double> found{};
  std::vector<double> typical{};  ///< of the claim's row
};
struct Sample {
  lab::RowPlace at{};
  std::vector<SampleTable> tables{};
  double ratio = 1;  ///< Σ |scaled| / Σ |dot| of the visible keys, as claimed
};

/// How well a recipe gives the numbers of the rows that were looked at.
struct SampleFit {
  double squares = 0;  ///< Σ (error / noise)²
  std::int64_t numbers = 0;
  double largest = 0;  ///< error / (noise · largest_deviation)
  bool apart = false;  ///< a NaN or an infinity in one alone
  std::int64_t rows = 0;

  [[nodiscard]] double distance() const;
  /// Whether rounding explains what is left.
  [[nodiscard]] bool fits() const;
};

/// The rows, the most telling first: the one farthest from the claim, one that is as claimed, then
/// rows of other heads, batches and places.
///
/// The noise of a recipe's number is the claim's in that place, or the claim's typical share of a row
/// of its size, whichever is larger: a mistake that makes numbers ten times as large makes their
/// rounding ten times as large. In wide types it grows with the scale too, as the errors of scores do.
struct Samples {
  Rows rows{};
  std::vector<Table> tables{};
  std::vector<double> share{};  ///< [tables], noise / size of a row's numbers
  std::vector<Sample> samples{};
  double deviation = 0;
  bool all = false;  ///< whether these are all rows of the dump

  /// Adds one row. False once the fit is beyond `most` deviations: nothing more will mend it.
  bool add(SampleFit& fit, const StageRow& row, const Sample& sample, double most) const;
  /// All samples, or until one is beyond `most`.
  [[nodiscard]] SampleFit fit(Evaluation& evaluation, double most) const;
  /// The noise of one number of a recipe.
  [[nodiscard]] double noise(std::size_t table, double claimed, double number, double size) const {
    const double own = share[table] * (number > size ? number : size);
    return claimed > own && claimed < 1e300 ? claimed : own;
  }
};

/// One row more, behind the first: it contradicted what all others allowed.
void add_sample(const Dump& dump, const Noise& noise, std::int64_t row, Samples& samples);

[[nodiscard]] Samples choose_samples(const Dump& dump, const Judged& claim, const Noise& noise);

}  // namespace attest::check
