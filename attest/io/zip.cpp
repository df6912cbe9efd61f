// SPDX-License-Identifier: MIT
#include "attest/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

// Record layouts and field names: PKWARE's APPNOTE.TXT, sections 4.3.7 to 4.3.16 and 4.5.3.

namespace attest::io {
namespace {

constexpr std::string_view local_signature = "PK\x03\x04";
constexpr std::string_view descriptor_signature = "PK\x07\x08";
constexpr std::string_view directory_signature = "PK\x01\x02";
constexpr std::string_view end_signature = "PK\x05\x06";
constexpr std::string_view end64_signature = "PK\x06\x06";
constexpr std::string_view locator64_signature = "PK\x06\x07";

constexpr std::size_t local_size = 30;
constexpr std::size_t directory_size = 46;
constexpr std::size_t end_size = 22;
constexpr std::size_t end64_size = 56;
constexpr std::size_t locator64_size = 20;

// A 16 or 32-bit field of all ones says: look into the 64-bit record.
constexpr std::uint16_t saturated16 = 0xFFFF;
constexpr std::uint32_t saturated32 = 0xFFFFFFFF;
constexpr std::uint16_t zip64_extra = 1;

constexpr std::uint16_t flag_encrypted = 1U << 0U;
constexpr std::uint16_t flag_descriptor = 1U << 3U;
constexpr std::uint16_t flag_utf8 = 1U << 11U;
constexpr std::uint16_t flags_understood = flag_descriptor | flag_utf8 | 0b110U;  // 1, 2: speed

/// Where the central directory lies and how many entries it has.
struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t count = 0;
};

std::uint16_t u16(ByteSpan bytes, std::size_t at) { return load_little<std::uint16_t>(bytes, at); }
std::uint32_t u32(ByteSpan bytes, std::size_t at) { return load_little<std::uint32_t>(bytes, at); }
std::uint64_t u64(ByteSpan bytes, std::size_t at) { return load_little<std::uint64_t>(bytes, at); }

std::string_view method_name(std::uint16_t method) {
  switch (method) {
    case 9:
      return "Deflate64";
    case 12:
      return "bzip2";
    case 14:
      return "LZMA";
    case 93:
      return "Zstandard";
    case 95:
      return "xz";
    case 98:
      return "PPMd";
    case 99:
      return "AES encryption";
    default:
      return "an unknown method";
  }
}

/// The end record: the last one whose comment reaches exactly to the end of the file.
std::optional<std::size_t> find_end(ByteSpan bytes) {
  if (bytes.size() < end_size) return std::nullopt;
  const std::size_t last = bytes.size() - end_size;
  const std::size_t longest_comment = std::numeric_limits<std::uint16_t>::max();
  const std::size_t first = last - std::min(last, longest_comment);
  for (std::size_t at = last + 1; at-- > first;) {
    if (begins_with(bytes.subspan(at), end_signature) && u16(bytes, at + 20) == last - at) {
      return at;
    }
  }
  return std::nullopt;
}

/// What the 64-bit end record says, if the locator before the end record leads to one.
Result<Directory> read_end64(ByteSpan bytes, std::size_t locator, const Origin& origin) {
  const std::uint64_t at = u64(bytes, locator + 8);
  if (u32(bytes, locator + 4) != 0 || u32(bytes, locator + 16) > 1) {
    return origin.refuse("bad-zip", "byte ", locator, ": the archive is split over several disks");
  }
  if (locator < end64_size || at > locator - end64_size ||
      !begins_with(bytes.subspan(at), end64_signature) || u64(bytes, at + 4) != locator - at - 12) {
    return origin.refuse("bad-zip", "byte ", locator, ": leads to no 64-bit end record");
  }
  if (u32(bytes, at + 16) != 0 || u32(bytes, at + 20) != 0 ||
      u64(bytes, at + 24) != u64(bytes, at + 32)) {
    return origin.refuse("bad-zip", "byte ", at, ": the archive is split over several disks");
  }
  Directory directory{.begin = u64(bytes, at + 48), .end = at, .count = u64(bytes, at + 24)};
  if (directory.begin > at || u64(bytes, at + 40) != at - directory.begin) {
    return origin.refuse("bad-zip", "byte ", at, ": the directory does not end where it should");
  }
  return directory;
}

/// Finds the central directory, which must end exactly where the end records begin.
Result<Directory> find_directory(ByteSpan bytes, const Origin& origin) {
  const auto end = find_end(bytes);
  if (!end) {
    return origin.refuse("truncated",
                         "has no end record, so its end is missing (an incomplete download?)");
  }
  const std::uint64_t disk = u32(bytes, *end + 4);
  const std::uint16_t count = u16(bytes, *end + 10);
  const std::uint32_t size = u32(bytes, *end + 12);
  const std::uint32_t begin = u32(bytes, *end + 16);
  if (disk != 0 || u16(bytes, *end + 8) != count) {
    return origin.refuse("bad-zip", "byte ", *end, ": the archive is split over several disks");
  }
  Directory directory{.begin = begin, .end = *end, .count = count};
  if (*end >= locator64_size &&
      begins_with(bytes.subspan(*end - locator64_size), locator64_signature)) {
    auto wide = read_end64(bytes, *end - locator64_size, origin);
    if (!wide) return wide;
    if ((count != saturated16 && count != wide->count) ||
        (begin != saturated32 && begin != wide->begin) ||
        (size != saturated32 && size != wide->end - wide->begin)) {
      return origin.refuse("zip-disagrees", "byte ", *end, ": the two end records disagree");
    }
    directory = *wide;
  } else if (begin > *end || size != *end - begin) {
    return origin.refuse("bad-zip", "byte ", *end, ": the directory does not end where it should");
  }
  // Each entry takes at least so much: what bounds every loop over the count.
  if (directory.count > (directory.end - directory.begin) / directory_size) {
    return origin.refuse("bad-zip", "byte ", *end, ": ", directory.count,
                         " entries do not fit into the directory");
  }
  return directory;
}

/// Replaces, in this order, those of the numbers that are saturated by those of the zip64 field.
/// False if there are too few of them, or if the extra fields do not end where they should.
bool widen(ByteSpan extra, std::initializer_list<std::uint64_t*> numbers) {
  ByteSpan wide;
  while (extra.size() >= 4) {
    const std::size_t length = u16(extra, 2);
    if (length > extra.size() - 4) return false;
    if (u16(extra, 0) == zip64_extra) wide = extra.subspan(4, length);
    extra = extra.subspan(4 + length);
  }
  for (std::uint64_t* number : numbers) {
    if (*number != saturated32) continue;
    if (wide.size() < 8) return false;
    *number = u64(wide, 0);
    wide = wide.subspan(8);
  }
  return extra.empty();
}

Result<void> check_entry(const ZipEntry& entry, const Origin& origin) {
  const auto refuse = [&](std::string_view id, const auto&... parts) {
    return origin.refuse(id, "entry ", in_quotes(entry.name), " ", parts...);
  };
  if ((entry.flags & flag_encrypted) != 0) return refuse("zip-encrypted", "is encrypted");
  if ((entry.flags & ~flags_understood) != 0) {
    return refuse("bad-zip", "has unknown flags (", entry.flags, ")");
  }
  if (entry.method != zip_stored && entry.method != zip_deflate) {
    return refuse("zip-method", "is packed by ", method_name(entry.method), " (method ",
                  entry.method, "); stored and deflate can be read");
  }
  if (entry.method == zip_stored && entry.packed_size != entry.size) {
    return refuse("size-mismatch", "is stored, but takes ", entry.packed_size, " bytes for ",
                  entry.size);
  }
  if (!is_utf8(entry.name)) return refuse("not-utf-8", "has a name that is not UTF-8");
  // Other readers end the name there, and would see another file.
  if (entry.name.find('\0') != std::string::npos) {
    return refuse("bad-name", "has a name with a NUL byte in it");
  }
  return {};
}

/// Reads one directory entry and moves `at` behind it.
Result<ZipEntry> read_directory_entry(ByteSpan bytes, std::size_t& at, std::size_t end,
                                      const Origin& origin) {
  const auto bad = [&] {
    return origin.refuse("bad-zip", "byte ", at, ": not a well-formed directory entry");
  };
  if (end - at < directory_size || !begins_with(bytes.subspan(at), directory_signature)) {
    return bad();
  }
  const std::size_t name_size = u16(bytes, at + 28);
  const std::size_t extra_size = u16(bytes, at + 30);
  const std::size_t whole = directory_size + name_size + extra_size + u16(bytes, at + 32);
  if (whole > end - at) return bad();
  ZipEntry entry{.name = std::string(as_text(bytes.subspan(at + directory_size, name_size))),
                 .flags = u16(bytes, at + 8),
                 .method = u16(bytes, at + 10),
                 .crc = u32(bytes, at + 16),
                 .packed_size = u32(bytes, at + 20),
                 .size = u32(bytes, at + 24),
                 .header_at = u32(bytes, at + 42)};
  const ByteSpan extra = bytes.subspan(at + directory_size + name_size, extra_size);
  if (!widen(extra, {&entry.size, &entry.packed_size, &entry.header_at})) return bad();
  if (u16(bytes, at + 34) != 0) {
    return origin.refuse("bad-zip", "byte ", at, ": the archive is split over several disks");
  }
  if (auto checked = check_entry(entry, origin); !checked) return checked.failure();
  at += whole;
  return entry;
}

/// Judges what lies between an entry's data and the next record: nothing, or the descriptor that
/// its flags announce, which is a CRC and two sizes of 4 or 8 bytes each after an optional
/// signature.
Result<void> check_descriptor(ByteSpan rest, const ZipEntry& entry, const Origin& origin) {
  const auto refuse = [&](std::string_view id, const auto&... parts) {
    return origin.refuse(id, "entry ", in_quotes(entry.name), ", at byte ", entry.header_at, ", ",
                         parts...);
  };
  if ((entry.flags & flag_descriptor) == 0) {
    if (rest.empty()) return {};
    return refuse("zip-hole", "is followed by ", rest.size(), " bytes that belong to nothing");
  }
  if (rest.size() == 16 || rest.size() == 24) {
    if (!begins_with(rest, descriptor_signature)) return refuse("bad-zip", "has a bad descriptor");
    rest = rest.subspan(4);
  }
  const bool narrow = rest.size() == 12;
  if (!narrow && rest.size() != 20) return refuse("bad-zip", "has a bad descriptor");
  if (u32(rest, 0) != entry.crc || (narrow ? u32(rest, 4) : u64(rest, 4)) != entry.packed_size ||
      (narrow ? u32(rest, 8) : u64(rest, 12)) != entry.size) {
    return refuse("zip-disagrees", "has a descriptor that disagrees with the directory");
  }
  return {};
}

/// Compares the entry's own header, and what follows its data, with the directory; `end` is where
/// the next record begins.
Result<void> check_local(ByteSpan bytes, ZipEntry& entry, std::uint64_t end, const Origin& origin) {
  const auto refuse = [&](std::string_view id, const auto&... parts) {
    return origin.refuse(id, "entry ", in_quotes(entry.name), ", at byte ", entry.header_at, ", ",
                         parts...);
  };
  const std::uint64_t at = entry.header_at;
  if (end - at < local_size) return refuse("zip-overlap", "reaches into the next record");
  if (!begins_with(bytes.subspan(at), local_signature)) return refuse("bad-zip", "has no header");
  const std::size_t name_size = u16(bytes, at + 26);
  const std::size_t extra_size = u16(bytes, at + 28);
  const std::uint64_t room = end - at - local_size;
  if (name_size + extra_size > room || entry.packed_size > room - name_size - extra_size) {
    return refuse("zip-overlap", "reaches into the next record");
  }
  entry.data_at = at + local_size + name_size + extra_size;

  std::uint64_t packed = u32(bytes, at + 18);
  std::uint64_t size = u32(bytes, at + 22);
  if (!widen(bytes.subspan(at + local_size + name_size, extra_size), {&size, &packed})) {
    return refuse("bad-zip", "has malformed extra fields");
  }
  // With a descriptor behind the data, the header may leave these numbers out, as zeros.
  const bool later = (entry.flags & flag_descriptor) != 0;
  const auto agrees = [later](std::uint64_t here, std::uint64_t there) {
    return here == there || (later && here == 0);
  };
  if (u16(bytes, at + 6) != entry.flags || u16(bytes, at + 8) != entry.method ||
      as_text(bytes.subspan(at + local_size, name_size)) != entry.name ||
      !agrees(u32(bytes, at + 14), entry.crc) || !agrees(packed, entry.packed_size) ||
      !agrees(size, entry.size)) {
    return refuse("zip-disagrees", "has a header that disagrees with the directory");
  }

  return check_descriptor(
      bytes.subspan(entry.data_at + entry.packed_size, end - entry.data_at - entry.packed_size),
      entry, origin);
}

/// The entries tile the file from its first byte to the directory.
Result<void> check_tiling(ByteSpan bytes, std::vector<ZipEntry>& entries, std::uint64_t end,
                          const Origin& origin) {
  std::vector<ZipEntry*> sorted;
  sorted.reserve(entries.size());
  for (ZipEntry& entry : entries) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(),
            [](const ZipEntry* a, const ZipEntry* b) { return a->header_at < b->header_at; });
  const std::uint64_t first = sorted.empty() ? end : sorted.front()->header_at;
  if (first != 0) {
    return origin.refuse("zip-hole", "the first ", first, " bytes belong to no entry");
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const std::uint64_t next = i + 1 < sorted.size() ? sorted[i + 1]->header_at : end;
    if (sorted[i]->header_at > end || next > end || sorted[i]->header_at == next) {
      return origin.refuse("zip-overlap", "entry ", in_quotes(sorted[i]->name), ", at byte ",
                           sorted[i]->header_at, ", overlaps another record");
    }
    if (auto checked = check_local(bytes, *sorted[i], next, origin); !checked) return checked;
  }
  return {};
}

