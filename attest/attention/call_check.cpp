// SPDX-License-Identifier: MIT
#include "attest/attention/call_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest::engine {
namespace {

constexpr std::int64_t widest = 512;
constexpr std::int64_t far = std::int64_t{1} << 61U;  // keeps every sum of positions in range

using Numbers64 = std::vector<std::int64_t>;

Failure mismatch(std::string message) {
  return {ErrorKind::shape, "shape-mismatch", "[attention] " + std::move(message)};
}
Failure bad_option(std::string message) {
  return {ErrorKind::value, "bad-option", "[attention] " + std::move(message)};
}

std::int64_t length_of(const Numbers64& list) { return static_cast<std::int64_t>(list.size()); }

/// The named extents must be the same; one sentence says which are not.
struct Pair {
  const char* first;
  const char* second;
  const char* letter;
  std::int64_t of_first;
  std::int64_t of_second;
};
Result<void> must_agree(const Pair& pair) {
  if (pair.of_first == pair.of_second) return {};
  return mismatch(sentence(pair.first, " and ", pair.second, " must have the same ", pair.letter,
                           "; ", pair.first, " has ", pair.of_first, ", ", pair.second, " has ",
                           pair.of_second));
}

Result<void> check_positions(const Mask& mask, const Shape& s) {
  const bool per_batch = mask.query_offset.size() == 1 || length_of(mask.query_offset) == s.B;
  if (mask.corner == Corner::at_offset && !per_batch) {
    return bad_option(sentence("query_offset must have 1 or B = ", s.B, " entries; it has ",
                               mask.query_offset.size()));
  }
  if (mask.corner != Corner::at_offset && !mask.query_offset.empty()) {
    return bad_option(
        "query_offset needs the corner at_offset: another corner says where query 0 stands");
  }
  for (const std::int64_t offset : mask.query_offset) {
    if (offset > far || offset < -far) {
      return bad_option(sentence("query_offset must stay below 2^61; found ", offset));
    }
  }
  for (const auto& side : {mask.window.left, mask.window.right}) {
    if (side && (*side < 0 || *side > far)) {
      return bad_option(sentence("a window's side must lie between 0 and 2^61; found ", *side));
    }
  }
  return {};
}

Result<void> check_lengths(const Mask& mask, const Shape& s) {
  if (!mask.key_lengths.empty() && mask.key_lengths.size() != 1 &&
      length_of(mask.key_lengths) != s.B) {
    return bad_option(sentence("key_lengths must have 1 or B = ", s.B, " entries; it has ",
                               mask.key_lengths.size()));
  }
  for (const std::int64_t length : mask.key_lengths) {
    if (length < 0 || length > s.S) {
      return bad_option(
          sentence("a key length must lie between 0 and S = ", s.S, "; found ", length));
    }
  }
  return {};
}

/// Starts of documents: from 0, never falling, to the length of the axis.
Result<void> check_starts(const char* name, const Numbers64& starts, std::int64_t length) {
  if (starts.size() < 2 || starts.front() != 0 || starts.back() != length) {
    return bad_option(sentence(name, " must run from 0 to ", length, "; it has ", starts.size(),
                               " entries and ends with ", starts.empty() ? 0 : starts.back()));
  }
  for (std::size_t n = 1; n < starts.size(); ++n) {
    if (starts[n] < starts[n - 1]) {
      return bad_option(
          sentence(name, " must not fall; entry ", n, " is ", starts[n], " after ", starts[n - 1]));
    }
  }
  return {};
}

Result<void> check_documents(const Mask& mask, const Shape& s) {
  const Packing& packing = mask.packing;
  if (!packing.query_starts.empty() || !packing.key_starts.empty()) {
    if (auto ok = check_starts("query_starts", packing.query_starts, s.T); !ok) return ok;
    if (auto ok = check_starts("key_starts", packing.key_starts, s.S); !ok) return ok;
    if (packing.query_starts.size() != packing.key_starts.size()) {
      return bad_option(
          sentence("query_starts and key_starts must name as many documents; they "
                   "have ",
                   packing.query_starts.size(), " and ", packing.key_starts.size(), " entries"));
    }
  }
  const DocumentIds& ids = mask.documents;
  if (ids.query.empty() && ids.key.empty()) return {};
  const auto fits = [&](const char* name, const Numbers64& list, std::int64_t length) {
    if (length_of(list) == length || length_of(list) == s.B * length) return Result<void>{};
    return Result<void>{
        bad_option(sentence("document ids of the ", name, " must have ", length, " or ",
                            s.B * length, " entries; they have ", list.size()))};
  };
  if (auto ok = fits("queries", ids.query, s.T); !ok) return ok;
  return fits("keys", ids.key, s.S);
}

Result<void> check_square(const Mask& mask, const Shape& s) {
  if (mask.corner != Corner::square || !mask.future_hidden) return {};
  const auto failure = [](std::int64_t queries, std::int64_t keys) {
    return Failure{ErrorKind::shape, "causal-needs-square",
                   sentence("[attention] causal mode requires equal lengths; query has T = ",
                            queries, ", key has S = ", keys,
                            ": say which corner is meant: top-left, bottom-right, or the position "
                            "of query 0")};
  };
  if (s.T != s.S) return failure(s.T, s.S);
  const Packing& packing = mask.packing;
  for (std::size_t n = 1; n < packing.query_starts.size(); ++n) {
    const std::int64_t queries = packing.query_starts[n] - packing.query_starts[n - 1];
    const std::int64_t keys = packing.key_starts[n] - packing.key_starts[n - 1];
    if (queries != keys) return failure(queries, keys);
  }
  return {};
}

/// A number that the kernels will use in their own type, where it must keep its meaning.
Result<void> check_size(const char* name, double value, double least, double most, bool wide) {
  const double size = std::abs(value);
  if (size >= least && size <= most) return {};
  return bad_option(sentence(name, " must have a size between ", least, " and ", most, " where ",
                             wide ? "f64" : "f32", " computes; found ", value));
}

/// Beyond these a softcap or a slope, multiplied by a score or a distance, could leave the type.
double far_out(bool wide) { return wide ? 0x1p512 : 0x1p64; }
double largest(bool wide) {
  return wide ? std::numeric_limits<double>::max() : double{std::numeric_limits<float>::max()};
}

Result<void> check_per_head(const char* name, const std::vector<double>& values, const Shape& s,
                            double most, bool wide) {
  if (values.empty()) return {};
  if (static_cast<std::int64_t>(values.size()) != s.H) {
    return mismatch(sentence(name, " must have H = ", s.H, " entries; it has ", values.size()));
  }
  for (const double value : values) {
    if (!std::isfinite(value)) return bad_option(sentence(name, " must be finite; found ", value));
    if (auto ok = check_size(name, value, 0, most, wide); !ok) return ok;
  }
  return {};
}

Result<void> check_dropout(const Dropout& dropout, const Shape& s) {
  if (!(dropout.rate >= 0 && dropout.rate < 1)) {
    return bad_option(sentence("a dropout rate must lie in [0, 1); found ", dropout.rate));
  }
  constexpr std::int64_t most = std::int64_t{1} << 32U;
  if (dropout.rate > 0 && (s.T >= most || s.S >= most || s.B >= most || s.H >= most)) {
    return bad_option(sentence("dropout needs extents below 2^32; T is ", s.T, ", S is ", s.S));
  }
  return {};
}

}  // namespace

