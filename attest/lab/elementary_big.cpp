// SPDX-License-Identifier: MIT
// The elementary functions in multi-precision arithmetic: plain series with proved remainders,
// chosen for being easy to check. Sources: Brent and Zimmermann, "Modern Computer Arithmetic",
// chapter 4; Abramowitz and Stegun, chapters 4 and 7.
#include <bit>
#include <cstdint>

#include "attest/lab/big.h"

namespace attest::lab {
namespace {

/// 1/q - s/(3 q^3) + 1/(5 q^5) - ...: arctan(1/q) for s = 1, artanh(1/q) for s = -1.
template <int Limbs>
Big<Limbs> inverse_tangent_of_reciprocal(std::uint32_t q, bool hyperbolic) noexcept {
  Big<Limbs> power = Big<Limbs>::from_integer(1).divided_by(q);
  Big<Limbs> sum = power;
  bool subtract = !hyperbolic;
  for (std::uint32_t n = 3; power.exponent > -Big<Limbs>::bits; n += 2) {
    power = power.divided_by(q * q);
    const Big<Limbs> term = power.divided_by(n);
    sum = subtract ? sum - term : sum + term;
    subtract = !hyperbolic && !subtract;
  }
  return sum;
}

template <int Limbs>
Big<Limbs> times(int factor, const Big<Limbs>& a) noexcept {
  return Big<Limbs>::from_integer(factor) * a;
}

template <int Limbs>
Big<Limbs> logarithm_of_two() noexcept {
  return times(18, inverse_tangent_of_reciprocal<Limbs>(26, true)) -
         times(2, inverse_tangent_of_reciprocal<Limbs>(4801, true)) +
         times(8, inverse_tangent_of_reciprocal<Limbs>(8749, true));
}

template <int Limbs>
Big<Limbs> half_of_pi() noexcept {
  return times(8, inverse_tangent_of_reciprocal<Limbs>(5, false)) -
         times(2, inverse_tangent_of_reciprocal<Limbs>(239, false));
}

/// True once a term can no longer move the last bits of the sum.
template <int Limbs>
bool negligible(const Big<Limbs>& term, const Big<Limbs>& sum) noexcept {
  return term.is_zero() || term.exponent < sum.exponent - Big<Limbs>::bits - 2;
}

/// sum over n of first * step^n / ((2n + a)(2n + a + 1))..., the common shape of sine and cosine.
template <int Limbs>
Big<Limbs> alternating_series(const Big<Limbs>& first, const Big<Limbs>& square,
                              std::uint32_t a) noexcept {
  Big<Limbs> sum = first;
  Big<Limbs> term = first;
  for (std::uint32_t n = a;; n += 2) {
    term = -(term * square).divided_by(n * (n + 1));
    if (negligible(term, sum)) return sum;
    sum = sum + term;
  }
}

/// log(m) = 2 artanh(z) with z = (m - 1) / (m + 1), for m in [0.70, 1.42]: |z| < 0.18, and the
/// subtraction m - 1 is exact, so that the result is relatively accurate even beside m = 1.
template <int Limbs>
Big<Limbs> log_near_one(const Big<Limbs>& m) noexcept {
  const Big<Limbs> one = Big<Limbs>::from_integer(1);
  Big<Limbs> power = ((m - one) / (m + one)).scaled(1);
  const Big<Limbs> z = power.scaled(-1);
  const Big<Limbs> square = z * z;
  Big<Limbs> sum = power;
  for (std::uint32_t n = 3;; n += 2) {
    power = power * square;
    const Big<Limbs> term = power.divided_by(n);
    if (negligible(term, sum)) return sum;
    sum = sum + term;
  }
}

/// exp(r) - 1 for |r| < 0.4: the power series at r / 2^8, then eight times (1 + t)^2 - 1 = t^2 +
/// 2t, which keeps the relative accuracy of a small t. Error: 30 units from the series and 3 more
/// for each doubling, each of which doubles what came before at most: below 2^14 units.
template <int Limbs>
Big<Limbs> expm1_reduced(const Big<Limbs>& r) noexcept {
  constexpr int halvings = 8;
  const Big<Limbs> x = r.scaled(-halvings);
  Big<Limbs> sum = x;
  Big<Limbs> term = x;
  for (std::uint32_t n = 2;; ++n) {
    term = (term * x).divided_by(n);
    if (negligible(term, sum)) break;
    sum = sum + term;
  }
  for (int i = 0; i < halvings; ++i) sum = sum * sum + sum.scaled(1);
  return sum;
}

/// An angle brought into [-pi/4, pi/4]: x = quadrant * pi/2 + rest (quadrant modulo 4).
template <int Limbs>
struct ReducedAngle {
  unsigned quadrant;
  Big<Limbs> rest;
};

/// x * 2/pi with 2048 bits. The largest double has 1024 bits before the point, and no double comes
/// closer to a multiple of pi/2 than 2^-62 (Muller, "Elementary Functions", table 11.1),
/// so that more than 900 significant bits of the fraction remain.
template <int Limbs>
ReducedAngle<Limbs> reduced_angle(double x) noexcept {
  constexpr int wide = 32;
  if ((std::bit_cast<std::uint64_t>(x) << 1) < (std::uint64_t{1022} << 53)) {  // |x| < 1/2
    return {0, Big<Limbs>::from_double(x)};
  }
  const Big<wide> turns = Big<wide>::from_double(x) * BigConstants<wide>::get().two_over_pi;
  unsigned quadrant = turns.integer_part_modulo_4();
  Big<wide> rest = turns.fraction();
  if (rest.exponent == 0 &&
      !rest.is_zero()) {  // at or above one half: count from the next quadrant
    const Big<wide> one = Big<wide>::from_integer(1);
    rest = rest.negative ? rest + one : rest - one;
    ++quadrant;
  }
  if (turns.negative) quadrant = 4U - (quadrant % 4U);
  return {quadrant % 4U, rest.template resized<Limbs>() * BigConstants<Limbs>::get().half_pi};
}

template <int Limbs>
Big<Limbs> sine_in_quadrant(const ReducedAngle<Limbs>& angle) noexcept {
  const Big<Limbs> square = angle.rest * angle.rest;
  const Big<Limbs> one = Big<Limbs>::from_integer(1);
  const Big<Limbs> magnitude = angle.quadrant % 2U == 0 ? alternating_series(angle.rest, square, 2)
                                                        : alternating_series(one, square, 1);
  return angle.quadrant >= 2U ? -magnitude : magnitude;
}

}  // namespace

template <int Limbs>
const BigConstants<Limbs>& BigConstants<Limbs>::get() noexcept {
  static const BigConstants constants = [] {
    BigConstants c;
    c.ln2 = logarithm_of_two<Limbs>();
    c.inverse_ln2 = Big<Limbs>::from_integer(1) / c.ln2;
    c.half_pi = half_of_pi<Limbs>();
    c.two_over_pi = Big<Limbs>::from_integer(1) / c.half_pi;
    return c;
  }();
  return constants;
}

/// x = k ln 2 + r: ln 2 is known to 2^6 units, and k < 2^11.6, so that r is good to 2^18 units at
/// worst, which dominates what expm1_reduced adds.
template <int Limbs>
Big<Limbs> BigMath<Limbs>::exp(const Big<Limbs>& x) noexcept {
  const BigConstants<Limbs>& c = BigConstants<Limbs>::get();
  const std::int64_t k = (x * c.inverse_ln2).nearest_integer();
  const Big<Limbs> r = x - Big<Limbs>::from_integer(k) * c.ln2;
  const Big<Limbs> one = Big<Limbs>::from_integer(1);
  return (one + expm1_reduced(r)).scaled(static_cast<int>(k));
}

/// Without a multiple of ln 2 to add back, nothing is lost to the 1; with one, |exp(x) - 1| > 0.22.
template <int Limbs>
Big<Limbs> BigMath<Limbs>::expm1(const Big<Limbs>& x) noexcept {
  if (x.exponent <= -2) return expm1_reduced(x);
  return exp(x) - Big<Limbs>::from_integer(1);
}

/// x = 2^k m with m in [0.70, 1.42]: the two parts never cancel, as |log m| < 0.36 < ln 2 / 1.9.
template <int Limbs>
Big<Limbs> BigMath<Limbs>::log(const Big<Limbs>& x) noexcept {
  const bool upper_half = x.limb[Limbs - 1] >= (std::uint64_t{0xB5} << 56);
  const int k = upper_half ? x.exponent : x.exponent - 1;
  const Big<Limbs> log_m = log_near_one(x.scaled(-k));
  return Big<Limbs>::from_integer(k) * BigConstants<Limbs>::get().ln2 + log_m;
}

/// erf(x) = 2/sqrt(pi) exp(-x^2) sum over n of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1))
/// (Abramowitz and Stegun 7.1.6): all terms have one sign, so that nothing cancels.
template <int Limbs>
Big<Limbs> BigMath<Limbs>::erf(const Big<Limbs>& x) noexcept {
  const Big<Limbs> square = x * x;
  const Big<Limbs> twice_square = square.scaled(1);
  Big<Limbs> sum = x;
  Big<Limbs> term = x;
  for (std::uint32_t n = 3; !negligible(term, sum); n += 2) {
    term = (term * twice_square).divided_by(n);
    sum = sum + term;
  }
  return inverse_sqrt_pi() * exp(-square) * sum.scaled(1);
}

template <int Limbs>
Big<Limbs> BigMath<Limbs>::sin(double x) noexcept {
  return sine_in_quadrant(reduced_angle<Limbs>(x));
}

template <int Limbs>
Big<Limbs> BigMath<Limbs>::cos(double x) noexcept {
  ReducedAngle<Limbs> angle = reduced_angle<Limbs>(x);
  angle.quadrant = (angle.quadrant + 1U) % 4U;
  return sine_in_quadrant(angle);
}

template <int Limbs>
const Big<Limbs>& BigMath<Limbs>::inverse_sqrt_pi() noexcept {
  static const Big<Limbs> value = [] {
    const Big<Limbs> pi = BigConstants<Limbs>::get().half_pi.scaled(1);
    return exp(-log(pi).scaled(-1));
  }();
  return value;
}

template struct BigConstants<3>;
template struct BigConstants<6>;
template struct BigConstants<12>;
template struct BigConstants<32>;
template struct BigMath<3>;
template struct BigMath<6>;
template struct BigMath<12>;

}  // namespace attest::lab
