// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "attest/io/named_tensors.h"
#include "attest/io/origin.h"
#include "tests/support/file_builders.h"

/// What a test asks about reading a file: refused, and how; or accepted, and what came out.
namespace attest::test {

inline ::testing::AssertionResult same_bits(const AnyTensor& a, const AnyTensor& b) {
  if (a.dtype() != b.dtype()) {
    return ::testing::AssertionFailure() << name_of(a.dtype()) << " and " << name_of(b.dtype());
  }
  if (a.shape() != b.shape()) {
    return ::testing::AssertionFailure() << to_string(a.shape()) << " and " << to_string(b.shape());
  }
  const auto difference = std::mismatch(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
  if (difference.first == a.bytes().end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "byte " << difference.first - a.bytes().begin() << " differs";
}

inline ::testing::AssertionResult same_bits(const io::NamedTensors& a, const io::NamedTensors& b) {
  if (a.metadata != b.metadata) return ::testing::AssertionFailure() << "metadata differ";
  if (a.tensors.size() != b.tensors.size()) {
    return ::testing::AssertionFailure() << a.tensors.size() << " and " << b.tensors.size();
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    if (a.tensors[i].first != b.tensors[i].first) {
      return ::testing::AssertionFailure() << a.tensors[i].first << " and " << b.tensors[i].first;
    }
    if (auto same = same_bits(a.tensors[i].second, b.tensors[i].second); !same) {
      return same << " in " << a.tensors[i].first;
    }
  }
  return ::testing::AssertionSuccess();
}

/// Whether a message is what the design asks of it: "[room] ", then one line of UTF-8.
template <class T>
::testing::AssertionResult fails_politely(const Result<T>& result) {
  const std::string& text = result.failure().message;
  if (!text.empty() && text.front() == '[' && io::is_utf8(text) && !result.failure().id.empty() &&
      text.find_first_of("\r\n\0"sv) == std::string::npos) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "not a message for a reader: '" << text << "'";
}

/// Whether the result is that failure, politely said, with that in its sentence.
template <class T>
::testing::AssertionResult refused(const Result<T>& result, std::string_view id,
                                   std::string_view part = "") {
  if (result) return ::testing::AssertionFailure() << "accepted; expected " << id;
  if (result.failure().id != id) {
    return ::testing::AssertionFailure() << "expected " << id << "; got " << result.failure().id
                                         << ": " << result.failure().message;
  }
  if (result.failure().message.find(part) == std::string::npos) {
    return ::testing::AssertionFailure()
           << "'" << part << "' is not in '" << result.failure().message << "'";
  }
  return fails_politely(result);
}

/// Whether there is a value; the failure's sentence, if not.
template <class T>
::testing::AssertionResult accepted(const Result<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.failure().id << ": " << result.failure().message;
}

}  // namespace attest::test
