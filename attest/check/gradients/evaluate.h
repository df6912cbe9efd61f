// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/gradients/forward.h"
#include "attest/check/gradients/recipe.h"

namespace attest::check::gradients {

/// Numbers of one gradient, and how far careful arithmetic may be from each: one standard deviation.
struct Cells {
  std::vector<double> value{};
  std::vector<double> noise{};
};

/// By GradientOf; one without a cell was not computed.
using AllCells = std::array<Cells, 5>;

/// Which queries and keys of every head are looked at: d_query of those queries, d_key and d_value of
/// those keys, and what of d_bias lies there.
struct Sample {
  std::vector<std::int64_t> rows{};
  std::vector<std::int64_t> keys{};
};
[[nodiscard]] Sample everything(const lab::AttentionShape& shape);

/// The backward pass of a recipe, in plain binary64, one head after another.
///
/// A head is given twice: with the sample's rows and all keys, for sums over keys; and with all rows and
/// the sample's keys, for sums over rows. A table that is both is given once. Heads of different groups
/// may be added at the same time, but for `add_shared`.
class Backward {
 public:
  Backward(const Problem& problem, const Noise& noise, const Sample& sample,
           const GradientRecipe& recipe);

  enum class Sums { over_keys, over_rows, both };
  void add(const HeadTable& head, const HeadTable& first_head, Sums which);
  /// A head by its rows and by its keys, and head 0 of the batch.
  struct Views {
    const HeadTable& by_rows;
    const HeadTable& by_keys;
    const HeadTable& first_by_rows;
    const HeadTable& first_by_keys;
  };
  /// Sums that heads share: d_bias and d_sink.
  void add_shared(const Views& head);

  [[nodiscard]] AllCells finish();

 private:
  /// What one gradient is summed in: its numbers, the squares of errors that come at random, and errors
  /// that all terms share.
  struct Totals {
    std::vector<double> value, alone, together;
    void resize(std::int64_t count);
  };
  /// One query row of the backward pass, by the table's keys.
  struct Row {
    bool nan_query = false;
    std::vector<double> weight, softmax_flow;  // for the scores; d_softmax
    std::vector<double> d_biased, alone, together;
    std::vector<double> slope, slope_noise;  // of the softcap
    std::vector<double> mixed, mixed_noise;  // weights for d_value
    double sink = 0, sink_noise = 0;
  };
  /// A term of a sum over rows.
  struct Term {
    std::int64_t from = 0;  // row of the matrix that is summed
    double d = 0, a = 0,
           c = 0;  // its factor, the squares of its errors, and the error that all share
  };
  /// What some rows give to the keys of a table, `rows_at_once` terms a key.
  struct Columns {
    std::vector<Term> scores{}, values{};           // [keys, rows_at_once]
    std::vector<std::size_t> of_scores, of_values;  // [keys], how many
  };
  static constexpr std::size_t rows_at_once = 16;
  void make_row(const HeadTable& head, const HeadTable& first_head, std::size_t r, Row& row) const;
  void make_scores(const HeadTable& head, std::size_t r, Row& row) const;
  void make_values(const HeadTable& head, std::size_t r, Row& row) const;
  void make_empty(const HeadTable& head, std::size_t r, Row& row) const;
  void add_query(const HeadTable& head, std::size_t r, const Row& row, std::vector<Term>& terms);
  void collect(const HeadTable& head, std::size_t r, const Row& row, Columns& columns);
  void add_columns(const HeadTable& head, Columns& columns);
  static void add_terms(std::span<const Term> terms, const double* matrix, std::int64_t width,
                        Totals& totals, std::int64_t place);
  [[nodiscard]] double rows_term(const HeadTable& head, const HeadTable& first_head, std::size_t r,
                                 const Row& row) const;
  [[nodiscard]] bool hides(const HeadTable& head, std::size_t r, std::size_t k,
                           unsigned forgets) const;
  [[nodiscard]] double weight(const HeadTable& head, std::size_t r, std::size_t k,
                              WeightsBack which) const;
  [[nodiscard]] std::optional<std::int64_t> key_head(std::int64_t h, Gather gather) const;
  [[nodiscard]] Cells cells_of(const Totals& totals, GradientOf of) const;
  void turn_rows(Cells& cells, GradientOf of) const;

  const Problem& p_;
  const Noise& noise_;
  const Sample& sample_;
  const GradientRecipe& recipe_;
  double narrow_ = 0;  ///< noise of values near which rounding to a narrow type turns over
  std::array<Totals, 5> sums_{};
};

/// Moves results about as the recipe does: heads, layouts, one result in the place of another.
void mislay(const lab::AttentionShape& shape, const Sample& sample, const GradientRecipe& recipe,
            AllCells& cells);
/// Whether a recipe does nothing else: its results are the right ones, mislaid.
[[nodiscard]] bool only_mislays(GradientRecipe recipe);

/// Tables for recipes: of every head, the sample's rows with all keys, and all rows with its keys.
struct Workspace {
  const Problem& problem;
  Noise noise{};
  Sample sample{};
  std::vector<HeadTable> row_tables{};  // [B·H]
  std::vector<HeadTable> key_tables{};  // [B·H]; empty: row_tables have everything
  [[nodiscard]] bool whole() const { return key_tables.empty(); }
};

/// What the recipe gives at the sample's cells; nothing if it needs tables that the workspace lacks. A
/// d_bias that no sample has is left without cells.
[[nodiscard]] std::optional<AllCells> evaluate(const Workspace& workspace,
                                               const GradientRecipe& recipe);

/// The index in the gradient's tensor of every cell, in the cells' order.
[[nodiscard]] std::vector<std::size_t> places(const Problem& problem, const Sample& sample,
                                              const GradientRecipe& recipe, GradientOf of);

/// The shape that a recipe gives to a gradient.
[[nodiscard]] Shape shape_of(const Problem& problem, const GradientRecipe& recipe, GradientOf of);

}  // namespace attest::check::gradients
