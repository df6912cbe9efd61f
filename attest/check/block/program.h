// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "attest/check/block/attend.h"
#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"
#include "attest/check/block/numbers.h"
#include "attest/check/block/rows.h"

namespace attest::check::block {

/// Where a program takes the tables before the one that is asked for.
enum class Reach {
  links,  ///< from the dump, where it has them
  whole,  ///< from x alone
};
enum class Noise { without, with };

/// A recipe at work on a dump: any stage of it, as the program would have computed it.
class Program {
 public:
  /// The dump must outlive it.
  /// `claim`, another program on this dump with this reach and at least this noise, lends the tables
  /// that the recipe does not change; it must outlive this one, and look at the same rows.
  Program(const BlockDump& dump, const BlockRecipe& recipe, Reach reach, Noise noise,
          Program* claim = nullptr, RowSet sample = {});

  /// [rows, columns] as BlockStage says, of the rows that are looked at; empty if something that it needs
  /// is not given, or if the recipe does not fit the shapes. Kept until the program ends.
  const Numbers& stage(BlockStage stage);

  /// The numbers that the recipe's own stage is computed from, dumped or computed, in these rows; all of
  /// them must be among those that the plan has.
  const Numbers& source(BlockStage stage, const RowSet& rows);

 private:
  const Numbers& whole(BlockStage stage);
  const Numbers& dumped(BlockStage stage);
  const Numbers& in_rows(const Numbers& table, const RowSet& have, const RowSet& want);
  Numbers compute(BlockStage stage);
  [[nodiscard]] bool as_claimed(BlockStage stage) const;
  [[nodiscard]] bool own_part_as_claimed(BlockStage stage) const;
  Numbers norm(NormPlace place, std::optional<BlockStage> from, const RowSet& rows);
  Numbers linear(Matrix which, const Numbers& in) const;
  Numbers projected(int which, const RowSet& rows);
  Numbers turned_rows(BlockStage from, const RowSet& rows);
  Numbers residual(int which, const RowSet& rows);
  Numbers up_or_gate(BlockStage stage, const RowSet& rows);
  Numbers activation(const RowSet& rows);
  Numbers gated(const RowSet& rows);
  Numbers attended(BlockStage stage, const RowSet& rows);
  const Numbers& x();
  const Numbers& x(const RowSet& rows);
  const Numbers& attention_in(const RowSet& rows);
  const Numbers& hidden(const RowSet& rows);
  const Numbers& ffn_in(const RowSet& rows);
  [[nodiscard]] std::vector<std::int64_t> positions(const RowSet& rows, std::int64_t offset) const;
  [[nodiscard]] const RowSet& computed_rows(BlockStage stage) const;
  [[nodiscard]] const RowSet& taken_rows(BlockStage stage) const;
  [[nodiscard]] bool reads_packed_table() const;
  [[nodiscard]] bool post() const { return recipe_.placement == NormPlacement::post; }
  [[nodiscard]] bool sandwich() const { return recipe_.placement == NormPlacement::sandwich; }

  const BlockDump& dump_;
  const BlockRecipe recipe_;
  Reach reach_;
  bool noisy_;
  Program* claim_;
  Rounding u_;
  AttendShape shape_;
  RowSet sample_;
  RowSet sample_by_head_;
  RowPlan plan_;
  Numbers x_{};
  std::deque<Numbers> picked_{};
  std::array<std::optional<Numbers>, block_stages> computed_{};
  std::array<std::optional<Numbers>, block_stages> dumped_{};
  std::array<std::optional<Numbers>, block_stages> looked_at_{};
};

/// The claim of a dump.
[[nodiscard]] BlockRecipe claimed(const BlockDump& dump);

/// The tables of this config, in order of computation. `output` is the last one's second name.
[[nodiscard]] std::vector<BlockStage> stages_of(const BlockConfig& config);

/// The shape that a stage has, rows first.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> shape_of(BlockStage stage,
                                                             const BlockConfig& config,
                                                             std::int64_t rows,
                                                             std::int64_t sequences);

}  // namespace attest::check::block
