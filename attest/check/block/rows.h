// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"
#include "attest/check/block/numbers.h"

/// Which rows of a block's tables have to be computed where only some are looked at.
namespace attest::check::block {

/// Rows of a table in ascending order, or all of them.
struct RowSet {
  bool all = true;
  std::vector<std::int64_t> ids{};  ///< if not all
  bool operator==(const RowSet&) const = default;

  /// How many, of a table with so many.
  [[nodiscard]] std::int64_t count(std::int64_t rows) const {
    return all ? rows : static_cast<std::int64_t>(ids.size());
  }
  [[nodiscard]] std::int64_t at(std::int64_t n) const {
    return all ? n : ids[static_cast<std::size_t>(n)];
  }
  /// Where each row of the whole table is in one with these rows alone; −1 where it is not.
  [[nodiscard]] std::vector<std::int64_t> places(std::int64_t rows) const;
};

/// Those rows of a table that has `have`, which must hold them.
[[nodiscard]] Numbers picked(const Numbers& table, const RowSet& have, const RowSet& want);

/// Those rows of a table that is given: no error.
[[nodiscard]] Numbers given(const Tensor<double>& table, std::int64_t rows, const RowSet& want,
                            bool noisy);

/// Of each stage, the rows that are computed, and the rows that later stages take from the dump.
struct RowPlan {
  std::array<RowSet, block_stages> computed{};
  std::array<RowSet, block_stages> taken{};
};

/// What a recipe needs so that all stages are known in these rows, of B·T; in weights and heads, in those of
/// each head. A stage that the dump has is taken from there by later ones, if `from_dump`.
[[nodiscard]] RowPlan plan_of(const BlockDump& dump, const BlockRecipe& recipe, bool from_dump,
                              const RowSet& sample);

/// A sample of rows as rows of weights and heads.
[[nodiscard]] RowSet by_head(const BlockDump& dump, const RowSet& sample);

}  // namespace attest::check::block
