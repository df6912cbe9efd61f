// SPDX-License-Identifier: MIT
// Half of a call in another number type is a mistake, not a conversion.
// expect: (conversion|convert|cannot assign|no viable)

#include "attest/base/attention_call.h"

void f(attest::View<const float, 4> narrow, attest::View<const double, 4> wide) {
  attest::AttentionInputs<double> inputs;
  inputs.query = wide;
#ifdef ATTEST_BAD
  inputs.key = narrow;
#endif
}
