// SPDX-License-Identifier: MIT
#include "attest/io/sniff.h"

#include <array>
#include <cctype>

namespace attest::io {
namespace {

struct Signature {
  std::string_view first_bytes;
  std::string_view id;
  std::string_view what;
};

using namespace std::string_view_literals;

constexpr std::array<Signature, 10> signatures{{
    {"version https://git-lfs", "lfs-pointer",
     "is a Git-LFS pointer, not the file itself; fetch it with: git lfs pull"},
    {"\x1f\x8b"sv, "gzip-file", "is compressed with gzip; unpack it first"},
    {"\x80\x02\x8a\x0a"sv, "torch-file",
     "is a torch.save file (a pickle, which can run code when read); save it as safetensors"},
    {"\x80\x02"sv, "pickle-file", "is a Python pickle, which can run code when read"},
    {"\x80\x03"sv, "pickle-file", "is a Python pickle, which can run code when read"},
    {"\x80\x04"sv, "pickle-file", "is a Python pickle, which can run code when read"},
    {"\x80\x05"sv, "pickle-file", "is a Python pickle, which can run code when read"},
    {"\x89HDF\r\n"sv, "other-format", "is an HDF5 file"},
    {"GGUF"sv, "other-format", "is a GGUF file"},
    {"\x93NUMPY"sv, "other-format", "is an npy file"},
}};

/// Whether the text begins, after white space, with a tag. No tensor format does.
bool is_page(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '<' || first + 1 == text.size()) {
    return false;
  }
  const char next = text[first + 1];
  return next == '!' || next == '?' || std::isalpha(static_cast<unsigned char>(next)) != 0;
}

/// torch.save writes a zip whose first entry is "<name>/data.pkl"; the name stands at byte 30.
bool is_torch_zip(std::string_view text) noexcept {
  constexpr std::size_t name_at = 30;
  if (text.size() <= name_at) return false;
  return text.substr(name_at, 256).find("/data.pkl") != std::string_view::npos;
}

}  // namespace

std::optional<Failure> recognise_stranger(ByteSpan bytes, const Origin& origin) {
  const std::string_view text = as_text(bytes);
  if (text.empty()) return origin.refuse("empty-file", "is empty");
  if (is_page(text)) {
    return origin.refuse("html-page", "looks like an HTML page; the download gave a web page, ",
                         "perhaps an error or a login, instead of the file");
  }
  if (begins_with(bytes, "PK\x03\x04")) {
    if (is_torch_zip(text)) {
      return origin.refuse("torch-file", "is a torch.save file (a zip with a pickle, which can ",
                           "run code when read); save it as safetensors");
    }
    return origin.refuse("other-format", "is a zip archive, perhaps an npz file");
  }
  for (const Signature& signature : signatures) {
    if (begins_with(bytes, signature.first_bytes)) {
      return origin.refuse(signature.id, signature.what);
    }
  }
  return std::nullopt;
}

}  // namespace attest::io
