// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"
#include "attest/lab/layers_activation.h"
#include "attest/lab/layers_norm.h"

namespace attest::lab {

/// The layers around attention, every sum correctly rounded and every elementary function too.
///
/// What holds for all of them, those of layers_norm.h and layers_activation.h included:
///
/// Shapes        any strides in; new, dense tensors out. Nothing is overwritten.
/// Edge cases    NaN and infinities travel as IEEE arithmetic says, unless stated otherwise.
/// Accuracy      u = 2⁻⁵³ is half the distance from 1 to the next number. Bounds leave out terms of
///               order u² and hold while nothing overflows or falls below 2⁻¹⁰²².
/// Determinism   the same bits on every machine and compiler, whatever the host's rounding mode.
/// Fails         before any arithmetic, with both numbers in the sentence.

/// A matrix product, with a bias or without.
///
/// Formula       y[n,o] = Σ_i x[n,i]·weight[i,o] + bias[o]     rounded products, one sum
/// Shapes        x [N, I], weight [I, O] (input × output), bias [O] or absent; y [N, O].
/// Edge cases    N, I and O may be 0; the sum of nothing is +0, or the bias.
/// Accuracy      |error| ≤ u·(Σ_i |x·weight| + |y|): a rounding a product, and one of the sum.
/// Determinism   as above; the order of the features cannot matter.
/// Fails         shape-mismatch.
/// Cost          N·I·O products.
/// Sources       the workbook's matmul.
/// See also      linear_backward · oracle::linear.
[[nodiscard]] Result<Tensor<double>> linear(View<const double, 2> x, View<const double, 2> weight,
                                            View<const double, 1> bias = {});

struct LinearGradients {
  Tensor<double> d_x;       // [N, I]
  Tensor<double> d_weight;  // [I, O]
  Tensor<double> d_bias;    // [O]; what a bias would get, whether or not there was one
};

/// The gradients of `linear`. Overwrites nothing: returns new tensors.
///
/// Formula       d_x[n,i]      = Σ_o d_y[n,o]·weight[i,o]
///               d_weight[i,o] = Σ_n x[n,i]·d_y[n,o]
///               d_bias[o]     = Σ_n d_y[n,o]
/// Shapes        as `linear`; d_y [N, O].
/// Accuracy      each sum errs by u·(Σ |products| + |sum|), d_bias by u·|sum| alone.
/// Fails         shape-mismatch.
/// Cost          2·N·I·O products.
[[nodiscard]] Result<LinearGradients> linear_backward(View<const double, 2> x,
                                                      View<const double, 2> weight,
                                                      View<const double, 2> d_y);

/// Looks up a row for each id.
///
/// Formula       y[n,c] = table[ids[n], c]
/// Shapes        table [V, C], ids [N]; y [N, C].
/// Edge cases    N may be 0. Rows that no id names are not read.
/// Accuracy      exact.
/// Determinism   as above.
/// Fails         shape-mismatch; id-out-of-range, naming position and id: a negative id does not
///               count from the end.
/// Cost          N·C copies.
/// See also      embedding_backward.
[[nodiscard]] Result<Tensor<double>> embedding(View<const double, 2> table,
                                               View<const std::int64_t, 1> ids);

/// The gradient of `embedding`'s table. Overwrites nothing: returns a new tensor.
///
/// Formula       d_table[v,c] = Σ d_y[n,c] over the positions n with ids[n] = v, rounded once
/// Shapes        ids [N], d_y [N, C], V rows; d_table [V, C].
/// Edge cases    a row that no id names gets zeros.
/// Accuracy      correctly rounded.
/// Fails         shape-mismatch, id-out-of-range.
/// Cost          N·C additions.
[[nodiscard]] Result<Tensor<double>> embedding_backward(std::int64_t rows,
                                                        View<const std::int64_t, 1> ids,
                                                        View<const double, 2> d_y);

/// What the right answers are, and which value among them means "no answer here".
struct Targets {
  View<const std::int64_t, 1> ids;      ///< [N]
  std::optional<std::int64_t> ignored;  ///< a position holding it counts in no sum and no count
};

struct CrossEntropyResult {
  double loss = 0;         // the mean over the counted positions; 0 if there is none
  std::int64_t count = 0;  // how many positions counted: 0 means that there was nothing to learn
  Tensor<double> losses;   // [N]; 0 where ignored
};

/// The mean surprise at the right answers, in nats.
///
/// Formula       losses[n] = log Σ_v exp(logits[n,v]) − logits[n, ids[n]]
///               computed as peak + log(sum) − logit, one sum of three, with softmax_row's peak
///               and sum: a confident answer among large logits keeps its digits
///               loss = Σ_n losses[n] / count      over the positions that are not ignored
/// Shapes        logits [N, V], ids [N].
/// Edge cases    nothing counted: loss 0 and count 0, for the caller to see; gradients are then 0.
///               The logits of an ignored position are not read. A right answer at −∞ costs +∞.
/// Accuracy      |error of losses[n]| ≤ u·(2 + 2·log V + losses[n]).
/// Determinism   as above.
/// Fails         shape-mismatch; target-out-of-range, naming the position and the target.
/// Cost          N·V exponentials.
/// Sources       Bridle 1990 (softmax and its likelihood).
/// See also      cross_entropy_backward · softmax_row · oracle::cross_entropy.
[[nodiscard]] Result<CrossEntropyResult> cross_entropy(View<const double, 2> logits,
                                                       const Targets& targets);

/// The gradient of `cross_entropy`'s mean. Overwrites nothing: returns a new tensor.
///
/// Formula       d_logits[n,v] = (weights[n,v] − [v = ids[n]])·d_loss / count
///               weights = softmax(logits[n]); rows of ignored positions are 0
/// Shapes        d_logits [N, V].
/// Edge cases    nothing counted: all 0, never 0/0.
/// Accuracy      |error| ≤ u·(8 + log V)·|d_loss| / count.
/// Fails         as `cross_entropy`.
/// Cost          N·V exponentials.
[[nodiscard]] Result<Tensor<double>> cross_entropy_backward(View<const double, 2> logits,
                                                            const Targets& targets,
                                                            double d_loss = 1);

}  // namespace attest::lab
