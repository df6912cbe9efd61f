// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/base/mask.h"
#include "attest/base/view.h"

namespace attest {

/// The tensors of one attention call, as every tier reads them.
///
/// Any strides; [B, T, H, D] memory is the same view with two axes swapped. Query head h reads
/// key/value head h div (H/G); key/value heads are never repeated in memory.
template <class T>
struct AttentionInputs {
  View<const T, 4> query{};  ///< [B, H, T, D]
  View<const T, 4> key{};    ///< [B, G, S, D], G divides H
  View<const T, 4> value{};  ///< [B, G, S, E]
};

/// Weights that are left out at random in training, the others scaled up by 1/(1 − rate).
///
/// Which ones is a pure function of seed and place (attest/base/dropout.h): the same however a call is
/// cut into tiles or threads, and again in the backward pass.
struct Dropout {
  double rate = 0;  ///< in [0, 1); 0: none
  std::uint64_t seed = 0;
};

/// What may be chosen about an attention call. Defaults: everything visible, scale 1/√D.
///
/// Order: dot product, scale, softcap, bias and ALiBi, mask, softmax with the sink, dropout, mix.
template <class T>
struct AttentionOptions {
  Mask mask{};
  View<const T, 4> bias{};          ///< added to the capped score; broadcasts to [B, H, T, S]
  std::optional<double> scale{};    ///< multiplies the dot product; nothing: divide by √D
  std::optional<double> softcap{};  ///< c · tanh(score / c), c > 0
  std::vector<double> alibi_slopes{};  ///< [H]; adds −slope · |position of query − j|; empty: none
  std::vector<double> sink{};          ///< [H]; a logit that joins the softmax's denominator alone
  Dropout dropout{};
  EmptyRow empty_row = EmptyRow::error;
};

/// The same options with a bias of another type, or with none.
template <class To, class From>
[[nodiscard]] AttentionOptions<To> options_with(const AttentionOptions<From>& from,
                                                View<const To, 4> bias) {
  return {.mask = from.mask,
          .bias = bias,
          .scale = from.scale,
          .softcap = from.softcap,
          .alibi_slopes = from.alibi_slopes,
          .sink = from.sink,
          .dropout = from.dropout,
          .empty_row = from.empty_row};
}

}  // namespace attest
