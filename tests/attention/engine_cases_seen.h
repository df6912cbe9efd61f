// SPDX-License-Identifier: MIT
#pragma once

#include "attest/lab/attention_row.h"
#include "attest/lab/visibility.h"
#include "tests/attention/engine_cases_typed.h"

namespace attest::test {

/// Who sees whom, [B, H, T, S], by the exact tier's reading.
inline Tensor<bool> seen_by(const EngineCase& c) {
  const auto inputs = c.inputs();
  const auto options = c.options();
  const auto shape = lab::check_attention(inputs, options);
  const lab::Visibility visibility(options, *shape);
  Tensor<bool> out({shape->B, shape->H, shape->T, shape->S});
  for_each_index(out.view<4>().extents, [&](const auto& i) {
    out(i[0], i[1], i[2], i[3]) = visibility.visible({i[0], i[1], i[2]}, i[3]);
  });
  return out;
}

}  // namespace attest::test
