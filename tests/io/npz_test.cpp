// SPDX-License-Identifier: MIT
#include "attest/io/npz.h"

#include <gtest/gtest.h>

#include "attest/io/npy.h"
#include "attest/io/zip.h"
#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::bytes_of;
using test::joined;
using test::little;
using test::RawZipEntry;
using test::refused;
using test::same_bits;
using test::zip_file;
using namespace std::string_view_literals;

Result<NamedTensors> parse(const Bytes& bytes, const NpzLimits& limits = {}) {
  return parse_npz(bytes, "x.npz", limits);
}

Bytes npy_of(const AnyTensor& tensor) { return *serialize_npy(tensor); }

const AnyTensor matrix = test::f32_tensor({2, 3}, {1, 2, 3, 4, 5, 6});
const AnyTensor zeros(DType::f64, {4096});

RawZipEntry stored() { return RawZipEntry::stored("a.npy", npy_of(matrix)); }
RawZipEntry packed() { return RawZipEntry::packed_by_deflate("z.npy", npy_of(zeros)); }

Bytes descriptor(const RawZipEntry& entry, bool with_signature, bool wide) {
  Bytes out = bytes_of(with_signature ? "PK\x07\x08"sv : ""sv);
  append_little(out, entry.crc);
  for (const std::uint64_t size : {std::uint64_t{entry.packed.size()}, entry.size}) {
    if (wide) {
      append_little(out, size);
    } else {
      append_little(out, static_cast<std::uint32_t>(size));
    }
  }
  return out;
}

TEST(Npz, ReadsStoredAndDeflatedEntries) {
  const auto file = parse(zip_file({stored(), packed()}, "a comment"));
  ASSERT_TRUE(accepted(file));
  ASSERT_EQ(file->tensors.size(), 2U);
  EXPECT_TRUE(same_bits(*file->find("a"), matrix));
  EXPECT_TRUE(same_bits(*file->find("z"), zeros));
}

TEST(Npz, ReadsAnArchiveWithoutEntries) {
  const auto file = parse(zip_file({}));
  ASSERT_TRUE(accepted(file));
  EXPECT_TRUE(file->tensors.empty());
}

TEST(Npz, ReadsEveryKindOfDataDescriptor) {
  for (const bool with_signature : {false, true}) {
    for (const bool wide : {false, true}) {
      RawZipEntry entry = packed();
      entry.flags = 8;
      entry.sizes_in_header = false;
      entry.descriptor = descriptor(entry, with_signature, wide);
      EXPECT_TRUE(accepted(parse(zip_file({entry, stored()})))) << with_signature << wide;

      entry.descriptor[with_signature ? 9 : 5] ^= std::byte{1};  // the packed size
      EXPECT_TRUE(refused(parse(zip_file({entry})), "zip-disagrees")) << with_signature << wide;
    }
  }
  RawZipEntry without = packed();
  without.flags = 8;
  EXPECT_TRUE(refused(parse(zip_file({without})), "bad-zip", "descriptor"));
}

TEST(Npz, ReadsZip64Records) {
  ZipWriter zip(Zip64::always);
  zip.add("a.npy", npy_of(matrix));
  zip.add("z.npy", npy_of(zeros));
  const Bytes bytes = std::move(zip).finish();
  const auto file = parse(bytes);
  ASSERT_TRUE(accepted(file));
  EXPECT_TRUE(same_bits(*file->find("a"), matrix));
  // Each field of the 64-bit end record, changed, is noticed.
  const std::size_t record = bytes.size() - 22 - 20 - 56;
  for (const std::size_t field : {0U, 4U, 16U, 20U, 24U, 32U, 40U, 48U, 56U, 64U}) {
    Bytes changed = bytes;
    changed[record + field] ^= std::byte{2};
    EXPECT_FALSE(parse(changed)) << field;
  }
}

