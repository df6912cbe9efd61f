// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "attest/check/mistakes/catalogue.h"

namespace attest::check {

// The catalogue's parts, one a file, catalogue_AXIS.cpp; catalogue() joins them.

[[nodiscard]] std::span<const Mistake> layout_mistakes();
[[nodiscard]] std::span<const Mistake> roles_mistakes();
[[nodiscard]] std::span<const Mistake> heads_mistakes();
[[nodiscard]] std::span<const Mistake> keys_mistakes();
[[nodiscard]] std::span<const Mistake> rope_mistakes();
[[nodiscard]] std::span<const Mistake> scale_mistakes();
[[nodiscard]] std::span<const Mistake> softcap_mistakes();
[[nodiscard]] std::span<const Mistake> bias_mistakes();
[[nodiscard]] std::span<const Mistake> alibi_mistakes();
[[nodiscard]] std::span<const Mistake> mask_mistakes();
[[nodiscard]] std::span<const Mistake> causal_mistakes();
[[nodiscard]] std::span<const Mistake> window_mistakes();
[[nodiscard]] std::span<const Mistake> packing_mistakes();
[[nodiscard]] std::span<const Mistake> softmax_mistakes();
[[nodiscard]] std::span<const Mistake> sink_mistakes();
[[nodiscard]] std::span<const Mistake> dropout_mistakes();
[[nodiscard]] std::span<const Mistake> rounding_mistakes();
[[nodiscard]] std::span<const Mistake> output_mistakes();
[[nodiscard]] std::span<const Mistake> label_mistakes();

}  // namespace attest::check
