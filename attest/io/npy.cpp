// SPDX-License-Identifier: MIT
#include "attest/io/npy.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "attest/io/origin.h"
#include "attest/io/sniff.h"

namespace attest::io {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t rank_limit = 64;  // numpy's own

struct DTypeName {
  DType dtype;
  std::string_view name;
};
constexpr std::array<DTypeName, 12> dtype_names{{{DType::f64, "f8"},
                                                 {DType::f32, "f4"},
                                                 {DType::f16, "f2"},
                                                 {DType::boolean, "b1"},
                                                 {DType::i64, "i8"},
                                                 {DType::i32, "i4"},
                                                 {DType::i16, "i2"},
                                                 {DType::i8, "i1"},
                                                 {DType::u64, "u8"},
                                                 {DType::u32, "u4"},
                                                 {DType::u16, "u2"},
                                                 {DType::u8, "u1"}}};

/// What the header says.
struct Header {
  DType dtype = DType::f64;
  std::endian order = std::endian::native;
  bool fortran = false;
  Shape shape;
};

/// What a descr that we do not read stands for.
std::string_view meaning_of(std::string_view descr) {
  const std::size_t at = descr.find_first_not_of("<>|=");
  switch (at == std::string_view::npos ? '?' : descr[at]) {
    case 'c':
      return "complex numbers";
    case 'O':
      return "Python objects (a pickle, which can run code when read)";
    case 'S':
    case 'a':
    case 'U':
      return "texts";
    case 'M':
    case 'm':
      return "dates or times";
    case 'V':
      return "raw bytes or records (bfloat16 is kept so: save it as safetensors)";
    case 'f':
      return "floating-point numbers of an unsupported width";
    default:
      return "elements of an unknown type";
  }
}

/// The Python literal of the header, read by hand: a dictionary of exactly three known keys. The
/// text is bounded by the file, and nothing in it nests, so there is no depth to run out of.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::size_t first_byte, const Origin& origin)
      : text_(text), first_byte_(first_byte), origin_(origin) {}

  Result<Header> parse() {
    if (!accept('{')) return bad("the header does not begin with '{'");
    while (!accept('}')) {
      if (auto read = member(); !read) return read.failure();
      if (accept(',')) continue;
      if (!accept('}')) return bad("a ',' or '}' is missing");
      break;
    }
    skip_space();
    if (at_ != text_.size()) return bad("there is text after the header's '}'");
    for (const auto& [seen, key] :
         {std::pair(seen_descr_, "descr"), std::pair(seen_order_, "fortran_order"),
          std::pair(seen_shape_, "shape")}) {
      if (!seen) return origin_.refuse("bad-header", "the header has no key '", key, "'");
    }
    return std::move(header_);
  }

 private:
  template <class... Parts>
  [[nodiscard]] Failure bad(const Parts&... parts) const {
    return origin_.refuse("bad-header", "byte ", first_byte_ + at_, ": ", parts...);
  }

  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool accept(char wanted) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool accept(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string_view> text_literal() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') return bad("a text in quotes is missing");
    const std::size_t end = text_.find(quote, at_ + 1);
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    if (end == std::string_view::npos || inside.find_first_of("\\\n") != std::string_view::npos) {
      return bad("a text in quotes does not end, or has a backslash in it");
    }
    at_ = end + 1;
    return inside;
  }

  Result<void> member() {
    const std::size_t start = first_byte_ + at_;
    const auto key = text_literal();
    if (!key) return key.failure();
    bool* seen = *key == "descr"           ? &seen_descr_
                 : *key == "fortran_order" ? &seen_order_
                 : *key == "shape"         ? &seen_shape_
                                           : nullptr;
    if (seen == nullptr) return bad("the header has the unknown key ", in_quotes(*key));
    if (std::exchange(*seen, true)) {
      return origin_.refuse("duplicate-key", "byte ", start, ": the header gives ", in_quotes(*key),
                            " twice");
    }
    if (!accept(':')) return bad("a ':' is missing");
    if (seen == &seen_descr_) return descr();
    return seen == &seen_order_ ? order() : shape();
  }

