// SPDX-License-Identifier: MIT
// One index for each axis.
// expect: (no match for call|no matching function)

#include "attest/base/view.h"

double f(attest::View<double, 3> heads) {
#ifdef ATTEST_BAD
  return heads(0, 0);
#endif
  return heads(0, 0, 0);
}
