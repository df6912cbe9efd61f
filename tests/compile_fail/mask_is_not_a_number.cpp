// SPDX-License-Identifier: MIT
// Visible or not is a mask; a number added to a score is a bias. They do not convert.
// expect: (conversion|convert|cannot assign|no viable)

#include "attest/base/attention_call.h"

void f(attest::View<const double, 4> numbers, attest::View<const bool, 4> visible) {
  attest::AttentionOptions<double> options;
  options.bias = numbers;
  options.mask.visible = visible;
#ifdef ATTEST_BAD
  options.mask.visible = numbers;
#endif
}
