// SPDX-License-Identifier: MIT
// Whether what nothing has read is what an unexplained verdict lacks.
#include "frontends/cli/check_unread.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "frontends/cli/check_packed.h"

namespace attest::cli {
namespace {

/// What a name speaks of, the option that reads it, and how that option wants it.
struct Kind {
  std::string_view part, flag, form;
};
constexpr Kind kinds[] = {
    {"pad", "mask", "booleans, true = may see, a padding mask [B, S] stored as [B, 1, 1, S]"},
    {"mask", "mask", "booleans, true = may see, a padding mask [B, S] stored as [B, 1, 1, S]"},
    {"cu_seqlen", "query-starts-tensor", "where packed documents begin, and the end"},
    {"seqlens_k", "key-lengths-tensor", "one a batch entry; GroupQueryAttention has them less 1"},
    {"len", "key-lengths-tensor", "one a batch entry: keys at and beyond are hidden"},
    {"alibi", "alibi-slopes-tensor", "one a head"},
    {"slope", "alibi-slopes-tensor", "one a head"},
    {"bias", "bias", "numbers that are added to the scaled scores"},
    {"sink", "sink-tensor", "one logit a head"}};

const Kind* kind_of(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto* found = std::ranges::find_if(
      kinds, [&](const Kind& kind) { return lower.find(kind.part) != std::string::npos; });
  return found == std::end(kinds) ? nullptr : found;
}

bool right_with(const DumpOptions& options, const Kind& kind, const std::string& name) {
  DumpOptions with = options;
  with.inputs.names[std::string(kind.flag)] = name;
  auto loaded = load_dump(with);
  return loaded && is_right_as_claimed(*loaded);
}

}  // namespace

void consider_unread(const DumpOptions& options, const LoadedDump& loaded,
                     check::Diagnosis& diagnosis) {
  if (diagnosis.judgement != check::Judgement::wrong_unexplained || loaded.gradients) return;
  std::vector<std::string> ways;
  for (const UnreadTensor& each : loaded.unread) {
    const Kind* kind = kind_of(each.name);
    if (kind == nullptr || options.inputs.names.contains(std::string(kind->flag))) continue;
    if (kind->flag == "key-lengths-tensor" && !options.inputs.key_lengths.empty()) continue;
    const std::string flag = sentence("--", kind->flag, " ", each.name);
    if (right_with(options, *kind, each.name)) {
      ways = {sentence("'", each.name, "' was not read; with ", flag, " every number is right")};
      break;
    }
    ways.push_back(sentence("'", each.name, "' ", to_string(each.shape),
                            " was not read, and may be what is missing: ", flag, " (", kind->form,
                            ")"));
  }
  if (ways.empty()) return;
  diagnosis.judgement = check::Judgement::undecided;
  diagnosis.unsaid = ways.front();
  diagnosis.nearest.clear();
  diagnosis.would_decide.assign(ways.begin() + 1, ways.end());
}

}  // namespace attest::cli
