// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "frontends/cli/bench_run.h"

namespace attest::cli {

/// What was measured, and where.
struct BenchReport {
  std::string processor;  ///< as the system names it; empty if it does not
  Isa isa = Isa::portable;
  std::vector<std::string> peers;  ///< that were asked, by program
  std::vector<BenchResult> results;
};

/// The floor in words, "≥ 77 %", "≤ 1.8 µs"; empty where the row has none or it does not apply: with
/// more than one thread, and for bfloat16 arithmetic, whose floors are set for matrix tiles.
[[nodiscard]] std::string floor_text(const BenchResult& result, Isa isa);

/// "reached", "missed", "unsteady" (its rounds count for nothing), or empty without a floor.
[[nodiscard]] std::string verdict(const BenchResult& result, Isa isa);

/// The heading of the table, and one line of it.
[[nodiscard]] std::string bench_heading();
[[nodiscard]] std::string bench_line(const BenchResult& result, Isa isa);

[[nodiscard]] std::string bench_json(const BenchReport& report);

/// One page that needs nothing beside itself.
[[nodiscard]] std::string bench_html(const BenchReport& report);

}  // namespace attest::cli
