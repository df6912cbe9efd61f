// SPDX-License-Identifier: MIT
#include "frontends/cli/arguments.h"

#include <algorithm>
#include <charconv>

namespace attest::cli {
namespace {

bool names_a_corner(const std::string& word) {
  if (word == "top-left" || word == "bottom-right" || word == "square" || word == "none") {
    return true;
  }
  // A corner spelled otherwise is still meant as one, and refused as such further on.
  const bool plain = word.find_first_of("./") == std::string::npos;
  const bool sided =
      word.find("left") != std::string::npos || word.find("right") != std::string::npos;
  if (plain && sided) return true;
  long long offset = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, offset);
  return error == std::errc{} && rest == end;
}

}  // namespace

std::vector<std::string> normalised_arguments(int argc, char** argv) {
  std::vector<std::string> out;
  for (int n = 1; n < argc; ++n) {
    std::string word = argv[n];
    if (word == "--causal") {
      const bool with_value = n + 1 < argc && names_a_corner(argv[n + 1]);
      word += with_value ? std::string("=") + argv[++n] : "=square";
    }
    out.push_back(std::move(word));
  }
  std::ranges::reverse(out);
  return out;
}

}  // namespace attest::cli
