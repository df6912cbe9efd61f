// SPDX-License-Identifier: MIT
// Choices are named.
// expect: (convert|cannot initialize a parameter).*bool

#include "attest/lab/attention.h"

bool f(const attest::AttentionInputs<double>& inputs) {
  using attest::lab::Weights;
#ifdef ATTEST_BAD
  return attest::lab::attention(inputs, {}, false).has_value();
#endif
  return attest::lab::attention(inputs, {}, Weights::drop).has_value();
}
