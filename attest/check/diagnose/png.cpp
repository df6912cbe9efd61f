// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/png.h"

#include <algorithm>
#include <string_view>

namespace attest::check {
namespace {

void put_big_endian(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>((value >> static_cast<unsigned>(shift)) & 0xFFU));
  }
}

/// The checksum of a chunk: the polynomial of PNG, Annex D.
std::uint32_t crc_of(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t n = 0; n < out.size(); ++n) {
      std::uint32_t c = n;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0xEDB88320U ^ (c >> 1U) : c >> 1U;
      out[n] = c;
    }
    return out;
  }();
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) {
    crc = table[(crc ^ static_cast<std::uint8_t>(byte)) & 0xFFU] ^ (crc >> 8U);
  }
  return crc ^ 0xFFFFFFFFU;
}

/// The checksum of what a zlib stream unpacks to.
std::uint32_t adler_of(std::string_view bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return (b << 16U) | a;
}

void put_chunk(std::string& out, std::string_view type, std::string_view data) {
  put_big_endian(out, static_cast<std::uint32_t>(data.size()));
  const std::string body = std::string(type) + std::string(data);
  out += body;
  put_big_endian(out, crc_of(body));
}

std::string stored(std::string_view raw) {
  std::string out("\x78\x01", 2);
  constexpr std::size_t most = 65535;
  for (std::size_t at = 0; at == 0 || at < raw.size(); at += most) {
    const std::size_t count = std::min(most, raw.size() - at);
    out.push_back(at + count >= raw.size() ? '\1' : '\0');
    for (const std::size_t length : {count, ~count}) {
      out.push_back(static_cast<char>(length & 0xFFU));
      out.push_back(static_cast<char>((length >> 8U) & 0xFFU));
    }
    out += raw.substr(at, count);
  }
  put_big_endian(out, adler_of(raw));
  return out;
}

}  // namespace

std::string png_of(std::span<const std::uint8_t> pixels, std::uint32_t width, std::uint32_t height,
                   std::span<const Colour, 256> palette) {
  std::string raw;
  raw.reserve(pixels.size() + height);
  for (std::size_t row = 0; row < height; ++row) {
    raw.push_back('\0');  // no filter
    for (const std::uint8_t pixel : pixels.subspan(row * width, width)) {
      raw.push_back(static_cast<char>(pixel));
    }
  }
  std::string header;
  put_big_endian(header, width);
  put_big_endian(header, height);
  header += std::string("\x08\x03\0\0\0", 5);  // 8 bits, palette
  std::string colours;
  for (const Colour& colour : palette) {
    for (const std::uint8_t part : colour) colours.push_back(static_cast<char>(part));
  }
  std::string out("\x89PNG\r\n\x1a\n", 8);
  put_chunk(out, "IHDR", header);
  put_chunk(out, "PLTE", colours);
  put_chunk(out, "tRNS", std::string(1, '\0'));
  put_chunk(out, "IDAT", stored(raw));
  put_chunk(out, "IEND", "");
  return out;
}

std::string base64_of(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t n = 0; n < bytes.size(); n += 3) {
    std::uint32_t three = static_cast<std::uint32_t>(bytes[n]) << 16U;
    if (n + 1 < bytes.size()) three |= static_cast<std::uint32_t>(bytes[n + 1]) << 8U;
    if (n + 2 < bytes.size()) three |= bytes[n + 2];
    for (unsigned part = 0; part < 4; ++part) {
      const bool there = n + part <= bytes.size();
      out.push_back(there ? digits[(three >> (18U - 6U * part)) & 63U] : '=');
    }
  }
  return out;
}

}  // namespace attest::check
