// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/linalg/execution.h"

namespace attest {

/// The inputs of an ONNX `Attention` node, by the names of the operator. Null means absent.
struct OnnxAttentionInputs {
  const AnyTensor* Q = nullptr;                 ///< [B, H, T, D], or packed [B, T, H·D]
  const AnyTensor* K = nullptr;                 ///< [B, G, S, D], or packed [B, S, G·D]
  const AnyTensor* V = nullptr;                 ///< [B, G, S, E], or packed [B, S, G·E]
  const AnyTensor* attn_mask = nullptr;         ///< boolean or floating, rank 1 to 4
  const AnyTensor* past_key = nullptr;          ///< [B, G, P, D], before the keys of K
  const AnyTensor* past_value = nullptr;        ///< [B, G, P, E]
  const AnyTensor* nonpad_kv_seqlen = nullptr;  ///< i64 [B]; opset 24
};

/// Its attributes, with the operator's numbers and defaults.
struct OnnxAttentionAttributes {
  int opset = 25;                          ///< 23, 24 or 25: the version of the node
  std::int64_t q_num_heads = 0;            ///< H; for packed inputs; 0: absent
  std::int64_t kv_num_heads = 0;           ///< G; likewise
  std::int64_t is_causal = 0;              ///< 0 or 1
  std::optional<double> scale{};           ///< nothing: 1/√D
  double softcap = 0;                      ///< 0: none
  std::int64_t qk_matmul_output_mode = 0;  ///< 0 raw, 1 capped, 2 biased and masked, 3 weights
  std::int64_t softmax_precision = 0;   ///< TensorProto: 1 f32, 10 f16, 11 f64, 16 bf16; 0: absent
  std::int64_t left_window_size = -1;   ///< keys before the query's own position; −1: all
  std::int64_t right_window_size = -1;  ///< keys after it; −1: all; both opset 25
};

/// Which optional outputs the node has.
struct OnnxAttentionWanted {
  bool present = false;           ///< present_key and present_value
  bool qk_matmul_output = false;  ///< costs a T×S table for each head
};

struct OnnxAttentionOutputs {
  AnyTensor Y;                                  // [B, H, T, E], or [B, T, H·E] for packed inputs
  std::optional<AnyTensor> present_key{};       // [B, G, P + S, D]
  std::optional<AnyTensor> present_value{};     // [B, G, P + S, E]
  std::optional<AnyTensor> qk_matmul_output{};  // [B, H, T, P + S]
};

/// The ONNX operator `Attention`, versions 23 to 25, carried out by the engine.
///
///     Y = softmax(softcap(Q·Kᵀ·scale) + attn_mask) · V        keys are past_key, then K
///
/// Shapes        above. Q, K and V all have rank 3 or all have rank 4. H is a multiple of G, and
///               query head h reads key/value head h div (H/G). D and E from 1 to 512.
/// Types         f32, f64, f16, bf16. K has Q's; V may have another. Y and qk_matmul_output have
///               Q's, present_key K's, present_value V's. The arithmetic is in Q's type (16-bit
///               types: f32 inside); in f64 if V, the mask or softmax_precision say f64, in f32 if
///               V differs otherwise. A softmax_precision below that is exceeded, never undercut.
/// Mask          attn_mask broadcasts right-aligned to [B, H, T, P + S]: rank 3 is [H, T, S], never
///               [B, T, S]. true = may see; floating numbers are added, −∞ hides. From opset 24 a
///               mask whose last axis is shorter hides the keys beyond it, an extent of 1 included;
///               in 23 that extent broadcasts.
///               Query i stands at position offset + i: offset is P with past_key,
///               nonpad_kv_seqlen[b] − T with those (negative ones leave leading rows empty), else
///               0. is_causal and the window count from there. Keys from nonpad_kv_seqlen[b] on are
///               hidden.
/// Edge cases    A row that sees no key is zero, in Y and in mode 3. Hidden keys and values never
///               matter, NaN and infinity included: the one difference from the operator, where
///               they reach every row (0·NaN). Mode 0 is the raw table, hidden keys included; in
///               mode 2 hidden keys are −∞. A negative softcap means its absolute value.
/// Accuracy      Y as `attention`; qk_matmul_output is summed in f64 and rounded once.
/// Determinism   as `attention`.
/// Throws        ShapeError, ValueError, TypeError: shape-mismatch, bad-option (an attribute or
///               input that the version lacks, a negative scale: its root is taken there, and what
///               else `attention` refuses), unsupported-dtype, too-large.
/// Cost          as `attention`; one copy of the keys and values with past_key or wanted.present;
///               of what must change its type; of a mask that must. qk_matmul_output: 2·D flops a
///               pair by a plain loop, and its table.
/// Source        onnx/onnx, docs/Operators.md and docs/Changelog.md, Attention-23 to -25.
/// See also      attention · KvCache · docs/conventions.md.
[[nodiscard]] OnnxAttentionOutputs onnx_attention(const OnnxAttentionInputs& inputs,
                                                  const OnnxAttentionAttributes& attributes = {},
                                                  const OnnxAttentionWanted& wanted = {},
                                                  const Execution& execution = {});

/// The same without exceptions.
[[nodiscard]] Result<OnnxAttentionOutputs> try_onnx_attention(
    const OnnxAttentionInputs& inputs, const OnnxAttentionAttributes& attributes = {},
    const OnnxAttentionWanted& wanted = {}, const Execution& execution = {});

}  // namespace attest
