// SPDX-License-Identifier: MIT
// Whether tensors that are wrong with heads apart are right with heads side by side.
#include "frontends/cli/check_packed.h"

#include <algorithm>

#include "attest/base/text.h"
#include "frontends/cli/check_readings.h"

namespace attest::cli {
namespace {

bool is_right(check::Judgement judgement) {
  return judgement == check::Judgement::right || judgement == check::Judgement::right_by_rounding;
}

}  // namespace

bool is_right_as_claimed(LoadedDump& loaded) {
  if (!loaded.claimed) {
    const auto readings = compare_usual_readings(loaded, {});
    return readings && std::ranges::any_of(*readings, &Reading::reproduces);
  }
  const auto diagnosis = check::diagnose(loaded.dump, {.progress = {}, .most_mistakes = 0});
  return diagnosis && is_right(diagnosis->judgement);
}

std::optional<std::int64_t> heads_that_clear(const DumpOptions& options, const LoadedDump& loaded) {
  if (loaded.gradients) return std::nullopt;
  for (const std::int64_t heads : loaded.packed_heads) {
    DumpOptions packed = options;
    packed.inputs.heads = heads;
    packed.inputs.layout = "packed";
    auto again = load_dump(packed);
    if (again && is_right_as_claimed(*again)) return heads;
  }
  return std::nullopt;
}

std::string packed_sentence(std::int64_t heads) {
  return sentence("--heads ", heads, ": read as packed rows [B, T, H*D] of ", heads,
                  " heads, every number is right");
}

void consider_packed(const DumpOptions& options, const LoadedDump& loaded,
                     check::Diagnosis& diagnosis) {
  if (is_right(diagnosis.judgement)) return;
  const std::optional<std::int64_t> heads = heads_that_clear(options, loaded);
  if (!heads) return;
  diagnosis.judgement = check::Judgement::undecided;
  diagnosis.explanations.clear();
  diagnosis.nearest.clear();
  diagnosis.would_decide = {packed_sentence(*heads)};
}

}  // namespace attest::cli
