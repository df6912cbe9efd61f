// SPDX-License-Identifier: MIT
#include "attest/io/json_tensors.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "attest/io/metadata.h"

namespace attest::io {
namespace {

constexpr std::string_view metadata_name = "__metadata__";

/// Whose elements are read: the tensor "query", or the list "query" ".data".
struct Owner {
  std::string_view name;
  std::string_view field;
  const Origin& origin;
};

/// One value and its indices. Its path, "query[1][2]", is spelt out only for a message.
struct Place {
  const Json& value;
  const Owner& owner;
  std::span<const std::size_t> index;

  template <class... Parts>
  [[nodiscard]] Failure refuse(ErrorKind kind, std::string_view id, const Parts&... parts) const {
    std::string path = printable(owner.name) + std::string(owner.field);
    for (const std::size_t i : index) path += sentence("[", i, "]");
    return owner.origin.failure(kind, id, "byte ", value.offset(), ": ", path, " ", parts...);
  }
};

bool is_exact_in_f64(std::int64_t number) {
  const std::uint64_t magnitude =
      number < 0 ? -static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  if (magnitude == 0) return true;
  return (magnitude >> std::countr_zero(magnitude)) < (std::uint64_t{1} << 53U);
}

Result<double> number_at(const Place& place) {
  const Json& value = place.value;
  if (const double* number = value.double_if()) return *number;
  if (const std::int64_t* number = value.integer_if()) {
    if (is_exact_in_f64(*number)) return static_cast<double>(*number);
    return place.refuse(ErrorKind::value, "bad-number", "is ", *number,
                        ", an integer that a 64-bit floating-point number cannot hold exactly");
  }
  if (const Json::BigInteger* number = value.big_integer_if()) {
    return place.refuse(ErrorKind::value, "bad-number", "is ",
                        printable(std::string_view(number->digits).substr(0, 40)),
                        ", an integer outside 64 bits");
  }
  if (const std::string* text = value.string_if()) {
    if (*text == "inf") return std::numeric_limits<double>::infinity();
    if (*text == "-inf") return -std::numeric_limits<double>::infinity();
    if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
    return place.refuse(ErrorKind::type, "not-a-number", "is the text ", in_quotes(*text),
                        R"(; only "inf", "-inf" and "nan" stand for numbers)");
  }
  if (value.is(Json::Kind::boolean)) {
    return place.refuse(ErrorKind::type, "mixed-types", "is a boolean among numbers");
  }
  return place.refuse(ErrorKind::type, "not-a-number", "is ", name_of(value.kind()),
                      ", not a number");
}

Result<bool> boolean_at(const Place& place) {
  if (const bool* boolean = place.value.boolean_if()) return *boolean;
  const bool number = place.value.integer_if() != nullptr || place.value.double_if() != nullptr;
  return place.refuse(ErrorKind::type, number ? "mixed-types" : "not-a-number", "is ",
                      name_of(place.value.kind()), " among booleans");
}

template <class T>
Result<T> integer_at(const Place& place) {
  const auto refuse = [&](std::string_view number) {
    return place.refuse(ErrorKind::value, "bad-number", "is ", number, ", which ",
                        name_of(dtype_of<T>), " cannot hold");
  };
  if (const std::int64_t* number = place.value.integer_if()) {
    if (std::in_range<T>(*number)) return static_cast<T>(*number);
    return refuse(sentence(*number));
  }
  if (const Json::BigInteger* number = place.value.big_integer_if()) {
    T value{};
    const char* end = number->digits.data() + number->digits.size();
    const auto read = std::from_chars(number->digits.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end) return value;
    return refuse(printable(std::string_view(number->digits).substr(0, 40)));
  }
  return place.refuse(ErrorKind::type, "not-a-number", "is ", name_of(place.value.kind()),
                      ", not an integer");
}

/// Reads nested arrays. The shape follows from the first row of each axis; elements are collected
/// as they are met, since only a whole walk shows that the other rows agree and how many there are.
class NestedReader {
 public:
  NestedReader(std::string_view name, const Origin& origin) : owner_{name, "", origin} {}

