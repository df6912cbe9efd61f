// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/stage.h"

namespace attest::lab {

/// Whether a config wants a parameter, can do without it, or has no place for it.
enum class Need { required, optional, unused };

/// One parameter of a block, as a config describes it.
struct BlockParameter {
  const char* name;                              ///< "query_weight", as in attest/base/config.h
  Tensor<double> BlockWeights<double>::*tensor;  ///< where it is kept
  Shape shape;                                   ///< the shape it must have, if it is there
  Need need;
};

/// All parameters of a block in the order of BlockWeights. The config must have passed `block`.
[[nodiscard]] std::vector<BlockParameter> block_parameters(const BlockConfig& config);

/// The attention call inside a block: what `attention_row` needs to show any row of any head.
struct BlockAttention {
  Tensor<double> query;  // [T, H·D], as attention reads it: turned, if the block has RoPE
  Tensor<double> key;    // [T, G·D]
  Tensor<double> value;  // [T, G·E]
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  AttentionOptions<double> options;
  Tensor<double> weights;      // [1, H, T, T]
  Tensor<double> log_sum_exp;  // [1, H, T]

  /// Views of the tensors above with B = 1, the heads split by strides; they live as long as this.
  [[nodiscard]] AttentionInputs<double> inputs() const;
};

struct BlockResult {
  Tensor<double> output;      // [T, C]
  std::vector<Stage> stages;  // every intermediate value, in order of computation
  BlockAttention attention;

  /// The values of a stage, or null if this block has none of that name.
  [[nodiscard]] const Tensor<double>* stage(std::string_view name) const;
};

/// A transformer block, every step correctly rounded, every intermediate value kept.
///
/// Formula       as attest/base/config.h draws it for each placement of the norms
/// Stages        in order of computation; those in brackets only where the config has them:
///
///               [norm1.mean] [norm1.variance] [norm1]         pre and sandwich
///               projection.query, .key, .value                [T, H·D], [T, G·D], [T, G·E]
///               [rope.query] [rope.key]                       the same, turned
///               concat                                        [T, H·E], the heads side by side
///               output_projection                             [T, C]
///               [norm1_out.mean] [norm1_out.variance] [norm1_out]      sandwich
///               residual1                                     [T, C]
///               [norm1.mean] [norm1.variance] [norm1]         post
///               … norm2 …, ffn.up, [ffn.gate]                 [T, F]
///               ffn.relu, ffn.gelu or ffn.silu, [ffn.gated]   [T, F]
///               ffn.down, … norm2_out …, residual2            [T, C]
///               … norm2 …, output                             [T, C]
///
///               rms_norm has norm1.mean_square [T] instead of mean and variance.
/// Shapes        x [T, C] with any strides; T may be 0. Parameters as BlockWeights says.
/// Mask          causal: query i sees keys j ≤ i; otherwise every key. Positions count from 0.
/// Edge cases    an absent bias adds nothing, an absent gain multiplies by nothing.
/// Accuracy      each layer's own; a stage is the correctly rounded result of the stages before.
/// Determinism   the same bits on every machine and compiler. With causal, the first rows have the
///               same bits whatever the later rows hold.
/// Fails         shape-mismatch and missing-tensor, naming the parameter; unused-parameter for one
///               that the config has no place for; bad-option.
/// Cost          T·C·(H·D + G·D + G·E + H·E + 2F or 3F) products, and those of `attention`.
/// Sources       Vaswani et al. 2017; Xiong et al. 2020 (arXiv:2002.04745) for the placements.
/// See also      block_backward · attention_row · oracle::block · workbook::transformer_block.
[[nodiscard]] Result<BlockResult> block(View<const double, 2> x, const BlockConfig& config,
                                        const BlockWeights<double>& weights);

struct BlockGradients {
  Tensor<double> d_x;              // [T, C]
  BlockWeights<double> d_weights;  // each with the shape of its parameter; absent where that is
};

/// The gradients of `block`. Overwrites nothing: returns new tensors.
///
/// Formula       the layers' own gradients, last stage first; where a value flows two ways, or
///               three, the gradients that come back are added, rounded once
/// Shapes        x, d_output, d_x [T, C].
/// Accuracy, determinism and failures as `block`; shape-mismatch if d_output is not [T, C].
/// Cost          one `block` for its stages, and about twice its products.
[[nodiscard]] Result<BlockGradients> block_backward(View<const double, 2> x,
                                                    const BlockConfig& config,
                                                    const BlockWeights<double>& weights,
                                                    View<const double, 2> d_output);

}  // namespace attest::lab
