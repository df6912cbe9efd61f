// SPDX-License-Identifier: MIT
// Every safetensors file of the shared folder: goldens, cases of mistakes, small trained models.

#include "tests/support/shared_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "attest/io/safetensors.h"
#include "attest/io/tensor_file.h"
#include "tests/support/file_assertions.h"
#include "tests/support/scratch_folder.h"

namespace attest::io {
namespace {

namespace fs = std::filesystem;
using test::accepted;
using test::same_bits;

std::vector<fs::path> files_with(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> out;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    if (entry.is_regular_file() && entry.path().extension() == extension) out.push_back(entry);
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(SharedFiles, EverySafetensorsFileReadsAndSurvivesWriting) {
  const auto folder = test::shared_path("data");
  if (!folder) GTEST_SKIP() << test::not_shared;
  const auto files = files_with(*folder, ".safetensors");
  ASSERT_GT(files.size(), 100U);
  for (const fs::path& path : files) {
    const auto read = read_tensors(path.string());
    ASSERT_TRUE(accepted(read));
    EXPECT_FALSE(read->tensors.empty()) << path;
    const auto written = serialize_safetensors(*read);
    ASSERT_TRUE(accepted(written)) << path;
    const auto back = parse_safetensors(*written, path.string());
    ASSERT_TRUE(accepted(back));
    EXPECT_TRUE(same_bits(*back, *read)) << path;
  }
}

TEST(SharedFiles, ATorchPickleIsToldApart) {
  const auto pickle = test::shared_path("data/models/rxnmapper-albert/pytorch_model.bin");
  if (!pickle) GTEST_SKIP() << test::not_shared;
  EXPECT_TRUE(
      test::refused(read_tensors(pickle->string()), "torch-file", "save it as safetensors"));
}

/// Sets the variable as long as it lives.
class Named {
 public:
  explicit Named(const fs::path& folder) {
    if (const char* before = std::getenv("ATTEST_SHARED_DIR")) before_ = before;
    ::setenv("ATTEST_SHARED_DIR", folder.c_str(), 1);
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;
  ~Named() {
    if (before_) {
      ::setenv("ATTEST_SHARED_DIR", before_->c_str(), 1);
    } else {
      ::unsetenv("ATTEST_SHARED_DIR");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST(SharedFiles, AreLookedForWhereTheVariableSays) {
  const test::ScratchFolder folder;
  fs::create_directories(folder.file("data/workbook"));
  const Named named(folder.file(""));
  EXPECT_EQ(test::shared_path("data/workbook"), fs::path(folder.file("data/workbook")));
  EXPECT_EQ(test::shared_path("data/onnx"), std::nullopt);
}

TEST(SharedFiles, AreLookedForInOnePlaceOnly) {
  const fs::path tests = fs::path(ATTEST_SOURCE_DIR) / "tests";
  for (const auto& entry : fs::recursive_directory_iterator(tests)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cpp" && extension != ".h") continue;
    const std::string name = entry.path().lexically_relative(tests).string();
    if (name == "support/shared_files.h" || name == "io/shared_files_test.cpp") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(text.find("ATTEST_SHARED_DIR"), std::string::npos) << name;
    EXPECT_EQ(text.find("/../shared"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace attest::io