TEST(Npz, RefusesABombByItsRatio) {
  RawZipEntry bomb = packed();
  bomb.size = bomb.packed.size() * 1032 + 1;
  EXPECT_TRUE(refused(parse(zip_file({bomb})), "zip-bomb", "'z.npy' claims"));
  // What deflate can give at most is not a bomb, only not true.
  bomb.size -= 1;
  EXPECT_TRUE(refused(parse(zip_file({bomb})), "size-mismatch"));
  // The ratio is the caller's to lower.
  EXPECT_TRUE(refused(parse(zip_file({packed()}), {.max_ratio = 4}), "zip-bomb", "4 to 1"));
  // A size near 2^64 wraps no product.
  bomb.size = 0xFFFFFFFEU;
  EXPECT_TRUE(refused(parse(zip_file({bomb})), "zip-bomb"));
}

TEST(Npz, RefusesMoreThanTheTotalThatTheCallerAllows) {
  const Bytes bytes = zip_file({stored(), packed()});
  const std::uint64_t total = npy_of(matrix).size() + npy_of(zeros).size();
  EXPECT_TRUE(accepted(parse(bytes, {.max_total_bytes = total})));
  EXPECT_TRUE(refused(parse(bytes, {.max_total_bytes = total - 1}), "over-limit", "'z.npy'"));
}

TEST(Npz, RefusesEntriesThatOverlap) {
  // The quine's trick: two names for one entry's bytes.
  RawZipEntry second = stored();
  second.name = "b.npy";
  second.header_at = 0;
  EXPECT_TRUE(refused(parse(zip_file({stored(), second})), "zip-overlap"));
  // An entry that claims the next one as part of itself.
  RawZipEntry first = stored();
  Bytes bytes = zip_file({first, stored()});
  first.size = first.packed.size() + 1;
  const std::size_t sizes = 18;
  bytes[sizes] ^= std::byte{1};
  EXPECT_FALSE(parse(bytes));
}

TEST(Npz, RefusesBytesThatBelongToNoEntry) {
  RawZipEntry padded = stored();
  padded.descriptor = bytes_of("....");
  EXPECT_TRUE(refused(parse(zip_file({padded})), "zip-hole", "4 bytes"));
  RawZipEntry hidden = stored();
  hidden.header_at = 35;
  EXPECT_FALSE(parse(zip_file({hidden})));
  EXPECT_TRUE(refused(parse(joined({zip_file({stored()}), bytes_of("x")})), "truncated"));
}

TEST(Npz, RefusesAHeaderThatDisagreesWithTheDirectory) {
  RawZipEntry renamed = stored();
  renamed.header_name = "b.npy";
  EXPECT_TRUE(refused(parse(zip_file({renamed})), "zip-disagrees", "'a.npy'"));
  const Bytes good = zip_file({stored()});
  for (const std::size_t field : {6U, 8U, 14U, 18U, 22U}) {  // flags, method, CRC, sizes
    Bytes bytes = good;
    bytes[field] ^= std::byte{2};
    const auto file = parse(bytes);
    EXPECT_FALSE(file) << field;
  }
}

TEST(Npz, RefusesSizesThatAreNotWhatComesOut) {
  for (const int change : {-1, 1}) {
    RawZipEntry entry = packed();
    entry.size += static_cast<std::uint64_t>(change);
    EXPECT_TRUE(refused(parse(zip_file({entry})), "size-mismatch", "'z.npy'")) << change;
  }
  RawZipEntry entry = stored();
  entry.size += 1;
  EXPECT_TRUE(refused(parse(zip_file({entry})), "size-mismatch"));
  RawZipEntry longer = packed();
  longer.packed.push_back(std::byte{0});
  EXPECT_TRUE(refused(parse(zip_file({longer})), "size-mismatch"));
  RawZipEntry shorter = packed();
  shorter.packed.pop_back();
  EXPECT_TRUE(refused(parse(zip_file({shorter})), "bad-deflate"));
}

TEST(Npz, RefusesADamagedEntryByItsCrc) {
  for (RawZipEntry entry : {stored(), packed()}) {
    entry.crc ^= 1U;
    EXPECT_TRUE(refused(parse(zip_file({entry})), "crc-mismatch", entry.name));
  }
}

