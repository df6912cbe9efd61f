// SPDX-License-Identifier: MIT
// A bias in a number type that the engine does not read beside these tensors.
// expect: constraints not satisfied

#include "attest/attention/attention.h"

void f(attest::View<const float, 4> x, const attest::AttentionOptions<double>& wide,
       const attest::AttentionOptions<attest::BFloat16>& narrow) {
  (void)attest::attention(x, x, x, narrow);
#ifdef ATTEST_BAD
  (void)attest::attention(x, x, x, wide);
#endif
}
