// SPDX-License-Identifier: MIT
// A matrix is not a batch of matrices.
// expect: (conversion|convert)

#include "attest/base/view.h"

double first(attest::View<const double, 4> batch) { return batch(0, 0, 0, 0); }

double f(attest::View<double, 4> batch, attest::View<double, 2> matrix) {
#ifdef ATTEST_BAD
  return first(matrix);
#endif
  return first(batch) + matrix(0, 0);
}
