// SPDX-License-Identifier: MIT
#include "attest/attention/onnx_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attest/attention/attention.h"
#include "attest/attention/onnx_check.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace {

using onnx::Heads;
using onnx::heads_of;
using onnx::Sizes;

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// attn_mask in the type that the engine reads: the node's own memory where that will do, else a copy.
template <class M>
class MaskView {
 public:
  static constexpr M hidden() {
    if constexpr (std::is_same_v<M, bool>) {
      return false;
    } else {
      return -std::numeric_limits<M>::infinity();
    }
  }

  MaskView(const AnyTensor& mask, std::array<std::int64_t, 4> extents, const Sizes& s, int opset) {
    const std::int64_t given = extents[3];
    if (opset >= 24) extents[3] = std::max(given, s.S);  // shorter: hidden beyond; else as it is
    if (extents[3] == given && mask.dtype() == dtype_of<M>) {
      view_ = {reinterpret_cast<const M*>(mask.bytes().data()), extents};
      return;
    }
    copy_ = Tensor<M>(Shape(extents.begin(), extents.end()));
    const std::size_t row = static_cast<std::size_t>(extents[3]);
    for (std::size_t n = 0; n < copy_.size(); ++n) {
      const std::size_t j = n % row;
      copy_.data()[n] = j < static_cast<std::size_t>(given)
                            ? element(mask, n / row * static_cast<std::size_t>(given) + j)
                            : hidden();
    }
    view_ = std::as_const(copy_).template view<4>();
  }

  [[nodiscard]] View<const M, 4> view() const { return view_; }

 private:
  static M element(const AnyTensor& mask, std::size_t n) {
    if constexpr (std::is_same_v<M, bool>) {
      return mask.number(n) != 0;
    } else {
      return static_cast<M>(mask.number(n));
    }
  }

  Tensor<M> copy_;
  View<const M, 4> view_{};
};

// ---- keys and values --------------------------------------------------------------------------

/// past, then fresh, both with their heads outside: [B, G, P + S, width].
AnyTensor joined(const AnyTensor* past, const AnyTensor& fresh, const Heads& heads,
                 std::int64_t past_length) {
  AnyTensor out(fresh.dtype(), {heads.batch, heads.heads, past_length + heads.length, heads.width});
  if (out.bytes().empty()) return out;  // however many heads there are
  const std::size_t element = size_of(fresh.dtype());
  const std::size_t row = static_cast<std::size_t>(heads.width) * element;
  const std::size_t before = static_cast<std::size_t>(past_length) * row;
  std::byte* to = out.bytes().data();
  const std::byte* from_past = past == nullptr ? nullptr : past->bytes().data();
  for (std::int64_t b = 0; b < heads.batch; ++b) {
    for (std::int64_t g = 0; g < heads.heads; ++g) {
      if (before != 0) to = std::copy_n(from_past, before, to);
      from_past += before;
      for (std::int64_t j = 0; j < heads.length; ++j) {
        const std::int64_t place =
            b * heads.strides[0] + g * heads.strides[1] + j * heads.strides[2];
        to = std::copy_n(fresh.bytes().data() + static_cast<std::size_t>(place) * element, row, to);
      }
    }
  }
  return out;
}

/// The same values in that type; the tensor itself if it has it, else `copy`.
const AnyTensor& converted(const AnyTensor& tensor, DType dtype, AnyTensor& copy) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor<double> values(tensor.shape());
  for (std::size_t n = 0; n < values.size(); ++n) values.data()[n] = tensor.number(n);
  copy = AnyTensor::from_f64(values, dtype);
  return copy;
}

template <class T>
View<const T, 4> view_of(const AnyTensor& tensor, const Heads& heads) {
  return {reinterpret_cast<const T*>(tensor.bytes().data()),
          {heads.batch, heads.heads, heads.length, heads.width},
          heads.strides};
}

// ---- the call ---------------------------------------------------------------------------------

/// Everything about a call but its number type.
struct Call {
  const OnnxAttentionInputs& in;
  const OnnxAttentionAttributes& how;
  const Execution& execution;
  Sizes sizes;
  Mask mask;
  std::array<std::int64_t, 4> mask_extents{};
  // Keys and values with the past before them, in the node's types.
  const AnyTensor* key = nullptr;
  const AnyTensor* value = nullptr;
  Heads query_heads, key_heads, value_heads;
};

/// The type in which the call is calculated.
DType compute_dtype(const Call& call) {
  const DType own = call.in.Q->dtype();
  const DType value = call.in.V->dtype();
  const bool wide_mask = call.in.attn_mask != nullptr && call.in.attn_mask->dtype() == DType::f64;
  if (own == DType::f64 || value == DType::f64 || wide_mask ||
      call.how.softmax_precision == onnx::proto_f64) {
    return DType::f64;
  }
  return own == value ? own : DType::f32;
}

