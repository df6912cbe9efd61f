// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace attest {

/// Philox4x32-10: ten rounds of a keyed bijection of 128-bit counters.
///
/// Counter-based: the n-th block is a pure function of (key, n), so any element of any stream can
/// be had alone, in any order, on any thread, with the same bits.
/// Source        Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
[[nodiscard]] std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept;

/// A replayable stream of random numbers: a seed, a stream number and a position.
///
/// Two streams of one seed are independent. `at(position)` jumps; drawing advances by one 64-bit
/// word. The numbers are exact in binary64, so they are the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) noexcept
      : seed_(seed), stream_(stream) {}

  /// 64 random bits at a position of this stream; does not advance.
  [[nodiscard]] std::uint64_t at(std::uint64_t position) const noexcept;

  /// The next 64 random bits.
  std::uint64_t bits() noexcept { return at(position_++); }

  /// Uniform on the multiples of 2⁻⁵³ in [0, 1).
  double uniform() noexcept { return static_cast<double>(bits() >> 11U) * 0x1p-53; }

  /// Uniform between two numbers (one rounding each for the product and the sum).
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }

  /// Uniform whole number in [low, high], both included; low ≤ high.
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept;

  /// Bell-shaped with mean 0 and variance 1: the sum of twelve uniforms less 6 (Irwin–Hall), since
  /// a true normal deviate would need logarithms, and base has no arithmetic of that kind.
  double bell() noexcept;

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;
};

}  // namespace attest
