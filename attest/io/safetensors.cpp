// SPDX-License-Identifier: MIT
#include "attest/io/safetensors.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "attest/io/json.h"
#include "attest/io/metadata.h"
#include "attest/io/sniff.h"

namespace attest::io {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::string_view metadata_name = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, 13> dtype_names{{{DType::f64, "F64"},
                                                 {DType::f32, "F32"},
                                                 {DType::f16, "F16"},
                                                 {DType::bf16, "BF16"},
                                                 {DType::boolean, "BOOL"},
                                                 {DType::i64, "I64"},
                                                 {DType::i32, "I32"},
                                                 {DType::i16, "I16"},
                                                 {DType::i8, "I8"},
                                                 {DType::u64, "U64"},
                                                 {DType::u32, "U32"},
                                                 {DType::u16, "U16"},
                                                 {DType::u8, "U8"}}};

std::optional<DType> dtype_called(std::string_view name) {
  for (const DTypeName& row : dtype_names) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view file_name_of(DType dtype) {
  for (const DTypeName& row : dtype_names) {
    if (row.dtype == dtype) return row.name;
  }
  return "";
}

/// One line of the header, checked on its own.
struct Entry {
  std::string_view name;
  DType dtype = DType::f64;
  Shape shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};

Failure refuse_header_length(std::uint64_t length, ByteSpan bytes, const Origin& origin) {
  const std::size_t present = bytes.size() - length_bytes;
  const bool plausible = looks_like_safetensors(bytes);
  return origin.refuse("header-too-long", "the header length ", length,
                       " reaches past the end of the file, which has ", present, " bytes after it",
                       plausible ? " (an incomplete download?)" : " (not a safetensors file?)");
}

/// The header's text, once its length is known to lie within the file.
Result<std::string_view> header_of(ByteSpan bytes, const Origin& origin) {
  if (bytes.size() < length_bytes) {
    if (auto stranger = recognise_stranger(bytes, origin)) return *std::move(stranger);
    return origin.refuse("truncated", "has ", bytes.size(),
                         " bytes; the header length alone takes 8");
  }
  const auto length = load_little<std::uint64_t>(bytes, 0);
  // Compared by subtraction: "8 + length" wraps for lengths near 2^64.
  const bool fits = length <= bytes.size() - length_bytes;
  const bool opens = fits && length > 0 && bytes[length_bytes] == std::byte{'{'};
  if (opens) return as_text(bytes.subspan(length_bytes, static_cast<std::size_t>(length)));
  // A cut file whose length happens to spell "<a" or the like is still a safetensors file.
  if (!looks_like_safetensors(bytes)) {
    if (auto stranger = recognise_stranger(bytes, origin)) return *std::move(stranger);
  }
  if (!fits) return refuse_header_length(length, bytes, origin);
  if (length == 0) return origin.refuse("not-a-safetensors-file", "the header length is 0");
  return origin.refuse("not-a-safetensors-file", "byte 8: the header does not begin with '{'");
}

Result<Shape> shape_of(const Json& value, std::string_view name, const Origin& origin) {
  if (!value.is(Json::Kind::array)) {
    return origin.refuse("bad-shape", "byte ", value.offset(), ": the shape of tensor ",
                         in_quotes(name), " is ", name_of(value.kind()), ", not an array");
  }
  Shape shape;
  for (const Json& extent : value.items()) {
    const std::int64_t* number = extent.integer_if();
    if (number == nullptr || *number < 0) {
      return origin.refuse(
          "bad-shape", "byte ", extent.offset(), ": an extent of tensor ", in_quotes(name), " is ",
          number == nullptr ? name_of(extent.kind()) : "negative", ", not a non-negative integer");
    }
    shape.push_back(*number);
  }
  return shape;
}

Result<std::size_t> offset_of(const Json& value, std::string_view name, const Origin& origin) {
  const std::int64_t* number = value.integer_if();
  if (number != nullptr && *number >= 0) return static_cast<std::size_t>(*number);
  return origin.refuse(
      "bad-offsets", "byte ", value.offset(), ": an offset of tensor ", in_quotes(name), " is ",
      number == nullptr ? name_of(value.kind()) : "negative", ", not a non-negative integer");
}

/// Fills the entry's range: two integers, in order, within the payload.
Result<void> read_offsets(Entry& entry, const Json& value, std::size_t payload,
                          const Origin& origin) {
  const auto offsets = value.items();
  if (offsets.size() != 2) {
    return origin.refuse("bad-offsets", "byte ", value.offset(), ": data_offsets of tensor ",
                         in_quotes(entry.name), " must be an array of two integers");
  }
  const auto begin = offset_of(offsets[0], entry.name, origin);
  if (!begin) return begin.failure();
  const auto end = offset_of(offsets[1], entry.name, origin);
  if (!end) return end.failure();
  if (*begin > *end) {
    return origin.refuse("bad-offsets", "tensor ", in_quotes(entry.name), " begins at byte ",
                         *begin, " of the payload and ends before that, at ", *end);
  }
  if (*end > payload) {
    return origin.refuse("truncated", "tensor ", in_quotes(entry.name), " ends at byte ", *end,
                         " of the payload, which has ", payload, " (an incomplete download?)");
  }
  entry.begin = *begin;
  entry.end = *end;
  return {};
}

/// The product of the shape must be exactly what the offsets span; both numbers are in the message.
Result<void> check_size(const Entry& entry, const Origin& origin) {
  const auto count = element_count(entry.shape);
  const auto width = static_cast<std::int64_t>(size_of(entry.dtype));
  if (!count || *count > std::numeric_limits<std::int64_t>::max() / width) {
    return origin.refuse("bad-shape", "tensor ", in_quotes(entry.name), " of shape ",
                         to_string(entry.shape), " has more bytes than 64 bits can count");
  }
  const std::size_t needed = static_cast<std::size_t>(*count * width);
  if (entry.end - entry.begin == needed) return {};
  return origin.refuse("size-mismatch", "tensor ", in_quotes(entry.name), ", ",
                       file_name_of(entry.dtype), " of shape ", to_string(entry.shape), ", needs ",
                       needed, " bytes; its offsets ", entry.begin, " and ", entry.end, " give ",
                       entry.end - entry.begin);
}

Result<DType> dtype_of_entry(const Json& value, std::string_view name, const Origin& origin) {
  const std::string* text = value.string_if();
  if (text == nullptr) {
    return origin.refuse("bad-entry", "byte ", value.offset(), ": the dtype of tensor ",
                         in_quotes(name), " is ", name_of(value.kind()), ", not a string");
  }
  if (const auto dtype = dtype_called(*text)) return *dtype;
  return origin.refuse_type("unsupported-dtype", "byte ", value.offset(), ": tensor ",
                            in_quotes(name), " has the unsupported dtype ", in_quotes(*text));
}

Result<Entry> read_entry(const Json::Member& member, std::size_t payload, const Origin& origin) {
  const auto bad = [&](const auto&... parts) {
    return origin.refuse("bad-entry", "byte ", member.value.offset(), ": the entry of tensor ",
                         in_quotes(member.name), parts...);
  };
  if (!member.value.is(Json::Kind::object)) {
    return bad(" is ", name_of(member.value.kind()), ", not an object");
  }
  for (const Json::Member& field : member.value.members()) {
    if (field.name != "dtype" && field.name != "shape" && field.name != "data_offsets") {
      return bad(" has the unknown field ", in_quotes(field.name));
    }
  }
  for (const std::string_view field : {"dtype", "shape", "data_offsets"}) {
    if (member.value.find(field) == nullptr) return bad(" has no ", field);
  }
  auto dtype = dtype_of_entry(*member.value.find("dtype"), member.name, origin);
  if (!dtype) return dtype.failure();
  auto shape = shape_of(*member.value.find("shape"), member.name, origin);
  if (!shape) return shape.failure();
  Entry entry{.name = member.name, .dtype = *dtype, .shape = *std::move(shape)};
  const Json& offsets = *member.value.find("data_offsets");
  if (auto read = read_offsets(entry, offsets, payload, origin); !read) return read.failure();
  if (auto checked = check_size(entry, origin); !checked) return checked.failure();
  return entry;
}

/// Every byte of the payload belongs to exactly one tensor.
Result<void> check_cover(std::span<const Entry> entries, std::size_t payload,
                         const Origin& origin) {
  std::vector<const Entry*> sorted;
  sorted.reserve(entries.size());
  for (const Entry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  const Entry* before = nullptr;
  std::size_t covered = 0;
  for (const Entry* entry : sorted) {
    if (entry->begin < covered) {
      const bool same = entry->begin == before->begin && entry->end == before->end;
      return origin.refuse(same ? "offsets-alias" : "offsets-overlap", "tensor ",
                           in_quotes(entry->name), ", at bytes ", entry->begin, " to ", entry->end,
                           " of the payload, ", same ? "has the same bytes as " : "overlaps ",
                           in_quotes(before->name), ", at ", before->begin, " to ", before->end);
    }
    if (entry->begin > covered) {
      return origin.refuse("offsets-hole", "the ", entry->begin - covered, " bytes before tensor ",
                           in_quotes(entry->name), ", from byte ", covered,
                           " of the payload, belong to no tensor");
    }
    covered = entry->end;
    before = entry;
  }
  if (covered == payload) return {};
  return origin.refuse("trailing-bytes", "the last ", payload - covered,
                       " bytes of the payload, from byte ", covered, ", belong to no tensor");
}

Result<AnyTensor> tensor_of(const Entry& entry, ByteSpan payload, const Origin& origin) {
  const ByteSpan source = payload.subspan(entry.begin, entry.end - entry.begin);
  if (entry.dtype == DType::boolean) {
    if (const std::size_t bad = first_not_boolean(source); bad != source.size()) {
      return origin.refuse("bad-boolean", "tensor ", in_quotes(entry.name), ": byte ",
                           entry.begin + bad, " of the payload is ",
                           std::to_integer<unsigned>(source[bad]), "; a boolean is 0 or 1");
    }
  }
  AnyTensor tensor(entry.dtype, entry.shape);
  std::copy(source.begin(), source.end(), tensor.bytes().begin());
  host_to_little(tensor.bytes(), size_of(entry.dtype));
  return tensor;
}

void append_entry(std::string& header, std::string_view name, const AnyTensor& tensor,
                  std::size_t begin) {
  append_json_string(header, name);
  header += sentence(R"(:{"dtype":")", file_name_of(tensor.dtype()), R"(","shape":[)");
  for (std::size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    header += sentence(axis == 0 ? "" : ",", tensor.shape()[axis]);
  }
  header += sentence(R"(],"data_offsets":[)", begin, ",", begin + tensor.bytes().size(), "]}");
}

void append_metadata(std::string& header, const NamedTensors& tensors) {
  append_json_string(header, metadata_name);
  header += ":{";
  for (const auto& [key, text] : tensors.metadata) {
    if (header.back() != '{') header += ',';
    append_json_string(header, key);
    header += ':';
    append_json_string(header, text);
  }
  header += '}';
}

/// The order of the payload: wide elements first, and otherwise as given.
std::vector<std::size_t> payload_order(const NamedTensors& tensors) {
  std::vector<std::size_t> order(tensors.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors.tensors[a].second.dtype()) > size_of(tensors.tensors[b].second.dtype());
  });
  return order;
}

}  // namespace

