// SPDX-License-Identifier: MIT
// One may promise not to write; one may not take the promise back.
// expect: (conversion|convert)

#include "attest/base/view.h"

double f(attest::View<const double, 2> input, attest::View<double, 2> output) {
  const attest::View<const double, 2> reading = output;
#ifdef ATTEST_BAD
  const attest::View<double, 2> writing = input;
#endif
  return reading(0, 0) + input(0, 0);
}
