// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz targets: make_corpus FOLDER gives FOLDER/{safetensors,npy,npz,json}.
// A fuzzer that starts from whole files of every sort need not discover formats before it can break
// them; and a program that writes them keeps binary files out of the repository.

#include <cstdio>
#include <filesystem>

#include "attest/io/npy.h"
#include "attest/io/tensor_file.h"
#include "attest/io/zip.h"
#include "tests/support/file_builders.h"

namespace {

using namespace attest;
using io::Bytes;
using io::TensorFormat;

bool all_written = true;

void put(const std::filesystem::path& folder, std::string_view name, const Bytes& bytes) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const auto written = io::write_file((folder / name).string(), bytes);
  if (written) return;
  std::fprintf(stderr, "%s\n", written.failure().message.c_str());
  all_written = false;
}

/// One file of each format for each dtype and some shapes.
void put_written_files(const std::filesystem::path& folder) {
  Random random(1);
  for (const DType dtype : test::all_dtypes) {
    io::NamedTensors tensors;
    if (dtype == DType::bf16) tensors.metadata = {{"format", "pt"}};
    tensors.add("tensor", test::random_bits(random, dtype, {2, 3}));
    for (const auto format :
         {TensorFormat::safetensors, TensorFormat::npy, TensorFormat::npz, TensorFormat::json}) {
      const auto bytes = io::serialize_tensors(format, tensors);
      if (bytes) put(folder / io::name_of(format), name_of(dtype), *bytes);
    }
  }
  io::NamedTensors several;
  several.add("a", test::random_bits(random, DType::f64, {}));
  several.add("b", test::random_bits(random, DType::u8, {0, 3}));
  several.add("c", test::random_bits(random, DType::boolean, {1, 1, 2}));
  for (const auto format : {TensorFormat::safetensors, TensorFormat::npz, TensorFormat::json}) {
    put(folder / io::name_of(format), "several", *io::serialize_tensors(format, several));
  }
}

void put_npy_variants(const std::filesystem::path& folder) {
  const Bytes six = test::little({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  const auto header = [](std::string_view descr, std::string_view order) {
    return sentence("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': (2, 3), }\n");
  };
  put(folder, "fortran", test::npy_file(header("<f4", "True"), six));
  put(folder, "big", test::npy_file(header(">f4", "False"), six, 2));
  put(folder, "python2",
      test::npy_file(R"({"shape":(6L,),"fortran_order":True,"descr":"<f4"})", six, 3));
}

void put_npz_variants(const std::filesystem::path& folder) {
  const Bytes array = *io::serialize_npy(test::f32_tensor({2, 2}, {1, 2, 3, 4}));
  auto packed = test::RawZipEntry::packed_by_deflate("a.npy", array);
  put(folder, "deflated", test::zip_file({packed}, "comment"));
  packed.flags = 8;
  packed.sizes_in_header = false;
  io::append_little(packed.descriptor, packed.crc);
  io::append_little(packed.descriptor, static_cast<std::uint32_t>(packed.packed.size()));
  io::append_little(packed.descriptor, static_cast<std::uint32_t>(packed.size));
  put(folder, "streamed", test::zip_file({packed, test::RawZipEntry::stored("b.npy", array)}));
  io::ZipWriter wide(io::Zip64::always);
  wide.add("a.npy", array);
  put(folder, "zip64", std::move(wide).finish());
}

void put_json_variants(const std::filesystem::path& folder) {
  put(folder, "strings", test::bytes_of(R"({"q":["inf","-inf","nan",1e3],"\u00e9\n":[[true]]})"));
  put(folder, "single", test::bytes_of("[[1, -0, 2.5], [3, 4, 5e-3]]"));
  put(folder, "long",
      test::bytes_of(R"({"dtype":"u64","shape":[1],"data":[9223372036854775808]})"));
  put(folder, "tree", test::bytes_of(R"({"a":{"b":[null,{"c":"\ud83c\udf89"}]},"d":false})"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  put_written_files(folder);
  put_npy_variants(folder / "npy");
  put_npz_variants(folder / "npz");
  put_json_variants(folder / "json");
  return all_written ? 0 : 1;
}
