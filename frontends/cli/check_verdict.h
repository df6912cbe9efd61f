// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "attest/base/result.h"
#include "attest/check/diagnose/diagnosis.h"
#include "frontends/cli/check_dump.h"
#include "frontends/cli/command.h"
#include "frontends/cli/print.h"

namespace attest::cli {

/// How a command ends that came to a judgement.
[[nodiscard]] Exit exit_of(check::Judgement judgement);

/// Progress of a diagnosis on standard error.
class CheckProgress {
 public:
  explicit CheckProgress(const std::string& what) : line_(what) {}
  [[nodiscard]] std::function<void(std::string_view, double)> function() {
    return [this](std::string_view, double fraction) {
      line_.show(static_cast<std::int64_t>(fraction * 1000), 1000);
    };
  }

 private:
  Progress line_;
};

/// check::diagnose with progress shown, of that dump or one made of it.
[[nodiscard]] Result<check::Diagnosis> diagnosed(const LoadedDump& loaded, const check::Dump& dump,
                                                 std::int64_t most_mistakes);
/// The same of a dump with its gradients, if it has any: one verdict.
[[nodiscard]] Result<check::Diagnosis> diagnosed(const LoadedDump& loaded,
                                                 std::int64_t most_mistakes);

}  // namespace attest::cli
