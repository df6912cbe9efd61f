// SPDX-License-Identifier: MIT
#include "attest/io/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace attest::io {

Json::Json() = default;
Json::Json(Value value, std::size_t offset) : value_(std::move(value)), offset_(offset) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

std::span<const Json> Json::items() const noexcept {
  const Array* array = std::get_if<Array>(&value_);
  return array == nullptr ? std::span<const Json>() : std::span<const Json>(*array);
}

std::span<const Json::Member> Json::members() const noexcept {
  const Object* object = std::get_if<Object>(&value_);
  return object == nullptr ? std::span<const Member>() : std::span<const Member>(*object);
}

const Json* Json::find(std::string_view name) const noexcept {
  for (const Member& member : members()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

std::string_view name_of(Json::Kind kind) noexcept {
  switch (kind) {
    case Json::Kind::null:
      return "null";
    case Json::Kind::boolean:
      return "a boolean";
    case Json::Kind::integer:
      return "an integer";
    case Json::Kind::big_integer:
      return "an integer outside 64 bits";
    case Json::Kind::number:
      return "a number";
    case Json::Kind::string:
      return "a string";
    case Json::Kind::array:
      return "an array";
    case Json::Kind::object:
      return "an object";
  }
  return "unknown";
}

namespace {

/// Builds the tree from the events of nlohmann's parser, which tell no positions. The tokens are
/// therefore walked along here as well: each event names the kind of the token it comes from, and
/// from that its end follows, since the parser has already seen that it is well-formed.
class TreeBuilder {
 public:
  using Library = nlohmann::json;

  TreeBuilder(std::string_view text, const Origin& origin, std::size_t first_byte)
      : text_(text), origin_(origin), first_byte_(first_byte) {}

  bool null() { return place(Json(std::monostate{}, at(word()))); }
  bool boolean(bool value) { return place(Json(value, at(word()))); }
  bool number_integer(Library::number_integer_t value) {
    const std::string_view token = word();
    // As an integer, -0 would lose its sign.
    if (value == 0 && token.front() == '-') return place(Json(-0.0, at(token)));
    return place(Json(std::int64_t{value}, at(token)));
  }
  bool number_unsigned(Library::number_unsigned_t value) {
    const std::string_view token = word();
    if (value <= static_cast<std::uint64_t>(INT64_MAX)) {
      return place(Json(static_cast<std::int64_t>(value), at(token)));
    }
    return place(Json(Json::BigInteger{std::string(token)}, at(token)));
  }
  bool number_float(Library::number_float_t value, const std::string& /*digits*/) {
    const std::string_view token = word();
    // The parser also sends whole numbers here that no 64 bits can hold.
    if (token.find_first_of(".eE") == std::string_view::npos) {
      return place(Json(Json::BigInteger{std::string(token)}, at(token)));
    }
    return place(Json(value, at(token)));
  }
  bool string(std::string& value) {
    const std::size_t start = pass_string();
    return place(Json(std::move(value), first_byte_ + start));
  }
  bool binary(Library::binary_t& /*value*/) { return false; }  // not an event of JSON text

  bool start_object(std::size_t /*size*/) { return open(Json::Object{}); }
  bool start_array(std::size_t /*size*/) { return open(Json::Array{}); }
  bool key(std::string& name) {
    const std::size_t start = pass_string();
    open_.back().object().push_back({std::move(name), first_byte_ + start, Json()});
    return true;
  }
  bool end_array() { return close(); }
  bool end_object() { return refuse_twins(open_.back()) && close(); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const Library::exception& error) {
    // `position` counts the bytes read; the last of them is the one that did not fit.
    describe_error(position == 0 ? 0 : position - 1, error.id);
    return false;
  }

  [[nodiscard]] Result<Json> take() && {
    if (failure_) return *std::move(failure_);
    return std::move(root_);
  }

 private:
  [[nodiscard]] std::size_t at(std::string_view token) const {
    return first_byte_ + static_cast<std::size_t>(token.data() - text_.data());
  }

  /// Where the next token begins.
  std::size_t next() {
    cursor_ = std::min(text_.find_first_not_of(" \t\r\n,:", cursor_), text_.size());
    return cursor_;
  }
  /// Passes a number or one of true, false and null.
  std::string_view word() {
    const std::size_t start = next();
    cursor_ = std::min(text_.find_first_of(" \t\r\n,:]}", start), text_.size());
    return text_.substr(start, cursor_ - start);
  }
  std::size_t pass_string() {
    const std::size_t start = next();
    cursor_ = text_.find_first_of("\"\\", start + 1);
    while (text_[cursor_] == '\\') cursor_ = text_.find_first_of("\"\\", cursor_ + 2);
    ++cursor_;
    return start;
  }

  bool place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is(Json::Kind::array)) {
      open_.back().array().push_back(std::move(value));
    } else {
      open_.back().object().back().value = std::move(value);
    }
    return true;
  }
  bool open(Json::Value empty) {
    const std::size_t start = first_byte_ + next();
    ++cursor_;
    if (open_.size() >= json_depth_limit) {
      failure_ = origin_.refuse("too-deep", "byte ", start, ": more than ", json_depth_limit,
                                " arrays and objects inside one another");
      return false;
    }
    open_.emplace_back(std::move(empty), start);
    return true;
  }
  bool close() {
    static_cast<void>(next());
    ++cursor_;
    Json done = std::move(open_.back());
    open_.pop_back();
    return place(std::move(done));
  }

  /// Sorting, not searching: a header may have a hundred thousand names.
  bool refuse_twins(const Json& object) {
    std::vector<const Json::Member*> sorted;
    sorted.reserve(object.members().size());
    for (const Json::Member& member : object.members()) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
      return a->name != b->name ? a->name < b->name : a->name_offset < b->name_offset;
    });
    const auto twin = std::adjacent_find(sorted.begin(), sorted.end(),
                                         [](auto* a, auto* b) { return a->name == b->name; });
    if (twin == sorted.end()) return true;
    failure_ = origin_.refuse("duplicate-key", "byte ", (*std::next(twin))->name_offset,
                              ": the name ", in_quotes((*twin)->name),
                              " was already given at byte ", (*twin)->name_offset);
    return false;
  }

  void describe_error(std::size_t position, int library_id) {
    constexpr int number_out_of_range = 406;
    const std::string_view rest = text_.substr(next());
    const std::size_t here = first_byte_ + cursor_;
    if (library_id == number_out_of_range) {
      failure_ = origin_.refuse("bad-number", "byte ", here, ": ", in_quotes(word().substr(0, 40)),
                                " is too large for a 64-bit floating-point number");
    } else if (rest.starts_with("NaN") || rest.starts_with("Infinity") ||
               rest.starts_with("-Infinity")) {
      failure_ = origin_.refuse("bad-number", "byte ", here, ": NaN and Infinity are not JSON; ",
                                R"(a tensor may have the strings "nan", "inf" and "-inf")");
    } else if (position >= text_.size()) {
      failure_ = origin_.refuse("truncated", "the JSON text ends inside a value, at byte ",
                                first_byte_ + text_.size());
    } else {
      failure_ = origin_.refuse("bad-json", "byte ", first_byte_ + position, ": not JSON, near ",
                                in_quotes(text_.substr(position, 16)));
    }
  }

  std::string_view text_;
  Origin origin_;
  std::size_t first_byte_;
  std::size_t cursor_ = 0;
  std::vector<Json> open_;
  Json root_;
  std::optional<Failure> failure_;
};

