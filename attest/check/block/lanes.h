// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

/// Sums beside one another, each in the order of the plain loop.
namespace attest::check::block {

inline constexpr std::int64_t lanes = 4;
/// GCC and clang make of these what the processor has; nothing is fused or reordered.
using Lanes = double __attribute__((vector_size(lanes * sizeof(double))));

/// sum += factor · the numbers that stand there together, aligned or not.
inline void add_product(Lanes& sum, double factor, const double* numbers) {
  Lanes loaded;
  std::memcpy(&loaded, numbers, sizeof loaded);
  sum += factor * loaded;
}

}  // namespace attest::check::block
