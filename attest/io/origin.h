// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attest/base/error.h"
#include "attest/base/text.h"

namespace attest::io {

/// How many leading bytes of `text` are well-formed UTF-8: no overlong form, no surrogate, nothing
/// past U+10FFFF. All of them, if the text is UTF-8.
[[nodiscard]] std::size_t valid_utf8_prefix(std::string_view text) noexcept;

[[nodiscard]] inline bool is_utf8(std::string_view text) noexcept {
  return valid_utf8_prefix(text) == text.size();
}

/// Text from a file as a message may show it: control characters and bytes that are not UTF-8
/// become \x0a, and a long text is cut. A message stays one line whatever a file holds.
[[nodiscard]] std::string printable(std::string_view text);

/// `printable` in single quotes.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Which reader speaks, and about which file: the beginning of every message of this room.
struct Origin {
  std::string_view format;  ///< "safetensors", "npy", …
  std::string_view source;  ///< the path, or what the caller calls the bytes

  /// "[safetensors] model.safetensors: " and then the parts.
  template <class... Parts>
  [[nodiscard]] Failure refuse(std::string_view id, const Parts&... parts) const {
    return failure(ErrorKind::file, id, parts...);
  }
  /// The same for what is wrong with a number type rather than with the file.
  template <class... Parts>
  [[nodiscard]] Failure refuse_type(std::string_view id, const Parts&... parts) const {
    return failure(ErrorKind::type, id, parts...);
  }
  template <class... Parts>
  [[nodiscard]] Failure failure(ErrorKind kind, std::string_view id, const Parts&... parts) const {
    return {kind, std::string(id), sentence("[", format, "] ", printable(source), ": ", parts...)};
  }
};

}  // namespace attest::io
