// SPDX-License-Identifier: MIT
// Every truncation and every single-bit flip of small files of each format: a value or a sentence,
// never a crash. Run under the sanitizers, this is a proof for these inputs, not a sample.

#include <gtest/gtest.h>

#include "attest/io/tensor_file.h"
#include "attest/io/zip.h"
#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::fails_politely;
using test::same_bits;

struct Sample {
  std::string name;
  Bytes bytes;
};

NamedTensors small_tensors() {
  Random random(7);
  NamedTensors out;
  out.add("x", test::random_bits(random, DType::f32, {2, 2}));
  out.add("mask", test::random_bits(random, DType::boolean, {3}));
  out.add("s", test::random_bits(random, DType::i64, {}));
  return out;
}

Bytes written(TensorFormat format, const NamedTensors& tensors) {
  return *serialize_tensors(format, tensors);
}

Bytes npy_of_one(DType dtype) {
  Random random(8);
  NamedTensors one;
  one.add("x", test::random_bits(random, dtype, {2, 1}));
  return written(TensorFormat::npy, one);
}

Bytes deflated_npz() {
  auto entry = test::RawZipEntry::packed_by_deflate("x.npy", npy_of_one(DType::f32));
  entry.flags = 8;
  entry.sizes_in_header = false;
  append_little(entry.descriptor, entry.crc);
  append_little(entry.descriptor, static_cast<std::uint32_t>(entry.packed.size()));
  append_little(entry.descriptor, static_cast<std::uint32_t>(entry.size));
  return test::zip_file({entry});
}

Bytes zip64_npz() {
  ZipWriter zip(Zip64::always);
  zip.add("x.npy", npy_of_one(DType::i16));
  return std::move(zip).finish();
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all{
      {"safetensors", written(TensorFormat::safetensors, small_tensors())},
      {"npy", npy_of_one(DType::f64)},
      {"npy of booleans", npy_of_one(DType::boolean)},
      {"npz", written(TensorFormat::npz, small_tensors())},
      {"npz, deflated, with a descriptor", deflated_npz()},
      {"npz, zip64", zip64_npz()},
      {"json", written(TensorFormat::json, small_tensors())},
  };
  return all;
}

Result<NamedTensors> parse(const Bytes& bytes) {
  // A copy of exactly that size on the heap, so that a read past its end is seen.
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  return parse_tensors(exact, "sample");
}

/// Bytes whose meaning is judged: a flip in them may be accepted only if nothing changed.
bool is_archive(const Sample& sample) { return sample.name.starts_with("npz"); }

TEST(HostileFiles, TheSamplesAreWholeFiles) {
  for (const Sample& sample : samples()) EXPECT_TRUE(accepted(parse(sample.bytes))) << sample.name;
}

TEST(HostileFiles, EveryTruncationIsRefusedWithASentence) {
  for (const Sample& sample : samples()) {
    // What comes after JSON's last brace is one newline.
    const std::size_t whole = sample.bytes.size() - (sample.name == "json" ? 1 : 0);
    for (std::size_t size = 0; size < whole; ++size) {
      const auto file =
          parse({sample.bytes.begin(), sample.bytes.begin() + static_cast<std::ptrdiff_t>(size)});
      ASSERT_FALSE(file) << sample.name << " cut to " << size;
      ASSERT_TRUE(fails_politely(file)) << sample.name << " cut to " << size;
    }
  }
}

TEST(HostileFiles, EveryBitFlipGivesAValueOrASentence) {
  for (const Sample& sample : samples()) {
    const auto original = parse(sample.bytes);
    ASSERT_TRUE(accepted(original));
    for (std::size_t bit = 0; bit < 8 * sample.bytes.size(); ++bit) {
      Bytes flipped = sample.bytes;
      flipped[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      const auto file = parse(flipped);
      if (!file) {
        ASSERT_TRUE(fails_politely(file)) << sample.name << ", bit " << bit;
      } else if (is_archive(sample)) {
        // CRCs, and everything said twice: no flip changes an array unseen.
        ASSERT_TRUE(same_bits(*file, *original)) << sample.name << ", bit " << bit;
      }
    }
  }
}

TEST(HostileFiles, EveryByteReplacedGivesAValueOrASentence) {
  for (const Sample& sample : samples()) {
    for (const unsigned value : {0x00U, 0xFFU, 0x22U, 0x7BU, 0x2DU, 0x39U}) {
      for (std::size_t at = 0; at < sample.bytes.size(); ++at) {
        Bytes changed = sample.bytes;
        changed[at] = static_cast<std::byte>(value);
        const auto file = parse(changed);
        ASSERT_TRUE(file || fails_politely(file)) << sample.name << ", byte " << at;
      }
    }
  }
}

TEST(HostileFiles, EveryInsertedOrRemovedByteGivesAValueOrASentence) {
  for (const Sample& sample : samples()) {
    for (std::size_t at = 0; at < sample.bytes.size(); ++at) {
      const auto place = static_cast<std::ptrdiff_t>(at);
      Bytes longer = sample.bytes;
      longer.insert(longer.begin() + place, longer[at]);
      Bytes shorter = sample.bytes;
      shorter.erase(shorter.begin() + place);
      for (const Bytes& changed : {longer, shorter}) {
        const auto file = parse(changed);
        ASSERT_TRUE(file || fails_politely(file)) << sample.name << ", byte " << at;
      }
    }
  }
}

}  // namespace
}  // namespace attest::io
