// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "attest/base/dtype.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// A number as one of this type holds it; nearest, ties to even. 16-bit numbers are rounded from
/// binary32, which programs sum in.
[[nodiscard]] inline double rounded(Precision precision, double x) noexcept {
  switch (precision) {
    case Precision::f64:
      return x;
    case Precision::f32:
      return static_cast<double>(to_float_nearest(x));
    case Precision::tf32: {
      // 10 bits behind the point, the exponents of f32.
      if (!std::isfinite(x) || x == 0) return x;
      const int shift = 10 - std::ilogb(x);
      return std::scalbn(std::nearbyint(std::scalbn(x, shift)), -shift);
    }
    case Precision::f16:
      return to_double(to_half(static_cast<double>(to_float_nearest(x))));
    case Precision::bf16:
      return to_double(to_bfloat16(static_cast<double>(to_float_nearest(x))));
  }
  return x;
}

/// The largest finite number of a type.
[[nodiscard]] inline double largest(Precision precision) noexcept {
  switch (precision) {
    case Precision::f64:
      return std::numeric_limits<double>::max();
    case Precision::f32:
    case Precision::tf32:
      return static_cast<double>(std::numeric_limits<float>::max());
    case Precision::f16:
      return 65504;
    case Precision::bf16:
      return 0x1.fep127;
  }
  return 0;
}

inline void round_all(Precision precision, std::span<double> numbers) noexcept {
  if (precision == Precision::f64) return;
  for (double& x : numbers) x = rounded(precision, x);
}

}  // namespace attest::check
