// SPDX-License-Identifier: MIT
//
// fuzz_NAME PATH...   hands every file below the paths to the fuzz target, once, and every file cut
//                     short at each of its first bytes; for builds without libFuzzer.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> bytes_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The copy is exactly as long as the input, so that tools which watch memory see a step beyond it.
void try_input(const std::vector<std::uint8_t>& whole, std::size_t size) {
  const std::vector<std::uint8_t> input(whole.begin(),
                                        whole.begin() + static_cast<std::ptrdiff_t>(size));
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int count, char** words) {
  constexpr std::size_t longest_prefix = 512;
  std::size_t files = 0;
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path start(words[i]);
    std::vector<std::filesystem::path> paths;
    if (std::filesystem::is_directory(start)) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(start)) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
    } else {
      paths.push_back(start);
    }
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) {
      const auto whole = bytes_of(path);
      try_input(whole, whole.size());
      for (std::size_t size = 0; size < std::min(whole.size(), longest_prefix); ++size) {
        try_input(whole, size);
      }
      ++files;
    }
  }
  std::cout << files << " inputs replayed\n";
  return files > 0 ? 0 : 1;  // an empty corpus proves nothing
}
