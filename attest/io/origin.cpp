// SPDX-License-Identifier: MIT
#include "attest/io/origin.h"

#include <algorithm>
#include <cstdint>

namespace attest::io {
namespace {

/// A lead byte of UTF-8: how long its sequence is and which second bytes may follow. The second
/// byte's range is what excludes overlong forms, surrogates and code points past U+10FFFF.
struct Lead {
  std::size_t length = 0;  // 0: no sequence begins with this byte
  unsigned second_low = 0x80;
  unsigned second_high = 0xBF;
};

Lead lead_of(unsigned byte) noexcept {
  if (byte < 0x80) return {.length = 1};
  if (byte >= 0xC2 && byte <= 0xDF) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_low = 0x90};
  if (byte == 0xF4) return {.length = 4, .second_high = 0x8F};
  if (byte >= 0xF1 && byte <= 0xF3) return {.length = 4};
  return {};
}

unsigned byte_at(std::string_view text, std::size_t index) noexcept {
  return static_cast<unsigned char>(text[index]);
}

/// The length of the sequence that begins the text, or 0 if none well-formed does.
std::size_t sequence_length(std::string_view text) noexcept {
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.length == 0 || lead.length > text.size()) return 0;
  if (lead.length == 1) return 1;
  const unsigned second = byte_at(text, 1);
  if (second < lead.second_low || second > lead.second_high) return 0;
  for (std::size_t i = 2; i < lead.length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80U) return 0;
  }
  return lead.length;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return at;
}

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 160;
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    if (out.size() >= longest) return out + "…";
    const unsigned byte = byte_at(text, at);
    const std::size_t length = sequence_length(text.substr(at));
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', hex[byte >> 4U], hex[byte & 15U]};
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) { return "'" + printable(text) + "'"; }

}  // namespace attest::io
