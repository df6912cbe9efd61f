// SPDX-License-Identifier: MIT
#include "attest/base/text.h"

namespace attest {

std::string shortest(double value) {
  if (value != value) return "nan";  // std::to_chars prints the sign of a NaN, which means nothing
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return {digits, end};
}

std::string shortest_with_point(double value) {
  std::string text = shortest(value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string three_digits(double value) {
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 3).ptr;
  return {digits, end};
}

}  // namespace attest
