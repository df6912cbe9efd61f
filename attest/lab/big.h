// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace attest::lab {

/// A binary floating-point number of 64 * Limbs bits, made of integer operations alone.
///
/// Formula       value = (negative ? -1 : 1) * 0.m * 2^exponent, with m the limbs read as one
///               binary fraction, limb[Limbs - 1] first, and its leading bit set. Zero has all
///               limbs zero.
/// Edge cases    there are no infinities, no NaNs and no signed zero; exponents are plain ints and
///               nothing in this library brings them near their limits. Division by zero and the
///               conversion of a non-finite double are outside the contract.
/// Accuracy      every operation cuts off towards zero; sums, products and quotients by a small
///               integer are within 1 unit in the last place, other quotients within 8.
/// Determinism   no floating-point instruction is executed: the host's rounding mode, FTZ and DAZ
///               cannot reach it. That is why the tables of the fast paths are built with it.
/// Cost          no heap; schoolbook products; with 3 limbs some tens of nanoseconds an operation.
/// Sources       Brent and Zimmermann, "Modern Computer Arithmetic", chapters 1 and 3.
///
/// Instantiated for 3, 6 and 12 limbs (the three precisions of Ziv's strategy) and for 32 limbs
/// (the reduction of huge angles).
template <int Limbs>
struct Big {
  static constexpr int bits = 64 * Limbs;

  std::array<std::uint64_t, Limbs> limb{};
  int exponent = 0;
  bool negative = false;

  static Big from_double(double finite) noexcept;          ///< exactly
  static Big from_integer(std::int64_t integer) noexcept;  ///< exactly

  Big operator+(const Big& b) const noexcept;
  Big operator-(const Big& b) const noexcept;
  Big operator*(const Big& b) const noexcept;
  Big operator/(const Big& b) const noexcept;
  Big operator-() const noexcept;

  /// Division by a small integer: the workhorse of every power series.
  [[nodiscard]] Big divided_by(std::uint32_t divisor) const noexcept;

  /// This times 2^shift, exactly.
  [[nodiscard]] Big scaled(int shift) const noexcept;

  /// The same number with another precision: cut off, or exactly when it grows.
  template <int Other>
  [[nodiscard]] Big<Other> resized() const noexcept;

  [[nodiscard]] bool is_zero() const noexcept { return limb[Limbs - 1] == 0; }

  /// The nearest integer (halves away from zero), for magnitudes below 2^62.
  [[nodiscard]] std::int64_t nearest_integer() const noexcept;

  /// What stands behind the binary point, with this number's sign.
  [[nodiscard]] Big fraction() const noexcept;

  /// The integer part of the magnitude modulo 4, whatever its size.
  [[nodiscard]] unsigned integer_part_modulo_4() const noexcept;

  /// Rounded to binary64, ties to even: subnormal results are rounded once, and results beyond the
  /// largest finite number become infinite.
  [[nodiscard]] double nearest_double() const noexcept;

  /// Cuts the leading `count` <= 53 bits off and returns them: splits a constant into doubles.
  double take_leading_bits(int count) noexcept;
};

template <int Limbs>
Big<Limbs> Big<Limbs>::operator-() const noexcept {
  Big result = *this;
  result.negative = !negative && !is_zero();
  return result;
}

template <int Limbs>
Big<Limbs> Big<Limbs>::scaled(int shift) const noexcept {
  Big result = *this;
  result.exponent += shift;
  return result;
}

template <int Limbs>
template <int Other>
Big<Other> Big<Limbs>::resized() const noexcept {
  Big<Other> result;
  for (int i = 1; i <= Other && i <= Limbs; ++i) {
    result.limb[static_cast<std::size_t>(Other - i)] = limb[static_cast<std::size_t>(Limbs - i)];
  }
  result.exponent = exponent;
  result.negative = negative;
  return result;
}

/// Constants, computed once per precision and then kept.
template <int Limbs>
struct BigConstants {
  Big<Limbs> ln2;          ///< 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749)
  Big<Limbs> inverse_ln2;  ///< 1 / ln 2
  Big<Limbs> half_pi;      ///< 8 arctan(1/5) - 2 arctan(1/239)   (Machin)
  Big<Limbs> two_over_pi;  ///< 1 / half_pi

  static const BigConstants& get() noexcept;
};

/// The elementary functions at full precision.
///
/// Edge cases    arguments must be finite, below 2^11 in magnitude (angles: any double), positive
///               for log and at most 8 in magnitude for erf.
/// Accuracy      each result is within 2^(24 - bits) of the exact one, relatively; the derivation
///               stands beside each definition.
/// Determinism   integer arithmetic only, as in Big.
/// Cost          with 3 limbs about 2 to 15 microseconds a call.
template <int Limbs>
struct BigMath {
  static Big<Limbs> exp(const Big<Limbs>& x) noexcept;
  static Big<Limbs> expm1(const Big<Limbs>& x) noexcept;
  static Big<Limbs> log(const Big<Limbs>& x) noexcept;
  static Big<Limbs> erf(const Big<Limbs>& x) noexcept;
  static Big<Limbs> sin(double x) noexcept;
  static Big<Limbs> cos(double x) noexcept;
  static const Big<Limbs>& inverse_sqrt_pi() noexcept;  ///< exp(-log(pi) / 2)
};

}  // namespace attest::lab
