// SPDX-License-Identifier: MIT
// "attention(inputs, true)" would say nothing to its reader.
// expect: of type .*bool

#include "attest/lab/attention.h"

bool f(const attest::AttentionInputs<double>& inputs) {
#ifdef ATTEST_BAD
  return attest::lab::attention(inputs, true).has_value();
#endif
  return attest::lab::attention(inputs, {.mask = attest::Mask::causal()}).has_value();
}
