// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "attest/check/block/block_recipe.h"
#include "attest/check/block/numbers.h"

/// Attention inside a block as programs compute it, in plain binary64. Shares nothing with lab or attention.
namespace attest::check::block {

struct AttendShape {
  std::int64_t B = 1, H = 1, G = 1, T = 0, D = 1, E = 1;
};

/// query, key and value as [B·T, H·D], [B·T, G·D], [B·T, G·E]
struct AttendInputs {
  const Numbers* query = nullptr;
  const Numbers* key = nullptr;
  const Numbers* value = nullptr;
};

/// [B·H·T, T]
[[nodiscard]] Numbers attention_weights(const AttendInputs& in, const AttendRecipe& recipe,
                                        const AttendShape& shape, const Rounding& u);
/// [B·H·T, E]
[[nodiscard]] Numbers mixed_heads(const Numbers& weights, const Numbers& value,
                                  const AttendRecipe& recipe, const AttendShape& shape,
                                  const Rounding& u);
/// [B·T, H·E]
[[nodiscard]] Numbers merged_heads(const Numbers& heads, const AttendRecipe& recipe,
                                   const AttendShape& shape);

/// Query, key and value as a program cuts them out of one packed table; needs H = G and D = E.
[[nodiscard]] Numbers repacked(const Numbers& query, const Numbers& key, const Numbers& value,
                               int which, Packing packing, const AttendShape& shape);

}  // namespace attest::check::block
