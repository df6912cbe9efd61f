// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include "tests/attention/engine_cases_typed.h"

/// A row's bits must not depend on the rows that happen to share a block with it.
namespace attest::test {

/// A window whose first key is even or odd: which keys make a pair, or a tile, must be said by their
/// absolute places. Large values cancel: key j + 51 is key j, its value the opposite, and a window is 102
/// long. So the last bits of f32, which the order of a sum decides, are seen in bfloat16.
///
/// `run` makes an EngineForward of a case.
template <class Run>
void expect_rows_alone_as_together(Run run) {
  Random random(11, 11);
  constexpr std::int64_t length = 300, period = 51;
  EngineCase c{.storage = DType::bf16};
  c.query = stored_tensor(random, {1, 1, length, 8}, 2, DType::bf16);
  c.key = stored_tensor(random, {1, 1, length, 8}, 2, DType::bf16);
  c.value = stored_tensor(random, {1, 1, length, 16}, 2, DType::bf16);
  for_each_index(c.key.view<4>().extents, [&](const auto& i) {
    if (i[2] >= period) c.key(0, 0, i[2], i[3]) = c.key(0, 0, i[2] - period, i[3]);
  });
  for_each_index(c.value.view<4>().extents, [&](const auto& i) {
    double& x = c.value(0, 0, i[2], i[3]);
    if (i[2] % period >= 45) return;
    x = i[2] < period ? 1024 * x : -c.value(0, 0, i[2] - period, i[3]);
  });
  c.chosen.mask = Mask::causal();
  c.chosen.mask.window.left = 2 * period - 1;
  const EngineForward whole = run(c);
  for (std::int64_t i = 2 * period; i < length; ++i) {
    EngineCase one = c;
    one.query = Tensor<double>({1, 1, 1, 8});
    for (std::int64_t d = 0; d < 8; ++d) one.query(0, 0, 0, d) = c.query(0, 0, i, d);
    one.chosen.mask = Mask::causal_at(i);
    one.chosen.mask.window = c.chosen.mask.window;
    const EngineForward alone = run(one);
    ASSERT_TRUE(same_bits(alone.log_sum_exp(0, 0, 0), whole.log_sum_exp(0, 0, i))) << "row " << i;
    for (std::int64_t e = 0; e < 16; ++e) {
      ASSERT_TRUE(same_bits(alone.output(0, 0, 0, e), whole.output(0, 0, i, e)))
          << "row " << i << ", column " << e;
    }
  }
}

}  // namespace attest::test
