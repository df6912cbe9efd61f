// SPDX-License-Identifier: MIT
#include "attest/lab/visibility.h"

#include <limits>

#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

constexpr std::int64_t most_elements = std::int64_t{1} << 40U;

bool finite(double value) { return value - value == 0; }

Failure mismatch(std::string message) {
  return {ErrorKind::shape, "shape-mismatch", "[attention] " + std::move(message)};
}
Failure bad_option(std::string message) {
  return {ErrorKind::value, "bad-option", "[attention] " + std::move(message)};
}

Result<void> check_shapes(const AttentionInputs<double>& in) {
  if (!in.query || !in.key || !in.value) return mismatch("query, key and value must be given");
  const auto same = [](const char* what, std::int64_t key, std::int64_t value) {
    return mismatch(sentence("key and value must have the same ", what, "; key has ", key,
                             ", value has ", value));
  };
  if (in.query.extent(0) != in.key.extent(0)) {
    return mismatch(sentence("query and key must have the same B; query has ", in.query.extent(0),
                             ", key has ", in.key.extent(0)));
  }
  if (in.query.extent(3) != in.key.extent(3)) {
    return mismatch(sentence("query and key must have the same D; query has ", in.query.extent(3),
                             ", key has ", in.key.extent(3)));
  }
  if (in.query.extent(3) == 0) return mismatch("D must be at least 1; query has 0");
  if (in.key.extent(0) != in.value.extent(0))
    return same("B", in.key.extent(0), in.value.extent(0));
  if (in.key.extent(1) != in.value.extent(1))
    return same("G", in.key.extent(1), in.value.extent(1));
  if (in.key.extent(2) != in.value.extent(2))
    return same("S", in.key.extent(2), in.value.extent(2));
  const std::int64_t heads = in.query.extent(1);
  const std::int64_t groups = in.key.extent(1);
  if (heads != 0 && (groups == 0 || heads % groups != 0)) {
    return mismatch(sentence("query heads must be a multiple of key/value heads; query has ", heads,
                             ", key has ", groups));
  }
  return {};
}

Result<void> check_mask(const Mask& mask, const AttentionShape& s) {
  if (mask.corner == Corner::square && mask.future_hidden && s.T != s.S) {
    return Failure{
        ErrorKind::shape, "causal-needs-square",
        sentence(
            "[attention] causal mode requires equal lengths; query has T = ", s.T,
            ", key has S = ", s.S,
            ": say which corner is meant: top-left, bottom-right, or the position of query 0")};
  }
  const auto per_batch = [&](const std::vector<std::int64_t>& values) {
    return values.size() == 1 || values.size() == static_cast<std::size_t>(s.B);
  };
  if (mask.corner == Corner::at_offset && !per_batch(mask.query_offset)) {
    return bad_option(sentence("query_offset must have 1 or B = ", s.B, " entries; it has ",
                               mask.query_offset.size()));
  }
  if (mask.corner != Corner::at_offset && !mask.query_offset.empty()) {
    return bad_option(
        "query_offset needs the corner at_offset: another corner says where query 0 stands");
  }
  constexpr std::int64_t far = std::int64_t{1} << 61U;  // keeps every sum of positions in range
  for (const std::int64_t offset : mask.query_offset) {
    if (offset > far || offset < -far) {
      return bad_option(sentence("query_offset must stay below 2^61; found ", offset));
    }
  }
  if (!mask.key_lengths.empty() && !per_batch(mask.key_lengths)) {
    return bad_option(sentence("key_lengths must have 1 or B = ", s.B, " entries; it has ",
                               mask.key_lengths.size()));
  }
  for (const std::int64_t length : mask.key_lengths) {
    if (length < 0 || length > s.S) {
      return bad_option(
          sentence("a key length must lie between 0 and S = ", s.S, "; found ", length));
    }
  }
  for (const auto& side : {mask.window.left, mask.window.right}) {
    if (side && (*side < 0 || *side > far)) {
      return bad_option(sentence("a window's side must lie between 0 and 2^61; found ", *side));
    }
  }
  if (mask.visible && !broadcasts_to(mask.visible.extents, {s.B, s.H, s.T, s.S})) {
    return mismatch(
        sentence("mask must broadcast to [B, H, T, S] = ", to_string(Shape{s.B, s.H, s.T, s.S}),
                 "; it has shape ", to_string(mask.visible.extents)));
  }
  return {};
}