  Result<void> descr() {
    skip_space();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) {
      return origin_.refuse_type("unsupported-dtype", "byte ", first_byte_ + at_,
                                 ": holds records (a structured dtype), not numbers");
    }
    const auto text = text_literal();
    if (!text) return text.failure();
    const char mark = text->empty() ? ' ' : text->front();
    for (const DTypeName& row : dtype_names) {
      if (std::string_view("<>|=").find(mark) == std::string_view::npos) break;
      if (text->substr(1) != row.name) continue;
      header_.dtype = row.dtype;
      if (mark == '<') header_.order = std::endian::little;
      if (mark == '>') header_.order = std::endian::big;
      return {};
    }
    return origin_.refuse_type("unsupported-dtype", "the unsupported dtype ", in_quotes(*text),
                               " means ", meaning_of(*text));
  }

  Result<void> order() {
    header_.fortran = accept("True");
    if (header_.fortran || accept("False")) return {};
    return bad("fortran_order is neither True nor False");
  }

  /// "()", "(3,)", "(2, 3)", "(2, 3,)"; Python 2 wrote "(3L,)". "(3)" is a number to Python.
  Result<void> shape() {
    if (!accept('(')) return bad("the shape does not begin with '('");
    bool comma = true;
    while (!accept(')')) {
      if (!comma) return bad("a ',' or ')' is missing in the shape");
      auto read = extent();
      if (!read) return read;
      comma = accept(',');
    }
    if (header_.shape.size() == 1 && !comma) return bad("the shape (n) is a number; (n,) is meant");
    return {};
  }

  Result<void> extent() {
    skip_space();
    const std::size_t digits = text_.substr(at_).find_first_not_of("0123456789");
    const std::string_view number = text_.substr(at_, digits);
    if (number.empty() || (number.size() > 1 && number.front() == '0')) {
      return bad("an extent is not a non-negative integer");
    }
    std::int64_t value = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc()) {
      return origin_.refuse("bad-number", "byte ", first_byte_ + at_, ": the extent ",
                            in_quotes(number.substr(0, 40)), " is too large");
    }
    at_ += number.size();
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    if (header_.shape.size() == rank_limit) {
      return origin_.refuse("bad-shape", "has more than ", rank_limit, " axes");
    }
    header_.shape.push_back(value);
    return {};
  }

  std::string_view text_;
  std::size_t first_byte_;
  Origin origin_;
  std::size_t at_ = 0;
  Header header_;
  bool seen_descr_ = false;
  bool seen_order_ = false;
  bool seen_shape_ = false;
};

struct Parts {
  std::string_view header;
  std::size_t header_at = 0;
  ByteSpan elements;
};

/// Cuts the file into header and elements.
Result<Parts> cut(ByteSpan bytes, const Origin& origin) {
  if (!begins_with(bytes, magic)) {
    if (auto stranger = recognise_stranger(bytes, origin)) return *std::move(stranger);
    return origin.refuse("not-an-npy-file", "does not begin with \\x93NUMPY");
  }
  const std::size_t version_at = magic.size();
  if (bytes.size() < version_at + 2) return origin.refuse("truncated", "ends before its version");
  const auto major = std::to_integer<unsigned>(bytes[version_at]);
  const auto minor = std::to_integer<unsigned>(bytes[version_at + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    return origin.refuse("unsupported-version", "has npy version ", major, ".", minor,
                         "; 1.0, 2.0 and 3.0 can be read");
  }
  const std::size_t width = major == 1 ? 2 : 4;
  const std::size_t header_at = version_at + 2 + width;
  if (bytes.size() < header_at) return origin.refuse("truncated", "ends before its header");
  const std::size_t length = major == 1 ? load_little<std::uint16_t>(bytes, version_at + 2)
                                        : load_little<std::uint32_t>(bytes, version_at + 2);
  const std::size_t present = bytes.size() - header_at;
  if (length > present) {
    return origin.refuse("truncated", "the header has ", length, " bytes, of which ", present,
                         " are there (an incomplete download?)");
  }
  return Parts{as_text(bytes.subspan(header_at, length)), header_at,
               bytes.subspan(header_at + length)};
}

Result<void> check_size(const Header& header, std::size_t present, const Origin& origin) {
  const auto count = element_count(header.shape);
  const std::size_t width = size_of(header.dtype);
  // A size beyond int64 cannot be in memory, so that division instead of multiplication loses
  // nothing.
  if (!count || static_cast<std::uint64_t>(*count) > INT64_MAX / width) {
    return origin.refuse("bad-shape", "an array of shape ", to_string(header.shape),
                         " has more bytes than 64 bits can count");
  }
  const std::size_t needed = static_cast<std::size_t>(*count) * width;
  if (present < needed) {
    return origin.refuse("truncated", name_of(header.dtype), " of shape ", to_string(header.shape),
                         " needs ", needed, " bytes, of which ", present,
                         " are there (an incomplete download?)");
  }
  if (present > needed) {
    return origin.refuse("trailing-bytes", present - needed, " bytes follow the last element (",
                         name_of(header.dtype), " of shape ", to_string(header.shape), ")");
  }
  return {};
}

/// Copies elements that lie with the first axis innermost into row-major order. The place of the
/// next element in the file is kept up to date axis by axis, like the digits of an odometer.
void copy_from_fortran_order(ByteSpan source, AnyTensor& target) {
  const Shape& shape = target.shape();
  const std::size_t width = size_of(target.dtype());
  std::vector<std::size_t> strides(shape.size());
  std::size_t stride = width;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    strides[axis] = stride;
    stride *= static_cast<std::size_t>(shape[axis]);
  }
  std::vector<std::int64_t> index(shape.size());
  std::size_t from = 0;
  for (std::size_t done = 0; done < target.size(); ++done) {
    std::memcpy(target.bytes().data() + done * width, source.data() + from, width);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * static_cast<std::size_t>(shape[axis]);
      index[axis] = 0;
    }
  }
}

