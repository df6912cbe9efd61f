// SPDX-License-Identifier: MIT
// The value is taken out on purpose, never by conversion.
// expect: (cannot convert|no viable conversion)

#include "attest/base/result.h"

attest::Result<int> answer();

int f() {
  const auto result = answer();
#ifdef ATTEST_BAD
  const int value = result;
#endif
  return result ? *result : 0;
}
