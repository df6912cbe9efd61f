// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"

namespace attest::check {

/// What a table of cosines and sines says: row p holds those of position p.
struct RopeTableReading {
  double base = 10000;
  std::int64_t rotary_dim = 0;           ///< R
  std::optional<RopePairing> pairing{};  ///< where the table holds every feature: which are equal
};

/// Finds base and width of a rotary table.
///
/// Formula       cos[p, i] = cos(p · base^(−2i/R)), sin likewise; base from row 1, then every number is
///               held to it.
/// Shapes        [P, R/2], or [P, R] with each angle twice; leading axes of 1 are passed over.
/// Accuracy      a number may be off by 2^-8 for the 16-bit types; else by 2^-20 and by p · 2^-22, which
///               an angle rounded to f32 makes.
/// Fails         bad-rope-table: the shapes, fewer than two positions or four features, or other numbers.
[[nodiscard]] Result<RopeTableReading> read_rope_table(const AnyTensor& cosines,
                                                       const AnyTensor& sines);

}  // namespace attest::check
