// SPDX-License-Identifier: MIT
// A failure that nobody looks at is a wrong answer.
// expect: ignoring.*(nodiscard|return)

#include "attest/base/result.h"

attest::Result<int> answer();

int f() {
#ifdef ATTEST_BAD
  answer();
#endif
  return answer().has_value() ? 1 : 0;
}
