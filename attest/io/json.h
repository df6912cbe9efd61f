// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/io/origin.h"

namespace attest::io {

// Failure ids of this header:
//
//   empty-file     no text, or white space alone
//   not-utf-8      a byte that belongs to no UTF-8 sequence, or a byte order mark
//   bad-json       not JSON: the byte where it stops being so
//   truncated      the text ends inside a value
//   duplicate-key  an object names one member twice
//   bad-number     NaN, Infinity, or a number that binary64 cannot hold
//   too-deep       more than 256 values inside one another

/// One JSON value, and the byte of the text where it began.
///
/// Whole numbers keep their kind: 16 is an integer, 16.0 a number, and -0 a number too, because
/// only that keeps its sign. One that int64 cannot hold is a big_integer and keeps its digits, so
/// that a caller can refuse it by name rather than round it.
class Json {
 public:
  enum class Kind { null, boolean, integer, big_integer, number, string, array, object };

  /// The digits of a whole number outside int64.
  struct BigInteger {
    std::string digits;
  };
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;
  using Value = std::variant<std::monostate, bool, std::int64_t, BigInteger, double, std::string,
                             Array, Object>;

  Json();
  Json(Value value, std::size_t offset);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  [[nodiscard]] Kind kind() const noexcept { return static_cast<Kind>(value_.index()); }
  [[nodiscard]] bool is(Kind kind) const noexcept { return this->kind() == kind; }

  /// The byte of the text where this value began.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }

  /// The value, if it is of that kind; otherwise null.
  [[nodiscard]] const bool* boolean_if() const noexcept { return std::get_if<bool>(&value_); }
  [[nodiscard]] const std::int64_t* integer_if() const noexcept {
    return std::get_if<std::int64_t>(&value_);
  }
  [[nodiscard]] const BigInteger* big_integer_if() const noexcept {
    return std::get_if<BigInteger>(&value_);
  }
  [[nodiscard]] const double* double_if() const noexcept { return std::get_if<double>(&value_); }
  [[nodiscard]] const std::string* string_if() const noexcept {
    return std::get_if<std::string>(&value_);
  }

  /// The elements of an array; none for other kinds.
  [[nodiscard]] std::span<const Json> items() const noexcept;
  /// The members of an object, in the order of the text; none for other kinds.
  [[nodiscard]] std::span<const Member> members() const noexcept;
  /// The member of that name, or null. Cost: a walk along the members.
  [[nodiscard]] const Json* find(std::string_view name) const noexcept;

  /// For building a tree: the array or object inside. To be called only for that kind.
  [[nodiscard]] Array& array() noexcept { return *std::get_if<Array>(&value_); }
  [[nodiscard]] Object& object() noexcept { return *std::get_if<Object>(&value_); }

 private:
  Value value_;
  std::size_t offset_ = 0;
};

struct Json::Member {
  std::string name;
  std::size_t name_offset = 0;
  Json value;
};

/// "a boolean", "an array" …, for messages.
[[nodiscard]] std::string_view name_of(Json::Kind kind) noexcept;

/// Arrays and objects inside one another, at most; also what bounds recursion over a tree.
inline constexpr std::size_t json_depth_limit = 256;

/// Parses one JSON value (RFC 8259) and nothing after it but white space.
///
/// Edge cases    comments, NaN, Infinity, duplicate names, a byte order mark and a NUL byte are
///               refused; 1e-999 is 0, as IEEE 754 rounds it, and 1e999 is refused.
/// Cost          at most 48 bytes of tree for each byte of text.
[[nodiscard]] Result<Json> parse_json(std::string_view text, std::string_view source_name);

/// The same for JSON inside another file: messages speak for `origin` and count bytes from
/// `first_byte`, where the text stands in that file.
[[nodiscard]] Result<Json> parse_json(std::string_view text, const Origin& origin,
                                      std::size_t first_byte);

/// Appends a string literal. Bytes that are not UTF-8 become U+FFFD: the result is always JSON.
void append_json_string(std::string& out, std::string_view text);

/// Appends a number in the shortest form that reads back to the same bits, with a point: 2.0, 0.1.
/// JSON has no infinities and no NaN; they become the strings "inf", "-inf" and "nan".
void append_json_number(std::string& out, double value);

/// Appends one element: integers without a point, booleans as true and false.
void append_json_element(std::string& out, const AnyTensor& tensor, std::size_t index);

/// Appends nested arrays, the last axis innermost: [[1.0, 2.0], [3.0, 4.0]]. Rank 0 is a number.
void append_json_tensor(std::string& out, const AnyTensor& tensor);

}  // namespace attest::io