  Result<AnyTensor> read(const Json& value) {
    const Json* first = &value;
    while (first->is(Json::Kind::array)) {
      shape_.push_back(static_cast<std::int64_t>(first->items().size()));
      if (first->items().empty()) break;
      first = &first->items().front();
    }
    boolean_ = first->is(Json::Kind::boolean);
    if (auto walked = walk(value, 0); !walked) return walked.failure();
    AnyTensor tensor(boolean_ ? DType::boolean : DType::f64, shape_);
    const ByteSpan elements =
        boolean_ ? ByteSpan(booleans_) : std::as_bytes(std::span<const double>(numbers_));
    std::copy(elements.begin(), elements.end(), tensor.bytes().begin());
    return tensor;
  }

 private:
  [[nodiscard]] Place place(const Json& value) const { return {value, owner_, index_}; }

  Result<void> walk(const Json& value, std::size_t axis) {
    if (axis == shape_.size()) return element(value);
    if (!value.is(Json::Kind::array)) {
      const bool number = !value.is(Json::Kind::null) && !value.is(Json::Kind::object);
      return place(value).refuse(number ? ErrorKind::shape : ErrorKind::type,
                                 number ? "ragged" : "not-a-number", "is ", name_of(value.kind()),
                                 ", where an array of ", shape_[axis], " belongs");
    }
    const auto items = value.items();
    if (items.size() != static_cast<std::size_t>(shape_[axis])) {
      return place(value).refuse(ErrorKind::shape, "ragged", "has ", items.size(),
                                 " elements; the first row of this axis has ", shape_[axis]);
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      index_.push_back(i);
      if (auto walked = walk(items[i], axis + 1); !walked) return walked;
      index_.pop_back();
    }
    return {};
  }

  Result<void> element(const Json& value) {
    if (value.is(Json::Kind::array)) {
      return place(value).refuse(ErrorKind::shape, "ragged", "is an array among single elements");
    }
    if (boolean_) {
      const auto boolean = boolean_at(place(value));
      if (!boolean) return boolean.failure();
      booleans_.push_back(static_cast<std::byte>(*boolean));
      return {};
    }
    const auto number = number_at(place(value));
    if (!number) return number.failure();
    numbers_.push_back(*number);
    return {};
  }

  Owner owner_;
  Shape shape_;
  bool boolean_ = false;
  std::vector<double> numbers_;
  Bytes booleans_;
  std::vector<std::size_t> index_;
};

/// Reads {"dtype", "shape", "data"}.
class LongReader {
 public:
  LongReader(const Json& value, std::string_view name, const Origin& origin)
      : value_(value), name_(name), origin_(origin), owner_{name, ".data", origin} {}

  Result<AnyTensor> read() {
    if (auto checked = check_fields(); !checked) return checked.failure();
    const std::string* dtype_name = value_.find("dtype")->string_if();
    const auto dtype = dtype_from_name(dtype_name == nullptr ? "" : *dtype_name);
    if (!dtype) {
      return origin_.refuse_type("unsupported-dtype", "byte ", value_.find("dtype")->offset(),
                                 ": tensor ", in_quotes(name_), " has the unsupported dtype ",
                                 dtype_name == nullptr ? "" : in_quotes(*dtype_name));
    }
    auto shape = read_shape(*value_.find("shape"));
    if (!shape) return shape.failure();
    const Json& data = *value_.find("data");
    const auto count = element_count(*shape);
    // The count is judged by the elements that are there before anything is allocated for it.
    if (!count || static_cast<std::size_t>(*count) != data.items().size()) {
      return origin_.refuse("size-mismatch", "byte ", data.offset(), ": tensor ", in_quotes(name_),
                            " of shape ", to_string(*shape), " has ", data.items().size(),
                            " elements in its data");
    }
    return fill(*dtype, *std::move(shape), data.items());
  }

