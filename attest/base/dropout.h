// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "attest/base/random.h"

namespace attest {

/// Which weight of an attention call: batch, query head, query, key.
struct WeightPlace {
  std::uint32_t b = 0;
  std::uint32_t h = 0;
  std::uint32_t i = 0;
  std::uint32_t j = 0;
};

/// A weight is dropped if its 32 random bits are below this: the rate as a multiple of 2⁻³².
[[nodiscard]] inline std::uint32_t dropout_threshold(double rate) noexcept {
  return static_cast<std::uint32_t>(rate * 0x1p32);
}

/// The random bits of four neighbouring weights, keys 4·quad … 4·quad + 3: Philox4x32-10 keyed by
/// the seed, on the counter (quad, i, h, b).
[[nodiscard]] inline std::array<std::uint32_t, 4> dropout_bits(std::uint64_t seed, WeightPlace row,
                                                               std::uint32_t quad) noexcept {
  return philox({quad, row.i, row.h, row.b},
                {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
}

/// Whether this weight is left out.
[[nodiscard]] inline bool dropped(std::uint64_t seed, std::uint32_t threshold,
                                  WeightPlace at) noexcept {
  return dropout_bits(seed, at, at.j / 4)[at.j % 4] < threshold;
}

}  // namespace attest