bool looks_like_safetensors(ByteSpan bytes) noexcept {
  constexpr std::uint64_t shortest_text = std::uint64_t{1} << 56U;
  return bytes.size() > length_bytes && bytes[length_bytes] == std::byte{'{'} &&
         load_little<std::uint64_t>(bytes, 0) < shortest_text;
}

Result<NamedTensors> parse_safetensors(ByteSpan bytes, std::string_view source_name) {
  const Origin origin{"safetensors", source_name};
  const auto text = header_of(bytes, origin);
  if (!text) return text.failure();
  const auto header = parse_json(*text, origin, length_bytes);
  if (!header) return header.failure();

  const ByteSpan payload = bytes.subspan(length_bytes + text->size());
  NamedTensors out;
  std::vector<Entry> entries;
  for (const Json::Member& member : header->members()) {
    if (member.name == metadata_name) {
      if (auto read = read_metadata(out, member.value, origin); !read) return read.failure();
      continue;
    }
    auto entry = read_entry(member, payload.size(), origin);
    if (!entry) return entry.failure();
    entries.push_back(*std::move(entry));
  }
  if (auto checked = check_cover(entries, payload.size(), origin); !checked) {
    return checked.failure();
  }
  for (const Entry& entry : entries) {
    auto tensor = tensor_of(entry, payload, origin);
    if (!tensor) return tensor.failure();
    out.add(std::string(entry.name), *std::move(tensor));
  }
  return out;
}

