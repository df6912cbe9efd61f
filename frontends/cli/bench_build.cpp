// SPDX-License-Identifier: MIT
// The definitions come from CMakeLists.txt, for this file alone.
#include "frontends/cli/bench_report.h"

namespace attest::cli {

BenchBuild this_build() {
  return {.version = ATTEST_VERSION,
          .compiler = ATTEST_COMPILER,
          .type = ATTEST_BUILD_TYPE,
          .flags = ATTEST_BUILD_FLAGS};
}

std::string build_text(const BenchBuild& build) {
  if (build == BenchBuild{}) return "a build that is not said";
  std::string out = "attest " + build.version;
  for (const std::string* part : {&build.compiler, &build.type, &build.flags}) {
    if (!part->empty()) out += ", " + *part;
  }
  return out;
}

}  // namespace attest::cli
