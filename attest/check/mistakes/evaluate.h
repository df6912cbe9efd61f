// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/recipe.h"

namespace attest::check {

/// One row of every stage as a recipe gives it, in the dump's own order: what would stand at [b, h, i] of
/// each table if the program had written it.
struct StageRow {
  std::vector<double> dot, scaled, capped, biased, masked, weights;  // [S] each
  std::vector<double> output;                                        // [E]
  double log_sum_exp = 0;

  /// The numbers of one stage; one number for log_sum_exp.
  [[nodiscard]] std::span<const double> of(Stage stage) const;
};

/// A recipe at work on one claim.
///
/// Computed in plain binary64, row by row, with code that shares nothing with the exact tier: each can find
/// a mistake of the other. Nothing of the size T×S is kept but by recipes that need a whole head (a softmax
/// over queries), and those keep sums by column.
/// Edge cases    hidden keys and values are not read, unless the recipe's mistake is to read them. A claim
///               without query and key begins at the first stage that the dump has; tables before it
///               are empty. A row that sees no key is zero where the claim calls it an error. A recipe
///               with an unknown dropout finds its mask from the dump's own weights or output
///               (dropout_fit.h); one that calls a table by another's name is nothing where the dump
///               does not hold it.
/// Cost          a row: S·(D + E) multiplications and S exponentials; over heads or batch, that often.
class Evaluation {
 public:
  /// Nothing if the recipe does not fit the claim's shapes. The dump must outlive it.
  static std::optional<Evaluation> make(const Dump& dump, const Recipe& recipe);
  ~Evaluation();
  Evaluation(Evaluation&&) noexcept;
  Evaluation& operator=(Evaluation&&) noexcept;

  /// Scores of hidden keys are 0 in dot and what follows it, where nothing reads them: a window over many keys
  /// costs what it shows.
  void leave_out_hidden_scores();

  /// The row at this place of the dump. Kept until the next call.
  const StageRow& row(lab::RowPlace at);

 private:
  struct State;
  explicit Evaluation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace attest::check
