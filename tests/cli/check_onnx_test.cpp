// SPDX-License-Identifier: MIT
// attest check on the files of ONNX's own node tests: what they say of themselves is claim enough.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "check_dumps.h"

namespace attest::test {
namespace {

namespace files = std::filesystem;

/// The files of a folder of data/onnx; none without the shared folder.
std::vector<std::string> onnx_files(const std::string& folder) {
  const char* shared = std::getenv("ATTEST_SHARED_DIR");
  std::vector<std::string> out;
  if (shared == nullptr) return out;
  const files::path path = files::path(shared) / "data" / "onnx" / folder;
  if (!files::is_directory(path)) return out;
  for (const auto& entry : files::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") out.push_back(entry.path().string());
  }
  return out;
}

TEST(CheckOnnx, EveryPublishedAnswerIsRight) {
  const auto all = onnx_files("attention");
  if (all.empty()) GTEST_SKIP() << "no shared folder; see ATTEST_SHARED_DIR";
  EXPECT_EQ(all.size(), 87U);
  for (const std::string& file : all) {
    const Ended ended = run_attest({"check", file});
    EXPECT_EQ(ended.code, 0) << file << "\n" << ended.out << ended.err;
  }
}

TEST(CheckOnnx, EverySupersededAnswerIsWrong) {
  const auto all = onnx_files("attention_errata");
  if (all.empty()) GTEST_SKIP() << "no shared folder; see ATTEST_SHARED_DIR";
  EXPECT_EQ(all.size(), 48U);
  for (const std::string& file : all) {
    const Ended ended = run_attest({"check", file});
    EXPECT_TRUE(ended.out.starts_with("WRONG")) << file << "\n" << ended.out << ended.err;
    EXPECT_NE(ended.code, 0) << file;
    EXPECT_NE(ended.code, 2) << file << "\n" << ended.err;
  }
}

/// Names and metadata that tell an answer change no verdict: only op, opset and attributes are read.
TEST(CheckOnnx, ReadsNothingThatTellsTheAnswer) {
  const auto all = onnx_files("attention_errata");
  if (all.empty()) GTEST_SKIP() << "no shared folder; see ATTEST_SHARED_DIR";
  const std::set<std::string> kept{"op", "opset", "attributes"};
  for (std::size_t n = 0; n < all.size(); n += 7) {
    auto file = io::read_tensors(all[n]).value();
    std::erase_if(file.metadata, [&](const auto& entry) { return !kept.contains(entry.first); });
    EXPECT_EQ(checked(file, {}).out, run_attest({"check", all[n]}).out) << all[n];
  }
}

}  // namespace
}  // namespace attest::test
