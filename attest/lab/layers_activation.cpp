// SPDX-License-Identifier: MIT
#include "attest/lab/layers_activation.h"

#include <cmath>

#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"
#include "attest/lab/layers_check.h"

namespace attest::lab {
namespace {

using detail::check_same;
using detail::Named;

constexpr double root_2_over_pi = 0.7978845608028654;
constexpr double cubic = 0.044715;

/// Every derivative below ends here: flat on the left, the identity on the right. Asked apart
/// because ∞ times a vanished density is no number.
bool infinite(double x) { return x - x != 0 && x == x; }
double slope_at_infinity(double x) { return x > 0 ? 1 : 0; }

/// σ(x), by the form whose exponential is at most 1.
double sigma(double x) {
  if (x >= 0) return 1 / (1 + exp(-x));
  const double e = exp(x);
  return e / (1 + e);
}

/// x times the share of it that passes; where nothing passes, −∞ counts too.
double passed(double x, double share) { return share == 0 ? -0.0 : x * share; }

/// Mills' ratio M(t) = Φ(−t)/φ(t) for t ≥ 1, from the innermost of 300 steps of Laplace's fraction
/// outwards. What lies further in is taken as f = t + 301/f, the fraction of a numerator that
/// stays; the error of that is largest at t = 1, and there below 2⁻⁵⁸ of the whole. Each step
/// passes on less than its share of the error within, so that 4u is left.
double mills_ratio(double t) {
  double fraction = (t + std::sqrt(t * t + 4 * 301)) / 2;
  for (int n = 300; n >= 1; --n) fraction = t + n / fraction;
  return 1 / fraction;
}

/// Φ(x) for x ≥ −1, where 1 + erf keeps its digits.
double normal_distribution(double x) { return (1 + erf(x / std::sqrt(2.0))) / 2; }

/// w of gelu_tanh. Both terms have one sign, so nothing cancels.
double tanh_argument(double x) { return root_2_over_pi * (x + cubic * (x * x * x)); }

template <class Function>
Tensor<double> each(View<const double, 2> x, Function function) {
  Tensor<double> y({x.extent(0), x.extent(1)});
  for (std::int64_t n = 0; n < x.extent(0); ++n) {
    for (std::int64_t f = 0; f < x.extent(1); ++f) y(n, f) = function(n, f);
  }
  return y;
}

}  // namespace

double relu(double x) noexcept { return x > 0 || x != x ? x : 0; }

double relu_derivative(double x) noexcept {
  if (x != x) return x;
  return x > 0 ? 1 : 0;
}

double gelu_erf(double x) noexcept {
  const ExactEnvironment environment;
  if (!(x < -1)) return x * normal_distribution(x);
  if (infinite(x)) return -0.0;
  return x * mills_ratio(-x) * normal_density(x);
}

double gelu_erf_derivative(double x) noexcept {
  const ExactEnvironment environment;
  if (infinite(x)) return slope_at_infinity(x);
  if (x < -1) return normal_density(x) * (mills_ratio(-x) + x);
  return normal_distribution(x) + x * normal_density(x);
}

double gelu_tanh(double x) noexcept {
  const ExactEnvironment environment;
  return passed(x, sigma(2 * tanh_argument(x)));
}

double gelu_tanh_derivative(double x) noexcept {
  const ExactEnvironment environment;
  const double w = tanh_argument(x);
  const double bell = sech_squared(w);
  if (bell == 0) return slope_at_infinity(x);  // w′ may have overflowed
  const double d_w = root_2_over_pi * (1 + 3 * cubic * (x * x));
  return sigma(2 * w) + x / 2 * (bell * d_w);
}

double silu(double x) noexcept {
  const ExactEnvironment environment;
  return passed(x, sigma(x));
}

double silu_derivative(double x) noexcept {
  const ExactEnvironment environment;
  if (infinite(x)) return slope_at_infinity(x);
  return sigma(x) * (1 + x * sigma(-x));
}

double activation(Activation kind, double x) noexcept {
  switch (kind) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      return silu(x);
  }
  return x;
}

double activation_derivative(Activation kind, double x) noexcept {
  switch (kind) {
    case Activation::relu:
      return relu_derivative(x);
    case Activation::gelu_erf:
      return gelu_erf_derivative(x);
    case Activation::gelu_tanh:
      return gelu_tanh_derivative(x);
    case Activation::silu:
      return silu_derivative(x);
  }
  return 1;
}

Result<Tensor<double>> activate(View<const double, 2> x, Activation kind) {
  const ExactEnvironment environment;
  if (auto ok = detail::check_given("activate", Named{"x", x}); !ok) return ok.failure();
  return each(x, [&](auto n, auto f) { return activation(kind, x(n, f)); });
}

Result<Tensor<double>> activate_backward(View<const double, 2> x, Activation kind,
                                         View<const double, 2> d_y) {
  const ExactEnvironment environment;
  if (auto ok = check_same("activate_backward", Named{"x", x}, Named{"d_y", d_y}); !ok) {
    return ok.failure();
  }
  // y = f(x)      d_x = d_y·f′(x)
  return each(x, [&](auto n, auto f) { return d_y(n, f) * activation_derivative(kind, x(n, f)); });
}

Result<Tensor<double>> gated_product(View<const double, 2> gate, View<const double, 2> up) {
  const ExactEnvironment environment;
  if (auto ok = check_same("gated_product", Named{"gate", gate}, Named{"up", up}); !ok) {
    return ok.failure();
  }
  return each(gate, [&](auto n, auto f) { return gate(n, f) * up(n, f); });
}

Result<GatedProductGradients> gated_product_backward(View<const double, 2> gate,
                                                     View<const double, 2> up,
                                                     View<const double, 2> d_y) {
  const ExactEnvironment environment;
  const char* const operation = "gated_product_backward";
  if (auto ok = check_same(operation, Named{"gate", gate}, Named{"up", up}); !ok) {
    return ok.failure();
  }
  if (auto ok = check_same(operation, Named{"gate", gate}, Named{"d_y", d_y}); !ok) {
    return ok.failure();
  }
  // y = gate ⊙ up      d_gate = d_y ⊙ up,   d_up = d_y ⊙ gate
  return GatedProductGradients{
      each(gate, [&](auto n, auto f) { return d_y(n, f) * up(n, f); }),
      each(gate, [&](auto n, auto f) { return d_y(n, f) * gate(n, f); }),
  };
}

}  // namespace attest::lab
