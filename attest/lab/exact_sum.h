// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace attest::lab {

/// The sum of any number of doubles, kept without error until it is asked for.
///
/// A fixed-point number of 2^2176 · 2^−1088 range in 32-bit digits held in 64-bit words, so that
/// carries need settling only once in 2³⁰ additions. Every finite double fits, with room for 2⁶⁰
/// of the largest ones; the order of additions cannot matter, and neither can intermediate overflow.
/// Source        Kulisch: Computer Arithmetic and Validity, ch. 8; Neal, arXiv:1505.05571 (small
///               superaccumulator).
class ExactAccumulator {
 public:
  ExactAccumulator() noexcept = default;
  void add(double value) noexcept;

  /// The sum so far, rounded once, to nearest even. Zero is +0 whatever the signs of its parts.
  /// Infinity if one was added, or if the total is out of range; NaN if NaN or both infinities were.
  [[nodiscard]] double rounded() const noexcept;

 private:
  static constexpr std::size_t digit_count = 68;
  void settle() noexcept;

  std::array<std::int64_t, digit_count> digits_{};
  std::uint32_t pending_ = 0;
  bool plus_infinity_ = false;
  bool minus_infinity_ = false;
  bool nan_ = false;
};

/// Σ values, correctly rounded: the exact real sum, rounded once to nearest even.
///
/// Edge cases    No values: +0. An exact sum of zero is +0, also for −0 + −0 (as Python's fsum).
///               Intermediate overflow is no failure: {1e308, 1e308, −1e308} gives 1e308. A total
///               out of range is ±∞. Infinities and NaN follow IEEE addition, in any order.
/// Determinism   The same bits for any order of the values, on any machine.
/// Cost          about 2 ns a value when few digits cancel, else one pass through the accumulator.
/// Sources       Shewchuk 1997 (doi:10.1007/PL00009321); Handbook of Floating-Point Arithmetic,
///               Alg. 4.4 (2Sum); Ogita, Rump, Oishi 2005 (doi:10.1137/030601818).
[[nodiscard]] double exact_sum(std::span<const double> values) noexcept;

/// Σ left[n]·right[n] over `count` pairs with these strides: the correctly rounded sum of *rounded*
/// products, as the workbook's matmul has it. See `exact_sum` for the rest.
struct Strided {
  const double* data = nullptr;
  std::int64_t stride = 1;
};
[[nodiscard]] double exact_dot(Strided left, Strided right, std::int64_t count) noexcept;

}  // namespace attest::lab