 private:
  Result<void> check_fields() const {
    for (const Json::Member& field : value_.members()) {
      if (field.name != "dtype" && field.name != "shape" && field.name != "data") {
        return bad(value_, " has the unknown field ", in_quotes(field.name));
      }
    }
    for (const std::string_view field : {"dtype", "shape", "data"}) {
      const Json* found = value_.find(field);
      if (found == nullptr) {
        return bad(value_, " is an object without ", field,
                   R"(; nested arrays, or {"dtype", "shape", "data"}, are meant)");
      }
      const auto wanted = field == "dtype" ? Json::Kind::string : Json::Kind::array;
      if (!found->is(wanted)) {
        return bad(*found, " has a ", field, " that is ", name_of(found->kind()), ", not ",
                   name_of(wanted));
      }
    }
    return {};
  }

  template <class... Parts>
  [[nodiscard]] Failure bad(const Json& where, const Parts&... parts) const {
    return origin_.refuse("bad-entry", "byte ", where.offset(), ": tensor ", in_quotes(name_),
                          parts...);
  }

  Result<Shape> read_shape(const Json& value) const {
    Shape shape;
    for (const Json& extent : value.items()) {
      const std::int64_t* number = extent.integer_if();
      if (number == nullptr || *number < 0) {
        return bad(extent, " has an extent that is not a non-negative integer");
      }
      shape.push_back(*number);
    }
    return shape;
  }

  Result<AnyTensor> fill(DType dtype, Shape shape, std::span<const Json> data) const {
    switch (dtype) {
      case DType::f64:
      case DType::f32:
      case DType::f16:
      case DType::bf16:
        return fill_floating(dtype, std::move(shape), data);
      case DType::boolean:
        return fill_with<bool>(std::move(shape), data, boolean_at);
      case DType::i64:
        return fill_with<std::int64_t>(std::move(shape), data, integer_at<std::int64_t>);
      case DType::i32:
        return fill_with<std::int32_t>(std::move(shape), data, integer_at<std::int32_t>);
      case DType::i16:
        return fill_with<std::int16_t>(std::move(shape), data, integer_at<std::int16_t>);
      case DType::i8:
        return fill_with<std::int8_t>(std::move(shape), data, integer_at<std::int8_t>);
      case DType::u64:
        return fill_with<std::uint64_t>(std::move(shape), data, integer_at<std::uint64_t>);
      case DType::u32:
        return fill_with<std::uint32_t>(std::move(shape), data, integer_at<std::uint32_t>);
      case DType::u16:
        return fill_with<std::uint16_t>(std::move(shape), data, integer_at<std::uint16_t>);
      case DType::u8:
        return fill_with<std::uint8_t>(std::move(shape), data, integer_at<std::uint8_t>);
    }
    return AnyTensor();
  }

  template <class T, class ElementAt>
  Result<AnyTensor> fill_with(Shape shape, std::span<const Json> data, ElementAt element_at) const {
    AnyTensor tensor(dtype_of<T>, std::move(shape));
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto element = element_at(Place{data[i], owner_, {&i, 1}});
      if (!element) return element.failure();
      std::memcpy(tensor.bytes().data() + i * sizeof(T), &*element, sizeof(T));
    }
    return tensor;
  }

  Result<AnyTensor> fill_floating(DType dtype, Shape shape, std::span<const Json> data) const {
    Tensor<double> numbers(std::move(shape));
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto number = number_at({data[i], owner_, {&i, 1}});
      if (!number) return number.failure();
      numbers.data()[i] = *number;
    }
    AnyTensor tensor = AnyTensor::from_f64(numbers, dtype);
    for (std::size_t i = 0; i < data.size(); ++i) {
      const double given = numbers.data()[i];
      if (std::isfinite(given) && !std::isfinite(tensor.number(i))) {
        return Place{data[i], owner_, {&i, 1}}.refuse(ErrorKind::value, "bad-number", "is ", given,
                                                      ", too large for ", name_of(dtype));
      }
    }
    return tensor;
  }