Result<void> check_twins(const std::vector<ZipEntry>& entries, const Origin& origin) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const ZipEntry& entry : entries) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return origin.refuse("duplicate-key", "there are two entries ", in_quotes(*twin));
}

/// A raw deflate stream (RFC 1951) being unpacked; ends zlib's state with itself.
class Inflater {
 public:
  Inflater() : ready_(inflateInit2(&stream_, -MAX_WBITS) == Z_OK) {}
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }

  /// Moves on by at most this much of both; zlib counts in 32 bits. True until the stream ends.
  enum class Step { more, done, broken };
  Step step(ByteSpan& packed, std::span<std::byte>& room) {
    if (!ready_) return Step::broken;
    constexpr std::size_t most = std::size_t{1} << 30U;
    const auto in = static_cast<uInt>(std::min(packed.size(), most));
    const auto out = static_cast<uInt>(std::min(room.size(), most));
    // zlib does not write to its input, but its type says that it may.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream_.avail_in = in;
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = out;
    const int state = inflate(&stream_, Z_NO_FLUSH);
    packed = packed.subspan(in - stream_.avail_in);
    room = room.subspan(out - stream_.avail_out);
    if (state == Z_STREAM_END) return Step::done;
    return state == Z_OK ? Step::more : Step::broken;
  }

 private:
  z_stream stream_{};
  bool ready_;
};

