// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/workbook.h"

/// How far the exact tier may be from the mathematical value, number by number.
///
/// The exact tier rounds after every step, correctly; a bound follows the same steps and adds up
/// what each rounding can do to what comes after. It is computed from the inputs and from the exact
/// tier's own intermediate sizes (the same operations in the same order, repeated here), never from
/// a result that is on trial. With u = 2⁻⁵³:
///
///     dot         u·Σ|query·key| + u·|dot|           so a score of 10¹³ is only known to 10⁻³
///     scaled      its share of that, + 2u·|scaled|   (u when a scale is given)
///     capped      × 1/cosh², + a few u·c
///     biased      + errors of ALiBi + u·|biased|
///     weights     the peak cancels, δ = error of the score + u·|score − peak|, and
///                 weight·(1 − weight)·2δ to first order; at most max(weight, 1 − weight)
///                 with dropout: the quotient's share of that, + 2u·|weight| (u from a rate of ½ on,
///                 whose 1 − rate is exact); a dropped weight is exactly 0
///     log_sum_exp Σ weight·δ + u·(2 + |log sum| + |log_sum_exp|)
///     output      Σ e_w·|value − c|, at most the width of the values' hull, + a few u·|value|;
///                 with dropout, where nothing cancels: Σ e_w·|value| + u·Σ|weight·value| + u·|output|
///
/// The formulas are in bound_estimate.h; docs/accuracy.md derives them. They keep products of
/// errors, so they are no first-order estimates; the roundings of the bound's own arithmetic are
/// paid by a factor 1 + 2⁻⁴⁰, as long as no sum has more than 2¹¹ terms.
namespace attest::lab {

struct AttentionBound {
  Tensor<double> output;       // [B, H, T, E]
  Tensor<double> weights;      // [B, H, T, S]; 0 where hidden or dropped
  Tensor<double> scores;       // [B, H, T, S]; of the biased score; 0 where hidden
  Tensor<double> log_sum_exp;  // [B, H, T]
};

/// Formula       |lab::attention − mathematical value| ≤ bound, for each number of each result.
/// Shapes        those of the results.
/// Edge cases    A hidden key bounds with 0: its weight is exactly 0. A lone visible key has weight
///               1 and, without dropout, gives its value exactly: bound 0. A row that sees nothing:
///               0. Infinite where a result is not finite: nothing is promised there.
/// Accuracy      pessimistic: random small calls use up to 0.9 of it, and half of their numbers at
///               most 0.1 (docs/accuracy.md has the figures).
/// Determinism   the same bits everywhere; depends on inputs and options alone.
/// Fails         as `attention`, but for no-visible-key.
/// Cost          about three times `attention`.
/// Sources       Higham, Accuracy and Stability of Numerical Algorithms, §3.3; Blanchard, Higham,
///               Higham 2021 (doi:10.1093/imanum/draa038) on the shifted softmax.
/// See also      oracle::attention · bound_fraction.h.
[[nodiscard]] Result<AttentionBound> bound_attention(const AttentionInputs<double>& inputs,
                                                     const AttentionOptions<double>& options = {});

/// Named as AttentionGradients, with the same shapes.
struct AttentionGradientBound {
  Tensor<double> d_query;  // [B, H, T, D]
  Tensor<double> d_key;    // [B, G, S, D]
  Tensor<double> d_value;  // [B, G, S, E]
  Tensor<double> d_bias;   // the bias's own shape; empty without one
  Tensor<double> d_sink;   // [H]; empty without one
};

/// The same for `attention_backward`: every line of its formula with the errors of what enters.
///
/// Formula       with x = d_softmax − delta + d_log_sum_exp,
///               e(d_biased) = softmax·e(x) + |x|·e(softmax) + e(x)·e(softmax) + u·|d_biased|;
///               then the factors of softcap and scale; sums add the errors of their terms
/// Edge cases, determinism and sources as `bound_attention`.
/// Fails         as `attention_backward`, but for no-visible-key.
/// Cost          about five times `attention_backward`.
/// See also      oracle::attention_backward.
[[nodiscard]] Result<AttentionGradientBound> bound_attention_backward(
    const AttentionInputs<double>& inputs, const AttentionOptions<double>& options,
    const AttentionOutputGradients& gradients);

struct BlockBound {
  Tensor<double> output;             // [L, 4]
  std::vector<Tensor<double>> maps;  // one [L, L] for each head
};

/// The same for the workbook's block: errors of the projections flow into query, key and value, on
/// through residuals and both norms. A norm divides by a deviation that may be small, so a row that
/// is nearly constant after its residual has a large bound, as it has a large error.
///
/// Shapes        rows [L, 4]; `options.causal` alone is read.
/// Fails         as `workbook::transformer_block`.
/// See also      oracle::workbook_block.
[[nodiscard]] Result<BlockBound> bound_block(const Tensor<double>& rows,
                                             const workbook::BlockParameters& parameters,
                                             const workbook::AttentionOptions& options);

}  // namespace attest::lab
