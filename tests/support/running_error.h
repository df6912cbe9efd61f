// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <vector>

/// Running error analysis: numbers that carry how far a correctly rounded binary64 evaluation of
/// the same steps may be from them.
///
/// Each operation adds what its operands' errors become, exactly and not only to first order, and
/// u = 2⁻⁵³ times its own result for one rounding. The long double value beside it errs by 2⁻¹¹ of
/// that at most, which is why results are compared with 1.01 times the error.
/// Source        Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.3.
namespace attest::test {

struct Bounded {
  long double value = 0;
  long double error = 0;

  Bounded() = default;
  Bounded(double exact) : value(exact) {}  // NOLINT(google-explicit-constructor)
  Bounded(long double v, long double e) : value(v), error(e) {}

  [[nodiscard]] static Bounded rounded(long double v, long double e) {
    return {v, e + 0x1p-53L * (std::fabs(v) + e) + 0x1p-1074L};
  }
};

inline Bounded operator+(Bounded a, Bounded b) {
  return Bounded::rounded(a.value + b.value, a.error + b.error);
}
inline Bounded operator-(Bounded a, Bounded b) {
  return Bounded::rounded(a.value - b.value, a.error + b.error);
}
inline Bounded operator*(Bounded a, Bounded b) {
  return Bounded::rounded(a.value * b.value, std::fabs(a.value) * b.error +
                                                 std::fabs(b.value) * a.error + a.error * b.error);
}
inline Bounded operator/(Bounded a, Bounded b) {
  const long double quotient = a.value / b.value;
  const long double below = std::fabs(b.value) - b.error;
  return Bounded::rounded(quotient, (a.error + std::fabs(quotient) * b.error) / below);
}
inline Bounded sqrt(Bounded a) {
  const long double root = std::sqrt(a.value);
  return Bounded::rounded(root, a.error == 0 ? 0 : root - std::sqrt(a.value - a.error));
}
inline Bounded exp(Bounded a) {
  const long double value = std::exp(a.value);
  return Bounded::rounded(value, value * std::expm1(a.error));
}
/// max(0, a): flat or the identity, so the error cannot grow.
inline Bounded relu(Bounded a) { return {a.value > 0 ? a.value : 0, a.error}; }

/// A sum that is rounded once, however long it is.
inline Bounded exact_sum(const std::vector<Bounded>& terms) {
  long double value = 0;
  long double error = 0;
  for (const Bounded& term : terms) {
    value += term.value;
    error += term.error;
  }
  return Bounded::rounded(value, error);
}

}  // namespace attest::test
