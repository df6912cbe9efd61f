// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/check/block/block_recipe.h"
#include "attest/check/block/numbers.h"

/// Layers as programs compute them, right or wrong, in plain binary64 with the host's functions: what
/// mistakes are evaluated with. Shares nothing with lab, linalg or attention.
namespace attest::check::block {

struct NormData {
  const Tensor<double>* gain = nullptr;  ///< [C], or no element
  const Tensor<double>* bias = nullptr;  ///< [C], or no element
  std::int64_t sequences = 1;            ///< rows of one sequence stand together
};
[[nodiscard]] Numbers normalise(const Numbers& x, const NormRecipe& recipe, const NormData& data,
                                const Rounding& u);

/// x·weight + bias; the recipe's `weights_of` is the caller's. Nothing if the shapes do not allow it.
[[nodiscard]] Numbers project(const Numbers& x, const LinearRecipe& recipe,
                              const Tensor<double>& weight, const Tensor<double>& bias,
                              const Rounding& u);

[[nodiscard]] double activation_of(ActivationForm form, double x);
[[nodiscard]] Numbers activated(const Numbers& x, ActivationForm form, const Rounding& u);

/// The turn of each row: its position, or its own cosines and sines [rows, R/2].
struct RopeData {
  std::span<const std::int64_t> positions{};
  const Tensor<double>* cos = nullptr;
  const Tensor<double>* sin = nullptr;
};
/// x [N, heads·D]
[[nodiscard]] Numbers turned(const Numbers& x, std::int64_t heads, const RopeRecipe& recipe,
                             const RopeData& data, const Rounding& u);

/// A row of numbers with their errors; the last two empty if no errors are wanted.
struct SoftmaxInput {
  std::vector<double> x{}, variance{}, bound{};
};
/// exp(x − peak) / Σ over the numbers of a row that are not −∞, with what errors of x do to it.
void softmax(SoftmaxInput& row, const Rounding& u);
/// Or what a mistaken program makes of them.
void weigh(SoftmaxInput& row, AttendRecipe::Form form, const Rounding& u);

}  // namespace attest::check::block
