// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "attest/base/tensor.h"

/// How tables of a file lie, and how they lie in a dump.
namespace attest::check::block {

/// [I, O] of [O, I]
[[nodiscard]] Tensor<double> transposed(const Tensor<double>& matrix);

/// Columns from `first` on, of a matrix or a vector.
[[nodiscard]] Tensor<double> columns_of(const Tensor<double>& from, std::int64_t first,
                                        std::int64_t count);

/// [B, H, T, W] or [H, T, W] as [B·T, H·W].
[[nodiscard]] Tensor<double> beside(const Tensor<double>& heads, std::int64_t H);

}  // namespace attest::check::block
