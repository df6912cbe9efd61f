// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "attest/check/block/block_recipe.h"
#include "attest/check/block/numbers.h"
#include "attest/check/block/rows.h"

/// Attention inside a block as programs compute it, in plain binary64. Shares nothing with lab or attention.
namespace attest::check::block {

struct AttendShape {
  std::int64_t B = 1, H = 1, G = 1, T = 0, D = 1, E = 1;
};

/// A table of rows of a block, or of heads' rows, of which some are there.
struct RowTable {
  const Numbers& numbers;
  const RowSet& rows;
};

/// query and key as [B·T, H·D], [B·T, G·D]
struct AttendInputs {
  RowTable query;
  RowTable key;
};

/// These rows of [B·H·T, T]
[[nodiscard]] Numbers attention_weights(const AttendInputs& in, const RowSet& rows,
                                        const AttendRecipe& recipe, const AttendShape& shape,
                                        const Rounding& u);
/// The rows of the weights, of [B·H·T, E]
[[nodiscard]] Numbers mixed_heads(const RowTable& weights, const RowTable& value,
                                  const AttendRecipe& recipe, const AttendShape& shape,
                                  const Rounding& u);
/// These rows of [B·T, H·E]
[[nodiscard]] Numbers merged_heads(const RowTable& heads, const RowSet& rows,
                                   const AttendRecipe& recipe, const AttendShape& shape);

/// Query, key and value as a program cuts them out of one packed table; needs H = G and D = E.
[[nodiscard]] Numbers repacked(const Numbers& query, const Numbers& key, const Numbers& value,
                               int which, Packing packing, const AttendShape& shape);

}  // namespace attest::check::block
