// SPDX-License-Identifier: MIT
#include "attest/linalg/activations.h"

#include <gtest/gtest.h>

#include "attest/lab/layers_activation.h"
#include "tests/linalg/layers_support.h"

namespace attest {
namespace {

using namespace test::layers;  // NOLINT

constexpr Activation all[] = {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh,
                              Activation::silu};
constexpr const char* names[] = {"relu", "gelu_erf", "gelu_tanh", "silu"};

const char* name_of_kind(Activation kind) { return names[static_cast<std::size_t>(kind)]; }

double angle(double x) { return 0.7978845608028654 * (x + 0.044715 * x * x * x); }
double sigma(double z) { return 1 / (1 + std::exp(-z)); }

/// c of the contract.
double constant(Activation kind, double x) {
  if (kind == Activation::gelu_erf) return 16;
  if (kind == Activation::gelu_tanh) return 12 * std::fabs(angle(x)) + 10;
  return kind == Activation::silu ? 8 : 0;
}

/// A of the contract: the sizes of the derivative's terms.
double slope_size(Activation kind, double x) {
  if (kind == Activation::relu) return 0;
  if (kind == Activation::gelu_erf) {
    return std::erfc(-x / std::sqrt(2.0)) / 2 + std::fabs(x) * std::exp(-x * x / 2) / 2.5066;
  }
  if (kind == Activation::silu) return sigma(x) + std::fabs(x) * sigma(x) * sigma(-x);
  const double z = 2 * angle(x);
  const double d_z = 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
  if (sigma(z) * sigma(-z) == 0) return sigma(z);
  return sigma(z) + std::fabs(x * d_z) * sigma(z) * sigma(-z);
}

template <class S>
double value_bound(Activation kind, double x, double exact) {
  return (constant(kind, x) * (unit<S> + 0x1p-53)) * std::fabs(exact) +
         2 * least<S> * (1 + std::fabs(x)) + storing<S>(std::fabs(exact));
}
template <class S>
double slope_bound(Activation kind, double x) {
  if (kind == Activation::relu) return 0;
  return (constant(kind, x) + 4) * (unit<S> + 0x1p-53) * slope_size(kind, x) +
         3 * least<S> * (1 + std::fabs(x) + std::fabs(x * x * x));
}

/// The textbook's line in T.
template <class T>
T plain_value(Activation kind, T x) {
  if (kind == Activation::relu) return x > 0 ? x : 0;
  if (kind == Activation::gelu_erf) return x / 2 * (1 + std::erf(x / std::sqrt(T(2))));
  if (kind == Activation::silu) return x / (1 + std::exp(-x));
  const T w = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
  return x / 2 * (1 + std::tanh(w));
}
template <class T>
T plain_slope(Activation kind, T x) {
  if (kind == Activation::relu) return x > 0 ? 1 : 0;
  if (kind == Activation::gelu_erf) {
    return (1 + std::erf(x / std::sqrt(T(2)))) / 2 +
           x * std::exp(-x * x / 2) * T(0.3989422804014327);
  }
  if (kind == Activation::silu) {
    const T s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
  const T w = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
  const T h = std::tanh(w);
  return (1 + h) / 2 + x / 2 * (1 - h * h) * T(0.7978845608028654) * (1 + T(0.134145) * x * x);
}

/// Every size: dense near zero, into both tails, and beside each limit of the kernels.
template <class S>
Tensor<double> arguments(std::uint64_t seed) {
  Random random(seed);
  std::vector<double> out;
  for (int n = 0; n < 6000; ++n) out.push_back(random.uniform(-8, 8));
  for (int n = 0; n < 3000; ++n) out.push_back(random.uniform(-45, 45));
  for (int n = 0; n < 1000; ++n) out.push_back(random.uniform(-800, 800));
  for (int power = -140; power < 15; ++power) {
    out.push_back(std::ldexp(random.uniform(1, 2), power));
    out.push_back(-out.back());
  }
  for (const double x : {0.0, 15.0, 39.0, 88.0, 103.9, 104.0, 745.0, 746.0, 1.0}) {
    out.push_back(x);
    out.push_back(-x);
  }
  for (double& x : out) x = number(stored<S>(x));
  Tensor<double> x({1, static_cast<std::int64_t>(out.size())});
  std::copy(out.begin(), out.end(), x.data());
  return x;
}

template <class S>
void within_bound() {
  using T = AccumulatorOf<S>;
  const std::uint64_t seed = 4201;
  const Tensor<double> x = arguments<S>(seed);
  const Tensor<S> given = stored<S>(x);
  Tensor<double> ones(x.shape());
  for (double& one : ones.elements()) one = 1;
  const Tensor<S> d_y = stored<S>(ones);
  for (const Isa isa : present_sets()) {
    for (const Activation kind : all) {
      Tensor<S> y(x.shape());
      Tensor<S> d_x(x.shape());
      activate(y.template view<2>(), given.template view<2>(), kind, {.isa = isa});
      activate_backward(d_x.template view<2>(), given.template view<2>(), d_y.template view<2>(),
                        kind, {.isa = isa});
      // Right of −1 the textbook's line is sound; left of it 1 + erf and 1 + tanh cancel.
      const std::string name = name_of_kind(kind);
      Contest values(name, isa, type_name<S>());
      Contest slopes(name + "_backward", isa, type_name<S>());
      Contest tail(name + " tail", isa, type_name<S>());
      for (std::size_t n = 0; n < x.size(); ++n) {
        const double at = x.data()[n];
        const std::string where = "x " + std::to_string(at) + " seed " + std::to_string(seed);
        const double exact = lab::activation(kind, at);
        const double slope = lab::activation_derivative(kind, at);
        const auto plain = [at, kind](auto f) {
          return number(stored<S>(static_cast<double>(f(kind, static_cast<T>(at)))));
        };
        (at < -1 ? tail : values)
            .judge(number(y.data()[n]), plain(plain_value<T>), exact,
                   value_bound<S>(kind, at, exact), where);
        (at < -1 ? tail : slopes)
            .judge(number(d_x.data()[n]), plain(plain_slope<T>), slope,
                   slope_bound<S>(kind, at) + storing<S>(std::fabs(slope)), where + " slope");
      }
      values.finish();
      slopes.finish();
      tail.finish_alone();
    }
  }
}

TEST(Activations, WithinTheirBoundsF32) { within_bound<float>(); }
TEST(Activations, WithinTheirBoundsF64) { within_bound<double>(); }
TEST(Activations, WithinTheirBoundsBf16) { within_bound<BFloat16>(); }
TEST(Activations, WithinTheirBoundsF16) { within_bound<Half>(); }

TEST(Activations, LimitsAreThoseOfTheExactTier) {
  for (const Isa isa : present_sets()) {
    for (const Activation kind : all) {
      for (const double at : {inf, -inf, nan, 0.0, -0.0, 3e38, -3e38}) {
        Tensor<float> x({1, 21});
        for (float& element : x.elements()) element = 0.5F;
        x(0, 20) = static_cast<float>(at);
        Tensor<float> y({1, 21});
        Tensor<float> d_x({1, 21});
        Tensor<float> d_y({1, 21});
        for (float& one : d_y.elements()) one = 1;
        activate(y.view<2>(), x.view<2>(), kind, {.isa = isa});
        activate_backward(d_x.view<2>(), x.view<2>(), d_y.view<2>(), kind, {.isa = isa});
        const auto exact = static_cast<float>(lab::activation(kind, x(0, 20)));
        const auto slope = static_cast<float>(lab::activation_derivative(kind, x(0, 20)));
        if (at != at) {
          EXPECT_TRUE(std::isnan(y(0, 20)) && std::isnan(d_x(0, 20))) << name_of_kind(kind);
        } else {
          EXPECT_EQ(y(0, 20), exact) << name_of_kind(kind) << " " << at;
          EXPECT_EQ(std::signbit(y(0, 20)), std::signbit(exact)) << name_of_kind(kind) << " " << at;
          EXPECT_EQ(d_x(0, 20), slope) << name_of_kind(kind) << " " << at;
        }
        EXPECT_EQ(y(0, 0), y(0, 19)) << "neighbours of " << at;
      }
    }
  }
}

template <class S>
void gated_is_the_product() {
  const std::uint64_t seed = 4202;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    for (const Activation kind : all) {
      for (std::int64_t F = 1; F <= 70; ++F) {
        const Tensor<double> gate = random_rows<S>(random, {3, F}, 6);
        const Tensor<double> up = random_rows<S>(random, {3, F}, 2);
        const Tensor<double> d_y = random_rows<S>(random, {3, F}, 2);
        const Tensor<S> g = stored<S>(gate);
        const Tensor<S> u = stored<S>(up);
        const Tensor<S> d = stored<S>(d_y);
        Tensor<S> y({3, F});
        Tensor<S> d_gate({3, F});
        Tensor<S> d_up({3, F});
        const Execution how{.isa = isa};
        gated_activation(y.template view<2>(), g.template view<2>(), u.template view<2>(), kind,
                         how);
        gated_activation_backward(
            d_gate.template view<2>(), d_up.template view<2>(),
            {g.template view<2>(), u.template view<2>(), d.template view<2>()}, kind, how);
        for (std::size_t n = 0; n < gate.size(); ++n) {
          const double x = gate.data()[n];
          const double f = lab::activation(kind, x);
          const double slope = lab::activation_derivative(kind, x);
          // A product carries its factor's error on, is rounded once, and once more to storage.
          const auto holds = [&](double found, double factor, double exact, double factor_bound) {
            const double size = std::fabs(factor * exact);
            const double bound = std::fabs(factor) * factor_bound + 3 * unit<S> * size + least<S>;
            EXPECT_LE(std::fabs(found - factor * exact), bound + storing<S>(size + bound))
                << name_of_kind(kind) << " F " << F << " seed " << seed;
          };
          const double f_bound =
              constant(kind, x) * 2 * unit<S> * std::fabs(f) + 2 * least<S> * (1 + std::fabs(x));
          holds(number(y.data()[n]), up.data()[n], f, f_bound);
          holds(number(d_up.data()[n]), d_y.data()[n], f, f_bound);
          holds(number(d_gate.data()[n]), d_y.data()[n] * up.data()[n], slope,
                slope_bound<S>(kind, x));
        }
      }
    }
  }
}

TEST(GatedActivation, IsTheProductForwardAndBackward) {
  gated_is_the_product<float>();
  gated_is_the_product<double>();
  gated_is_the_product<BFloat16>();
  gated_is_the_product<Half>();
}

TEST(Activations, SlopesAreCentralDifferences) {
  const std::uint64_t seed = 4203;
  Random random(seed);
  const Tensor<double> x = random_rows<double>(random, {3, 40}, 4);
  // The step h leaves h²/6 of a third derivative, below 4 for all of these, and rounding over it.
  const double h = 0x1p-17;
  const double tolerance = 4 * h * h / 6 + 64 * 0x1p-53 * 4 / h;
  for (const Isa isa : present_sets()) {
    for (const Activation kind : all) {
      const auto at = [&](double shift) {
        Tensor<double> moved = x;
        for (double& element : moved.elements()) element += shift;
        activate(moved.view<2>(), moved.view<2>(), kind, {.isa = isa});
        return moved;
      };
      Tensor<double> ones({3, 40});
      for (double& one : ones.elements()) one = 1;
      Tensor<double> d_x({3, 40});
      activate_backward(d_x.view<2>(), x.view<2>(), ones.view<2>(), kind, {.isa = isa});
      const Tensor<double> after = at(h);
      const Tensor<double> before = at(-h);
      for (std::size_t n = 0; n < x.size(); ++n) {
        if (kind == Activation::relu && std::fabs(x.data()[n]) <= h) continue;
        EXPECT_NEAR(d_x.data()[n], (after.data()[n] - before.data()[n]) / (2 * h), tolerance)
            << name_of_kind(kind) << " x " << x.data()[n] << " seed " << seed;
      }
    }
  }
}

TEST(Activations, SameBitsForAnyThreadCountAnyPlaceAndAnyStride) {
  const std::uint64_t seed = 4204;
  Random random(seed);
  const Tensor<float> x = stored<float>(random_rows<float>(random, {53, 1777}, 9));
  for (const Isa isa : present_sets()) {
    for (const Activation kind : all) {
      Tensor<float> first(x.shape());
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        Tensor<float> y(x.shape());
        activate(y.view<2>(), x.view<2>(), kind, {.threads = &pool, .isa = isa});
        if (threads == 1) first = y;
        EXPECT_TRUE(same_bytes(first, y)) << threads << " threads";
      }
      Tensor<float> y({53, 99});
      const View<const float, 2> part(x.data() + 5, {53, 99}, {1777, 1});
      activate(y.view<2>(), part, kind, {.isa = isa});
      for (std::int64_t n = 0; n < 53; ++n) {
        EXPECT_EQ(std::memcmp(&y(n, 0), &first(n, 5), 99 * sizeof(float)), 0) << "row " << n;
      }
    }
  }
}

TEST(Activations, NonsenseIsRefusedWithBothNumbers) {
  Tensor<float> x({2, 3});
  Tensor<float> y({3, 2});
  const auto other = try_activate(y.view<2>(), x.view<2>(), Activation::silu);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.failure().message,
            "[activate] x and y must have the same shape; x has [2, 3], y has [3, 2]");
  EXPECT_THROW(activate(y.view<2>(), x.view<2>(), Activation::silu), ShapeError);
  EXPECT_EQ(try_activate(x.view<2>(), x.view<2>(), static_cast<Activation>(9)).failure().id,
            "bad-option");
  EXPECT_EQ(try_gated_activation(x.view<2>(), x.view<2>(), View<float, 2>{}, Activation::silu)
                .failure()
                .message,
            "[gated_activation] up must be given");
  EXPECT_EQ(try_gated_activation_backward(x.view<2>(), y.view<2>(),
                                          {x.view<2>(), x.view<2>(), x.view<2>()}, Activation::silu)
                .failure()
                .id,
            "shape-mismatch");
  Tensor<float> none({0, 3});
  EXPECT_TRUE(try_activate(none.view<2>(), none.view<2>(), Activation::relu));
}

}  // namespace
}  // namespace attest
