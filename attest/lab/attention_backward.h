// SPDX-License-Identifier: MIT
#pragma once

#include "attest/base/attention_call.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"

namespace attest::lab {

/// What flows back into an attention call.
struct AttentionOutputGradients {
  View<const double, 4> d_output{};       ///< [B, H, T, E]; required
  View<const double, 3> d_log_sum_exp{};  ///< [B, H, T]; absent means zero
};

struct AttentionGradients {
  Tensor<double> d_query;  // [B, H, T, D]
  Tensor<double> d_key;    // [B, G, S, D], summed over the H/G query heads that read it
  Tensor<double> d_value;  // [B, G, S, E], likewise
  Tensor<double> d_bias;  // the bias's own shape, summed over its broadcast axes; empty without one
  Tensor<double> d_sink;  // [H], summed over B and T; empty without one
};

/// The gradients of attention, mirroring its steps backwards; every sum correctly rounded.
///
///     3  output  = Σ_j weights·value       d_value[j]   = Σ weights[i,j]·d_output[i]
///                                          d_weights    = d_output[i]·value[j]
///        weights = softmax/(1 − rate)      d_softmax    = d_weights/(1 − rate)
///                  or 0 if dropped                        or 0 if dropped
///     2  softmax = exp(biased − peak)/sum  d_biased     = softmax·((d_softmax − delta) + d_log_sum_exp)
///                                          delta        = Σ_j softmax·d_softmax
///                                          d_sink      += w_sink·(d_log_sum_exp − delta)
///     1  biased  = capped + bias + alibi   d_bias       = d_biased
///        capped  = c·tanh(scaled/c)        d_scaled     = d_biased / cosh²(scaled/c)
///        scaled  = dot/√D or dot·scale     d_dot        = d_scaled/√D or d_scaled·scale
///        dot     = Σ_d query·key           d_query[i]   = Σ_j d_dot·key[j],  d_key[j] = Σ d_dot·query[i]
///
/// The sums of d_key and d_value run over all rows and all query heads of the group at once.
///
/// Edge cases    Rows that see no key give zero gradients (or fail, as in the forward call). Hidden
///               keys and values are never read and get exactly zero. A dropped weight's value is not
///               read, and hears nothing from that row; its key hears of the others' through delta.
/// Determinism, accuracy as `attention`. Overwrites nothing: returns new tensors.
/// Fails         as `attention`; shape-mismatch if d_output or d_log_sum_exp has another shape.
/// Cost          two T×S tables for each head, B·H·T·S·(2D + 3E) products.
/// See also      attention · oracle::attention_backward.
[[nodiscard]] Result<AttentionGradients> attention_backward(
    const AttentionInputs<double>& inputs, const AttentionOptions<double>& options,
    const AttentionOutputGradients& gradients);

}  // namespace attest::lab
