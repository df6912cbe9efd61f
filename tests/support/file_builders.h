// SPDX-License-Identifier: MIT
#pragma once

#include <zlib.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/random.h"
#include "attest/io/bytes.h"
#include "attest/io/named_tensors.h"

/// Files made byte by byte, mostly wrong ones, and tensors of hostile bits to fill them with.
namespace attest::test {

using io::Bytes;
using io::ByteSpan;
using namespace std::string_view_literals;

inline constexpr std::array all_dtypes{
    DType::f64, DType::f32, DType::f16, DType::bf16, DType::boolean, DType::i64, DType::i32,
    DType::i16, DType::i8,  DType::u64, DType::u32,  DType::u16,     DType::u8};

inline Bytes bytes_of(std::string_view text) {
  const ByteSpan bytes = io::as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

inline Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) io::append(out, part);
  return out;
}

/// Numbers as a file holds them, lowest byte first.
template <class T>
Bytes little(std::initializer_list<T> numbers) {
  Bytes out;
  for (const T number : numbers) {
    Bytes one(sizeof number);
    std::memcpy(one.data(), &number, sizeof number);
    io::host_to_little(one, sizeof number);
    io::append(out, one);
  }
  return out;
}

/// A safetensors file: the header padded with spaces to 8 bytes, and its length unless another is
/// to be claimed.
inline Bytes safetensors_file(std::string header, const Bytes& payload,
                              std::optional<std::uint64_t> claimed_length = std::nullopt) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  Bytes out;
  io::append_little(out, claimed_length.value_or(header.size()));
  return joined({out, bytes_of(header), payload});
}

/// An npy file of any version with any header text.
inline Bytes npy_file(std::string_view header, const Bytes& payload, unsigned char major = 1) {
  Bytes out = bytes_of("\x93NUMPY");
  out.push_back(std::byte{major});
  out.push_back(std::byte{0});
  if (major == 1) {
    io::append_little(out, static_cast<std::uint16_t>(header.size()));
  } else {
    io::append_little(out, static_cast<std::uint32_t>(header.size()));
  }
  return joined({out, bytes_of(header), payload});
}

inline Bytes deflated(ByteSpan content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  Bytes out(deflateBound(&stream, static_cast<uLong>(content.size())));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A zip archive in which every field can be a lie.
struct RawZipEntry {
  std::string name;
  Bytes packed;
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  bool sizes_in_header = true;                  ///< false: zeros there, as before a descriptor
  Bytes descriptor = {};                        ///< what follows the data
  std::optional<std::string> header_name = {};  ///< the header's name, if it is to differ
  std::optional<std::uint32_t> header_at = {};  ///< the directory's offset, if it is to differ

  static RawZipEntry stored(std::string name, const Bytes& content) {
    return {.name = std::move(name),
            .packed = content,
            .size = content.size(),
            .crc = static_cast<std::uint32_t>(
                crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()))};
  }
  static RawZipEntry packed_by_deflate(std::string name, const Bytes& content) {
    RawZipEntry entry = stored(std::move(name), content);
    entry.packed = deflated(content);
    entry.method = 8;
    return entry;
  }
};

inline void append_zip_numbers(Bytes& out, const RawZipEntry& entry, std::string_view name,
                               bool with_sizes) {
  const auto number = [with_sizes](std::uint64_t n) {
    return with_sizes ? static_cast<std::uint32_t>(n) : 0U;
  };
  io::append_little(out, entry.flags);
  io::append_little(out, entry.method);
  io::append_little(out, std::uint32_t{0x210000});  // time and date
  io::append_little(out, number(entry.crc));
  io::append_little(out, number(entry.packed.size()));
  io::append_little(out, number(entry.size));
  io::append_little(out, static_cast<std::uint16_t>(name.size()));
  io::append_little(out, std::uint16_t{0});  // extra
}

inline Bytes zip_file(const std::vector<RawZipEntry>& entries, std::string_view comment = "") {
  Bytes out;
  Bytes directory;
  for (const RawZipEntry& entry : entries) {
    const auto at = entry.header_at.value_or(static_cast<std::uint32_t>(out.size()));
    const std::string header_name = entry.header_name.value_or(entry.name);
    io::append(out, bytes_of("PK\x03\x04\x14\x00"sv));
    append_zip_numbers(out, entry, header_name, entry.sizes_in_header);
    io::append(out, joined({bytes_of(header_name), entry.packed, entry.descriptor}));

    io::append(directory, bytes_of("PK\x01\x02\x14\x00\x14\x00"sv));
    append_zip_numbers(directory, entry, entry.name, true);
    directory.resize(directory.size() + 10);  // comment, disk, attributes
    io::append_little(directory, at);
    io::append(directory, bytes_of(entry.name));
  }
  const auto begin = static_cast<std::uint32_t>(out.size());
  io::append(out, directory);
  io::append(out, bytes_of("PK\x05\x06\x00\x00\x00\x00"sv));
  io::append_little(out, static_cast<std::uint16_t>(entries.size()));
  io::append_little(out, static_cast<std::uint16_t>(entries.size()));
  io::append_little(out, static_cast<std::uint32_t>(directory.size()));
  io::append_little(out, begin);
  io::append_little(out, static_cast<std::uint16_t>(comment.size()));
  io::append(out, bytes_of(comment));
  return out;
}

/// Random bits of that dtype, infinities, subnormals and NaNs among them; booleans are 0 or 1.
inline AnyTensor random_bits(Random& random, DType dtype, Shape shape) {
  AnyTensor tensor(dtype, std::move(shape));
  for (std::byte& byte : tensor.bytes()) {
    byte = static_cast<std::byte>(random.bits() & (dtype == DType::boolean ? 1U : 0xFFU));
  }
  return tensor;
}

/// A shape of rank 0 to 4 with extents 0 to 5, zeros being rare.
inline Shape random_shape(Random& random) {
  Shape shape(static_cast<std::size_t>(random.between(0, 4)));
  for (std::int64_t& extent : shape) extent = random.between(random.uniform() < 0.1 ? 0 : 1, 5);
  return shape;
}

inline AnyTensor f32_tensor(Shape shape, std::initializer_list<float> numbers) {
  return Tensor<float>(std::move(shape), std::span<const float>(numbers));
}

}  // namespace attest::test
