// SPDX-License-Identifier: MIT
#include "attest/base/conventions.h"

#include <array>
#include <limits>
#include <string>

#include "attest/base/text.h"

namespace attest {
namespace {

// A field that a preset leaves out is not stated.

constexpr Convention ours{
    .name = "attest",
    .title = "Attest",
    .boolean_mask = BooleanMask::true_visible,
    .float_mask = FloatMask::refused,
    .integer_mask = IntegerMask::refused,
    .causal = CausalCorner::square,
    .causal_and_mask = CausalAndMask::both_apply,
    .window = WindowCounts::beside_self,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::error,
    .layout = Layout::bhtd,
    .grouped_heads = GroupedHeads::interleave,
    .softcap = SoftcapPlace::before_bias_and_mask,
    .log_sum_exp = LogSumExpBase::natural,
    .empty_log_sum_exp = EmptyLogSumExp::minus_infinity,
    .note = "any strides; layout in = layout out; the other corners and empty rows by their names",
};

constexpr Convention pytorch_sdpa{
    .name = "pytorch-sdpa",
    .title = "torch.nn.functional.scaled_dot_product_attention",
    .versions = "2.5 and later",
    .boolean_mask = BooleanMask::true_visible,
    .float_mask = FloatMask::added,
    .causal = CausalCorner::top_left,
    .causal_and_mask = CausalAndMask::refused,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::zero,
    .layout = Layout::bhtd,
    .grouped_heads = GroupedHeads::interleave,
    .log_sum_exp = LogSumExpBase::natural,
    .note =
        "grouped heads need enable_gqa=True; before 2.5 an empty row was NaN; dropout_p applies "
        "in evaluation too",
};

constexpr Convention pytorch_mha{
    .name = "pytorch-mha",
    .title = "torch.nn.MultiheadAttention, torch.nn.Transformer",
    .boolean_mask = BooleanMask::true_hidden,
    .float_mask = FloatMask::added,
    .causal = CausalCorner::mask_alone,
    .causal_and_mask = CausalAndMask::mask_required,
    .empty_row = EmptyRowGives::nan,
    .layout = Layout::lbe,
    .note =
        "the opposite polarity of pytorch-sdpa; the empty row is recorded for need_weights=True; "
        "the batch comes first with batch_first",
};

constexpr Convention flash_attention{
    .name = "flash-attention",
    .title = "flash_attn",
    .versions = "2.1 and later",
    .causal = CausalCorner::bottom_right,
    .window = WindowCounts::beside_self,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::zero,
    .layout = Layout::bthd,
    .grouped_heads = GroupedHeads::interleave,
    .softcap = SoftcapPlace::before_bias_and_mask,
    .log_sum_exp = LogSumExpBase::natural,
    .empty_log_sum_exp = EmptyLogSumExp::varies,
    .note =
        "top-left until 2.0; an empty row's log_sum_exp is +inf in 2, -inf in its split path and "
        "in 3; its ALiBi for causal calls shifts log_sum_exp",
};

constexpr Convention flex_attention{
    .name = "flex-attention",
    .title = "torch.nn.attention.flex_attention",
    .boolean_mask = BooleanMask::true_visible,
    .empty_row = EmptyRowGives::zero,
    .layout = Layout::bhtd,
    .softcap = SoftcapPlace::by_the_caller,
    .log_sum_exp = LogSumExpBase::natural,
    .note = "masks are functions (mask_mod); a softcap stands where score_mod puts it",
};

constexpr Convention jax{
    .name = "jax",
    .title = "jax.nn.dot_product_attention",
    .boolean_mask = BooleanMask::true_visible,
    .float_mask = FloatMask::refused,
    .integer_mask = IntegerMask::refused,
    .causal = CausalCorner::top_left,
    .causal_and_mask = CausalAndMask::both_apply,
    .window = WindowCounts::beside_self,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::uniform,
    .layout = Layout::bthd,
    .grouped_heads = GroupedHeads::interleave,
    .note = "masks by a large finite number; the bias is added before the mask replaces scores",
};

/// The three opsets differ in two places only.
constexpr Convention onnx(std::string_view name, std::string_view title, WindowCounts window,
                          std::string_view note) {
  return {
      .name = name,
      .title = title,
      .versions = "by the text of ONNX 1.23",
      .boolean_mask = BooleanMask::true_visible,
      .float_mask = FloatMask::added,
      .integer_mask = IntegerMask::unexplained,
      .causal = CausalCorner::by_cache_offset,
      .causal_and_mask = CausalAndMask::both_apply,
      .window = window,
      .minus_one_opens_window = window == WindowCounts::beside_self,
      .scale = DefaultScale::one_over_root_d,
      .empty_row = EmptyRowGives::zero,
      .layout = Layout::bhtd,
      .grouped_heads = GroupedHeads::interleave,
      .softcap = SoftcapPlace::before_bias_and_mask,
      .note = note,
  };
}

constexpr Convention onnxruntime_mha{
    .name = "onnxruntime-mha",
    .title = "com.microsoft.MultiHeadAttention",
    .versions = "ONNX Runtime 1.30",
    .float_mask = FloatMask::added,
    .integer_mask = IntegerMask::one_keeps,
    .causal = CausalCorner::top_left_last_row_open,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::as_unmasked,
    .layout = Layout::bt_hd,
    .note =
        "key_padding_mask may also be a vector of lengths; it masks by adding -10000, so an "
        "empty row is the unmasked one with coarser scores",
};

constexpr Convention onnxruntime_gqa{
    .name = "onnxruntime-gqa",
    .title = "com.microsoft.GroupQueryAttention",
    .versions = "ONNX Runtime 1.30",
    .float_mask = FloatMask::added,
    .causal = CausalCorner::by_cache_offset,
    .window = WindowCounts::width_with_self,
    .scale = DefaultScale::one_over_root_d,
    .layout = Layout::bt_hd,
    .grouped_heads = GroupedHeads::interleave,
    .softcap = SoftcapPlace::before_bias_and_mask,
    .note = "before microsoft/onnxruntime#25927 a window W held W + 1 keys; a sink is not capped",
};

constexpr Convention keras{
    .name = "keras",
    .title = "keras.layers.MultiHeadAttention",
    .boolean_mask = BooleanMask::true_visible,
    .causal = CausalCorner::top_left,
    .causal_and_mask = CausalAndMask::both_apply,
    .window = WindowCounts::width_with_self_each_way,
    .scale = DefaultScale::one_over_root_d,
    .empty_row = EmptyRowGives::varies,
    .layout = Layout::bthd,
    .grouped_heads = GroupedHeads::interleave,
    .note =
        "called with (query, value, key); an empty row is zero on the score path and uniform on "
        "the kernel path; keras.layers.Attention does not scale",
};

constexpr Convention ggml{
    .name = "ggml",
    .title = "ggml_flash_attn_ext",
    .float_mask = FloatMask::added,
    .float_mask_dtype = DType::f16,
    .scale = DefaultScale::must_be_given,
    .empty_row = EmptyRowGives::zero,
    .layout = Layout::bhtd_to_bthd,
    .grouped_heads = GroupedHeads::interleave,
    .softcap = SoftcapPlace::before_bias_and_mask,
    .note =
        "the mask is multiplied by the head's ALiBi slope, 1 without ALiBi; mask heads repeat by "
        "mod; a sink is not capped",
};

constexpr Convention mlx{
    .name = "mlx",
    .title = "mlx.core.fast.scaled_dot_product_attention",
    .versions = "since ml-explore/mlx#2967",
    .float_mask = FloatMask::added,
    .causal = CausalCorner::bottom_right,
    .note = "before, top-left when there were more queries than keys",
};

constexpr std::array presets{
    ours,
    pytorch_sdpa,
    pytorch_mha,
    flash_attention,
    flex_attention,
    jax,
    onnx("onnx-23", "ONNX Attention, opset 23", WindowCounts::none,
         "a mask of width 1 is repeated along the keys; packed [B, T, H·D] when the rank is 3"),
    onnx("onnx-24", "ONNX Attention, opset 24", WindowCounts::none,
         "keys beyond a mask, one of width 1 too, are hidden; packed [B, T, H·D] when the rank is "
         "3"),
    onnx("onnx-25", "ONNX Attention, opset 25", WindowCounts::beside_self,
         "keys beyond a mask, one of width 1 too, are hidden; packed [B, T, H·D] when the rank is "
         "3"),
    onnxruntime_mha,
    onnxruntime_gqa,
    keras,
    ggml,
    mlx,
};

Failure not_stated(const Convention& convention, std::string_view what) {
  return {ErrorKind::value, "not-stated",
          sentence("[convention] what ", convention.name, " ", what,
                   " is not stated; say it in attest's own options")};
}

Failure not_offered(const Convention& convention, std::string_view what) {
  return {ErrorKind::value, "not-offered", sentence("[convention] ", convention.name, " ", what)};
}

/// Whether every number is 0 or 1, and some are 1.
bool only_zeros_and_ones(std::span<const double> numbers) {
  bool any_one = false;
  for (const double x : numbers) {
    if (x != 0 && x != 1) return false;
    any_one = any_one || x == 1;
  }
  return any_one;
}

std::string_view how_to_say_it(BooleanMask polarity) {
  if (polarity == BooleanMask::true_visible) return " (there true means: may see)";
  if (polarity == BooleanMask::true_hidden) return " (there true means: hidden)";
  return "";
}

Result<ConvertedMask> from_booleans(const AnyTensor& mask, const Convention& convention,
                                    std::string_view name) {
  if (convention.boolean_mask == BooleanMask::not_stated) {
    return not_stated(convention, "makes of a boolean mask");
  }
  auto visible = mask.to_bool(name);
  if (!visible) return visible.failure();
  if (convention.boolean_mask == BooleanMask::true_hidden) {
    for (bool& cell : visible->elements()) cell = !cell;
  }
  return ConvertedMask{.visible = *std::move(visible)};
}

Result<ConvertedMask> from_numbers(const AnyTensor& mask, const Convention& convention,
                                   std::string_view name) {
  auto numbers = mask.to_f64(name);
  if (!numbers) return numbers.failure();
  if (only_zeros_and_ones(numbers->elements())) {
    return Failure{
        ErrorKind::value, "ambiguous-mask",
        sentence("[convention] ", name, " holds nothing but 0 and 1 as ", name_of(mask.dtype()),
                 ", which has three readings: 1 may see, 1 is hidden, or 1 is added to the score; "
                 "store it as bool for ",
                 convention.name, how_to_say_it(convention.boolean_mask),
                 ", or give it as a bias if it is to be added")};
  }
  switch (convention.float_mask) {
    case FloatMask::added:
      return ConvertedMask{.bias = *std::move(numbers)};
    case FloatMask::refused:
      return Failure{ErrorKind::type, "wrong-dtype",
                     sentence("[convention] ", name, " has dtype ", name_of(mask.dtype()), "; for ",
                              convention.name,
                              " a mask is bool, and numbers to be added are a bias, by that name")};
    case FloatMask::not_stated:
      break;
  }
  return not_stated(convention, "makes of a floating-point mask");
}

Result<ConvertedMask> from_integers(const AnyTensor& mask, const Convention& convention,
                                    std::string_view name) {
  switch (convention.integer_mask) {
    case IntegerMask::one_keeps:
      break;
    case IntegerMask::not_stated:
      return not_stated(convention, "makes of an integer mask");
    case IntegerMask::unexplained:
      return not_offered(convention,
                         "takes integer masks, but no text says what their numbers mean; store the "
                         "mask as bool");
    case IntegerMask::refused:
      return Failure{ErrorKind::type, "wrong-dtype",
                     sentence("[convention] ", name, " has dtype ", name_of(mask.dtype()), "; for ",
                              convention.name, " a mask is bool: store it as such",
                              how_to_say_it(convention.boolean_mask))};
  }
  if (mask.shape().size() == 1) {
    return Failure{ErrorKind::value, "bad-mask",
                   sentence("[convention] ", name, " has rank 1: for ", convention.name,
                            " that is a vector of lengths, to be given as key_lengths")};
  }
  const auto numbers = mask.to_i64(name);
  if (!numbers) return numbers.failure();
  Tensor<bool> visible(mask.shape());
  for (std::size_t n = 0; n < visible.size(); ++n) {
    const std::int64_t cell = numbers->elements()[n];
    if (cell != 0 && cell != 1) {
      return Failure{ErrorKind::value, "bad-mask",
                     sentence("[convention] ", name, " holds ", cell, " at element ", n, "; for ",
                              convention.name, " 1 keeps a key and 0 hides it")};
    }
    visible.elements()[n] = cell == 1;
  }
  return ConvertedMask{.visible = std::move(visible)};
}

/// One side of a window as the framework writes it: a count, or −1 for no limit where that is so.
Result<std::optional<std::int64_t>> window_side(std::int64_t keys, std::string_view side,
                                                const Convention& convention) {
  if (keys >= 0) return std::optional(keys);
  if (keys == -1 && convention.minus_one_opens_window) return std::optional<std::int64_t>();
  return Failure{ErrorKind::value, "bad-window",
                 sentence("[convention] a window cannot have ", keys, " keys to the ", side,
                          " for ", convention.name)};
}

/// What both forms of a window fail with when the convention has no such form.
Failure wrong_window_form(const Convention& convention, int given) {
  switch (convention.window) {
    case WindowCounts::not_stated:
      return not_stated(convention, "counts as a window");
    case WindowCounts::none:
      return not_offered(convention, "has no window");
    default:
      break;
  }
  return {ErrorKind::value, "bad-window",
          sentence("[convention] ", convention.name, " says a window with ",
                   given == 1 ? "two numbers, keys to the left and to the right"
                              : "one number, its width",
                   "; found ", given)};
}

}  // namespace

std::span<const Convention> conventions() noexcept { return presets; }

Result<Convention> find_convention(std::string_view name) {
  std::string known;
  for (const Convention& convention : presets) {
    if (convention.name == name) return convention;
    if (!known.empty()) known += ", ";
    known += convention.name;
  }
  return Failure{ErrorKind::value, "unknown-convention",
                 sentence("[convention] there is none called \"", name, "\"; known are ", known)};
}

Result<ConvertedMask> to_visible(const AnyTensor& mask, const Convention& convention,
                                 std::string_view name) {
  if (mask.dtype() == DType::boolean) return from_booleans(mask, convention, name);
  if (is_floating(mask.dtype())) return from_numbers(mask, convention, name);
  return from_integers(mask, convention, name);
}

Result<AnyTensor> from_visible(const Tensor<bool>& visible, const Convention& convention) {
  if (convention.boolean_mask != BooleanMask::not_stated) {
    Tensor<bool> mask = visible;
    if (convention.boolean_mask == BooleanMask::true_hidden) {
      for (bool& cell : mask.elements()) cell = !cell;
    }
    return AnyTensor(mask);
  }
  if (convention.integer_mask == IntegerMask::one_keeps) {
    Tensor<std::int32_t> mask(visible.shape());
    for (std::size_t n = 0; n < mask.size(); ++n)
      mask.elements()[n] = visible.elements()[n] ? 1 : 0;
    return AnyTensor(mask);
  }
  if (convention.float_mask == FloatMask::added) {
    Tensor<double> mask(visible.shape());
    for (std::size_t n = 0; n < mask.size(); ++n) {
      if (!visible.elements()[n]) mask.elements()[n] = -std::numeric_limits<double>::infinity();
    }
    return AnyTensor::from_f64(mask, convention.float_mask_dtype);
  }
  return not_stated(convention, "takes as a mask");
}

Result<Window> to_window(std::int64_t width, const Convention& convention) {
  switch (convention.window) {
    case WindowCounts::width_with_self:
    case WindowCounts::width_with_self_each_way:
    case WindowCounts::width_beside_self:
      break;
    default:
      return wrong_window_form(convention, 1);
  }
  const bool counts_self = convention.window != WindowCounts::width_beside_self;
  if (width < (counts_self ? 1 : 0)) {
    return Failure{
        ErrorKind::value, "bad-window",
        sentence("[convention] a window cannot have width ", width, " for ", convention.name,
                 counts_self ? ", where it counts the query's own key" : "")};
  }
  const std::int64_t left = counts_self ? width - 1 : width;
  const bool each_way = convention.window == WindowCounts::width_with_self_each_way;
  return Window{.left = left, .right = each_way ? left : 0};
}

Result<Window> to_window(std::int64_t left, std::int64_t right, const Convention& convention) {
  if (convention.window != WindowCounts::beside_self) return wrong_window_form(convention, 2);
  const auto before = window_side(left, "left", convention);
  if (!before) return before.failure();
  const auto after = window_side(right, "right", convention);
  if (!after) return after.failure();
  return Window{.left = *before, .right = *after};
}

Result<Corner> corner_of(const Convention& convention, Cache cache) {
  switch (convention.causal) {
    case CausalCorner::square:
      return Corner::square;
    case CausalCorner::top_left:
      return Corner::top_left;
    case CausalCorner::bottom_right:
      return Corner::bottom_right;
    case CausalCorner::by_cache_offset:
      return cache == Cache::present ? Corner::at_offset : Corner::top_left;
    case CausalCorner::top_left_last_row_open:
      // When T = S the last query sees every key anyway, and this is the ordinary causal mask.
      if (cache == Cache::none) return Corner::square;
      return not_stated(convention, "means by causal when there are cached keys");
    case CausalCorner::mask_alone:
      return not_offered(convention,
                         "takes its causal flag for a hint; the mask says it, so give the mask");
    case CausalCorner::not_stated:
      break;
  }
  return not_stated(convention, "means by causal");
}

Result<EmptyRow> empty_row_of(const Convention& convention) {
  switch (convention.empty_row) {
    case EmptyRowGives::error:
      return EmptyRow::error;
    case EmptyRowGives::zero:
      return EmptyRow::zero;
    case EmptyRowGives::nan:
      return EmptyRow::nan;
    case EmptyRowGives::uniform:
      return not_offered(
          convention,
          "gives a query that sees no key equal weights over all keys, so the mean of "
          "values it may not see; choose error, zero or nan");
    case EmptyRowGives::as_unmasked:
      return not_offered(
          convention,
          "answers a query that sees no key as if nothing were hidden; choose error, "
          "zero or nan");
    case EmptyRowGives::varies:
      return not_offered(convention,
                         "gives a query that sees no key zeros or equal weights over all keys, by "
                         "the path that the call takes; choose error, zero or nan");
    case EmptyRowGives::not_stated:
      break;
  }
  return not_stated(convention, "gives a query that sees no key");
}

Result<std::optional<double>> scale_of(const Convention& convention) {
  switch (convention.scale) {
    case DefaultScale::one_over_root_d:
      return std::optional<double>();
    case DefaultScale::one:
      return std::optional(1.0);
    case DefaultScale::must_be_given:
      return not_offered(convention, "has no default scale; give one");
    case DefaultScale::not_stated:
      break;
  }
  return not_stated(convention, "scales by");
}

}  // namespace attest
