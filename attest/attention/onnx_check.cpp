// SPDX-License-Identifier: MIT
#include "attest/attention/onnx_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "attest/base/shape.h"

namespace attest::onnx {
namespace {

// The element types of TensorProto that softmax_precision may name.
constexpr std::int64_t proto_f32 = 1;
constexpr std::int64_t proto_f16 = 10;
constexpr std::int64_t proto_bf16 = 16;

template <class... Words>
Failure wrong_shape(const Words&... words) {
  return {ErrorKind::shape, "shape-mismatch", sentence("[onnx_attention] ", words...)};
}
template <class... Words>
Failure bad_option(const Words&... words) {
  return {ErrorKind::value, "bad-option", sentence("[onnx_attention] ", words...)};
}
template <class... Words>
Failure bad_dtype(const Words&... words) {
  return {ErrorKind::type, "unsupported-dtype", sentence("[onnx_attention] ", words...)};
}

Result<void> check_tensor(const char* name, const AnyTensor* tensor) {
  if (tensor == nullptr) return wrong_shape(name, " must be given");
  if (!is_floating(tensor->dtype())) {
    return bad_dtype(name, " must be f64, f32, f16 or bf16; it is ", name_of(tensor->dtype()));
  }
  const std::size_t rank = tensor->shape().size();
  if (rank == 3 || rank == 4) return {};
  return wrong_shape(name, " must have rank 3 or 4; it has shape ", to_string(tensor->shape()));
}

Result<void> check_version(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& how) {
  if (how.opset < 23 || how.opset > 25) {
    return bad_option("opset must be 23, 24 or 25; it is ", how.opset);
  }
  if (in.nonpad_kv_seqlen != nullptr && how.opset < 24) {
    return bad_option("nonpad_kv_seqlen came with opset 24; the node has ", how.opset);
  }
  if ((how.left_window_size != -1 || how.right_window_size != -1) && how.opset < 25) {
    return bad_option("windows came with opset 25; the node has ", how.opset);
  }
  if (in.nonpad_kv_seqlen != nullptr && in.past_key != nullptr) {
    return bad_option("nonpad_kv_seqlen and past_key exclude each other; both are given");
  }
  if ((in.past_key == nullptr) != (in.past_value == nullptr)) {
    return wrong_shape("past_key and past_value must be given together; only ",
                       in.past_key != nullptr ? "past_key" : "past_value", " is");
  }
  return {};
}

Result<void> check_attributes(const OnnxAttentionAttributes& how) {
  if (how.is_causal != 0 && how.is_causal != 1) {
    return bad_option("is_causal must be 0 or 1; it is ", how.is_causal);
  }
  if (how.qk_matmul_output_mode < 0 || how.qk_matmul_output_mode > 3) {
    return bad_option("qk_matmul_output_mode must lie between 0 and 3; it is ",
                      how.qk_matmul_output_mode);
  }
  if (how.scale && !(*how.scale >= 0 && std::isfinite(*how.scale))) {
    return bad_option("scale must be finite and not negative; it is ", *how.scale);
  }
  if (!std::isfinite(how.softcap)) return bad_option("softcap must be finite; it is ", how.softcap);
  constexpr std::array<std::int64_t, 5> known = {0, proto_f32, proto_f16, proto_f64, proto_bf16};
  if (std::find(known.begin(), known.end(), how.softmax_precision) == known.end()) {
    return bad_option("softmax_precision must be 1, 10, 11 or 16; it is ", how.softmax_precision);
  }
  for (const std::int64_t side : {how.left_window_size, how.right_window_size}) {
    if (side < -1) return bad_option("a window size must be at least -1; found ", side);
  }
  return {};
}

/// past_key or past_value: 4-D, and all but its length as the fresh part's.
Result<void> check_past(const char* name, const AnyTensor& past, const AnyTensor& fresh,
                        const Heads& heads) {
  const Shape& shape = past.shape();
  if (past.dtype() != fresh.dtype()) {
    return bad_dtype(name, " must have the dtype of what it precedes; they are ",
                     name_of(past.dtype()), " and ", name_of(fresh.dtype()));
  }
  if (shape.size() == 4 && shape[0] == heads.batch && shape[1] == heads.heads &&
      shape[3] == heads.width) {
    return {};
  }
  return wrong_shape(name, " must have shape [", heads.batch, ", ", heads.heads, ", P, ",
                     heads.width, "]; it has ", to_string(shape));
}

/// The tensors alone: that they are there, of the right types and of one rank.
Result<void> check_tensors(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& how) {
  if (auto ok = check_tensor("Q", in.Q); !ok) return ok;
  if (auto ok = check_tensor("K", in.K); !ok) return ok;
  if (auto ok = check_tensor("V", in.V); !ok) return ok;
  const std::size_t rank = in.Q->shape().size();
  if (in.K->shape().size() != rank || in.V->shape().size() != rank) {
    return wrong_shape("Q, K and V must have one rank; they have ", rank, ", ",
                       in.K->shape().size(), " and ", in.V->shape().size());
  }
  if (in.K->dtype() != in.Q->dtype()) {
    return bad_dtype("Q and K must have one dtype; they have ", name_of(in.Q->dtype()), " and ",
                     name_of(in.K->dtype()));
  }
  // Before opset 25 the head counts were allowed beside 4-D inputs, and without meaning.
  if (rank == 4 && how.opset >= 25 && (how.q_num_heads != 0 || how.kv_num_heads != 0)) {
    return bad_option("q_num_heads and kv_num_heads belong to packed inputs; these have rank 4");
  }
  return {};
}

Result<void> check_lengths(const OnnxAttentionInputs& in, Parts& parts) {
  const Heads &K = parts.K, &V = parts.V;
  Sizes& s = parts.sizes;
  if (K.length != V.length || K.batch != V.batch || K.heads != V.heads) {
    return wrong_shape("K and V must have the same B, G and S; they have shapes ",
                       to_string(in.K->shape()), " and ", to_string(in.V->shape()));
  }
  if (in.past_key != nullptr) {
    if (auto ok = check_past("past_key", *in.past_key, *in.K, K); !ok) return ok;
    if (auto ok = check_past("past_value", *in.past_value, *in.V, V); !ok) return ok;
    s.P = in.past_key->shape()[2];
    if (in.past_value->shape()[2] != s.P) {
      return wrong_shape("past_key and past_value must have the same length; they have ", s.P,
                         " and ", in.past_value->shape()[2]);
    }
  }
  // Where an extent is 0 the others may be anything: no sum and no product may overflow.
  constexpr std::int64_t longest = std::int64_t{1} << 40U;
  for (const std::int64_t extent : {s.B, s.H, s.G, s.T, s.D, s.E, s.P, K.length}) {
    if (extent > longest) return too_large("an extent of ", extent, " is beyond 2^40");
  }
  s.S = s.P + K.length;
  for (const Shape& shape :
       {Shape{s.B, s.H, s.T, s.E}, Shape{s.B, s.G, s.S, s.D}, Shape{s.B, s.G, s.S, s.E}}) {
    const auto count = element_count(shape);
    if (!count || *count > longest) {
      return too_large("a tensor of shape ", to_string(shape), " has more than 2^40 elements");
    }
  }
  return {};
}

}  // namespace

Result<Heads> heads_of(const char* name, const AnyTensor& tensor, const char* attribute,
                       std::int64_t count) {
  const Shape& shape = tensor.shape();
  if (shape.size() == 4) {
    const std::vector<std::int64_t> steps = row_major_strides(shape);
    return Heads{shape[0], shape[1], shape[2], shape[3], {steps[0], steps[1], steps[2], steps[3]}};
  }
  if (count < 1) return bad_option("packed inputs need ", attribute, " > 0; it is ", count);
  if (shape[2] % count != 0) {
    return wrong_shape("the last axis of ", name, " must be a multiple of ", attribute,
                       "; they are ", shape[2], " and ", count);
  }
  const std::int64_t width = shape[2] / count;
  return Heads{shape[0], count, shape[1], width, {shape[1] * shape[2], width, shape[2], 1}};
}

Result<Parts> checked_parts(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& how) {
  if (auto ok = check_version(in, how); !ok) return ok.failure();
  if (auto ok = check_attributes(how); !ok) return ok.failure();
  if (auto ok = check_tensors(in, how); !ok) return ok.failure();
  const auto Q = heads_of("Q", *in.Q, "q_num_heads", how.q_num_heads);
  if (!Q) return Q.failure();
  const auto K = heads_of("K", *in.K, "kv_num_heads", how.kv_num_heads);
  if (!K) return K.failure();
  const auto V = heads_of("V", *in.V, "kv_num_heads", how.kv_num_heads);
  if (!V) return V.failure();
  Parts out{.sizes = {.B = Q->batch,
                      .H = Q->heads,
                      .G = K->heads,
                      .T = Q->length,
                      .D = Q->width,
                      .E = V->width,
                      .packed = in.Q->shape().size() == 3},
            .Q = *Q,
            .K = *K,
            .V = *V};
  if (auto ok = check_lengths(in, out); !ok) return ok.failure();
  return out;
}

Result<Mask> position_mask(const OnnxAttentionInputs& in, const OnnxAttentionAttributes& how,
                           const Sizes& s) {
  Mask mask;
  mask.future_hidden = how.is_causal == 1;
  mask.corner = Corner::at_offset;
  mask.query_offset = {s.P};
  if (how.left_window_size >= 0) mask.window.left = how.left_window_size;
  if (how.right_window_size >= 0) mask.window.right = how.right_window_size;
  if (in.nonpad_kv_seqlen == nullptr) return mask;

  const AnyTensor& lengths = *in.nonpad_kv_seqlen;
  if (lengths.dtype() != DType::i64) {
    return bad_dtype("nonpad_kv_seqlen must be i64; it is ", name_of(lengths.dtype()));
  }
  if (lengths.shape() != Shape{s.B}) {
    return wrong_shape("nonpad_kv_seqlen must have shape [", s.B, "]; it has ",
                       to_string(lengths.shape()));
  }
  mask.key_lengths.resize(lengths.size());
  std::memcpy(mask.key_lengths.data(), lengths.bytes().data(), lengths.bytes().size());
  mask.query_offset.clear();
  for (const std::int64_t length : mask.key_lengths) {
    if (length < 0 || length > s.S) {
      return bad_option("nonpad_kv_seqlen must lie between 0 and S = ", s.S, "; found ", length);
    }
    mask.query_offset.push_back(length - s.T);
  }
  return mask;
}

Result<std::array<std::int64_t, 4>> mask_extents(const AnyTensor& mask, const Sizes& s, int opset) {
  const Shape& shape = mask.shape();
  std::array<std::int64_t, 4> out = {1, 1, 1, 1};
  if (mask.dtype() != DType::boolean && !is_floating(mask.dtype())) {
    return bad_dtype("attn_mask must be boolean (true: may see) or floating (added); it is ",
                     name_of(mask.dtype()));
  }
  bool fits = !shape.empty() && shape.size() <= 4;
  if (fits) {
    std::copy(shape.begin(), shape.end(), out.end() - static_cast<std::ptrdiff_t>(shape.size()));
    std::array<std::int64_t, 4> padded = out;
    if (opset >= 24 && out[3] < s.S) padded[3] = s.S;
    fits = broadcasts_to(padded, {s.B, s.H, s.T, s.S});
  }
  if (fits) return out;
  return wrong_shape("attn_mask must broadcast to [B, H, T, S] = ",
                     to_string(Shape{s.B, s.H, s.T, s.S}), "; it has shape ", to_string(shape));
}

}  // namespace attest::onnx
