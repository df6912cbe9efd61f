// SPDX-License-Identifier: MIT
// What the library says of a call, in the words of the command line.
#include <string_view>

#include "frontends/cli/case_options.h"

namespace attest::cli {

Failure in_words_of_options(Failure failure) {
  std::string& text = failure.message;
  constexpr std::string_view sees_nothing = "sees no key";
  if (const auto at = text.find(sees_nothing);
      failure.id == "no-visible-key" && at != std::string::npos) {
    text.resize(at + sees_nothing.size());
    text += "; say what its output shall be: --empty-row zero or --empty-row nan";
  }
  constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"packing.query_starts", "query_starts"},
      {"packing.key_starts", "key_starts"},
      {"documents.query", "query_documents"},
      {"documents.key", "key_documents"}};
  for (const auto& [member, name] : names) {
    if (const auto at = text.find(member); at != std::string::npos) {
      text.replace(at, member.size(), name);
    }
  }
  return failure;
}

}  // namespace attest::cli
