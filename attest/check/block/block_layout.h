// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/tensor.h"
#include "attest/check/block/block.h"
#include "attest/check/block/block_recipe.h"

/// How tables of a file lie, and how they lie in a dump.
namespace attest::check::block {

/// [I, O] of [O, I]
[[nodiscard]] Tensor<double> transposed(const Tensor<double>& matrix);

/// Columns from `first` on, of a matrix or a vector.
[[nodiscard]] Tensor<double> columns_of(const Tensor<double>& from, std::int64_t first,
                                        std::int64_t count);

/// [B, H, T, W] or [H, T, W] as [B·T, H·W].
[[nodiscard]] Tensor<double> beside(const Tensor<double>& heads, std::int64_t H);

/// In which order a table [.., H, 3, D], [.., 3, H, D] or [.., H, D, 3] holds query, key and value, if its
/// shape shows it.
[[nodiscard]] std::optional<PackedOrder> order_shown(const Shape& shape, std::int64_t H,
                                                     std::int64_t D);

/// Query, key or value (0, 1, 2) of a matrix [N, 3·H·D] or a vector [3·H·D], as H heads side by side.
[[nodiscard]] Tensor<double> packed_part(const Tensor<double>& from, int which, PackedOrder order,
                                         std::int64_t H);

/// A dump whose query, key and value are cut out of one matrix, and maybe one table, in another way.
void repack(BlockDump& dump, Packing packing);

}  // namespace attest::check::block
