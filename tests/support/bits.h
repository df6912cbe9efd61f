// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

/// Comparing numbers by their bits, NaN patterns first.
namespace attest::test {

/// Half the distance from 1 to the next double: the relative error of one rounding.
inline constexpr double unit_roundoff = 0x1p-53;

inline std::string hex(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a (%.17g)", value, value);
  return text;
}

/// Equal bits, and any NaN for any NaN: the sign and payload of a NaN mean nothing here.
inline bool same_bits(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

/// The same numbers in the same places: first the NaN pattern, then the bits.
inline ::testing::AssertionResult same_bits(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << "sizes differ: " << a.size() << " and " << b.size();
  }
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (std::isnan(a[n]) != std::isnan(b[n])) {
      return ::testing::AssertionFailure()
             << "NaN in one only, at element " << n << ": " << hex(a[n]) << " and " << hex(b[n]);
    }
  }
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (!same_bits(a[n], b[n])) {
      return ::testing::AssertionFailure()
             << "element " << n << ": " << hex(a[n]) << " and " << hex(b[n]);
    }
  }
  return ::testing::AssertionSuccess();
}

/// |found − expected| ≤ bound; NaN only where NaN is expected, infinities only for themselves.
inline ::testing::AssertionResult within(double found, long double expected, long double bound) {
  if (std::isnan(found) != std::isnan(expected)) {
    return ::testing::AssertionFailure()
           << "NaN pattern: found " << hex(found) << ", expected " << static_cast<double>(expected);
  }
  if (std::isnan(found)) return ::testing::AssertionSuccess();
  if (std::isinf(expected) || std::isinf(found)) {
    if (static_cast<long double>(found) == expected) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "found " << hex(found) << ", expected " << static_cast<double>(expected);
  }
  const long double error = std::fabs(static_cast<long double>(found) - expected);
  if (error <= bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "found " << hex(found) << ", expected " << static_cast<double>(expected) << ", error "
         << static_cast<double>(error) << " above the bound " << static_cast<double>(bound);
}

}  // namespace attest::test
