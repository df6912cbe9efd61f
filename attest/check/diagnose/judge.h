// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "attest/base/threads.h"
#include "attest/check/diagnose/noise.h"
#include "attest/check/mistakes/evaluate.h"

/// A dump beside a recipe, number by number.
namespace attest::check {

/// Which table of a dump, and how a row of it is found.
struct Table {
  const Observed* observed = nullptr;
  std::int64_t width = 0;  ///< numbers in a row

  [[nodiscard]] std::span<const double> row(std::int64_t n) const {
    return observed->values.elements().subspan(static_cast<std::size_t>(n * width),
                                               static_cast<std::size_t>(width));
  }
};

/// The rows of a dump, [B, H, T] in this order.
struct Rows {
  lab::AttentionShape shape{};
  [[nodiscard]] std::int64_t count() const { return shape.B * shape.H * shape.T; }
  [[nodiscard]] lab::RowPlace place(std::int64_t n) const {
    return {n / (shape.H * shape.T), n / shape.T % shape.H, n % shape.T};
  }
  [[nodiscard]] std::int64_t number(lab::RowPlace at) const {
    return (at.b * shape.H + at.h) * shape.T + at.i;
  }
};

/// How a number of the dump stands to the one that a recipe gives.
enum class Standing {
  left_out,   ///< a score that the mask hides before it does so, or what stands for −∞
  compared,   ///< two numbers
  same,       ///< the same infinity
  both_nan,   ///< decided by who asks
  nan_apart,  ///< NaN, or an infinity, in one alone
};
struct RowView {
  const StageRow& row;
  double peak = 0;  ///< of the visible scores
  explicit RowView(const StageRow& of);
  [[nodiscard]] Standing standing(Stage stage, std::size_t n, double found, double expected) const;
  /// Whether the row sees key n, as far as its tables say.
  [[nodiscard]] bool sees(std::size_t n) const;
  [[nodiscard]] bool empty() const;
};

/// One row of one table.
struct TableFit {
  std::int64_t compared = 0;
  std::int64_t telling = 0;    ///< expected to be larger than the tolerance: 0 would not pass
  std::int64_t unusual = 0;    ///< beyond what rounding typically does
  std::int64_t far = 0;        ///< beyond what all that a 16-bit program rounds comes to by chance
  std::int64_t wrong = 0;      ///< beyond any rounding
  std::int64_t nan_apart = 0;  ///< counted in both of these
  std::int64_t nan_both = 0;   ///< where the claim does not ask for NaN
  std::int64_t first = -1;     ///< the first unusual number
  std::int64_t farthest = -1;  ///< the number with the largest error / tolerance
  double squares = 0;          ///< Σ (error / typical)²
  double typical_used = 0;     ///< largest error / (typical · largest_deviation)
  double worst_used = 0;       ///< largest error / worst
  double error = 0;            ///< largest
};

/// A whole dump beside one recipe.
struct Judged {
  Rows rows{};
  std::vector<Table> tables{};
  std::vector<std::vector<TableFit>> fits{};               ///< [tables][rows]
  std::vector<std::vector<std::int64_t>> wrong_columns{};  ///< [tables][width], unusual numbers
  std::vector<bool> empty{}, hides{};                      ///< [rows]: sees no key; not every key
  double deviation = 0;                                    ///< largest_deviation of all numbers

  /// Sums over the rows of one table; `first` and `farthest` are of no row.
  [[nodiscard]] TableFit total(std::size_t table) const;
  /// Whether rounding alone explains all tables: typical, or at worst.
  [[nodiscard]] bool typical() const;
  [[nodiscard]] bool possible() const;
  /// Whether any number of the last table would not pass if it were 0. Rows without keys do not count.
  [[nodiscard]] bool tells() const;
  [[nodiscard]] std::int64_t numbers() const;
  /// √(Σ (error / typical)² / numbers)
  [[nodiscard]] double distance() const;
};

using Progress = std::function<void(double fraction)>;

/// What a NaN in both is: right only where the claim asks for one, or explained by a mistake.
enum class NaNs { as_claimed, explained };

/// Evaluates the recipe on every row. Nothing if the recipe does not fit the claim.
[[nodiscard]] std::optional<Judged> judge(const Dump& dump, const Recipe& recipe,
                                          const Noise& noise, NaNs nans, ThreadPool& pool,
                                          const Progress& progress = {});

/// The tables that can be judged: the first of a dump without query and key is given.
[[nodiscard]] std::vector<Table> tables_of(const Dump& dump);

}  // namespace attest::check
