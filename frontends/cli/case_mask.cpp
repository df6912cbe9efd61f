// SPDX-License-Identifier: MIT
// Which keys the rules of position hide, from options and files.
#include "frontends/cli/case_mask.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/text.h"
#include "frontends/cli/case_lists.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

/// The whole-number list "3", "3,", ",0", "2,1" of --window.
Result<std::vector<std::optional<std::int64_t>>> window_sides(const std::string& text) {
  std::vector<std::optional<std::int64_t>> sides;
  std::size_t begin = 0;
  while (true) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    std::int64_t number = 0;
    const char* end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, number);
    if (part.empty()) {
      sides.push_back(std::nullopt);
    } else if (error == std::errc{} && rest == end) {
      sides.push_back(number);
    } else {
      return bad("bad-window", sentence("--window wants LEFT,RIGHT; found '", text, "'"));
    }
    if (comma == text.size()) return sides;
    begin = comma + 1;
  }
}

/// Two lists, one for queries and one for keys. Where there is but one, it is for both, if the lengths
/// allow that.
struct TwoLists {
  ListRole of_queries, of_keys;
  const std::vector<std::int64_t>& given_queries;
  const std::vector<std::int64_t>& given_keys;
};

Result<void> read_both(const MaskSources& from, const TwoLists& lists,
                       std::vector<std::int64_t>& queries, std::vector<std::int64_t>& keys) {
  auto first = list_of(from.files, from.options, lists.of_queries, lists.given_queries);
  if (!first) return first.failure();
  auto second = list_of(from.files, from.options, lists.of_keys, lists.given_keys);
  if (!second) return second.failure();
  queries = *std::move(first);
  keys = *std::move(second);
  if (queries.empty() == keys.empty()) return {};
  const std::string& absent = keys.empty() ? lists.of_keys.name : lists.of_queries.name;
  const std::string& present = keys.empty() ? lists.of_queries.name : lists.of_keys.name;
  if (from.queries != from.keys) {
    return bad("missing-tensor", sentence(present, " needs ", absent, ": there are ", from.queries,
                                          " queries and ", from.keys, " keys"));
  }
  from.files.remark(sentence("taking ", present, " as ", absent, " too"));
  (keys.empty() ? keys : queries) = keys.empty() ? queries : keys;
  return {};
}

}  // namespace

Result<void> place_causal(const MaskSources& from, Mask& mask) {
  const auto& [o, convention, files, queries, keys] = from;
  mask.future_hidden = !o.causal.empty() && o.causal != "none";
  if (!o.query_offset.empty()) {
    mask.corner = Corner::at_offset;
    mask.query_offset = o.query_offset;
    const bool counted = !o.window.empty() || o.alibi || !o.alibi_slopes.empty();
    if (!mask.future_hidden && !counted) {
      files.remark("--query-offset changes nothing without --causal, --window or --alibi");
    }
    if (mask.future_hidden && o.causal != "square") {
      return bad("two-corners", sentence("--causal ", o.causal,
                                         " and --query-offset both say where "
                                         "query 0 stands: give one"));
    }
    return {};
  }
  if (!mask.future_hidden) return {};
  if (o.causal == "top-left") {
    mask.corner = Corner::top_left;
  } else if (o.causal == "bottom-right") {
    mask.corner = Corner::bottom_right;
  } else if (o.causal == "square") {
    mask.corner = Corner::square;
    if (!convention) return {};
    const auto corner = corner_of(*convention, Cache::none);
    if (!corner) return corner.failure();
    mask.corner = *corner;
  } else {
    std::int64_t offset = 0;
    const char* end = o.causal.data() + o.causal.size();
    const auto [rest, error] = std::from_chars(o.causal.data(), end, offset);
    if (error != std::errc{} || rest != end) {
      return bad("bad-corner",
                 sentence("--causal is top-left, bottom-right, none or a whole number; found '",
                          o.causal, "'"));
    }
    mask.corner = Corner::at_offset;
    mask.query_offset = {offset};
  }
  return {};
}

Result<void> place_window(const MaskSources& from, Mask& mask) {
  const auto& [o, convention, files, queries, keys] = from;
  if (o.window.empty()) return {};
  const auto sides = window_sides(o.window);
  if (!sides) return sides.failure();
  if (convention && sides->size() == 1 && (*sides)[0]) {
    const auto window = to_window(*(*sides)[0], *convention);
    if (!window) return window.failure();
    mask.window = *window;
    return {};
  }
  if (convention && sides->size() == 2 && (*sides)[0] && (*sides)[1]) {
    const auto window = to_window(*(*sides)[0], *(*sides)[1], *convention);
    if (!window) return window.failure();
    mask.window = *window;
    return {};
  }
  // An open side has no count to convert, but a framework without windows has no open ones either.
  if (convention && sides->size() == 2) {
    if (const auto any = to_window(1, 1, *convention); !any) return any.failure();
  }
  if (sides->size() != 2) {
    return bad("bad-window",
               sentence("--window wants LEFT,RIGHT (keys beside the query's own); found '",
                        o.window, "'; one number alone needs a --convention to count it"));
  }
  mask.window = {(*sides)[0], (*sides)[1]};
  return {};
}

Result<void> place_lengths(const MaskSources& from, Mask& mask) {
  auto lengths = list_of(from.files, from.options, {"key_lengths", "key-lengths-tensor"},
                         from.options.key_lengths);
  if (!lengths) return lengths.failure();
  mask.key_lengths = *std::move(lengths);
  return {};
}

Result<void> place_documents(const MaskSources& from, Mask& mask) {
  const CaseOptions& o = from.options;
  const TwoLists starts{{"query_starts", "query-starts-tensor"},
                        {"key_starts", "key-starts-tensor"},
                        o.query_starts,
                        o.key_starts};
  auto ok = read_both(from, starts, mask.packing.query_starts, mask.packing.key_starts);
  if (!ok) return ok;
  const TwoLists names{{"query_documents", "query-documents-tensor", 2},
                       {"key_documents", "key-documents-tensor", 2},
                       o.query_documents,
                       o.key_documents};
  return read_both(from, names, mask.documents.query, mask.documents.key);
}

}  // namespace attest::cli
