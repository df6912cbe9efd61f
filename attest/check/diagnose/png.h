// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace attest::check {

using Colour = std::array<std::uint8_t, 3>;

/// A PNG file of one byte a pixel, row by row, each an entry of the palette; entry 0 is transparent.
///
/// Stored, not compressed: a pixel costs a byte. Sizes of 1 to 65535 each way.
/// Source        PNG (ISO/IEC 15948) sections 5 and 11, with zlib's stored blocks (RFC 1950, 1951).
[[nodiscard]] std::string png_of(std::span<const std::uint8_t> pixels, std::uint32_t width,
                                 std::uint32_t height, std::span<const Colour, 256> palette);

/// RFC 4648, padded.
[[nodiscard]] std::string base64_of(std::span<const std::uint8_t> bytes);

}  // namespace attest::check