Result<NamedTensors> read_safetensors(const std::string& path) {
  const auto bytes = read_file(path);
  if (!bytes) return bytes.failure();
  return parse_safetensors(*bytes, path);
}

Result<Bytes> serialize_safetensors(const NamedTensors& tensors) {
  const Origin origin{"safetensors", "(to be written)"};
  if (auto checked = check_names(tensors, origin); !checked) return checked.failure();
  if (tensors.find(metadata_name) != nullptr) {
    return origin.refuse("bad-name", "no tensor may be called ", in_quotes(metadata_name));
  }
  const std::vector<std::size_t> order = payload_order(tensors);
  std::vector<std::size_t> begins(order.size());
  std::size_t payload = 0;
  for (const std::size_t index : order) {
    begins[index] = payload;
    payload += tensors.tensors[index].second.bytes().size();
  }

  std::string header = "{";
  if (!tensors.metadata.empty()) append_metadata(header, tensors);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (header.size() > 1) header += ',';
    append_entry(header, tensors.tensors[i].first, tensors.tensors[i].second, begins[i]);
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the payload is aligned too

  Bytes out;
  out.reserve(length_bytes + header.size() + payload);
  append_little(out, std::uint64_t{header.size()});
  append(out, as_bytes(header));
  for (const std::size_t index : order) {
    const AnyTensor& tensor = tensors.tensors[index].second;
    append(out, tensor.bytes());
    host_to_little(std::span(out).last(tensor.bytes().size()), size_of(tensor.dtype()));
  }
  return out;
}

Result<void> write_safetensors(const std::string& path, const NamedTensors& tensors) {
  const auto bytes = serialize_safetensors(tensors);
  if (!bytes) return bytes.failure();
  return write_file(path, *bytes);
}

}  // namespace attest::io
