// SPDX-License-Identifier: MIT
// The smallest program that links the library: exact attention on two positions, causal.
#include <cstdio>

#include "attest/lab/attention.h"

int main() {
  const double query[] = {1, 0, 0, 1};  // [T, D], also the keys
  const double value[] = {10, 0, 0, 20};
  const attest::View<const double, 4> q(query, {1, 1, 2, 2});
  const attest::View<const double, 4> v(value, {1, 1, 2, 2});

  // `value()` throws attest::Error; `if (!result) … result.failure()` does without exceptions.
  const auto result = attest::lab::attention({q, q, v}, {.mask = attest::Mask::causal()}).value();
  for (std::int64_t i = 0; i < 2; ++i) {
    std::printf("output[%d] = %.17g %.17g\n", static_cast<int>(i), result.output(0, 0, i, 0),
                result.output(0, 0, i, 1));
  }
  return 0;
}
