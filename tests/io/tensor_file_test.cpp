// SPDX-License-Identifier: MIT
#include "attest/io/tensor_file.h"

#include <gtest/gtest.h>

#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"
#include "tests/support/scratch_folder.h"

namespace attest::io {
namespace {

using test::accepted;
using test::bytes_of;
using test::refused;
using test::same_bits;
using test::ScratchFolder;
using namespace std::string_view_literals;

NamedTensors one_tensor(std::string name) {
  NamedTensors tensors;
  tensors.add(std::move(name), Tensor<double>({2}, std::array{1.0, 2.0}));
  return tensors;
}

TEST(TensorFile, KnowsTheFormatByItsContentWhateverItsName) {
  const ScratchFolder folder;
  for (const auto format :
       {TensorFormat::safetensors, TensorFormat::npz, TensorFormat::npy, TensorFormat::json}) {
    const auto bytes = serialize_tensors(format, one_tensor("misnamed"));
    ASSERT_TRUE(accepted(bytes));
    EXPECT_EQ(format_of_content(*bytes), format) << name_of(format);
    for (const std::string_view extension : {".bin", ".npz", ".json", ""}) {
      const std::string path = folder.file(sentence("misnamed", extension));
      ASSERT_TRUE(accepted(write_file(path, *bytes)));
      const auto file = read_tensors(path);
      ASSERT_TRUE(accepted(file)) << name_of(format);
      EXPECT_TRUE(same_bits(*file, one_tensor("misnamed")));
    }
  }
}

TEST(TensorFile, WritesByExtension) {
  const ScratchFolder folder;
  for (const std::string_view name : {"x.safetensors", "x.npz", "x.npy", "x.json", "x.NPZ"}) {
    const std::string path = folder.file(name);
    ASSERT_TRUE(accepted(write_tensors(path, one_tensor("x")))) << name;
    EXPECT_EQ(format_of_content(*read_file(path)), format_of_path(path)) << name;
  }
  EXPECT_EQ(folder.count(), 5U);
  EXPECT_TRUE(refused(write_tensors(folder.file("x.pt"), one_tensor("x")), "unknown-format"));
  EXPECT_TRUE(refused(write_tensors(folder.file("npy"), one_tensor("x")), "unknown-format"));
  NamedTensors two = one_tensor("a");
  two.add("b", AnyTensor());
  EXPECT_TRUE(refused(write_tensors(folder.file("x.npy"), two), "not-one-tensor", "not 2"));
}

TEST(TensorFile, AFolderIsTheNpyFilesInIt) {
  const ScratchFolder folder;
  EXPECT_TRUE(refused(read_tensors(folder.file(".")), "is-a-directory", "without .npy files"));
  NamedTensors both;
  for (const char* name : {"key", "query"}) {
    NamedTensors one = one_tensor(name);
    ASSERT_TRUE(accepted(write_tensors(folder.file(std::string(name) + ".npy"), one)));
    both.add(name, one.tensors.front().second);
  }
  ASSERT_TRUE(accepted(write_tensors(folder.file("other.json"), one_tensor("x"))));
  const auto read = read_tensors(folder.file("."));
  ASSERT_TRUE(accepted(read));
  EXPECT_TRUE(same_bits(*read, both));
  ASSERT_TRUE(
      accepted(write_file(folder.file("value.npy"), *read_file(folder.file("other.json")))));
  EXPECT_TRUE(refused(read_tensors(folder.file(".")), "not-an-npy-file", "value.npy"));
}

TEST(TensorFile, NamesASingleTensorAfterItsFile) {
  const auto bytes = serialize_tensors(TensorFormat::npy, one_tensor("x"));
  ASSERT_TRUE(accepted(bytes));
  const auto name = [&](const std::string& source, const TensorFileOptions& options = {}) {
    return parse_tensors(*bytes, source, options)->tensors.front().first;
  };
  EXPECT_EQ(name("folder.d/query.v2.npy"), "query.v2");
  EXPECT_EQ(name("query"), "query");
  EXPECT_EQ(name("standard input"), "tensor");
  EXPECT_EQ(name(".npy"), "tensor");
  EXPECT_EQ(name("a.npy", {.single_name = "key"}), "key");
  EXPECT_EQ(parse_tensors(bytes_of("[1]"), "q.json")->tensors.front().first, "q");
}

TEST(TensorFile, TellsStrangersKindly) {
  const std::vector<std::pair<std::string_view, std::string_view>> strangers{
      {"", "empty-file"},
      {"<!DOCTYPE html><html>", "html-page"},
      {"\n  <html lang=\"en\">", "html-page"},
      {"<?xml version=\"1.0\"?>", "html-page"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "lfs-pointer"},
      {"\x1f\x8b\x08\x00"sv, "gzip-file"},
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "torch-file"},
      {"\x80\x04\x95", "pickle-file"},
      {"\x89HDF\r\n\x1a\n", "other-format"},
      {"GGUF\x03", "other-format"},
      {"hello, world", "unknown-format"},
      {"\xff\xd8\xff", "unknown-format"}};
  for (const auto& [bytes, id] : strangers) {
    EXPECT_TRUE(refused(parse_tensors(bytes_of(bytes), "weights"), id)) << bytes;
  }
  const ScratchFolder folder;
  EXPECT_TRUE(refused(read_tensors(folder.file(".")), "is-a-directory"));
  EXPECT_TRUE(refused(read_tensors(folder.file("none")), "no-such-file"));
}

TEST(TensorFile, AsksTheExtensionOnlyWhereTheContentIsSilent) {
  EXPECT_TRUE(refused(parse_tensors(bytes_of("\x01\x02\x03"), "m.safetensors"), "truncated"));
  EXPECT_TRUE(refused(parse_tensors(bytes_of("hello"), "m.npz"), "not-an-npz-file"));
  EXPECT_TRUE(refused(parse_tensors(bytes_of("hello"), "m.npy"), "not-an-npy-file"));
  EXPECT_TRUE(refused(parse_tensors(bytes_of("hello"), "m.json"), "bad-json"));
}

TEST(TensorFile, AStreamOfNoFormatIsNotWaitedFor) {
  EXPECT_TRUE(refused(read_tensors("/dev/zero", {.stream = {.max_stream_bytes = 1 << 24}}),
                      "unknown-format"));
}

TEST(TensorFile, HandsTheLimitsOn) {
  const auto bytes = serialize_tensors(TensorFormat::npz, one_tensor("x"));
  EXPECT_TRUE(
      refused(parse_tensors(*bytes, "x.npz", {.npz = {.max_total_bytes = 10}}), "over-limit"));
}

}  // namespace
}  // namespace attest::io
