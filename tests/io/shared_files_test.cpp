// SPDX-License-Identifier: MIT
// Every safetensors file of the shared folder: goldens, cases of mistakes, small trained models.

#include <gtest/gtest.h>

#include <algorithm>

#include "attest/io/safetensors.h"
#include "attest/io/tensor_file.h"
#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

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
  const auto shared = test::shared_folder();
  if (!shared) GTEST_SKIP() << "no shared folder beside the source tree; see ATTEST_SHARED_DIR";
  const auto files = files_with(*shared / "data", ".safetensors");
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
  const auto shared = test::shared_folder();
  if (!shared) GTEST_SKIP() << "no shared folder beside the source tree; see ATTEST_SHARED_DIR";
  const fs::path pickle = *shared / "data/models/rxnmapper-albert/pytorch_model.bin";
  if (!fs::exists(pickle)) GTEST_SKIP() << "no such file in the shared folder";
  EXPECT_TRUE(test::refused(read_tensors(pickle.string()), "torch-file", "save it as safetensors"));
}

}  // namespace
}  // namespace attest::io
