// SPDX-License-Identifier: MIT
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "attest/base/attention_call.h"
#include "attest/base/dtype.h"
#include "attest/base/tensor.h"
#include "attest/linalg/execution.h"

/// The engine: scaled dot-product attention as fast as the machine allows.
namespace attest {

/// The number types that a bias may have beside tensors of T: what T is summed in, or BFloat16
/// where that is f32.
template <class Bias, class T>
concept BiasFor = std::same_as<Bias, AccumulatorOf<T>> ||
    (sizeof(AccumulatorOf<T>) == sizeof(float) && std::same_as<Bias, BFloat16>);

/// Where results are written: the caller's own memory, any strides, no overlap with the inputs. A
/// stride of 0, and a result that begins where an input does, are noticed and refused.
template <class T>
struct AttentionOutputs {
  View<T, 4> output{};                      ///< [B, H, T, E]
  View<AccumulatorOf<T>, 3> log_sum_exp{};  ///< [B, H, T]; absent: not wanted
};

/// A result that owns its memory.
template <class T>
struct AttentionResult {
  Tensor<T> memory;                      ///< the output's elements in the layout of the query
  Tensor<AccumulatorOf<T>> log_sum_exp;  ///< [B, H, T]; natural; what the backward pass needs
  bool heads_inside = false;  ///< memory is [B, T, H, E], as the query's was [B, T, H, D]

