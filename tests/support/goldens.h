// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "attest/io/json.h"

/// Recorded values under tests/golden.
namespace attest::test {

inline std::string golden_text(const std::string& name) {
  std::ifstream file(ATTEST_SOURCE_DIR "/tests/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A number, or the word "-inf".
inline double golden_number(const io::Json& json) {
  if (const auto* word = json.string_if(); word != nullptr && *word == "-inf") {
    return -std::numeric_limits<double>::infinity();
  }
  if (const auto* whole = json.integer_if()) return static_cast<double>(*whole);
  if (const auto* number = json.double_if()) return *number;
  ADD_FAILURE() << "no number at byte " << json.offset();
  return 0;
}

inline std::vector<double> golden_numbers(const io::Json* json) {
  std::vector<double> out;
  if (json == nullptr) {
    ADD_FAILURE() << "a member is missing";
    return out;
  }
  for (const io::Json& item : json->items()) out.push_back(golden_number(item));
  return out;
}

}  // namespace attest::test
