// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/attention_row.h"
#include "attest/linalg/isa.h"

/// How far the engine may be from the exact tier, number by number.
namespace attest::check {

/// Which of the engine's arithmetics is judged.
struct EngineArithmetic {
  DType storage = DType::f32;  ///< of query, key, value and output: f64, f32, bf16 or f16
  Isa isa = Isa::portable;     ///< from avx512bf16 on, products of bf16 are of bf16 pairs
};

struct EngineBound {
  Tensor<double> output;       // [B, H, T, E]
  Tensor<double> log_sum_exp;  // [B, H, T]
};

/// Formula       |attention − lab::attention| ≤ bound for each number, where no row is empty. With
///               ρ_j for what may happen to exp(score j), relative, and n visible keys,
///                   ρ_j ≤ e_j + 4u·(peak − score_j) + (3.25 + 4.25·blocks)·u
///                   e_j ≤ u·((D + 4)·A_j + 10·|capped_j| + 2·|bias_j| + 5·|alibi_j|)
///                   |error| ≤ Σ_j w_j·|value_j|·(ρ_j + Σ_i w_i·ρ_i + 2·n·u) + 4u·|output| + storage
///               to first order; what is computed keeps the products of errors. In the weaker form
///                   |error| ≤ [2·(D+4)·A + 2·S + 8.5·blocks + 8·log S + 19]·u·max|value| + storage.
/// Shapes        those of the results. The inputs are the engine's, widened exactly.
/// Edge cases    0 for a row that sees no key; infinite where a result is not finite, or where the
///               arithmetic's range may be left: nothing is promised there.
/// Accuracy      pessimistic; docs/accuracy.md, "The engine", has the proof and the used fractions.
/// Determinism   depends on its arguments alone; computed in binary64 with the host's exp and log.
/// Fails         as lab::attention, but for no-visible-key.
/// Cost          about that of lab::attention.
/// See also      lab::bound_attention.
[[nodiscard]] Result<EngineBound> engine_bound(const AttentionInputs<double>& inputs,
                                               const AttentionOptions<double>& options,
                                               const EngineArithmetic& arithmetic);

struct EngineRowBound {
  std::vector<double> output;  // [E]
  double log_sum_exp = 0;
};

/// The same for one row of a call that has passed lab::check_attention, given that row of the exact
/// tier: of a large call, some rows can be judged without the others.
[[nodiscard]] EngineRowBound engine_bound_row(const lab::AttentionCall& call, lab::RowPlace at,
                                              const lab::AttentionRow& exact,
                                              const EngineArithmetic& arithmetic);

/// Named as AttentionGradients, with the same shapes.
struct EngineGradientBound {
  Tensor<double> d_query;  // [B, H, T, D]
  Tensor<double> d_key;    // [B, G, S, D]
  Tensor<double> d_value;  // [B, G, S, E]
  Tensor<double> d_bias;   // the bias's own shape; empty without one
  Tensor<double> d_sink;   // [H]; empty without one
};

/// The same for `attention_backward`, given output and log_sum_exp of the engine's forward call.
///
/// Formula       every line of the gradient's formula with the errors of what enters it: with
///               x = d_weights − delta + d_log_sum_exp and π for the relative error of a weight,
///               e(d_biased) ≤ w·(1 + π)·e(x) + w·π·|x| + 2u·w·|x|; sums add the errors of their
///               terms and u for each addition
/// Everything else as `engine_bound`.
[[nodiscard]] Result<EngineGradientBound> engine_gradient_bound(
    const AttentionInputs<double>& inputs, const AttentionOptions<double>& options,
    const lab::AttentionOutputGradients& gradients, const EngineArithmetic& arithmetic);

}  // namespace attest::check
