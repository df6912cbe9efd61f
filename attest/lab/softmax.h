// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace attest::lab {

/// One row of a softmax, stage by stage.
struct SoftmaxRow {
  double peak = 0;                 // the largest score, or the sink
  std::vector<double> minus_peak;  // score − peak
  std::vector<double> exp;         // exp(score − peak); 0 for −∞
  double sink_exp = 0;             // exp(sink − peak); 0 without a sink
  double sum = 0;                  // Σ exp + sink_exp
  std::vector<double> weights;     // exp / sum
  double log_sum_exp = 0;          // peak + log(sum)
};

/// The softmax of a row of scores, −∞ meaning hidden, with an optional sink: a logit that takes its
/// share of the sum and has no value. Subtracting the peak keeps exp from overflowing and changes
/// nothing else: it divides numerator and denominator by the same number.
///
/// Edge cases    a NaN or +∞ among the scores, or nothing but −∞: peak, sum and weights are NaN.
/// Accuracy      each stage correctly rounded from the one before.
/// Determinism   the same bits everywhere. Cost: about 50 ns a score.
[[nodiscard]] SoftmaxRow softmax_row(std::span<const double> scores,
                                     std::optional<double> sink = std::nullopt);

}  // namespace attest::lab
