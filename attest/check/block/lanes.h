// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

/// Sums beside one another, each in the order of the plain loop.
namespace attest::check::block {

inline constexpr std::int64_t lanes = 4;
/// GCC and clang make of these what the processor has; nothing is fused or reordered.
using Lanes = double __attribute__((vector_size(lanes * sizeof(double))));

/// The same, where doubles stand that are not aligned for it.
using LooseLanes =
    double __attribute__((vector_size(lanes * sizeof(double)), aligned(sizeof(double)), may_alias));

/// Numbers that stand together.
[[nodiscard]] inline const LooseLanes& lanes_at(const double* from) {
  return *reinterpret_cast<const LooseLanes*>(from);
}

}  // namespace attest::check::block
