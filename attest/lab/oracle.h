// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/attention_call.h"
#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/block.h"
#include "attest/lab/oracle/real.h"

/// The mathematical value of every operation, and of every gradient, to fifty decimal digits.
///
/// Formula       stated beside each function, evaluated as it stands in 64-digit arithmetic on the
///               exact values of the given binary64 numbers. Gradients come from the same formulas
///               by reverse-mode differentiation; there is no backward formula to get wrong.
/// Accuracy      fifty digits relative to the largest term of the sums that lead to a result. Where
///               a result is a small rest of larger terms (a log_sum_exp near 0, the gradient of a
///               score whose weight is almost 1), its own leading digits are fewer by what cancels.
/// Edge cases    for finite inputs. A non-finite number that is looked at fails with "not-finite".
///               A key hidden by the mask or by a bias of −∞ is not looked at, whatever it holds.
///               A tensor without elements stands for an absent parameter. max(0, x) has slope 0 at
///               0.
/// Determinism   the same digits always; no threads, no state.
/// Throws        nothing: failures are values. "shape-mismatch", "missing-tensor", "bad-option",
///               "bad-id", "not-finite", "no-visible-key", "no-target", "unused-parameter";
///               "cannot-compute" if memory runs out.
/// Cost          about 0.3 µs for each multiplication, 1 µs with its gradient: small shapes only.
namespace attest::lab::oracle {

/// A shape and its numbers, row by row: `oracle_tensor(i, j)`, `oracle_tensor.values`.
using OracleTensor = Array<Real>;

// ---- attention --------------------------------------------------------------------------------

struct Attention {
  OracleTensor output;       // [B, H, T, E]
  OracleTensor weights;      // [B, H, T, S]; as they multiply value; 0 where hidden or dropped
  OracleTensor scores;       // [B, H, T, S]; scaled, capped and biased; −∞ where hidden
  OracleTensor log_sum_exp;  // [B, H, T]; natural, with the sink
};

struct AttentionGradients {
  OracleTensor d_query;  // [B, H, T, D]
  OracleTensor d_key;    // [B, G, S, D]
  OracleTensor d_value;  // [B, G, S, E]
  OracleTensor d_bias;   // as the bias was given: summed over the axes that it broadcasts along
  OracleTensor d_sink;   // [H]
};

/// output = dropout(softmax(cap(query · keyᵀ / √D) + bias − slope · distance)) · value, over visible
/// keys. Dropout makes a weight 0, its value is then not looked at, or divides it by 1 − rate.
///
/// A row without a visible key fails, and is named; or is filled as options.empty_row says, with a
/// log_sum_exp of −∞ even if there is a sink. The exponentials are unshifted wherever every visible
/// score and the sink of a row are below 10⁷ in size.
[[nodiscard]] Result<Attention> attention(const AttentionInputs<double>& inputs,
                                          const AttentionOptions<double>& options = {});

/// The gradients of Σ d_output · output + Σ d_log_sum_exp · log_sum_exp. Filled rows give nothing.
[[nodiscard]] Result<AttentionGradients> attention_backward(
    const AttentionInputs<double>& inputs, const AttentionOptions<double>& options,
    View<const double, 4> d_output,             // [B, H, T, E]
    View<const double, 3> d_log_sum_exp = {});  // [B, H, T]; absent: zeros

// ---- matrices and rows ------------------------------------------------------------------------

/// left [N, K] · right [K, M].
[[nodiscard]] Result<OracleTensor> matmul(const Tensor<double>& left, const Tensor<double>& right);
struct MatmulGradients {
  OracleTensor d_left, d_right;
};
[[nodiscard]] Result<MatmulGradients> matmul_backward(const Tensor<double>& left,
                                                      const Tensor<double>& right,
                                                      const Tensor<double>& d_output);

/// exp(x_c) / Σ_k exp(x_k) over the last axis.
[[nodiscard]] Result<OracleTensor> softmax(const Tensor<double>& x);
[[nodiscard]] Result<OracleTensor> softmax_backward(const Tensor<double>& x,
                                                    const Tensor<double>& d_output);

/// y = x · weight + bias.
struct Linear {
  Tensor<double> weight;  // [in, out]
  Tensor<double> bias;    // [out], or absent
};
struct LinearGradients {
  OracleTensor d_input, d_weight, d_bias;
};
[[nodiscard]] Result<OracleTensor> linear(const Tensor<double>& x, const Linear& layer);
[[nodiscard]] Result<LinearGradients> linear_backward(const Tensor<double>& x, const Linear& layer,
                                                      const Tensor<double>& d_output);

/// (x − mean) / √(variance + ε) · gain + bias, or x / √(mean square + ε) · gain (+ bias).
struct Normalisation {
  Norm kind = Norm::layer_norm;
  Tensor<double> gain;  // [C], or absent
  Tensor<double> bias;  // [C], or absent
  double epsilon = 1e-5;
};
struct NormalisationGradients {
  OracleTensor d_input, d_gain, d_bias;
};
[[nodiscard]] Result<OracleTensor> norm(const Tensor<double>& x, const Normalisation& layer);
[[nodiscard]] Result<NormalisationGradients> norm_backward(const Tensor<double>& x,
                                                           const Normalisation& layer,
                                                           const Tensor<double>& d_output);

/// Element by element: relu, both GELUs, SiLU, as attest::Activation states them.
[[nodiscard]] Result<OracleTensor> activation(Activation kind, const Tensor<double>& x);
[[nodiscard]] Result<OracleTensor> activation_backward(Activation kind, const Tensor<double>& x,
                                                       const Tensor<double>& d_output);

/// activation(gate) ⊙ up.
[[nodiscard]] Result<OracleTensor> gated(Activation kind, const Tensor<double>& gate,
                                         const Tensor<double>& up);
struct GatedGradients {
  OracleTensor d_gate, d_up;
};
[[nodiscard]] Result<GatedGradients> gated_backward(Activation kind, const Tensor<double>& gate,
                                                    const Tensor<double>& up,
                                                    const Tensor<double>& d_output);

/// Rotary positions: x [..., T, D], row t stands at offset + t.
[[nodiscard]] Result<OracleTensor> rope(const Tensor<double>& x, const RopeConfig& config,
                                        std::int64_t offset = 0);
[[nodiscard]] Result<OracleTensor> rope_backward(const Tensor<double>& x, const RopeConfig& config,
                                                 std::int64_t offset,
                                                 const Tensor<double>& d_output);

/// Rows of table [V, C] by ids [...]: output [..., C]. The gradient is that of the table.
[[nodiscard]] Result<OracleTensor> embedding(const Tensor<double>& table,
                                             const Tensor<std::int64_t>& ids);
[[nodiscard]] Result<OracleTensor> embedding_backward(const Tensor<double>& table,
                                                      const Tensor<std::int64_t>& ids,
                                                      const Tensor<double>& d_output);

// ---- loss -------------------------------------------------------------------------------------

struct CrossEntropy {
  Real sum;                  ///< Σ −log softmax(logits[n])[targets[n]] over the counted targets
  Real mean;                 ///< sum / counted
  std::int64_t counted = 0;  ///< targets that are not the ignored value; at least one
};
[[nodiscard]] Result<CrossEntropy> cross_entropy(const Tensor<double>& logits,         // [N, V]
                                                 const Tensor<std::int64_t>& targets,  // [N]
                                                 std::optional<std::int64_t> ignored = {});
/// The gradient of the mean with respect to the logits; zeros where the target is ignored.
[[nodiscard]] Result<OracleTensor> cross_entropy_backward(const Tensor<double>& logits,
                                                          const Tensor<std::int64_t>& targets,
                                                          std::optional<std::int64_t> ignored = {});

// ---- blocks -----------------------------------------------------------------------------------

struct Block {
  OracleTensor output;   // [T, C]
  OracleTensor weights;  // [1, H, T, T]
};
struct BlockGradients {
  OracleTensor d_input;                     // [T, C]
  BlockParameters<OracleTensor> d_weights;  // each with the shape of its parameter
};

/// One transformer block on x [T, C], as attest::BlockConfig draws it; positions count from 0.
[[nodiscard]] Result<Block> block(const Tensor<double>& x, const BlockConfig& config,
                                  const BlockWeights<double>& weights);
[[nodiscard]] Result<BlockGradients> block_backward(const Tensor<double>& x,
                                                    const BlockConfig& config,
                                                    const BlockWeights<double>& weights,
                                                    const Tensor<double>& d_output);

/// The workbook's fixed post-norm block with two heads and ReLU.
struct WorkbookBlock {
  Tensor<double> projection1;    // P1 [C, D]
  Tensor<double> projection2;    // P2 [C, D]
  Tensor<double> output_weight;  // WO [2·D, C]
  Tensor<double> up_weight;      // W1 [C, F]
  Tensor<double> down_weight;    // W2 [F, C]
  double epsilon = 1e-5;
  bool causal = true;
};
struct WorkbookGradients {
  OracleTensor d_input, d_projection1, d_projection2, d_output_weight, d_up_weight, d_down_weight;
};
[[nodiscard]] Result<Block> workbook_block(const Tensor<double>& x, const WorkbookBlock& block);
[[nodiscard]] Result<WorkbookGradients> workbook_block_backward(const Tensor<double>& x,
                                                                const WorkbookBlock& block,
                                                                const Tensor<double>& d_output);

}  // namespace attest::lab::oracle
