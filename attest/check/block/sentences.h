// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "attest/check/block/block.h"
#include "attest/check/block/exact.h"

namespace attest::check::block {

/// Where a number of a block stands, and how it comes about.
struct Sentences {
  const BlockDump& dump;
  Exact& exact;

  /// "norm1[2,3]", "batch1.h0.weights[2,0]"
  [[nodiscard]] std::string address(BlockStage stage, std::int64_t row, std::int64_t column) const;
  /// "norm1[2,3] = (x[2,3] − mean) / √(variance + ε) · gain[3] = (0.5 − 0.1) / √(2 + 1e-05) · 1"
  [[nodiscard]] std::string why(BlockStage stage, std::int64_t row, std::int64_t column) const;
};

/// One number of a norm: formula, and the formula with this row's mean and variance.
[[nodiscard]] std::string norm_sentence(View<const double, 2> row, const BlockConfig& config,
                                        const Tensor<double>& gain, const Tensor<double>& bias,
                                        std::int64_t column);

}  // namespace attest::check::block