  /// [B, H, T, E], whatever the layout in memory.
  [[nodiscard]] View<const T, 4> output() const {
    const View<const T, 4> whole = memory.template view<4>();
    return heads_inside ? whole.swapped(1, 2) : whole;
  }
};

/// Scaled dot-product attention over grouped key/value heads; the scores are never stored.
///
///     scores[b,h,i,j] = scale · Σ_d query[b,h,i,d] · key[b,g,j,d]        g = h div (H/G)
///     biased          = softcap · tanh(scores / softcap) + bias − slope·distance
///     weights[b,h,i,·] = softmax of biased[b,h,i,·] and sink[h] over the keys that i may see
///     output[b,h,i,e] = Σ_j kept(weights[b,h,i,j]) · value[b,g,j,e]
///     log_sum_exp     = log(Σ_j exp(biased) + exp(sink))                 natural
///
/// Shapes        query [B, H, T, D], key [B, G, S, D], value [B, G, S, E], H a multiple of G; D and
///               E from 1 to 512; any of B, T, S may be 0. Any strides; [B, T, H, D] memory is the
///               same view with axes 1 and 2 swapped, and the result then has that layout too.
/// Types         float, double, BFloat16, Half. 16-bit numbers are storage: scores, softmax and
///               sums are f32 (weights are rounded to bfloat16 where the machine multiplies such
///               pairs). A bias may be float or BFloat16 (double for double).
/// Mask          true means "may see"; attest/base/mask.h. Rules are combined by *and*. Blocks of
///               keys that no query of a block may see are not touched.
/// Edge cases    Hidden keys and values never matter, NaN and infinity included. A bias of −∞
///               hides. A query that sees no key is an error by default, or as EmptyRow says.
///               NaN or +∞ in a visible score makes its row NaN.
/// Range         Where f32 computes: scale and sink in f32's range, softcap from 2⁻⁶⁴ to 2⁶⁴,
///               slopes up to 2⁶⁴; where f64 computes, f64's range and 2⁵¹². Else bad-option.
/// Accuracy      docs/accuracy.md, "The engine": a bound in u, D, S and the sizes of the inputs,
///               tested on every instruction set against lab::attention, and no worse than twice
///               the error of the plain loop in the same type.
/// Determinism   the same bits for any number of threads and any batch mates, per instruction set;
///               see Reproducible for more.
/// Throws        ShapeError, ValueError: shape-mismatch, too-large, causal-needs-square,
///               bad-option, no-visible-key, bad-isa. With no-visible-key the outputs are
///               unspecified.
/// Cost          2·(D + E) flops a visible pair; scratch of a few hundred KiB a thread.
/// Sources       Vaswani et al. 2017 §3.2.1 (arXiv:1706.03762); Milakov, Gimelshein 2018
///               (1805.02867) Alg. 3; Dao et al. 2022 (2205.14135) Alg. 1; Ainslie et al. 2023
///               (2305.13245).
/// See also      attention_backward · attention_weights · merge_attention · KvCache ·
///               lab::attention.
template <BiasFor<float> Bias = float>
[[nodiscard]] AttentionResult<float> attention(View<const float, 4> query, View<const float, 4> key,
                                               View<const float, 4> value,
                                               const AttentionOptions<Bias>& options = {},
                                               const Execution& execution = {});
template <BiasFor<double> Bias = double>
[[nodiscard]] AttentionResult<double> attention(View<const double, 4> query,
                                                View<const double, 4> key,
                                                View<const double, 4> value,
                                                const AttentionOptions<Bias>& options = {},
                                                const Execution& execution = {});
template <BiasFor<BFloat16> Bias = float>
[[nodiscard]] AttentionResult<BFloat16> attention(View<const BFloat16, 4> query,
                                                  View<const BFloat16, 4> key,
                                                  View<const BFloat16, 4> value,
                                                  const AttentionOptions<Bias>& options = {},
                                                  const Execution& execution = {});
template <BiasFor<Half> Bias = float>
[[nodiscard]] AttentionResult<Half> attention(View<const Half, 4> query, View<const Half, 4> key,
                                              View<const Half, 4> value,
                                              const AttentionOptions<Bias>& options = {},
                                              const Execution& execution = {});

/// The same into the caller's memory: allocates nothing for the results. Overwrites `outputs`.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
void attention_into(const AttentionOutputs<T>& outputs, const AttentionInputs<T>& inputs,
                    const AttentionOptions<Bias>& options, const Execution& execution = {});

/// The same without exceptions, for callers that have none. Never throws but for memory that cannot
/// be had.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
[[nodiscard]] Result<void> try_attention(const AttentionOutputs<T>& outputs,
                                         const AttentionInputs<T>& inputs,
                                         const AttentionOptions<Bias>& options,
                                         const Execution& execution = {});

/// Joins the results for two disjoint ranges of keys into the result for both.
///
///     log_sum_exp = log(exp(a.log_sum_exp) + exp(b.log_sum_exp))
///     output      = a.output·exp(a.log_sum_exp − log_sum_exp) + b.output·exp(b.log_sum_exp − …)
///
/// Shapes        outputs [B, H, T, E], log_sum_exps [B, H, T], all alike; `into` may be a or b.
/// Edge cases    A part with log_sum_exp −∞ saw nothing: the other part is the result, bit for bit.
///               A sink must be in one part alone. Dropout needs places counted alike.
/// Accuracy      exact in real arithmetic; each number then within 4u of the formula's value.
/// Throws        ShapeError.
/// Source        Milakov, Gimelshein 2018 (1805.02867) §3.1.
template <class T>
void merge_attention(const AttentionOutputs<T>& into, const AttentionOutputs<const T>& a,
                     const AttentionOutputs<const T>& b);

/// Which rows of weights are wanted.
struct WeightsChoice {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::int64_t first_query = 0;
  std::int64_t queries = 0;
};

/// Rows of the weights, recomputed from their log_sum_exp: [queries, S].
///
///     weights[i,j] = kept(exp(biased[i,j] − log_sum_exp[i])), 0 where hidden
///
/// Shapes        inputs and options as for `attention`; log_sum_exp [B, H, T] from it.
/// Accuracy      u·|log_sum_exp| enters every weight as a relative error: a bias common to all keys
///               of −1e9 (f32) leaves no digit of the sum in log_sum_exp. Hide with −∞ instead.
/// Cost          2·D flops a pair of the rows asked for; nothing else is computed.
/// Throws        as `attention`, and bad-option for rows that are not there.
template <class T, BiasFor<T> Bias = AccumulatorOf<T>>
[[nodiscard]] Tensor<AccumulatorOf<T>> attention_weights(
    const AttentionInputs<T>& inputs, const AttentionOptions<Bias>& options,
    View<const AccumulatorOf<T>, 3> log_sum_exp, const WeightsChoice& choice,
    const Execution& execution = {});

}  // namespace attest
