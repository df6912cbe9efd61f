// SPDX-License-Identifier: MIT
// What the library says of a call, in the words of the command line.
#include <string_view>

#include "frontends/cli/case_options.h"

namespace attest::cli {
namespace {

/// What is said of a convention, and the option that says it instead.
constexpr std::pair<std::string_view, std::string_view> instead[] = {
    {"means by causal", "say --causal top-left, bottom-right or the key position of query 0"},
    {"counts as a window",
     "leave --convention out and say --window LEFT,RIGHT: keys beside the query's own"},
    {"gives a query", "say --empty-row zero or nan"},
    {"scales by", "--scale says another"},
    {"mask",
     "leave --convention out and store it as booleans, true = may see, or give it as --bias"}};

/// "say it in attest's own options" with the option's name.
void name_the_option(std::string& text) {
  constexpr std::string_view unnamed = "say it in attest's own options";
  const auto at = text.find(unnamed);
  if (at == std::string::npos) return;
  for (const auto& [what, option] : instead) {
    if (text.find(what) > at) continue;
    text.replace(at, unnamed.size(), option);
    return;
  }
}

}  // namespace

Failure in_words_of_options(Failure failure) {
  std::string& text = failure.message;
  constexpr std::string_view sees_nothing = "sees no key";
  if (const auto at = text.find(sees_nothing);
      failure.id == "no-visible-key" && at != std::string::npos) {
    text.resize(at + sees_nothing.size());
    text += "; say what its output shall be: --empty-row zero or --empty-row nan";
  }
  name_the_option(text);
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
