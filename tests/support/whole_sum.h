// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

/// An independent correctly rounded sum: every finite double is a whole number of 2⁻¹⁰⁷⁴, so the
/// exact sum is a sum of whole numbers, rounded by hand.
namespace attest::test {

using Whole = boost::multiprecision::cpp_int;

inline Whole in_units_of_the_smallest_double(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto field = static_cast<unsigned>((bits >> 52U) & 0x7FFU);
  Whole whole = bits & ((std::uint64_t{1} << 52U) - 1);
  if (field != 0) {
    whole += std::uint64_t{1} << 52U;
    whole <<= field - 1;
  }
  return (bits >> 63U) != 0 ? Whole(-whole) : whole;
}

/// whole · 2⁻¹⁰⁷⁴ rounded to nearest, ties to even; beyond the largest double, infinity.
inline double nearest_double(const Whole& whole) {
  if (whole == 0) return 0;
  const Whole size = abs(whole);
  const auto length = static_cast<unsigned>(msb(size)) + 1;  // bits
  std::uint64_t kept = 0;
  const unsigned dropped = length > 53 ? length - 53 : 0;
  kept = static_cast<std::uint64_t>(size >> dropped);
  if (dropped > 0) {
    const Whole rest = size - (Whole(kept) << dropped);
    const Whole half = Whole(1) << (dropped - 1);
    if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  }
  // kept may have become 2⁵³: then it is even, and ldexp does the carrying.
  double value = static_cast<double>(kept);
  const auto exponent = static_cast<int>(dropped) - 1074;
  const bool beyond = exponent > 971 || (exponent == 971 && kept == (std::uint64_t{1} << 53U));
  value = beyond ? std::numeric_limits<double>::infinity() : std::ldexp(value, exponent);
  return whole < 0 ? -value : value;
}

/// The sum as the contract of exact_sum says it, infinities and NaN included.
inline double whole_sum(std::span<const double> values) {
  Whole total = 0;
  double special = 0;
  bool finite = true;
  for (const double value : values) {
    if (value - value == 0) {
      total += in_units_of_the_smallest_double(value);
    } else {
      finite = false;
      special += value;  // ∞ + ∞, ∞ − ∞ and NaN in IEEE arithmetic
    }
  }
  return finite ? nearest_double(total) : special;
}

}  // namespace attest::test
