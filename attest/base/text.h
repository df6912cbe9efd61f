// SPDX-License-Identifier: MIT
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace attest {

/// The shortest decimal text that reads back as the same binary64 number: "0.1", "1e+300", "-inf".
/// NaN is "nan". Integers print without a point.
[[nodiscard]] std::string shortest(double value);

/// As `shortest`, but a whole number keeps ".0" so that a reader sees a floating-point number.
[[nodiscard]] std::string shortest_with_point(double value);

/// Rounded to three digits: enough for an error, or for what is used of a bound.
[[nodiscard]] std::string three_digits(double value);

namespace detail {

inline void append(std::string& out, std::string_view part) { out.append(part); }
inline void append(std::string& out, const char* part) { out.append(part); }
inline void append(std::string& out, char part) { out.push_back(part); }
inline void append(std::string& out, double part) { out.append(shortest(part)); }

template <std::integral I>
requires(!std::same_as<I, char> && !std::same_as<I, bool>) void append(std::string& out, I part) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, part).ptr;
  out.append(digits, end);
}

}  // namespace detail

/// Joins texts and numbers into one sentence: `sentence("query has ", rows, " rows")`.
template <class... Parts>
[[nodiscard]] std::string sentence(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

}  // namespace attest
