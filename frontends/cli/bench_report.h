// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "frontends/cli/bench_judge.h"

namespace attest::cli {

/// Which program measured. All empty: a report of before it was written down.
struct BenchBuild {
  std::string version;   ///< of attest
  std::string compiler;  ///< "GNU 12.2.0"
  std::string type;      ///< "Release"; empty if the build named none
  std::string flags;     ///< what the build gave the compiler; the project's own are not among them

  bool operator==(const BenchBuild&) const = default;
};

/// That of this program.
[[nodiscard]] BenchBuild this_build();

/// "attest 0.1.0, GNU 12.2.0, Release, -O3 -DNDEBUG".
[[nodiscard]] std::string build_text(const BenchBuild& build);

/// What was measured, where, and by what.
struct BenchReport {
  std::string processor;  ///< as the system names it; empty if it does not
  Isa isa = Isa::portable;
  BenchBuild build;
  std::vector<BenchResult> results;
};

/// The heading of the table, and one line of it.
[[nodiscard]] std::string bench_heading();
[[nodiscard]] std::string bench_line(const BenchResult& result, Isa isa);

/// How many floors were reached, peers passed and rows that scale: three lines.
[[nodiscard]] std::string bench_summary(const BenchReport& report);

/// "onednn2_composed 1.883 ms (0.75×)", or "not compared".
[[nodiscard]] std::string best_peer_text(const BenchResult& result);

/// Every number, with the verdicts.
[[nodiscard]] std::string bench_json(const BenchReport& report);

/// The same back: what `bench_json` wrote, of rows that are still in the table. Verdicts are made
/// anew. `name` is for messages.
/// Fails: bad-bench, if a member is missing or of another kind, or the row is not known. Only "build"
/// may be missing: reports did not always have it.
[[nodiscard]] Result<BenchReport> read_bench_json(const std::string& text, const std::string& name);

/// For each row with the first number of threads: its share of the limit and its floor, and beside
/// it the times as fast as each peer. An SVG that needs nothing beside itself and follows the reader's
/// choice of light or dark.
[[nodiscard]] std::string bench_svg(const BenchReport& report);

/// One page that needs nothing beside itself.
[[nodiscard]] std::string bench_html(const BenchReport& report);

}  // namespace attest::cli
