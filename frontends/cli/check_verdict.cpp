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

namespace {

/// `progress` must outlive what it says.
check::DiagnoseOptions options_for(const LoadedDump& loaded, std::int64_t most_mistakes,
                                   CheckProgress& progress) {
  return {.progress = progress.function(),
          .most_mistakes = most_mistakes,
          .of_probe = loaded.of_probe,
          .precision_guessed = !loaded.precision_said};
}

}  // namespace

Result<check::Diagnosis> diagnosed(const LoadedDump& loaded, const check::Dump& dump,
                                   std::int64_t most_mistakes) {
  CheckProgress progress("check");
  return check::diagnose(dump, options_for(loaded, most_mistakes, progress));
}

Result<check::Diagnosis> diagnosed(const LoadedDump& loaded, std::int64_t most_mistakes) {
  CheckProgress progress("check");
  return diagnose_both(loaded.dump, loaded.gradients, options_for(loaded, most_mistakes, progress));
}

}  // namespace attest::cli
