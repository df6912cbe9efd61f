// SPDX-License-Identifier: MIT
// The exact tier alone: causal attention of two positions.

#include <array>

#include "attest/lab/attention.h"

int main() {
  const std::array<double, 4> query = {1, 0, 0, 1};    // [T=2, D=2], also the keys
  const std::array<double, 4> value = {10, 0, 0, 20};  // [S=2, E=2]
  using Heads = attest::View<const double, 4>;         // [B, H, T, D]
  const auto result = attest::lab::attention({.query = Heads(query.data(), {1, 1, 2, 2}),
                                              .key = Heads(query.data(), {1, 1, 2, 2}),
                                              .value = Heads(value.data(), {1, 1, 2, 2})},
                                             {.mask = attest::Mask::causal()});
  if (!result) return 1;
  const bool first_row_sees_itself_alone =
      result->output(0, 0, 0, 0) == 10.0 && result->weights(0, 0, 0, 1) == 0.0;
  return first_row_sees_itself_alone ? 0 : 1;
}