std::string header_text(const AnyTensor& tensor, std::string_view name) {
  const std::size_t width = size_of(tensor.dtype());
  std::string text = sentence("{'descr': '", width == 1 ? '|' : '<', name,
                              "', 'fortran_order': False, 'shape': (");
  for (std::size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    text += sentence(axis == 0 ? "" : ", ", tensor.shape()[axis]);
  }
  text += tensor.shape().size() == 1 ? ",), }" : "), }";
  // The header ends in a newline, and the elements begin at a multiple of 64.
  constexpr std::size_t before = 10;
  const std::size_t whole = (before + text.size() + 1 + 63) / 64 * 64;
  text.resize(whole - before - 1, ' ');
  return text + '\n';
}

}  // namespace

Result<AnyTensor> parse_npy(ByteSpan bytes, std::string_view source_name) {
  const Origin origin{"npy", source_name};
  const auto parts = cut(bytes, origin);
  if (!parts) return parts.failure();
  const auto header = HeaderParser(parts->header, parts->header_at, origin).parse();
  if (!header) return header.failure();
  const ByteSpan source = parts->elements;
  if (auto checked = check_size(*header, source.size(), origin); !checked) {
    return checked.failure();
  }
  if (header->dtype == DType::boolean) {
    if (const std::size_t bad = first_not_boolean(source); bad != source.size()) {
      return origin.refuse("bad-boolean", "element ", bad, " is ",
                           std::to_integer<unsigned>(source[bad]), "; a boolean is 0 or 1");
    }
  }
  AnyTensor tensor(header->dtype, header->shape);
  if (header->fortran) {
    copy_from_fortran_order(source, tensor);
  } else {
    std::copy(source.begin(), source.end(), tensor.bytes().begin());
  }
  if (header->order != std::endian::native) reverse_each(tensor.bytes(), size_of(tensor.dtype()));
  return tensor;
}

Result<AnyTensor> read_npy(const std::string& path) {
  const auto bytes = read_file(path);
  if (!bytes) return bytes.failure();
  return parse_npy(*bytes, path);
}

Result<Bytes> serialize_npy(const AnyTensor& tensor) {
  const Origin origin{"npy", "(to be written)"};
  const DTypeName* found = nullptr;
  for (const DTypeName& row : dtype_names) {
    if (row.dtype == tensor.dtype()) found = &row;
  }
  if (found == nullptr) {
    return origin.refuse_type("unsupported-dtype", "npy has no name for ", name_of(tensor.dtype()),
                              "; write safetensors");
  }
  if (tensor.shape().size() > rank_limit) {
    return origin.refuse("bad-shape", "npy holds at most ", rank_limit, " axes, not ",
                         tensor.shape().size());
  }
  const std::string header = header_text(tensor, found->name);
  Bytes out;
  append(out, as_bytes(magic));
  append(out, as_bytes(std::string_view("\x01\x00", 2)));
  append_little(out, static_cast<std::uint16_t>(header.size()));
  append(out, as_bytes(header));
  append(out, tensor.bytes());
  host_to_little(std::span(out).last(tensor.bytes().size()), size_of(tensor.dtype()));
  return out;
}

Result<void> write_npy(const std::string& path, const AnyTensor& tensor) {
  const auto bytes = serialize_npy(tensor);
  if (!bytes) return bytes.failure();
  return write_file(path, *bytes);
}

}  // namespace attest::io
