// SPDX-License-Identifier: MIT
#include "attest/io/npz.h"

#include <limits>
#include <utility>

#include "attest/io/npy.h"
#include "attest/io/sniff.h"
#include "attest/io/zip.h"

namespace attest::io {
namespace {

constexpr std::string_view suffix = ".npy";

Result<void> check_is_zip(ByteSpan bytes, const Origin& origin) {
  // An archive without entries begins with its end record.
  if (begins_with(bytes, "PK\x03\x04") || begins_with(bytes, "PK\x05\x06") ||
      begins_with(bytes, "PK\x06\x06")) {
    return {};
  }
  if (auto stranger = recognise_stranger(bytes, origin)) return *std::move(stranger);
  return origin.refuse("not-an-npz-file", "does not begin like a zip archive");
}

Result<void> check_name(const ZipEntry& entry, const Origin& origin) {
  if (entry.name.ends_with("data.pkl")) {
    return origin.refuse("torch-file", "is a torch.save file (entry ", in_quotes(entry.name),
                         " is a pickle, which can run code when read); save it as safetensors");
  }
  if (entry.name.ends_with(suffix)) return {};
  return origin.refuse("not-an-array", "entry ", in_quotes(entry.name),
                       " is not an array: its name does not end in .npy");
}

/// Judges what the entries claim, before any of it is believed.
Result<void> check_claims(const std::vector<ZipEntry>& entries, const NpzLimits& limits,
                          const Origin& origin) {
  std::uint64_t total = 0;
  for (const ZipEntry& entry : entries) {
    // Divided, not multiplied: the product could wrap.
    if (entry.method != zip_stored && entry.size > 0 &&
        (entry.size - 1) / limits.max_ratio >= entry.packed_size) {
      return origin.refuse("zip-bomb", "entry ", in_quotes(entry.name), " claims ", entry.size,
                           " bytes from ", entry.packed_size, ", more than ", limits.max_ratio,
                           " to 1");
    }
    if (entry.size > limits.max_total_bytes - total) {
      return origin.refuse("over-limit", "unpacks to more than the limit of ",
                           limits.max_total_bytes, " bytes, with entry ", in_quotes(entry.name),
                           " of ", entry.size, " bytes; raise the limit if that is meant");
    }
    total += entry.size;
  }
  return {};
}

}  // namespace

Result<NamedTensors> parse_npz(ByteSpan bytes, std::string_view source_name,
                               const NpzLimits& limits) {
  const Origin origin{"npz", source_name};
  if (auto checked = check_is_zip(bytes, origin); !checked) return checked.failure();
  const auto entries = read_zip_directory(bytes, origin);
  if (!entries) return entries.failure();
  for (const ZipEntry& entry : *entries) {
    if (auto checked = check_name(entry, origin); !checked) return checked.failure();
  }
  if (auto checked = check_claims(*entries, limits, origin); !checked) return checked.failure();

  NamedTensors out;
  for (const ZipEntry& entry : *entries) {
    const auto content = unpack_zip_entry(bytes, entry, origin);
    if (!content) return content.failure();
    auto tensor = parse_npy(*content, sentence(source_name, "/", entry.name));
    if (!tensor) return tensor.failure();
    out.add(entry.name.substr(0, entry.name.size() - suffix.size()), *std::move(tensor));
  }
  return out;
}

Result<NamedTensors> read_npz(const std::string& path, const NpzLimits& limits) {
  const auto bytes = read_file(path);
  if (!bytes) return bytes.failure();
  return parse_npz(*bytes, path, limits);
}

Result<Bytes> serialize_npz(const NamedTensors& tensors) {
  const Origin origin{"npz", "(to be written)"};
  if (auto checked = check_names(tensors, origin); !checked) return checked.failure();
  ZipWriter zip;
  for (const auto& [name, tensor] : tensors.tensors) {
    const std::string entry = name + std::string(suffix);
    if (entry.size() > std::numeric_limits<std::uint16_t>::max() ||
        name.find('\0') != std::string::npos) {
      return origin.refuse("bad-name", "a zip entry cannot be called ", in_quotes(entry));
    }
    const auto content = serialize_npy(tensor);
    if (!content) return content.failure();
    zip.add(entry, *content);
  }
  return std::move(zip).finish();
}

Result<void> write_npz(const std::string& path, const NamedTensors& tensors) {
  const auto bytes = serialize_npz(tensors);
  if (!bytes) return bytes.failure();
  return write_file(path, *bytes);
}

}  // namespace attest::io