TEST(Npz, RefusesEncryptionAndOtherMethodsByName) {
  RawZipEntry entry = stored();
  entry.flags = 1;
  EXPECT_TRUE(refused(parse(zip_file({entry})), "zip-encrypted"));
  const std::vector<std::pair<std::uint16_t, std::string_view>> methods{
      {9, "Deflate64"}, {12, "bzip2"}, {14, "LZMA"}, {93, "Zstandard"}, {95, "xz"}, {1, "unknown"}};
  for (const auto& [method, name] : methods) {
    entry = stored();
    entry.method = method;
    EXPECT_TRUE(refused(parse(zip_file({entry})), "zip-method", name));
  }
}

TEST(Npz, RefusesDuplicateNames) {
  EXPECT_TRUE(refused(parse(zip_file({stored(), stored()})), "duplicate-key", "'a.npy'"));
}

TEST(Npz, RefusesEntriesThatAreNotArrays) {
  for (const std::string_view name : {"readme.txt", "folder/", "a.npy/", "a.NPY", ""}) {
    RawZipEntry entry = stored();
    entry.name = name;
    EXPECT_TRUE(refused(parse(zip_file({entry})), "not-an-array")) << name;
  }
}

TEST(Npz, RefusesNamesThatReadersSeeDifferently) {
  RawZipEntry entry = stored();
  entry.name = std::string("a\0.npy", 6);
  EXPECT_TRUE(refused(parse(zip_file({entry})), "bad-name"));
  entry.name = "\xe9.npy";
  EXPECT_TRUE(refused(parse(zip_file({entry})), "not-utf-8", R"('\xe9.npy')"));
}

TEST(Npz, TellsATorchArchiveByItsPickle) {
  EXPECT_TRUE(refused(parse(zip_file({RawZipEntry::stored("archive/data.pkl", bytes_of("x"))})),
                      "torch-file", "safetensors"));
}

TEST(Npz, NamesTheEntryWhoseArrayIsBad) {
  const auto file = parse(zip_file({RawZipEntry::stored("w.npy", bytes_of("\x93NUMPY"))}));
  EXPECT_TRUE(refused(file, "truncated", "[npy] x.npz/w.npy: "));
}

TEST(Npz, RefusesOtherFiles) {
  EXPECT_TRUE(refused(parse({}), "empty-file"));
  EXPECT_TRUE(refused(parse(bytes_of("<!doctype html>")), "html-page"));
  EXPECT_TRUE(refused(parse(bytes_of("hello")), "not-an-npz-file"));
  EXPECT_TRUE(refused(parse(bytes_of("PK\x03\x04 and then nothing")), "truncated"));
}

TEST(Npz, WritesTheSameBytesEachTime) {
  NamedTensors tensors;
  tensors.add("weight/ä", matrix);
  tensors.add("", zeros);
  const auto first = serialize_npz(tensors);
  ASSERT_TRUE(accepted(first));
  EXPECT_EQ(*first, *serialize_npz(tensors));
  const auto back = parse(*first);
  ASSERT_TRUE(accepted(back));
  EXPECT_TRUE(same_bits(*back, tensors));
}

TEST(Npz, RefusesToWriteWhatNoReaderWouldTake) {
  NamedTensors twice;
  twice.add("a", matrix);
  twice.add("a", matrix);
  EXPECT_TRUE(refused(serialize_npz(twice), "duplicate-key"));
  NamedTensors named;
  named.add(std::string("a\0b", 3), matrix);
  EXPECT_TRUE(refused(serialize_npz(named), "bad-name"));
  NamedTensors long_name;
  long_name.add(std::string(65532, 'a'), matrix);
  EXPECT_TRUE(refused(serialize_npz(long_name), "bad-name"));
  NamedTensors bf16;
  bf16.add("a", AnyTensor(DType::bf16, {1}));
  EXPECT_TRUE(refused(serialize_npz(bf16), "unsupported-dtype"));
}

}  // namespace
}  // namespace attest::io
