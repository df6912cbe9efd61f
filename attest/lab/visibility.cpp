// SPDX-License-Identifier: MIT
#include "attest/lab/visibility.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

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

/// Starts of documents along one axis: 0, never falling, the axis's length.
Result<void> check_starts(const char* name, const std::vector<std::int64_t>& starts,
                          std::int64_t length) {
  if (starts.size() < 2) {
    return bad_option(sentence(name, " must have an entry more than there are documents; it has ",
                               starts.size()));
  }
  if (starts.front() != 0 || starts.back() != length) {
    return bad_option(sentence(name, " must begin with 0 and end with ", length,
                               "; it begins with ", starts.front(), " and ends with ",
                               starts.back()));
  }
  const auto falls = std::ranges::adjacent_find(starts, std::greater<>{});
  if (falls != starts.end()) {
    return bad_option(sentence(name, " must never fall; ", *falls, " is followed by ", falls[1]));
  }
  return {};
}

Result<void> check_packing(const Mask& mask, const AttentionShape& s) {
  const auto& [queries, keys] = mask.packing;
  if (queries.empty() && keys.empty()) return {};
  if (auto ok = check_starts("packing.query_starts", queries, s.T); !ok) return ok;
  if (auto ok = check_starts("packing.key_starts", keys, s.S); !ok) return ok;
  if (queries.size() != keys.size()) {
    return bad_option(sentence("packing.query_starts and packing.key_starts must have as many ",
                               "entries; they have ", queries.size(), " and ", keys.size()));
  }
  if (mask.corner != Corner::square || !mask.future_hidden) return {};
  for (std::size_t n = 0; n + 1 < queries.size(); ++n) {
    const std::int64_t own_queries = queries[n + 1] - queries[n];
    const std::int64_t own_keys = keys[n + 1] - keys[n];
    if (own_queries == own_keys) continue;
    return Failure{ErrorKind::shape, "causal-needs-square",
                   sentence("[attention] causal mode requires equal lengths; document ", n, " has ",
                            own_queries, " queries and ", own_keys,
                            " keys: say which corner is meant: top-left, bottom-right, or the "
                            "position of query 0")};
  }
  return {};
}

Result<void> check_documents(const DocumentIds& ids, const AttentionShape& s) {
  if (ids.query.empty() && ids.key.empty()) return {};
  const auto fits = [&](const char* name, const std::vector<std::int64_t>& list, const char* letter,
                        std::int64_t length) -> Result<void> {
    const auto size = static_cast<std::int64_t>(list.size());
    const bool for_each_batch = length > 0 && size % length == 0 && size / length == s.B;
    if (size == length || for_each_batch) return {};
    return bad_option(sentence(name, " must have ", letter, " = ", length,
                               " entries, or so many for each of B = ", s.B, " batches; it has ",
                               size));
  };
  if (auto ok = fits("documents.query", ids.query, "T", s.T); !ok) return ok;
  return fits("documents.key", ids.key, "S", s.S);
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
  if (auto ok = check_packing(mask, s); !ok) return ok;
  return check_documents(mask.documents, s);
}

Result<void> check_dropout(const Dropout& dropout, const AttentionShape& s) {
  if (!(dropout.rate >= 0 && dropout.rate < 1)) {
    return bad_option(sentence("a dropout rate must lie in [0, 1); found ", dropout.rate));
  }
  if (dropout.rate == 0) return {};
  // The counter of the random bits has 32 for each part of a weight's place.
  constexpr std::int64_t beyond = std::int64_t{1} << 32U;
  for (const auto& [letter, extent] :
       {std::pair{"B", s.B}, std::pair{"H", s.H}, std::pair{"T", s.T}, std::pair{"S", s.S}}) {
    if (extent < beyond) continue;
    return bad_option(sentence("dropout needs ", letter, " below 2^32; it is ", extent));
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
  if (auto ok = per_head("sink", options.sink); !ok) return ok;
  return check_dropout(options.dropout, s);
}

}  // namespace

std::string reason(HiddenBy rule) {
  switch (rule) {
    case HiddenBy::nothing:
      return "";
    case HiddenBy::document:
      return "document";
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

Visibility::Document Visibility::document_of(RowPlace at) const {
  const auto& [queries, keys] = mask_.packing;
  if (queries.empty()) return {.queries = shape_.T, .keys = key_length(at.b)};
  // The last start at or before the query: documents without queries share it, and stand before.
  const auto after = std::ranges::upper_bound(queries, at.i);
  const auto n = static_cast<std::size_t>(after - queries.begin()) - 1;
  return {.first_query = queries[n],
          .first_key = keys[n],
          .queries = queries[n + 1] - queries[n],
          .keys = keys[n + 1] - keys[n]};
}

std::int64_t Visibility::offset(std::int64_t b, const Document& own) const {
  switch (mask_.corner) {
    case Corner::square:
    case Corner::top_left:
      return 0;
    case Corner::bottom_right:
      return own.keys - own.queries;
    case Corner::at_offset:
      return mask_.query_offset.size() == 1 ? mask_.query_offset[0]
                                            : mask_.query_offset[static_cast<std::size_t>(b)];
  }
  return 0;
}

std::int64_t Visibility::position_of(RowPlace at) const {
  const Document own = document_of(at);
  return own.first_key + offset(at.b, own) + (at.i - own.first_query);
}

bool Visibility::same_document(RowPlace at, std::int64_t j) const {
  if (!mask_.packing.query_starts.empty()) {
    const Document own = document_of(at);
    if (j < own.first_key || j >= own.first_key + own.keys) return false;
  }
  const auto& [queries, keys] = mask_.documents;
  if (queries.empty()) return true;
  const auto name_of = [&](const std::vector<std::int64_t>& names, std::int64_t length,
                           std::int64_t place) {
    const bool shared = static_cast<std::int64_t>(names.size()) == length;
    return names[static_cast<std::size_t>(shared ? place : at.b * length + place)];
  };
  return name_of(queries, shape_.T, at.i) == name_of(keys, shape_.S, j);
}

HiddenBy Visibility::rule(RowPlace at, std::int64_t j) const {
  if (!same_document(at, j)) return HiddenBy::document;
  const std::int64_t position = position_of(at);
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
