// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// Which weights of one row a dropout of this rate left out, found from the row's output.
///
/// Formula       output·(1 − rate) = Σ_j kept[j]·weights[j]·values[j]: the set of dropped keys whose
///               terms add up to what is missing. With no more keys than numbers of output that is a
///               triangular system, decided key by key, the heaviest first; with more, the least-squares
///               solution without negative shares is rounded, which finds few dropped keys among many.
///               Both are then improved key by key.
/// Shapes        weights [S] before dropout, values [S, E], output [E]; the result [S], 1 = dropped.
/// Edge cases    Empty where the output has too few digits to tell 2^S sets apart, or S > 512: then
///               some set would fit anything. A key of weight 0 counts as kept.
/// Accuracy      not a promise that the set fits: recompute the output from it and compare.
/// Cost          E·S²; with more keys than numbers up to E⁴.
[[nodiscard]] std::vector<std::uint8_t> dropped_keys(std::span<const double> weights,
                                                     std::span<const double> values,
                                                     std::span<const double> output, double rate,
                                                     Precision stored);

}  // namespace attest::check
