// SPDX-License-Identifier: MIT
// The same of a gradient, whose types stand in the inputs.
// expect: constraints not satisfied

#include "attest/attention/attention_backward.h"

void f(const attest::AttentionInputs<double>& inputs,
       const attest::AttentionBackwardInputs<double>& results,
       const attest::AttentionOptions<attest::BFloat16>& narrow,
       const attest::AttentionOptions<double>& wide) {
  (void)attest::attention_backward(inputs, results, wide);
#ifdef ATTEST_BAD
  (void)attest::attention_backward(inputs, results, narrow);
#endif
}
