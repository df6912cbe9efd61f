// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/attention.h"

namespace attest {

/// What flows back into an attention call, and what the forward call left.
template <class T>
struct AttentionBackwardInputs {
  View<const T, 4> output{};                        ///< [B, H, T, E], of the forward call
  View<const AccumulatorOf<T>, 3> log_sum_exp{};    ///< [B, H, T], of the forward call
  View<const T, 4> d_output{};                      ///< [B, H, T, E]
  View<const AccumulatorOf<T>, 3> d_log_sum_exp{};  ///< [B, H, T]; absent means zero
};

/// Where gradients are written: the caller's memory, any strides. Absent ones are not written.
template <class T>
struct AttentionGradientOutputs {
  View<T, 4> d_query{};                ///< [B, H, T, D]
  View<T, 4> d_key{};                  ///< [B, G, S, D], summed over the H/G heads that read it
  View<T, 4> d_value{};                ///< [B, G, S, E], likewise
  View<AccumulatorOf<T>, 4> d_bias{};  ///< the bias's own shape, summed over its broadcast axes
  View<AccumulatorOf<T>, 1> d_sink{};  ///< [H], summed over B and T
};

/// Gradients that own their memory. d_bias and d_sink are empty without a bias or a sink.
template <class T>
struct AttentionGradients {
  Tensor<T> d_query;                // [B, H, T, D]
  Tensor<T> d_key;                  // [B, G, S, D]
  Tensor<T> d_value;                // [B, G, S, E]
  Tensor<AccumulatorOf<T>> d_bias;  // the bias's own shape
  Tensor<AccumulatorOf<T>> d_sink;  // [H]
};

/// The gradients of `attention`, its scores computed again from log_sum_exp, here lse. Overwrites.
///
///     3  output = Σ_j kept(weights)·value   d_value[j]  = Σ kept(weights[i,j])·d_output[i]
///                                           d_weights   = kept(d_output[i]·value[j])
///     2  weights = exp(biased − lse)        d_biased    = weights·(d_weights − delta + d_lse)
///                                           delta       = Σ_e d_output·output
///                                           d_sink     += exp(sink − lse)·(d_lse − delta)
///     1  biased = capped + bias + alibi     d_bias      = d_biased
///        capped = c·tanh(scores/c)          d_scores    = d_biased·(1 − (capped/c)²)
///        scores = scale·query·key           d_query[i]  = scale·Σ_j d_scores·key[j]
///                                           d_key[j]    = scale·Σ_i d_scores·query[i]
///
/// Shapes, types, mask as `attention`; `results` are those of the forward call with these options.
/// Edge cases    A query that sees no key gives zero gradients under EmptyRow::zero and nan, and is
///               an error otherwise. Hidden keys, values and their gradients never matter: a NaN in
///               d_output of row i reaches only keys that i sees, and exact zeros stand where a key
///               is seen by none.
/// Accuracy      docs/accuracy.md, "The engine". u·|log_sum_exp| enters every weight as a relative
///               error: a bias common to all keys of −1e9 (f32) spoils them. Hide with −∞ instead.
/// Determinism   the same bits for any number of threads and any batch mates, per instruction set
///               (sums over a batch axis excepted from the latter): sums into a key run over
///               queries in a fixed order, without atomic additions.
/// Throws        as `attention`; shape-mismatch for gradients of other shapes.
/// Cost          2·(3·D + 2·E) flops a visible pair, 2.5 × the forward pass, whichever gradients
///               are wanted. Scratch as there, and sums as large as d_key and d_value, unless these
///               are wanted in the sums' own type, their last stride 1 and their rows a multiple of
///               64 bytes: then sums are made in place.
/// Sources       Dao et al. 2022 (2205.14135) Alg. 4; Dao 2023 (2307.08691) Alg. 2.
/// See also      lab::attention_backward.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
[[nodiscard]] AttentionGradients<T> attention_backward(const AttentionInputs<T>& inputs,
                                                       const AttentionBackwardInputs<T>& results,
                                                       const AttentionOptions<Bias>& options,
                                                       const Execution& execution = {});

/// The same into the caller's memory.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
void attention_backward_into(const AttentionGradientOutputs<T>& gradients,
                             const AttentionInputs<T>& inputs,
                             const AttentionBackwardInputs<T>& results,
                             const AttentionOptions<Bias>& options,
                             const Execution& execution = {});

/// The same without exceptions.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
[[nodiscard]] Result<void> try_attention_backward(const AttentionGradientOutputs<T>& gradients,
                                                  const AttentionInputs<T>& inputs,
                                                  const AttentionBackwardInputs<T>& results,
                                                  const AttentionOptions<Bias>& options,
                                                  const Execution& execution = {});

}  // namespace attest
