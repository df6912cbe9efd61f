// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/tensor.h"

namespace attest {

/// One attention call that owns its tensors: what a file, a trace or a random test holds.
///
/// `inputs()` and `options()` give the views that every tier takes; they look into this object and
/// live no longer than it.
struct AttentionCase {
  Tensor<double> query{};  // [B, H, T, D]
  Tensor<double> key{};    // [B, G, S, D]
  Tensor<double> value{};  // [B, G, S, E]

  Mask mask{};                            ///< its `visible` is replaced by the member below
  std::optional<Tensor<bool>> visible{};  // broadcasts to [B, H, T, S]
  std::optional<Tensor<double>> bias{};   // broadcasts to [B, H, T, S]
  std::optional<double> scale{};
  std::optional<double> softcap{};
  std::vector<double> alibi_slopes{};  // [H]
  std::vector<double> sink{};          // [H]
  Dropout dropout{};
  EmptyRow empty_row = EmptyRow::error;

  [[nodiscard]] AttentionInputs<double> inputs() const {
    return {query.view<4>(), key.view<4>(), value.view<4>()};
  }
  [[nodiscard]] AttentionOptions<double> options() const {
    AttentionOptions<double> out{.mask = mask,
                                 .scale = scale,
                                 .softcap = softcap,
                                 .alibi_slopes = alibi_slopes,
                                 .sink = sink,
                                 .dropout = dropout,
                                 .empty_row = empty_row};
    if (visible) out.mask.visible = visible->view<4>();
    if (bias) out.bias = bias->view<4>();
    return out;
  }
};

}  // namespace attest
