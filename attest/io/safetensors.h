// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "attest/io/bytes.h"
#include "attest/io/named_tensors.h"

namespace attest::io {

// Failure ids of this header, beside those of bytes.h, sniff.h and json.h (which also judges the
// header: "duplicate-key", "bad-json", …):
//
//   not-a-safetensors-file  the header is empty or does not begin with '{'
//   header-too-long         the header's length reaches past the end of the file
//   bad-entry               an entry lacks a field, has an unknown one, or one of the wrong kind
//   bad-offsets             data_offsets is not two non-negative integers, the first not greater
//   bad-shape               an extent is not a non-negative integer, or the product does not fit
//   unsupported-dtype       a dtype that attest has no number type for (kind: type)
//   size-mismatch           the offsets give another number of bytes than shape and dtype need
//   truncated               a tensor ends past the end of the payload
//   offsets-alias           two tensors claim the same bytes
//   offsets-overlap         two tensors share some bytes
//   offsets-hole            bytes between two tensors, or before the first, belong to none
//   trailing-bytes          bytes after the last tensor belong to none
//   bad-boolean             a byte of a BOOL tensor is neither 0 nor 1
//   bad-metadata            __metadata__ is not an object of strings
//   bad-name                (writing) a tensor called __metadata__, which the format keeps

/// Reads a safetensors file from memory.
///
/// Format        8 bytes: the header's length N, little-endian; N bytes: a JSON object,
///               spaces after it allowed; then the payload. An entry is {"dtype", "shape",
///               "data_offsets"}, the offsets counted from the start of the payload.
/// Dtypes        F64 F32 F16 BF16 BOOL I64 I32 I16 I8 U64 U32 U16 U8.
/// Edge cases    every byte of the payload belongs to exactly one tensor, or the file is refused;
///               the entries may stand in any order, which is kept; extents of 0 are fine.
/// Cost          one copy of the payload; nothing is allocated for a size that the file does not
///               have. The header's length has no limit but the file's.
/// See also      serialize_safetensors, read_tensors
[[nodiscard]] Result<NamedTensors> parse_safetensors(ByteSpan bytes, std::string_view source_name);

/// Whether the bytes begin as a safetensors file does: a length, then '{' at byte 8. Text does not:
/// its first eight bytes, read as a length, are at least 2^56, since none of them is NUL.
[[nodiscard]] bool looks_like_safetensors(ByteSpan bytes) noexcept;

[[nodiscard]] Result<NamedTensors> read_safetensors(const std::string& path);

/// The bytes of a file. The entries keep their order; in the payload wider dtypes come first, so
/// that each tensor begins at a multiple of its element's size. Equal tensors give equal bytes.
[[nodiscard]] Result<Bytes> serialize_safetensors(const NamedTensors& tensors);

[[nodiscard]] Result<void> write_safetensors(const std::string& path, const NamedTensors& tensors);

}  // namespace attest::io
