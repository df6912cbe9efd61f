// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"

namespace attest::io {

// Failure ids of this header:
//
//   no-such-file    nothing is there
//   is-a-directory  a folder, where a file was meant
//   bad-path        an empty path, or one with a NUL byte in it
//   cannot-read     the system refuses; the message ends with its reason
//   cannot-write    likewise; whatever was at the path before is still there, whole
//   over-limit      a pipe or device gave more than ReadLimits allows

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

/// For pipes, devices and standard input, whose length nobody knows.
struct ReadLimits {
  std::uint64_t max_stream_bytes = std::uint64_t{16} << 30U;  ///< where reading stops
  /// Looks at the beginning before all the rest is waited for; a failure ends the reading.
  std::function<Result<void>(ByteSpan)> look{};
};

/// The whole file; "-" is standard input. Pipes work too; memory grows with what really arrives.
[[nodiscard]] Result<Bytes> read_file(const std::string& path, const ReadLimits& limits = {});

/// Writes beside the path, flushes to the disk, then renames: after a crash or a full disk the path
/// holds the old bytes or the new ones, never a part. "-" is standard output; an existing pipe or
/// device is written straight to, a symbolic link is followed, and the old file's mode is kept.
[[nodiscard]] Result<void> write_file(const std::string& path, ByteSpan bytes);

/// The bytes as text, not copied.
[[nodiscard]] inline std::string_view as_text(ByteSpan bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
[[nodiscard]] inline ByteSpan as_bytes(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}
[[nodiscard]] inline bool begins_with(ByteSpan bytes, std::string_view prefix) noexcept {
  return as_text(bytes).substr(0, prefix.size()) == prefix;
}
inline void append(Bytes& out, ByteSpan more) { out.insert(out.end(), more.begin(), more.end()); }

/// The unsigned integer that begins at byte `at`, lowest byte first; the bytes must be there.
template <std::unsigned_integral U>
[[nodiscard]] U load_little(ByteSpan bytes, std::size_t at) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(U); i-- > 0;) {
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[at + i]);
  }
  return static_cast<U>(value);
}

/// Appends the value, lowest byte first.
template <std::unsigned_integral U>
void append_little(Bytes& out, U value) {
  for (std::size_t i = 0; i < sizeof(U); ++i) {
    out.push_back(static_cast<std::byte>(std::uint64_t{value} >> (8 * i) & 0xFFU));
  }
}

/// Reverses the bytes of each element: big-endian to little-endian and back.
inline void reverse_each(std::span<std::byte> bytes, std::size_t width) noexcept {
  if (width < 2) return;
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + width));
  }
}

/// Between the host's byte order and the little-endian order of files; nothing to do on most hosts.
inline void host_to_little(std::span<std::byte> bytes, std::size_t width) noexcept {
  if constexpr (std::endian::native == std::endian::big) reverse_each(bytes, width);
}

/// The index of the first byte that is neither 0 nor 1, or the size: what a boolean tensor in a
/// file is checked with, because any other byte in a C++ bool is undefined behaviour.
[[nodiscard]] inline std::size_t first_not_boolean(ByteSpan bytes) noexcept {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte byte) { return byte > std::byte{1}; });
  return static_cast<std::size_t>(bad - bytes.begin());
}

}  // namespace attest::io
