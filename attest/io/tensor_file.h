// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attest/io/bytes.h"
#include "attest/io/named_tensors.h"
#include "attest/io/npz.h"

namespace attest::io {

// Failure ids of this header, beside those of the format's own header and of sniff.h:
//
//   unknown-format  (reading) none of the four formats; (writing) another extension than theirs
//   not-one-tensor  (writing) an npy file holds exactly one tensor

enum class TensorFormat { safetensors, npz, npy, json };

/// "safetensors", "npz", "npy", "json".
[[nodiscard]] std::string_view name_of(TensorFormat format) noexcept;

/// The format that the bytes show, whatever the file is called; nothing if they show none.
[[nodiscard]] std::optional<TensorFormat> format_of_content(ByteSpan bytes) noexcept;

/// The format that belongs to the path's extension, in either case.
[[nodiscard]] std::optional<TensorFormat> format_of_path(std::string_view path) noexcept;

struct TensorFileOptions {
  NpzLimits npz = {};
  ReadLimits stream = {};
  /// What a file's only tensor is called where the format has no names (npy, a JSON array). Empty:
  /// the file's name without folder and extension, or "tensor" for standard input.
  std::string single_name = {};
};

/// Reads a file of tensors; "-" is standard input. A folder is read as the .npy files in it, each a
/// tensor of its file's name.
///
/// The content says which format it is, and only where it says nothing the extension. A file that
/// is something else (a web page, a Git-LFS pointer, a torch.save file …) is refused with the way
/// out.
[[nodiscard]] Result<NamedTensors> read_tensors(const std::string& path,
                                                const TensorFileOptions& options = {});

/// The same for bytes that are already in memory.
[[nodiscard]] Result<NamedTensors> parse_tensors(ByteSpan bytes, const std::string& source_name,
                                                 const TensorFileOptions& options = {});

/// Writes the format that belongs to the extension: .safetensors, .npz, .npy (exactly one tensor)
/// or .json. The file appears whole or not at all.
[[nodiscard]] Result<void> write_tensors(const std::string& path, const NamedTensors& tensors);

[[nodiscard]] Result<Bytes> serialize_tensors(TensorFormat format, const NamedTensors& tensors);

}  // namespace attest::io
