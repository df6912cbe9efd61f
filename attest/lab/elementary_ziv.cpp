// SPDX-License-Identifier: MIT
#include "attest/lab/elementary_detail.h"

// Ziv's strategy with the big arithmetic: 192 bits, then 384, then 768. Each function here states
// nothing but its formula.
namespace attest::lab::detail {
namespace {

/// The double nearest to every number within 2^(31 - bits) of v, relatively, if there is only one;
/// BigMath promises 2^(24 - bits), and the formulas below add a few operations.
template <int Limbs>
std::optional<double> settled(const Big<Limbs>& v) noexcept {
  Big<Limbs> error = Big<Limbs>::from_integer(1);
  error.exponent = v.exponent - Big<Limbs>::bits + 32;
  const double below = (v - error).nearest_double();
  const double above = (v + error).nearest_double();
  if (below == above) return below;
  return std::nullopt;
}

/// Calls evaluate<Limbs>() with rising precision. A binary64 function value behaves as random bits
/// behind the 53rd: with about 2^64 arguments, agreement with a tie for more than 53 + 64 bits is
/// not to be expected, and 768 bits suffice beyond all doubt except for a true tie.
template <typename Evaluate>
double decided(const Evaluate& evaluate) noexcept {
  if (const auto y = settled(evaluate.template operator()<3>())) return *y;
  if (const auto y = settled(evaluate.template operator()<6>())) return *y;
  return evaluate.template operator()<12>().nearest_double();
}

template <int Limbs>
Big<Limbs> one() noexcept {
  return Big<Limbs>::from_integer(1);
}

}  // namespace

double exp_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::exp(Big<L>::from_double(x)); });
}

double exp2_big(double x) noexcept {
  return decided([x]<int L>() {
    return BigMath<L>::exp(Big<L>::from_double(x) * BigConstants<L>::get().ln2);
  });
}

double expm1_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::expm1(Big<L>::from_double(x)); });
}

double log_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::log(Big<L>::from_double(x)); });
}

double tanh_big(double x) noexcept {
  return decided([x]<int L>() {
    const Big<L> e = BigMath<L>::expm1(Big<L>::from_double(x).scaled(1));
    return e / (e + Big<L>::from_integer(2));
  });
}

double sech_squared_big(double x) noexcept {
  return decided([x]<int L>() {
    const Big<L> e = BigMath<L>::exp(Big<L>::from_double(-magnitude(x)).scaled(1));
    const Big<L> sum = one<L>() + e;
    return (e / (sum * sum)).scaled(2);
  });
}

double erf_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::erf(Big<L>::from_double(x)); });
}

double normal_density_big(double x) noexcept {
  return decided([x]<int L>() {
    const Big<L> a = Big<L>::from_double(x);
    const Big<L> sqrt_half = BigMath<L>::exp(-BigConstants<L>::get().ln2.scaled(-1));
    return BigMath<L>::exp(-(a * a).scaled(-1)) * sqrt_half * BigMath<L>::inverse_sqrt_pi();
  });
}

double sin_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::sin(x); });
}

double cos_big(double x) noexcept {
  return decided([x]<int L>() { return BigMath<L>::cos(x); });
}

double rational_power_big(double base, std::int64_t p, std::int64_t q) noexcept {
  return decided([=]<int L>() {
    const Big<L> log = BigMath<L>::log(Big<L>::from_double(base));
    const Big<L> product = log * Big<L>::from_integer(p);
    return BigMath<L>::exp(product.divided_by(static_cast<std::uint32_t>(q)));
  });
}

}  // namespace attest::lab::detail
