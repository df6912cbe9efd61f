// SPDX-License-Identifier: MIT
#include "frontends/cli/check_verdict.h"

#include "frontends/cli/check_gradients.h"

namespace attest::cli {

Exit exit_of(check::Judgement judgement) {
  switch (judgement) {
    case check::Judgement::right:
    case check::Judgement::right_by_rounding:
      return Exit::done;
    case check::Judgement::wrong_named:
    case check::Judgement::wrong_unexplained:
      return Exit::differs;
    case check::Judgement::undecided:
      break;
  }
  return Exit::cannot_tell;
}

Result<check::Diagnosis> diagnosed(const LoadedDump& loaded, const check::Dump& dump,
                                   std::int64_t most_mistakes) {
  CheckProgress progress("check");
  return check::diagnose(dump, {.progress = progress.function(),
                                .most_mistakes = most_mistakes,
                                .of_probe = loaded.of_probe,
                                .precision_guessed = !loaded.precision_said});
}

Result<check::Diagnosis> diagnosed(const LoadedDump& loaded, std::int64_t most_mistakes) {
  if (!loaded.gradients) return diagnosed(loaded, loaded.dump, most_mistakes);
  auto backward = [&] {
    CheckProgress progress("check");
    return check::diagnose_gradients(
        *loaded.gradients, {.progress = progress.function(), .most_mistakes = most_mistakes});
  }();
  if (!backward || loaded.dump.stages.empty()) return backward;
  auto forward = diagnosed(loaded, loaded.dump, most_mistakes);
  if (!forward) return forward;
  return joined(*std::move(forward), *std::move(backward));
}

}  // namespace attest::cli