template <class T>
double wide(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    return to_double(x);
  }
}

/// One row of scores on its way through the four modes.
template <class T>
class ScoreRow {
 public:
  using Bias = AccumulatorOf<T>;
  ScoreRow(const Call& call, const AttentionInputs<T>& inputs,
           const AttentionOptions<Bias>& options)
      : call_(call),
        inputs_(inputs),
        options_(options),
        seen_(static_cast<std::size_t>(call.sizes.S)) {
    const Sizes& s = call.sizes;
    if (options.bias) bias_ = broadcast(options.bias, {s.B, s.H, s.T, s.S});
    if (options.mask.visible) visible_ = broadcast(options.mask.visible, {s.B, s.H, s.T, s.S});
  }

  /// One row of the table; `row` has S entries.
  void fill(std::int64_t b, std::int64_t h, std::int64_t i, std::span<double> row) {
    const std::int64_t mode = call_.how.qk_matmul_output_mode;
    for (std::int64_t j = 0; j < call_.sizes.S; ++j) {
      const auto at = static_cast<std::size_t>(j);
      row[at] = score(b, h, i, j);
      const double cap = options_.softcap.value_or(0);
      if (mode >= 1 && cap != 0) row[at] = cap * std::tanh(row[at] / cap);
      const double bias = bias_ ? static_cast<double>(bias_(b, h, i, j)) : 0.0;
      seen_[at] = sees(b, h, i, j) && bias != minus_infinity ? 1 : 0;
      if (mode >= 2) row[at] = seen_[at] != 0 ? row[at] + bias : minus_infinity;
    }
    if (mode == 3) to_weights(row);
  }

 private:
  [[nodiscard]] double score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Sizes& s = call_.sizes;
    const std::int64_t g = h / (s.H / s.G);
    double dot = 0;
    for (std::int64_t d = 0; d < s.D; ++d) {
      dot += wide(inputs_.query(b, h, i, d)) * wide(inputs_.key(b, g, j, d));
    }
    return options_.scale ? dot * *options_.scale : dot / std::sqrt(static_cast<double>(s.D));
  }

  [[nodiscard]] bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Mask& mask = options_.mask;
    const auto of_batch = static_cast<std::size_t>(b);
    const std::int64_t position =
        mask.query_offset[mask.query_offset.size() == 1 ? 0 : of_batch] + i;
    if (mask.future_hidden && j > position) return false;
    // Differences, not sums: a window may be as wide as an integer goes.
    if (mask.window.left && position - j > *mask.window.left) return false;
    if (mask.window.right && j - position > *mask.window.right) return false;
    if (!mask.key_lengths.empty() && j >= mask.key_lengths[of_batch]) return false;
    return !visible_ || visible_(b, h, i, j);
  }

  /// Softmax over what is seen; a row that sees nothing stays zero.
  void to_weights(std::span<double> row) const {
    double peak = minus_infinity;
    for (const double x : row) peak = std::max(peak, x);
    double sum = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
      row[j] = seen_[j] != 0 ? std::exp(row[j] - peak) : 0.0;
      sum += row[j];
    }
    for (std::size_t j = 0; j < row.size(); ++j) {
      if (seen_[j] != 0) row[j] /= sum;
    }
  }

  const Call& call_;
  const AttentionInputs<T>& inputs_;
  const AttentionOptions<Bias>& options_;
  View<const Bias, 4> bias_{};
  View<const bool, 4> visible_{};
  std::vector<char> seen_;
};

template <class T>
Result<AnyTensor> scores_of(const Call& call, const AttentionInputs<T>& inputs,
                            const AttentionOptions<AccumulatorOf<T>>& options) {
  const Sizes& s = call.sizes;
  const Shape shape{s.B, s.H, s.T, s.S};
  const auto count = element_count(shape);
  if (!count || *count > (std::int64_t{1} << 40U)) {
    return onnx::too_large("qk_matmul_output of shape ", to_string(shape),
                           " has more than 2^40 elements");
  }
  Tensor<double> out(shape);
  if (*count == 0) return AnyTensor::from_f64(out, call.in.Q->dtype());
  ScoreRow<T> scores(call, inputs, options);
  const auto length = static_cast<std::size_t>(s.S);
  for (std::int64_t b = 0, row = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.H; ++h) {
      for (std::int64_t i = 0; i < s.T; ++i, ++row) {
        scores.fill(b, h, i,
                    out.elements().subspan(static_cast<std::size_t>(row) * length, length));
      }
    }
  }
  return AnyTensor::from_f64(out, call.in.Q->dtype());
}