  const Json& value_;
  std::string_view name_;
  const Origin& origin_;
  Owner owner_;
};

/// Whether the whole file is one tensor in the long form rather than tensors by name: as a name,
/// "dtype" would stand for an array.
bool is_long_form(const Json& value) {
  const Json* dtype = value.find("dtype");
  return dtype != nullptr && dtype->is(Json::Kind::string) && value.find("data") != nullptr;
}

void append_long(std::string& out, const AnyTensor& tensor) {
  out += sentence(R"({"dtype": ")", name_of(tensor.dtype()), R"(", "shape": )",
                  to_string(tensor.shape()), R"(, "data": [)");
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    if (i > 0) out += ", ";
    append_json_element(out, tensor, i);
  }
  out += "]}";
}

bool keeps_as_nested(const AnyTensor& tensor) {
  const bool kept = tensor.dtype() == DType::f64 || tensor.dtype() == DType::boolean;
  return kept && tensor.size() > 0 && !tensor.shape().empty() &&
         tensor.shape().size() < json_depth_limit;
}

}  // namespace

Result<AnyTensor> tensor_from_json(const Json& value, std::string_view name, const Origin& origin) {
  if (value.is(Json::Kind::object)) return LongReader(value, name, origin).read();
  return NestedReader(name, origin).read(value);
}

Result<NamedTensors> parse_json_tensors(std::string_view text, std::string_view source_name,
                                        std::string_view single_name) {
  const Origin origin{"json", source_name};
  const auto root = parse_json(text, origin, 0);
  if (!root) return root.failure();
  NamedTensors out;
  if (!root->is(Json::Kind::object) || is_long_form(*root)) {
    auto tensor = tensor_from_json(*root, single_name, origin);
    if (!tensor) return tensor.failure();
    out.add(std::string(single_name), *std::move(tensor));
    return out;
  }
  for (const Json::Member& member : root->members()) {
    if (member.name == metadata_name) {
      if (auto read = read_metadata(out, member.value, origin); !read) return read.failure();
      continue;
    }
    auto tensor = tensor_from_json(member.value, member.name, origin);
    if (!tensor) return tensor.failure();
    out.add(member.name, *std::move(tensor));
  }
  return out;
}

Result<NamedTensors> read_json_tensors(const std::string& path, std::string_view single_name) {
  const auto bytes = read_file(path);
  if (!bytes) return bytes.failure();
  return parse_json_tensors(as_text(*bytes), path, single_name);
}

Result<std::string> serialize_json_tensors(const NamedTensors& tensors) {
  const Origin origin{"json", "(to be written)"};
  if (auto checked = check_names(tensors, origin); !checked) return checked.failure();
  if (tensors.find(metadata_name) != nullptr) {
    return origin.refuse("bad-name", "no tensor may be called ", in_quotes(metadata_name));
  }
  std::string out = "{";
  if (!tensors.metadata.empty()) {
    out += sentence("\n  \"", metadata_name, "\": {");
    for (const auto& [key, text] : tensors.metadata) {
      if (out.back() != '{') out += ", ";
      append_json_string(out, key);
      out += ": ";
      append_json_string(out, text);
    }
    out += '}';
  }
  for (const auto& [name, tensor] : tensors.tensors) {
    out += out.size() > 1 ? ",\n  " : "\n  ";
    append_json_string(out, name);
    out += ": ";
    if (keeps_as_nested(tensor)) {
      append_json_tensor(out, tensor);
    } else {
      append_long(out, tensor);
    }
  }
  return out + "\n}\n";
}

Result<void> write_json_tensors(const std::string& path, const NamedTensors& tensors) {
  const auto text = serialize_json_tensors(tensors);
  if (!text) return text.failure();
  return write_file(path, as_bytes(*text));
}

}  // namespace attest::io
