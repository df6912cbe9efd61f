// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace attest::lab {

/// Elementary functions that return, for every binary64 argument, the binary64 number nearest to
/// the exact mathematical value, ties to even. There is one such number, so the result cannot
/// depend on the compiler, its options, the machine or the mathematical library of the system.
///
/// What holds for all of them:
///
/// Formula       a first attempt in double-double arithmetic with a proved error bound; if the
///               bound leaves open which way to round, the value is computed again with 192, 384
///               and 768 bits until it does not (Ziv's strategy). Arguments whose value is exactly
///               representable, or exactly between two representable numbers, are listed and
///               answered apart: for exp, expm1, log, sin, cos, tanh and 1/cosh^2 the only one is
///               the trivial one (0, or 1 for log), by the theorem of Lindemann and Weierstrass;
///               for exp2 they are the integers, by Gelfond and Schneider. For erf and the normal
///               density no theorem is known; a tie would need 768 bits to agree with a 54-bit
///               number by chance, and would then be rounded as the 768-bit value says.
/// Edge cases    NaN gives a quiet NaN. Results below 2^-1022 are rounded once, to the subnormal
///               grid. Nothing throws, allocates or sets errno.
/// Accuracy      0.5 units in the last place: correctly rounded, subnormal results included.
/// Determinism   round-to-nearest without flushing holds during the call and the host's environment
///               is restored after it, so that the host's settings change no bit. No fused
///               multiply-add, no libm. Tables are computed at first use with integer arithmetic.
/// Cost          tens of nanoseconds on a server core of 2023; about one call in 3000 and all calls
///               with subnormal results take 2 to 10 microseconds. The first call of each family
///               builds its table: 0.3 milliseconds for exp, 3 for erf.
/// Sources       Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded
///               last bit", ACM TOMS 17 (1991); Muller, "Elementary Functions", 3rd ed.; Muller et
///               al., "Handbook of Floating-Point Arithmetic", 2nd ed.; Tang, "Table-driven
///               implementation of the exponential function", ACM TOMS 15 (1989).

/// The exponential function.
///
/// Formula       e^x
/// Edge cases    exp(-inf) = +0, exp(+inf) = +inf, exp(0) = 1; above log(max) the result is +inf,
///               and below -745.14 it is +0.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 15 ns.
/// Sources       as above.
double exp(double x) noexcept;

/// The exponential function with base two.
///
/// Formula       2^x
/// Edge cases    integers give exact powers of two down to 2^-1074; exp2(-inf) = +0,
///               exp2(+inf) = +inf; from 1024 on the result is +inf, and below -1075 it is +0.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 20 ns.
/// Sources       as above.
double exp2(double x) noexcept;

/// The exponential function less one, without cancellation beside zero.
///
/// Formula       e^x - 1
/// Edge cases    expm1(+-0) = +-0, expm1(-inf) = -1, expm1(+inf) = +inf.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 25 ns.
/// Sources       as above.
double expm1(double x) noexcept;

/// The natural logarithm.
///
/// Formula       ln x
/// Edge cases    log(+-0) = -inf, log(x < 0) = NaN, log(1) = +0, log(+inf) = +inf.
/// Accuracy      correctly rounded, subnormal arguments included.
/// Determinism   as above.
/// Cost          about 20 ns.
/// Sources       as above.
double log(double x) noexcept;

/// The hyperbolic tangent.
///
/// Formula       (e^2x - 1) / (e^2x + 1)
/// Edge cases    tanh(+-0) = +-0, tanh(+-inf) = +-1; odd, bit for bit.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 45 ns.
/// Sources       as above.
double tanh(double x) noexcept;

/// The derivative of the hyperbolic tangent: the gradient of soft capping.
///
/// Formula       1 / cosh(x)^2 = 1 - tanh(x)^2 = 4 e^-2|x| / (1 + e^-2|x|)^2
/// Edge cases    1 at zero, +0 at both infinities; even, bit for bit.
/// Accuracy      correctly rounded, where 1 - tanh(x)^2 computed from tanh would lose everything.
/// Determinism   as above.
/// Cost          about 40 ns.
/// Sources       as above.
double sech_squared(double x) noexcept;

/// The error function.
///
/// Formula       2/sqrt(pi) * integral from 0 to x of exp(-t^2) dt
/// Edge cases    erf(+-0) = +-0, erf(+-inf) = +-1; odd, bit for bit.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 40 ns.
/// Sources       Abramowitz and Stegun, 7.1.1, 7.1.6 and 7.1.19.
double erf(double x) noexcept;

/// The density of the standard normal distribution: the gradient of the error-function GELU.
///
/// Formula       exp(-x^2 / 2) / sqrt(2 pi), of the exact square of x
/// Edge cases    +0 at both infinities; even, bit for bit.
/// Accuracy      correctly rounded.
/// Determinism   as above.
/// Cost          about 30 ns.
/// Sources       Abramowitz and Stegun, 26.2.1.
double normal_density(double x) noexcept;

/// The sine of an angle in radians.
///
/// Formula       sin x, with x reduced by as many bits of 2/pi as its exponent asks for
/// Edge cases    sin(+-0) = +-0, sin(+-inf) = NaN; odd, bit for bit.
/// Accuracy      correctly rounded for every double, 2^1023 included.
/// Determinism   as above.
/// Cost          about 35 ns, whatever the size of x.
/// Sources       Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM 18 (1983).
double sin(double x) noexcept;

/// The cosine of an angle in radians.
///
/// Formula       cos x, reduced as for sin
/// Edge cases    cos(+-0) = 1, cos(+-inf) = NaN; even, bit for bit.
/// Accuracy      correctly rounded for every double.
/// Determinism   as above.
/// Cost          about 35 ns, whatever the size of x.
/// Sources       as for sin.
double cos(double x) noexcept;

/// A rational power: the frequencies base^(-2i/d) of rotary position embeddings, and the slopes
/// 2^(-8(h+1)/n) of linear attention biases.
///
/// Formula       base^(numerator / denominator)
/// Edge cases    NaN unless base is positive and finite, denominator is positive, and both
///               |numerator| and denominator are at most 2^20. base^0 = 1. Exact results exist:
///               with the fraction reduced to p/q and base = n 2^k, n odd, the result is a dyadic
///               number exactly if n is the q-th power of an integer, q divides k, and n = 1 or p
///               >= 0. They are found with integer arithmetic and rounded as such, ties included.
/// Accuracy      correctly rounded of the exact power, not of a rounded exponent.
/// Determinism   as above.
/// Cost          about 90 ns; exact cases about 2 microseconds.
/// Sources       as above; Gelfond-Schneider is not needed: an irrational root is never a tie.
double rational_power(double base, std::int64_t numerator, std::int64_t denominator) noexcept;

}  // namespace attest::lab
