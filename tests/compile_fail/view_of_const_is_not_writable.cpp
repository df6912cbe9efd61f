// SPDX-License-Identifier: MIT
// Inputs are read, never written.
// expect: (read-only|const)

#include <array>

#include "attest/base/view.h"

double f(attest::View<const double, 2> input, attest::View<double, 2> output) {
#ifdef ATTEST_BAD
  input(0, 0) = 1.0;
#endif
  output(0, 0) = input(0, 0);
  return output(0, 0);
}