Result<void> check_options(const AttentionOptions<double>& options, const AttentionShape& s) {
  if (options.bias && !broadcasts_to(options.bias.extents, {s.B, s.H, s.T, s.S})) {
    return mismatch(
        sentence("bias must broadcast to [B, H, T, S] = ", to_string(Shape{s.B, s.H, s.T, s.S}),
                 "; it has shape ", to_string(options.bias.extents)));
  }
  if (options.scale && !finite(*options.scale)) {
    return bad_option(sentence("scale must be finite; found ", *options.scale));
  }
  if (options.softcap && !(*options.softcap > 0 && finite(*options.softcap))) {
    return bad_option(sentence("softcap must be positive and finite; found ", *options.softcap));
  }
  const auto per_head = [&](const char* name, const std::vector<double>& values) -> Result<void> {
    if (values.empty()) return {};
    if (values.size() != static_cast<std::size_t>(s.H)) {
      return mismatch(sentence(name, " must have H = ", s.H, " entries; it has ", values.size()));
    }
    for (const double value : values) {
      if (!finite(value)) return bad_option(sentence(name, " must be finite; found ", value));
    }
    return {};
  };
  if (auto ok = per_head("alibi_slopes", options.alibi_slopes); !ok) return ok;
  return per_head("sink", options.sink);
}

}  // namespace

std::string reason(HiddenBy rule) {
  switch (rule) {
    case HiddenBy::nothing:
      return "";
    case HiddenBy::future:
      return "causal";
    case HiddenBy::window:
      return "window";
    case HiddenBy::key_length:
      return "length";
    case HiddenBy::mask:
      return "mask";
    case HiddenBy::bias:
      return "bias -inf";
  }
  return "";
}

Result<AttentionShape> check_attention(const AttentionInputs<double>& inputs,
                                       const AttentionOptions<double>& options) {
  if (auto ok = check_shapes(inputs); !ok) return ok.failure();
  const AttentionShape shape{.B = inputs.query.extent(0),
                             .H = inputs.query.extent(1),
                             .G = inputs.key.extent(1),
                             .T = inputs.query.extent(2),
                             .S = inputs.key.extent(2),
                             .D = inputs.query.extent(3),
                             .E = inputs.value.extent(3)};
  for (const Shape& result : {Shape{shape.B, shape.H, shape.T, shape.E},
                              Shape{shape.B, shape.H, shape.T}, Shape{shape.D}, Shape{shape.E}}) {
    const auto count = element_count(result);
    if (!count || *count > most_elements) {
      return Failure{ErrorKind::shape, "too-large",
                     sentence("[attention] a result of shape ", to_string(result),
                              " has more than 2^40 elements")};
    }
  }
  if (auto ok = check_mask(options.mask, shape); !ok) return ok.failure();
  if (auto ok = check_options(options, shape); !ok) return ok.failure();
  return shape;
}

Visibility::Visibility(const AttentionOptions<double>& options, const AttentionShape& shape)
    : mask_(options.mask), shape_(shape) {
  const std::array<std::int64_t, 4> whole{shape.B, shape.H, shape.T, shape.S};
  if (mask_.visible) allowed_ = broadcast(mask_.visible, whole);
  if (options.bias) bias_ = broadcast(options.bias, whole);
}

std::int64_t Visibility::key_length(std::int64_t b) const {
  if (mask_.key_lengths.empty()) return shape_.S;
  return mask_.key_lengths.size() == 1 ? mask_.key_lengths[0]
                                       : mask_.key_lengths[static_cast<std::size_t>(b)];
}

std::int64_t Visibility::offset(std::int64_t b) const {
  switch (mask_.corner) {
    case Corner::square:
    case Corner::top_left:
      return 0;
    case Corner::bottom_right:
      return key_length(b) - shape_.T;
    case Corner::at_offset:
      return mask_.query_offset.size() == 1 ? mask_.query_offset[0]
                                            : mask_.query_offset[static_cast<std::size_t>(b)];
  }
  return 0;
}

HiddenBy Visibility::rule(RowPlace at, std::int64_t j) const {
  const std::int64_t position = offset(at.b) + at.i;
  if (mask_.future_hidden && j > position) return HiddenBy::future;
  if (mask_.window.left && j < position - *mask_.window.left) return HiddenBy::window;
  if (mask_.window.right && j > position + *mask_.window.right) return HiddenBy::window;
  if (j >= key_length(at.b)) return HiddenBy::key_length;
  if (allowed_ && !allowed_(at.b, at.h, at.i, j)) return HiddenBy::mask;
  if (bias(at, j) == -infinity) return HiddenBy::bias;
  return HiddenBy::nothing;
}

double Visibility::bias(RowPlace at, std::int64_t j) const {
  return bias_ ? bias_(at.b, at.h, at.i, j) : 0;
}

}  // namespace attest::lab
