// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/diagnose/diagnosis.h"
#include "frontends/cli/check_dump.h"

namespace attest::cli {

/// One of the ways in which frameworks would read tensors of which nothing is said.
struct Reading {
  std::string label;  ///< "causal, query 0 at key 0"
  std::string flags;  ///< what claims it: "--causal top-left"
  bool reproduces = false;
  check::Diagnosis diagnosis;
  std::string mistake;  ///< "gqa.tile", if no reading reproduces the dump and this one does with it
};

/// Compares the dump with every usual reading: plain, causal in either corner or behind the cache; a
/// boolean mask of either polarity; rows without a key as zero and as NaN. `loaded` is left as the
/// first reading that reproduces it, else as the plain one. If none does, single mistakes are looked for
/// under each of them, unless the call is so large that it would take long. Fails as diagnose.
[[nodiscard]] Result<std::vector<Reading>> compare_usual_readings(
    LoadedDump& loaded,
    const std::function<void(std::string_view doing, double fraction)>& progress);

/// 0 if every reading reproduces the dump, else 3.
[[nodiscard]] int exit_of(const std::vector<Reading>& readings);
[[nodiscard]] std::string to_text(const std::vector<Reading>& readings);
/// One of them as a page shows it: under the verdict on all.
[[nodiscard]] check::Diagnosis page_of(const std::vector<Reading>& readings, const Reading& shown);
[[nodiscard]] std::string to_json(const std::vector<Reading>& readings);

}  // namespace attest::cli