/// What the library's parser would let pass, or end at in silence.
std::optional<Failure> refuse_text(std::string_view text, const Origin& origin,
                                   std::size_t first_byte) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return origin.refuse("empty-file", "byte ", first_byte, ": there is no JSON value");
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return origin.refuse("not-utf-8", "byte ", first_byte,
                         ": begins with a byte order mark; save it as plain UTF-8");
  }
  if (const std::size_t valid = valid_utf8_prefix(text); valid != text.size()) {
    return origin.refuse("not-utf-8", "byte ", first_byte + valid, ": not UTF-8, near ",
                         in_quotes(text.substr(valid, 4)));
  }
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return origin.refuse("bad-json", "byte ", first_byte + nul, ": a NUL byte is not JSON");
  }
  return std::nullopt;
}

void append_rows(std::string& out, const AnyTensor& tensor, std::size_t axis, std::size_t& index) {
  if (axis == tensor.shape().size()) {
    append_json_element(out, tensor, index++);
    return;
  }
  out += '[';
  for (std::int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i > 0) out += ", ";
    append_rows(out, tensor, axis + 1, index);
  }
  out += ']';
}

template <class T>
T element(const AnyTensor& tensor, std::size_t index) {
  T value{};
  std::memcpy(&value, tensor.bytes().data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const Origin& origin, std::size_t first_byte) {
  if (auto refused = refuse_text(text, origin, first_byte)) return *std::move(refused);
  TreeBuilder builder(text, origin, first_byte);
  static_cast<void>(nlohmann::json::sax_parse(text.begin(), text.end(), &builder));
  return std::move(builder).take();
}

Result<Json> parse_json(std::string_view text, std::string_view source_name) {
  return parse_json(text, Origin{"json", source_name}, 0);
}

void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
    for (const char c : valid) {
      const auto code = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out += {'\\', c};
      } else if (c == '\n') {
        out += "\\n";
      } else if (code < 0x20 || code == 0x7F) {
        out += "\\u00";
        out += {hex[code >> 4U], hex[code & 15U]};
      } else {
        out += c;
      }
    }
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    out += "\\ufffd";
    text.remove_prefix(1);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (std::isfinite(value)) {
    out += shortest_with_point(value);
  } else {
    append_json_string(out, shortest(value));
  }
}

void append_json_element(std::string& out, const AnyTensor& tensor, std::size_t index) {
  if (tensor.dtype() == DType::boolean) {
    out += tensor.number(index) != 0 ? "true" : "false";
  } else if (is_floating(tensor.dtype())) {
    append_json_number(out, tensor.number(index));
  } else if (tensor.dtype() == DType::i64) {
    out += sentence(element<std::int64_t>(tensor, index));
  } else if (tensor.dtype() == DType::u64) {
    out += sentence(element<std::uint64_t>(tensor, index));
  } else {
    out += sentence(static_cast<std::int64_t>(tensor.number(index)));
  }
}

void append_json_tensor(std::string& out, const AnyTensor& tensor) {
  std::size_t index = 0;
  append_rows(out, tensor, 0, index);
}

}  // namespace attest::io
