// SPDX-License-Identifier: MIT
// A number is not a shape.
// expect: (of type .*double|no matching function|no viable conversion)

#include "attest/base/tensor.h"

double f(const attest::Tensor<double>& tensor) { return tensor.elements()[0]; }

double g() {
#ifdef ATTEST_BAD
  return f(3.0);
#endif
  return f(attest::Tensor<double>({1}));
}
