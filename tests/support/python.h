// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <string>

#include "run_program.h"

namespace attest::test {

/// An interpreter that has NumPy, or nothing.
inline std::string python() {
  for (const std::string& candidate :
       {std::string(ATTEST_PYTHON), std::string("/usr/bin/python3")}) {
    if (candidate.empty()) continue;
    const std::string question = quoted(candidate) + " -c 'import numpy' >/dev/null 2>&1";
    if (std::system(question.c_str()) == 0) return candidate;
  }
  return "";
}

}  // namespace attest::test
