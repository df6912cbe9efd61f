// SPDX-License-Identifier: MIT
#pragma once

#include <utility>

#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// The dump of a call that has query, key and value [B, H, T, D], [B, G, S, D], [B, G, S, E] and what it is
/// meant to be, and of the output [B, H, T, E] that somebody's function gave. `type` is what it computes
/// in and stores. Further tables are appended to `stages`, in order of computation.
[[nodiscard]] inline Dump dump_of(AttentionCase call, Tensor<double> output,
                                  Precision type = Precision::f32) {
  Dump dump;
  dump.claim.shape = {call.query.extent(0), call.query.extent(1), call.key.extent(1),
                      call.query.extent(2), call.key.extent(2),   call.query.extent(3),
                      call.value.extent(3)};
  dump.claim.call = std::move(call);
  dump.claim.precision = type;
  const DType stored = type == Precision::f64    ? DType::f64
                       : type == Precision::f16  ? DType::f16
                       : type == Precision::bf16 ? DType::bf16
                                                 : DType::f32;
  dump.stages.push_back({Stage::output, std::move(output), stored, "output"});
  return dump;
}

/// The same of an output in float, as most functions give it.
[[nodiscard]] inline Dump dump_of(AttentionCase call, const Tensor<float>& output,
                                  Precision type = Precision::f32) {
  Tensor<double> numbers(output.shape());
  for (std::size_t n = 0; n < output.size(); ++n) numbers.data()[n] = output.data()[n];
  return dump_of(std::move(call), std::move(numbers), type);
}

}  // namespace attest::check