Result<Bytes> inflate_entry(ByteSpan packed, const ZipEntry& entry, const Origin& origin) {
  constexpr std::uint64_t first_room = 1U << 20U;
  // One byte more than claimed, so that a stream which gives more is seen to.
  const std::uint64_t most = std::min(entry.size, UINT64_MAX - 1) + 1;
  Bytes out(static_cast<std::size_t>(std::min(first_room, most)));
  std::span<std::byte> room(out);
  Inflater inflater;
  Inflater::Step step = Inflater::Step::more;
  while (step == Inflater::Step::more) {
    if (room.empty() && out.size() == most) break;
    if (room.empty()) {
      const std::size_t used = out.size();
      out.resize(static_cast<std::size_t>(std::min<std::uint64_t>(most, 2 * used)));
      room = std::span(out).subspan(used);
    }
    step = inflater.step(packed, room);
  }
  const std::size_t size = out.size() - room.size();
  if (step == Inflater::Step::broken) {
    return origin.refuse("bad-deflate", "entry ", in_quotes(entry.name),
                         " is not a whole deflate stream; it breaks after ", size, " bytes");
  }
  if (size != entry.size || !packed.empty()) {
    return origin.refuse("size-mismatch", "entry ", in_quotes(entry.name), " claims ", entry.size,
                         " bytes from ", entry.packed_size, ", which is not what it unpacks to");
  }
  out.resize(size);
  return out;
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(ByteSpan bytes, const Origin& origin) {
  const auto directory = find_directory(bytes, origin);
  if (!directory) return directory.failure();
  std::vector<ZipEntry> entries;
  auto at = static_cast<std::size_t>(directory->begin);
  const auto end = static_cast<std::size_t>(directory->end);
  for (std::uint64_t i = 0; i < directory->count; ++i) {
    auto entry = read_directory_entry(bytes, at, end, origin);
    if (!entry) return entry.failure();
    entries.push_back(*std::move(entry));
  }
  if (at != end) {
    return origin.refuse("zip-hole", "byte ", at, ": ", end - at,
                         " bytes of the directory belong to no entry");
  }
  if (auto checked = check_twins(entries, origin); !checked) return checked.failure();
  if (auto checked = check_tiling(bytes, entries, directory->begin, origin); !checked) {
    return checked.failure();
  }
  return entries;
}

Result<Bytes> unpack_zip_entry(ByteSpan archive, const ZipEntry& entry, const Origin& origin) {
  const ByteSpan packed = archive.subspan(static_cast<std::size_t>(entry.data_at),
                                          static_cast<std::size_t>(entry.packed_size));
  Result<Bytes> out = entry.method == zip_deflate ? inflate_entry(packed, entry, origin)
                                                  : Bytes(packed.begin(), packed.end());
  if (!out) return out;
  if (zip_crc(*out) != entry.crc) {
    return origin.refuse("crc-mismatch", "entry ", in_quotes(entry.name),
                         " is damaged: its CRC-32 is not the one that it was packed with");
  }
  return out;
}

std::uint32_t zip_crc(ByteSpan bytes) noexcept {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(crc32_z(0, data, bytes.size()));
}

}  // namespace attest::io