Result<void> check_places(std::initializer_list<Place> results,
                          std::initializer_list<Place> inputs) {
  for (const Place* result = results.begin(); result != results.end(); ++result) {
    if (result->data == nullptr) continue;
    if (result->repeated != 0) {
      return mismatch(sentence("elements of ", result->name, " must not share memory; an axis of ",
                               result->repeated, " has stride 0"));
    }
    const auto clash = [&](const Place& other) { return other.data == result->data; };
    const Place* other = std::find_if(inputs.begin(), inputs.end(), clash);
    if (other == inputs.end()) {
      other = std::find_if(result + 1, results.end(), clash);
      if (other == results.end()) continue;
    }
    return mismatch(sentence(result->name, " and ", other->name, " must not share memory"));
  }
  return {};
}

Result<void> check_sizes(const Sizes& in) {
  if (!in.given) return mismatch("query, key and value must be given");
  for (const auto& [name, extents] :
       {std::pair{"query", in.query}, std::pair{"key", in.key}, std::pair{"value", in.value}}) {
    for (const std::int64_t extent : extents) {
      if (extent < 0) {
        return mismatch(
            sentence("extents must not be negative; ", name, " has shape ", to_string(extents)));
      }
    }
  }
  for (const Pair& pair : {Pair{"query", "key", "B", in.query[0], in.key[0]},
                           Pair{"query", "key", "D", in.query[3], in.key[3]},
                           Pair{"key", "value", "B", in.key[0], in.value[0]},
                           Pair{"key", "value", "G", in.key[1], in.value[1]},
                           Pair{"key", "value", "S", in.key[2], in.value[2]}}) {
    if (auto ok = must_agree(pair); !ok) return ok;
  }
  const std::int64_t heads = in.query[1];
  const std::int64_t groups = in.key[1];
  if (heads != 0 && (groups == 0 || heads % groups != 0)) {
    return mismatch(sentence("query heads must be a multiple of key/value heads; query has ", heads,
                             ", key has ", groups));
  }
  const auto wide = [](const char* letter, std::int64_t width) {
    return mismatch(sentence(letter, " must lie between 1 and ", widest, "; found ", width));
  };
  if (in.query[3] < 1 || in.query[3] > widest) return wide("D", in.query[3]);
  if (in.value[3] < 1 || in.value[3] > widest) return wide("E", in.value[3]);
  constexpr std::int64_t most_elements = std::int64_t{1} << 40U;
  const std::array<std::int64_t, 4> result{in.query[0], in.query[1], in.query[2], in.value[3]};
  for (const auto& [name, extents] : {std::pair{"a result", result}, std::pair{"query", in.query},
                                      std::pair{"key", in.key}, std::pair{"value", in.value}}) {
    const auto count = element_count(extents);
    if (count && *count <= most_elements) continue;
    return Failure{ErrorKind::shape, "too-large",
                   sentence("[attention] ", name, " of shape ", to_string(extents),
                            " has more than 2^40 elements")};
  }
  return {};
}

