// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>

#include "attest/base/attention_call.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"

namespace attest::lab {

struct AttentionResult {
  Tensor<double> output;       // [B, H, T, E]
  Tensor<double> weights;      // [B, H, T, S], what multiplies value; no element with Weights::drop
  Tensor<double> log_sum_exp;  // [B, H, T]
};

/// Whether the T×S table of weights is kept. It has B·H·T·S entries: four times as many when the
/// lengths double. Nothing else of that size is ever made.
enum class Weights { keep, drop };

/// Called after each finished row with the number of rows done and of all: for long calls.
using RowProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Scaled dot-product attention over grouped key/value heads, every step correctly rounded.
///
///     dot[i,j]    = Σ_d query[i,d]·key[j,d]      the rounded products, their sum rounded once
///     scaled      = dot / √D                     or dot · scale, when a scale is given
///     capped      = c · tanh(scaled / c)         with softcap c
///     biased      = capped + bias + alibi        the sum rounded once; alibi = −slope·distance
///     softmax     = exp(biased − peak) / sum     over the visible keys; 0 elsewhere
///     weights     = softmax                      with dropout: softmax / (1 − rate), or 0 if dropped
///     output[i,e] = Σ_j weights[i,j]·value[j,e]  the rounded products, their sum rounded once
///     log_sum_exp = peak + log(sum)              natural; sum includes exp(sink − peak)
///
/// Shapes        query [B, H, T, D], key [B, G, S, D], value [B, G, S, E], H a multiple of G; any
///               strides. Query head h reads key/value head h div (H/G). T, S, B and E may be 0.
/// Mask          true means "may see"; see attest/base/mask.h for corners, offsets, windows and
///               documents. In a packed call every position, corner, offset, window and distance
///               counts within the query's own document: without dropout, the call gives the bits
///               of one call for each document. key_lengths then only hide, by their index in the
///               whole tensor.
/// Edge cases    A hidden key or value is never read, whatever it holds. A bias of −∞ hides its key.
///               attest/base/dropout.h says which weights are dropped. Their values are not read
///               either; their keys take their share of the softmax. A row whose weights are all
///               dropped has output 0. The weights of the result are those after dropout,
///               log_sum_exp is that before it. A rate of 0 changes no bit.
///               A query that sees no key is an error (no-visible-key, the first such row is named),
///               or as EmptyRow says, with a sink as without.
///               NaN or +∞ in a visible score makes the row NaN; −∞ in all of them likewise.
/// Accuracy      each operation above is correctly rounded, once: a sum, a quotient, a root, a
///               function. dot/√D is two of them, and so is softmax/(1 − rate): the difference is
///               rounded, then the quotient. The whole stays within lab/bound.h. A product or a score
///               beyond binary64 is infinite, and its row then NaN.
/// Determinism   the same bits on every machine and compiler, whatever the host's rounding mode.
/// Fails         shape-mismatch, too-large, causal-needs-square, bad-option, no-visible-key. Memory
///               that cannot be had is std::bad_alloc, the one exception.
/// Cost          B·H·T·S visible pairs, each D + E rounded products and one exp (docs/accuracy.md
///               has the measured figure); memory for one row, and the weights if kept.
/// Sources       Vaswani et al. 2017 §3.2.1 (arXiv:1706.03762); Ainslie et al. 2023 (2305.13245).
/// See also      attention_backward · attention_row · oracle::attention · docs/workbook.md.
[[nodiscard]] Result<AttentionResult> attention(const AttentionInputs<double>& inputs,
                                                const AttentionOptions<double>& options = {},
                                                Weights weights = Weights::keep,
                                                const RowProgress& progress = {});

}  // namespace attest::lab
