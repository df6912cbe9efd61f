// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "attest/io/zip.h"

// Record layouts and field names: PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16 and 4.5.3.

namespace attest::io {
namespace {

constexpr std::uint32_t saturated32 = 0xFFFFFFFF;
constexpr std::uint16_t saturated16 = 0xFFFF;
constexpr std::uint16_t needs_version_20 = 20;
constexpr std::uint16_t needs_version_45 = 45;  // the one that brought 64-bit records
constexpr std::uint16_t flag_utf8 = 1U << 11U;
constexpr std::uint16_t first_of_january_1980 = 0x21;  // the earliest date that zip can say

void append_u16(Bytes& out, std::uint16_t value) { append_little(out, value); }
void append_u32(Bytes& out, std::uint32_t value) { append_little(out, value); }
void append_u64(Bytes& out, std::uint64_t value) { append_little(out, value); }

bool is_wide(const ZipEntry& entry) { return std::max(entry.size, entry.header_at) >= saturated32; }

/// From "version needed" to the length of the name: the same in both descriptions of an entry.
void append_common(Bytes& out, const ZipEntry& entry, bool wide) {
  append_u16(out, wide ? needs_version_45 : needs_version_20);
  append_u16(out, entry.flags);
  append_u16(out, entry.method);
  append_u16(out, 0);
  append_u16(out, first_of_january_1980);
  append_u32(out, entry.crc);
  append_u32(out, wide ? saturated32 : static_cast<std::uint32_t>(entry.packed_size));
  append_u32(out, wide ? saturated32 : static_cast<std::uint32_t>(entry.size));
  append_u16(out, static_cast<std::uint16_t>(entry.name.size()));
}

}  // namespace

void ZipWriter::add(std::string_view name, ByteSpan content) {
  const bool ascii = std::all_of(name.begin(), name.end(), [](char c) { return (c & 0x80) == 0; });
  ZipEntry entry{.name = std::string(name),
                 .flags = ascii ? std::uint16_t{0} : flag_utf8,
                 .method = zip_stored,
                 .crc = zip_crc(content),
                 .packed_size = content.size(),
                 .size = content.size(),
                 .header_at = out_.size()};
  const bool wide = zip64_ == Zip64::always || is_wide(entry);
  append(out_, as_bytes("PK\x03\x04"));
  append_common(out_, entry, wide);
  append_u16(out_, wide ? 20 : 0);
  append(out_, as_bytes(name));
  if (wide) {
    append_u16(out_, 1);
    append_u16(out_, 16);
    append_u64(out_, entry.size);
    append_u64(out_, entry.packed_size);
  }
  append(out_, content);
  entries_.push_back(std::move(entry));
}

void ZipWriter::append_directory_entry(const ZipEntry& entry) {
  const bool wide = zip64_ == Zip64::always || is_wide(entry);
  append(out_, as_bytes("PK\x01\x02"));
  append_u16(out_, wide ? needs_version_45 : needs_version_20);
  append_common(out_, entry, wide);
  append_u16(out_, wide ? 28 : 0);
  append_u16(out_, 0);  // comment
  append_u16(out_, 0);  // disk
  append_u16(out_, 0);  // internal attributes
  append_u32(out_, 0);  // external attributes
  append_u32(out_, wide ? saturated32 : static_cast<std::uint32_t>(entry.header_at));
  append(out_, as_bytes(entry.name));
  if (wide) {
    append_u16(out_, 1);
    append_u16(out_, 24);
    append_u64(out_, entry.size);
    append_u64(out_, entry.packed_size);
    append_u64(out_, entry.header_at);
  }
}

Bytes ZipWriter::finish() && {
  const std::uint64_t begin = out_.size();
  for (const ZipEntry& entry : entries_) append_directory_entry(entry);
  const std::uint64_t end = out_.size();
  const std::uint64_t count = entries_.size();
  const bool wide = zip64_ == Zip64::always || end >= saturated32 || count >= saturated16;
  if (wide) {
    append(out_, as_bytes("PK\x06\x06"));
    append_u64(out_, 44);  // the rest of this record
    append_u16(out_, needs_version_45);
    append_u16(out_, needs_version_45);
    append_u32(out_, 0);  // this disk
    append_u32(out_, 0);  // the directory's disk
    append_u64(out_, count);
    append_u64(out_, count);
    append_u64(out_, end - begin);
    append_u64(out_, begin);
    append(out_, as_bytes("PK\x06\x07"));
    append_u32(out_, 0);  // the 64-bit record's disk
    append_u64(out_, end);
    append_u32(out_, 1);  // disks
  }
  append(out_, as_bytes("PK\x05\x06"));
  append_u32(out_, 0);  // this disk, the directory's disk
  const std::uint16_t narrow_count = wide ? saturated16 : static_cast<std::uint16_t>(count);
  append_u16(out_, narrow_count);
  append_u16(out_, narrow_count);
  append_u32(out_, wide ? saturated32 : static_cast<std::uint32_t>(end - begin));
  append_u32(out_, wide ? saturated32 : static_cast<std::uint32_t>(begin));
  append_u16(out_, 0);  // comment
  return std::move(out_);
}

}  // namespace attest::io
