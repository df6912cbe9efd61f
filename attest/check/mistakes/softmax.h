// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "attest/check/mistakes/scores.h"

namespace attest::check {

/// The weights of one query.
struct WeighedRow {
  std::vector<double> weights;  // [S], before dropout
  double log_sum_exp = 0;       // natural, with the sink
  double log_sum_without_sink = 0;
  double top = 0;          // the largest score
  double peak = 0;         // what was taken off before exp
  double sum = 0;          // of the exponentials, with the sink
  bool empty = false;      // the query sees no key
  bool reads_all = false;  // hidden values have a weight too
};

/// From scores to weights. Where the sum runs over other rows than the query's, their scores are made
/// too; sums by column are kept.
class Softmax {
 public:
  explicit Softmax(const ScoringRecipe& recipe) : recipe_(&recipe) {}

  /// `row` holds the scores of `at`; the scorer makes others.
  void weigh(Scorer& scorer, lab::RowPlace at, ScoredRow& row, WeighedRow& out);

 private:
  struct Columns {
    std::vector<double> peak, sum;  // [S], or one number
  };
  [[nodiscard]] double sink_of(Scorer& scorer, std::int64_t h, bool& any) const;
  [[nodiscard]] const Columns& columns(Scorer& scorer, lab::RowPlace at);
  void over_keys(Scorer& scorer, lab::RowPlace at, ScoredRow& row, WeighedRow& out);
  void over_others(Scorer& scorer, lab::RowPlace at, const ScoredRow& row, WeighedRow& out);
  void in_parts(const ScoredRow& row, WeighedRow& out) const;
  void in_binary32(const ScoredRow& row, WeighedRow& out) const;
  void other_form(const ScoredRow& row, WeighedRow& out) const;
  void unrescaled(const ScoredRow& row, WeighedRow& out) const;
  void answer_empty(const ScoredRow& row, EmptyRow claimed, WeighedRow& out) const;
  void hide_after(const ScoredRow& row, WeighedRow& out) const;

  const ScoringRecipe* recipe_;
  ScoredRow other_{};
  std::map<std::int64_t, Columns> kept_{};
};

}  // namespace attest::check
