// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/recipe.h"
#include "attest/check/mistakes/sight.h"

namespace attest::check {

/// The scores of one query, as a program computes them.
struct ScoredRow {
  std::vector<double> dot, scaled, capped, biased,
      masked;                          // [S]; empty before the stage begun with
  std::vector<double> logits;          // [S], what the softmax takes
  std::vector<std::uint8_t> hidden;    // [S], why the mask hides the key
  std::vector<std::uint8_t> excluded;  // [S], 1: no part in the softmax
  bool empty = false;                  // all are
};

/// Scores, row by row. The dump must outlive it.
class Scorer {
 public:
  static std::optional<Scorer> make(const Dump& dump, const Recipe& recipe);

  void score(lab::RowPlace at, ScoredRow& row);

  [[nodiscard]] const lab::AttentionShape& shape() const { return operands_.shape(); }
  [[nodiscard]] const ScoringRecipe& recipe() const { return recipe_; }
  [[nodiscard]] const Claim& claim() const { return dump_->claim; }
  [[nodiscard]] const Sight& sight() const { return sight_; }
  [[nodiscard]] Operands& operands() { return operands_; }
  /// The first table that is computed, or taken from the dump.
  [[nodiscard]] Stage start() const { return start_; }
  /// That table's row, if the dump's.
  [[nodiscard]] std::span<const double> observed(lab::RowPlace at) const;
  /// From now on scores that nobody reads, of keys that are excluded, are 0 before they are hidden.
  void leave_out_hidden();
  /// 0: none.
  [[nodiscard]] double softcap() const { return cap_; }
  /// The bias, as the recipe adds it.
  void add_table(lab::RowPlace at, std::span<double> scores) const;

 private:
  Scorer(const Dump& dump, const ScoringRecipe& recipe, Operands operands, Sight sight)
      : dump_(&dump), recipe_(recipe), operands_(std::move(operands)), sight_(std::move(sight)) {}
  [[nodiscard]] bool choose_start();
  void settle();

  void multiply(lab::RowPlace at, ScoredRow& row);
  void scale(lab::RowPlace at, ScoredRow& row);
  void cap(ScoredRow& row) const;
  void add_bias(lab::RowPlace at, ScoredRow& row);
  void hide(ScoredRow& row) const;
  void add_alibi(lab::RowPlace at, std::span<double> scores) const;

  const Dump* dump_;
  ScoringRecipe recipe_;
  Operands operands_;
  Sight sight_;
  Stage start_ = Stage::dot;
  const Observed* first_ = nullptr;  // the table begun with, if the dump's
  double scale_ = 1;
  double cap_ = 0;  // 0: none
  bool leaves_out_hidden_ = false;
  std::vector<double> slopes_{};
  std::vector<double> rounded_query_{};
  std::vector<double> rounded_keys_{};
};

}  // namespace attest::check
