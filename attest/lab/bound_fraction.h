// SPDX-License-Identifier: MIT
#pragma once

#include "attest/lab/oracle/real.h"

namespace attest::lab {

/// How much of a bound an error uses: |found − expected| / bound, at most 1 if the bound holds.
///
/// Edge cases    0 if both are equal, whatever the bound, and 0 if the bound is infinite. Infinite if
///               they are not equal and the bound is 0 or NaN, or if one of them is NaN.
/// See also      bound_attention.
[[nodiscard]] double used_fraction(double found, const oracle::Real& expected, double bound);

}  // namespace attest::lab
