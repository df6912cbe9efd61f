// SPDX-License-Identifier: MIT
#include "attest/io/tensor_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "attest/io/json_tensors.h"
#include "attest/io/npy.h"
#include "attest/io/safetensors.h"
#include "attest/io/sniff.h"

namespace attest::io {
namespace {

constexpr std::array formats{TensorFormat::safetensors, TensorFormat::npz, TensorFormat::npy,
                             TensorFormat::json};

constexpr std::string_view standard_input = "standard input";

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

std::string name_for_single(const std::string& source_name, const TensorFileOptions& options) {
  if (!options.single_name.empty()) return options.single_name;
  const std::string_view name = file_name(source_name);
  const std::string_view stem = name.substr(0, name.find_last_of('.'));
  return stem.empty() || stem == standard_input || !is_utf8(stem) ? "tensor" : std::string(stem);
}

Result<NamedTensors> parse_as(TensorFormat format, ByteSpan bytes, const std::string& source_name,
                              const TensorFileOptions& options) {
  switch (format) {
    case TensorFormat::safetensors:
      return parse_safetensors(bytes, source_name);
    case TensorFormat::npz:
      return parse_npz(bytes, source_name, options.npz);
    case TensorFormat::json:
      return parse_json_tensors(as_text(bytes), source_name, name_for_single(source_name, options));
    case TensorFormat::npy:
      break;
  }
  auto tensor = parse_npy(bytes, source_name);
  if (!tensor) return tensor.failure();
  NamedTensors out;
  out.add(name_for_single(source_name, options), *std::move(tensor));
  return out;
}

/// Whether the first bytes or the name say what it is.
Result<void> format_known(ByteSpan begin, const std::string& source_name) {
  if (format_of_content(begin)) return {};
  const Origin origin{"file", source_name};
  if (auto stranger = recognise_stranger(begin, origin)) return *std::move(stranger);
  if (format_of_path(source_name)) return {};
  return origin.refuse("unknown-format",
                       "is none of the formats that can be read: safetensors, npz, npy, JSON");
}

/// Every .npy file of a folder, in the order of their names, each a tensor called as its file.
Result<NamedTensors> read_folder(const std::string& path, const TensorFileOptions& options) {
  namespace files = std::filesystem;
  std::vector<files::path> found;
  std::error_code error;
  for (files::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (format_of_path(at->path().string()) == TensorFormat::npy) found.push_back(at->path());
  }
  const Origin origin{"file", path};
  if (error) return origin.refuse("cannot-read", "is a folder that cannot be listed");
  if (found.empty()) return origin.refuse("is-a-directory", "is a folder without .npy files");
  std::ranges::sort(found);
  NamedTensors out;
  for (const files::path& file : found) {
    const auto bytes = read_file(file.string(), options.stream);
    if (!bytes) return bytes.failure();
    auto tensor = parse_npy(*bytes, file.string());
    if (!tensor) return tensor.failure();
    out.add(name_for_single(file.string(), {}), *std::move(tensor));
  }
  return out;
}

}  // namespace

std::string_view name_of(TensorFormat format) noexcept {
  switch (format) {
    case TensorFormat::safetensors:
      return "safetensors";
    case TensorFormat::npz:
      return "npz";
    case TensorFormat::npy:
      return "npy";
    case TensorFormat::json:
      return "json";
  }
  return "unknown";
}

std::optional<TensorFormat> format_of_content(ByteSpan bytes) noexcept {
  if (begins_with(bytes, "PK\x03\x04") || begins_with(bytes, "PK\x05\x06") ||
      begins_with(bytes, "PK\x06\x06")) {
    return TensorFormat::npz;
  }
  if (begins_with(bytes, "\x93NUMPY")) return TensorFormat::npy;
  if (looks_like_safetensors(bytes)) return TensorFormat::safetensors;
  const std::string_view text = as_text(bytes);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
  return json ? std::optional(TensorFormat::json) : std::nullopt;
}

std::optional<TensorFormat> format_of_path(std::string_view path) noexcept {
  const std::string_view name = file_name(path);
  const std::size_t dot = name.find_last_of('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view extension = name.substr(dot + 1);
  for (const TensorFormat format : formats) {
    const std::string_view wanted = name_of(format);
    const bool same =
        std::equal(extension.begin(), extension.end(), wanted.begin(), wanted.end(),
                   [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
    if (same) return format;
  }
  return std::nullopt;
}

Result<NamedTensors> parse_tensors(ByteSpan bytes, const std::string& source_name,
                                   const TensorFileOptions& options) {
  if (const auto format = format_of_content(bytes)) {
    return parse_as(*format, bytes, source_name, options);
  }
  if (auto known = format_known(bytes, source_name); !known) return known.failure();
  return parse_as(*format_of_path(source_name), bytes, source_name, options);
}

Result<NamedTensors> read_tensors(const std::string& path, const TensorFileOptions& options) {
  std::error_code unknown;
  if (path != "-" && std::filesystem::is_directory(path, unknown)) {
    return read_folder(path, options);
  }
  const std::string source_name = path == "-" ? std::string(standard_input) : path;
  ReadLimits limits = options.stream;
  limits.look = [&](ByteSpan begin) { return format_known(begin, source_name); };
  const auto bytes = read_file(path, limits);
  if (!bytes) return bytes.failure();
  return parse_tensors(*bytes, source_name, options);
}

Result<Bytes> serialize_tensors(TensorFormat format, const NamedTensors& tensors) {
  switch (format) {
    case TensorFormat::safetensors:
      return serialize_safetensors(tensors);
    case TensorFormat::npz:
      return serialize_npz(tensors);
    case TensorFormat::json: {
      const auto text = serialize_json_tensors(tensors);
      if (!text) return text.failure();
      const ByteSpan bytes = as_bytes(*text);
      return Bytes(bytes.begin(), bytes.end());
    }
    case TensorFormat::npy:
      break;
  }
  if (tensors.tensors.size() != 1) {
    return Origin{"npy", "(to be written)"}.refuse(
        "not-one-tensor", "an npy file holds exactly one tensor, not ", tensors.tensors.size(),
        "; write npz or safetensors");
  }
  return serialize_npy(tensors.tensors.front().second);
}

Result<void> write_tensors(const std::string& path, const NamedTensors& tensors) {
  const auto format = format_of_path(path);
  if (!format) {
    return Origin{"file", path}.refuse(
        "unknown-format",
        "the extension says no format that can be written: ", ".safetensors, .npz, .npy or .json");
  }
  const auto bytes = serialize_tensors(*format, tensors);
  if (!bytes) return bytes.failure();
  return write_file(path, *bytes);
}

}  // namespace attest::io
