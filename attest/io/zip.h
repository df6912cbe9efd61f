// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attest/io/bytes.h"
#include "attest/io/origin.h"

namespace attest::io {

// Failure ids of this header:
//
//   truncated          no end record: the end of the archive is missing
//   bad-zip            a record that does not say what the format asks for
//   zip-overlap        two entries share bytes, or an entry reaches into the directory
//   zip-hole           bytes that belong to no entry
//   zip-disagrees      the entry and the directory say different things about it
//   zip-encrypted      an entry that needs a password
//   zip-method         packed by something other than "stored" or "deflate"
//   duplicate-key      two entries of one name
//   not-utf-8          a name that is not UTF-8
//   bad-name           a name with a NUL byte in it
//   size-mismatch      an entry unpacks to more or fewer bytes than it claims
//   crc-mismatch       the bytes are not those that were packed
//   bad-deflate        the packed bytes are not a deflate stream

/// An entry of a zip archive, as the central directory and the entry's own header both state it.
struct ZipEntry {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header_at = 0;  ///< where the entry's own header begins
  std::uint64_t data_at = 0;    ///< where its packed bytes begin
};

inline constexpr std::uint16_t zip_stored = 0;
inline constexpr std::uint16_t zip_deflate = 8;

/// The entries of the archive, in the order of its directory; nothing is unpacked.
///
/// Format        zip with zip64 records and data descriptors; one disk, no encryption.
/// Edge cases    every byte of the file belongs to exactly one record, and the two descriptions of
///               an entry agree, or the archive is refused: where readers could see different files
///               in one archive, there is nothing to load.
[[nodiscard]] Result<std::vector<ZipEntry>> read_zip_directory(ByteSpan bytes,
                                                               const Origin& origin);

/// The entry's bytes, unpacked and checked against its size and CRC-32. Memory grows with what
/// really comes out, up to the claimed size; bounding that is the caller's business.
[[nodiscard]] Result<Bytes> unpack_zip_entry(ByteSpan archive, const ZipEntry& entry,
                                             const Origin& origin);

/// The CRC-32 that zip stores for these bytes.
[[nodiscard]] std::uint32_t zip_crc(ByteSpan bytes) noexcept;

/// When the writer uses 64-bit records: where the numbers need them, or everywhere.
enum class Zip64 { when_needed, always };

/// Writes an archive of stored entries. The same entries give the same bytes: no clock is asked.
class ZipWriter {
 public:
  explicit ZipWriter(Zip64 zip64 = Zip64::when_needed) : zip64_(zip64) {}

  /// The name must be UTF-8 of less than 65536 bytes.
  void add(std::string_view name, ByteSpan content);

  [[nodiscard]] Bytes finish() &&;

 private:
  void append_directory_entry(const ZipEntry& entry);

  Zip64 zip64_;
  Bytes out_;
  std::vector<ZipEntry> entries_;
};

}  // namespace attest::io