template <class T>
Result<void> run_as(const Call& call, const OnnxAttentionWanted& wanted,
                    OnnxAttentionOutputs& outputs) {
  using Bias = AccumulatorOf<T>;
  const Sizes& s = call.sizes;
  AnyTensor copies[3];
  const AnyTensor& query = converted(*call.in.Q, dtype_of<T>, copies[0]);
  const AnyTensor& key = converted(*call.key, dtype_of<T>, copies[1]);
  const AnyTensor& value = converted(*call.value, dtype_of<T>, copies[2]);
  const AttentionInputs<T> inputs{view_of<T>(query, call.query_heads),
                                  view_of<T>(key, call.key_heads),
                                  view_of<T>(value, call.value_heads)};

  AttentionOptions<Bias> options;
  options.mask = call.mask;
  options.scale = call.how.scale;
  if (call.how.softcap != 0) options.softcap = std::fabs(call.how.softcap);
  options.empty_row = EmptyRow::zero;
  std::optional<MaskView<bool>> visible;
  std::optional<MaskView<Bias>> bias;
  // Without a pair there is nothing to mask, and then S may be any number.
  const AnyTensor* const mask =
      s.B == 0 || s.H == 0 || s.T == 0 || s.S == 0 ? nullptr : call.in.attn_mask;
  if (mask != nullptr && mask->dtype() == DType::boolean) {
    visible.emplace(*mask, call.mask_extents, s, call.how.opset);
    options.mask.visible = visible->view();
  } else if (mask != nullptr) {
    bias.emplace(*mask, call.mask_extents, s, call.how.opset);
    options.bias = bias->view();
  }

  AnyTensor Y(dtype_of<T>, s.packed ? Shape{s.B, s.T, s.H * s.E} : Shape{s.B, s.H, s.T, s.E});
  const Heads rows = *heads_of("Y", Y, "q_num_heads", s.H);
  const AttentionOutputs<T> into{
      .output = {reinterpret_cast<T*>(Y.bytes().data()), {s.B, s.H, s.T, s.E}, rows.strides}};
  if (auto ok = try_attention(into, inputs, options, call.execution); !ok) return ok;
  AnyTensor narrow;
  const bool rounds = call.in.Q->dtype() != dtype_of<T>;
  if (rounds) converted(Y, call.in.Q->dtype(), narrow);
  outputs.Y = std::move(rounds ? narrow : Y);
  if (!wanted.qk_matmul_output) return {};
  auto scores = scores_of<T>(call, inputs, options);
  if (!scores) return scores.failure();
  outputs.qk_matmul_output = *std::move(scores);
  return {};
}

Result<OnnxAttentionOutputs> run(Call& call, const OnnxAttentionWanted& wanted) {
  OnnxAttentionOutputs out;
  Result<void> done;
  switch (compute_dtype(call)) {
    case DType::f64:
      done = run_as<double>(call, wanted, out);
      break;
    case DType::f16:
      done = run_as<Half>(call, wanted, out);
      break;
    case DType::bf16:
      done = run_as<BFloat16>(call, wanted, out);
      break;
    default:
      done = run_as<float>(call, wanted, out);
      break;
  }
  if (!done) return done.failure();
  return out;
}

}  // namespace

Result<OnnxAttentionOutputs> try_onnx_attention(const OnnxAttentionInputs& inputs,
                                                const OnnxAttentionAttributes& attributes,
                                                const OnnxAttentionWanted& wanted,
                                                const Execution& execution) {
  const auto parts = onnx::checked_parts(inputs, attributes);
  if (!parts) return parts.failure();
  auto mask = onnx::position_mask(inputs, attributes, parts->sizes);
  if (!mask) return mask.failure();
  Call call{.in = inputs,
            .how = attributes,
            .execution = execution,
            .sizes = parts->sizes,
            .mask = *std::move(mask),
            .key = inputs.K,
            .value = inputs.V,
            .query_heads = parts->Q,
            .key_heads = parts->K,
            .value_heads = parts->V};
  if (inputs.attn_mask != nullptr) {
    const auto extents = onnx::mask_extents(*inputs.attn_mask, call.sizes, attributes.opset);
    if (!extents) return extents.failure();
    call.mask_extents = *extents;
  }
  std::optional<AnyTensor> present_key, present_value;
  if (wanted.present || inputs.past_key != nullptr) {
    present_key = joined(inputs.past_key, *inputs.K, parts->K, call.sizes.P);
    present_value = joined(inputs.past_value, *inputs.V, parts->V, call.sizes.P);
    call.key = &*present_key;
    call.value = &*present_value;
    call.key_heads = *heads_of("present_key", *present_key, "", 0);
    call.value_heads = *heads_of("present_value", *present_value, "", 0);
  }
  auto out = run(call, wanted);
  if (out && wanted.present) {
    out->present_key = std::move(present_key);
    out->present_value = std::move(present_value);
  }
  return out;
}

OnnxAttentionOutputs onnx_attention(const OnnxAttentionInputs& inputs,
                                    const OnnxAttentionAttributes& attributes,
                                    const OnnxAttentionWanted& wanted, const Execution& execution) {
  return try_onnx_attention(inputs, attributes, wanted, execution).value();
}

}  // namespace attest
