// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "attest/attention/onnx_attention.h"
#include "attest/base/mask.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/text.h"

/// What an ONNX `Attention` node may say, and what it means. Not public.
namespace attest::onnx {

/// The element type f64 of TensorProto, as softmax_precision names it.
inline constexpr std::int64_t proto_f64 = 11;

/// The letters of one call.
struct Sizes {
  std::int64_t B = 0, H = 0, G = 0, T = 0, D = 0, E = 0;
  std::int64_t P = 0;   // past keys
  std::int64_t S = 0;   // P + keys in K
  bool packed = false;  // rank 3
};

/// A tensor of rank 3 or 4 with its heads told apart, whatever the rank.
struct Heads {
  std::int64_t batch = 0, heads = 0, length = 0, width = 0;
  std::array<std::int64_t, 4> strides{};
};

struct Parts {
  Sizes sizes;
  Heads Q, K, V;
};

/// The heads of a tensor of rank 3 or 4; `count` names the attribute that says how many a packed
/// one has.
[[nodiscard]] Result<Heads> heads_of(const char* name, const AnyTensor& tensor,
                                     const char* attribute, std::int64_t count);

/// All checks of the node but those of the masks.
[[nodiscard]] Result<Parts> checked_parts(const OnnxAttentionInputs& in,
                                          const OnnxAttentionAttributes& how);

/// is_causal, the window and nonpad_kv_seqlen; query_offset has 1 or B entries, key_lengths 0 or B.
[[nodiscard]] Result<Mask> position_mask(const OnnxAttentionInputs& in,
                                         const OnnxAttentionAttributes& how, const Sizes& s);

/// The shape of attn_mask with all four axes, right-aligned, checked against the scores'.
[[nodiscard]] Result<std::array<std::int64_t, 4>> mask_extents(const AnyTensor& mask,
                                                               const Sizes& s, int opset);

template <class... Words>
[[nodiscard]] Failure too_large(const Words&... words) {
  return {ErrorKind::shape, "too-large", sentence("[onnx_attention] ", words...)};
}

}  // namespace attest::onnx