Result<void> check_mask(const Mask& mask, const Shape& s) {
  if (auto ok = check_positions(mask, s); !ok) return ok;
  if (auto ok = check_lengths(mask, s); !ok) return ok;
  if (auto ok = check_documents(mask, s); !ok) return ok;
  if (auto ok = check_square(mask, s); !ok) return ok;
  if (mask.visible && !broadcasts_to(mask.visible.extents, {s.B, s.H, s.T, s.S})) {
    return mismatch(sentence(
        "mask must broadcast to [B, H, T, S] = ", to_string(attest::Shape{s.B, s.H, s.T, s.S}),
        "; it has shape ", to_string(mask.visible.extents)));
  }
  return {};
}

Result<void> check_numbers(const Numbers& numbers, const Shape& s) {
  if (numbers.bias != nullptr && !broadcasts_to(*numbers.bias, {s.B, s.H, s.T, s.S})) {
    return mismatch(sentence(
        "bias must broadcast to [B, H, T, S] = ", to_string(attest::Shape{s.B, s.H, s.T, s.S}),
        "; it has shape ", to_string(*numbers.bias)));
  }
  if (numbers.scale && !std::isfinite(*numbers.scale)) {
    return bad_option(sentence("scale must be finite; found ", *numbers.scale));
  }
  const bool wide = numbers.wide;
  if (numbers.scale) {
    if (auto ok = check_size("scale", *numbers.scale, 0, largest(wide), wide); !ok) return ok;
  }
  if (numbers.softcap && !(*numbers.softcap > 0 && std::isfinite(*numbers.softcap))) {
    return bad_option(sentence("softcap must be positive and finite; found ", *numbers.softcap));
  }
  if (numbers.softcap) {
    const double most = far_out(wide);
    if (auto ok = check_size("softcap", *numbers.softcap, 1 / most, most, wide); !ok) return ok;
    const double capped = numbers.scale.value_or(1) / *numbers.softcap;
    const double least = numbers.scale == 0.0 ? 0 : 1 / (most * most);
    if (auto ok = check_size("scale / softcap", capped, least, most * most, wide); !ok) return ok;
  }
  if (auto ok = check_per_head("alibi_slopes", *numbers.alibi_slopes, s, far_out(wide), wide);
      !ok) {
    return ok;
  }
  if (auto ok = check_per_head("sink", *numbers.sink, s, largest(wide), wide); !ok) return ok;
  return check_dropout(numbers.dropout, s);
}

}  // namespace attest::engine
