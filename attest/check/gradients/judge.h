// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/check/gradients/evaluate.h"

/// What gradients should be, how far each number may be from it, and where they are not.
namespace attest::check::gradients {

/// A number of a dump is compared with one that errs by `noise`; six of them leave two in 10⁹ outside.
inline constexpr double deviations = 6;

/// A recipe on the whole call, head after head: memory for the tables of one group a thread.
[[nodiscard]] AllCells whole_pass(const Problem& problem, const Noise& noise,
                                  const GradientRecipe& recipe,
                                  const std::function<void(double)>& progress = {});

/// The tables that recipes need on that sample.
[[nodiscard]] Workspace make_workspace(const Problem& problem, const Noise& noise,
                                       const Sample& sample);

/// lab::attention_backward of the claim, turned back where it has rotary positions.
[[nodiscard]] Result<std::array<Tensor<double>, 5>> exact_gradients(const GradientDump& dump);

/// |found − expected| / tolerance; infinite where one alone is NaN, or where infinities differ.
[[nodiscard]] double used(double found, double expected, double tolerance);

/// One gradient beside its right values. `tolerance` has a number for each.
[[nodiscard]] StageJudgement judge(const ObservedGradient& found, std::span<const double> expected,
                                   std::span<const double> tolerance);

/// "d_key: only head 3", "d_query: from query 64 on": where it is wrong.
[[nodiscard]] std::string where(const ObservedGradient& found, std::span<const double> expected,
                                std::span<const double> tolerance);

}  // namespace attest::check::gradients
