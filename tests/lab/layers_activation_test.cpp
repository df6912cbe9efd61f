// SPDX-License-Identifier: MIT
#include "attest/lab/layers_activation.h"

#include <cmath>
#include <limits>

#include "layers_support.h"

namespace attest::lab {
namespace {

using namespace testing;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

constexpr Activation activations[] = {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh,
                                      Activation::silu};

TEST(Activation, LimitsAreReachedWithoutNaN) {
  for (const Activation kind : activations) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const double far : {infinity, 1e308, 1e200}) {
      EXPECT_EQ(activation(kind, far), far);
      EXPECT_EQ(activation(kind, -far), 0);
      EXPECT_EQ(activation_derivative(kind, far), 1);
      EXPECT_EQ(activation_derivative(kind, -far), 0);
    }
    EXPECT_EQ(activation(kind, 0), 0);
    EXPECT_TRUE(std::isnan(activation(kind, not_a_number)));
    EXPECT_TRUE(std::isnan(activation_derivative(kind, not_a_number)));
  }
}

TEST(Activation, ReluIsExactAndFlatAtZero) {
  EXPECT_EQ(relu(3.25), 3.25);
  EXPECT_EQ(relu(-3.25), 0);
  EXPECT_FALSE(std::signbit(relu(-0.0)));
  EXPECT_EQ(relu_derivative(0), 0);
  EXPECT_EQ(relu_derivative(5e-324), 1);
}

TEST(Activation, DerivativesAtZeroAreOneHalf) {
  for (const Activation kind : {Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    EXPECT_EQ(activation_derivative(kind, 0), 0.5);
  }
}

/// Points on both sides of every change of form, far into the tails, and at random.
std::vector<double> activation_points() {
  std::vector<double> points{
      -37,      -30,     -20, -10, -8.5, -5,   -1,      std::nextafter(-1, -2),
      1e-300,   1,       8,   40,  0.5,  -0.5, -0.7518, -1.278,
      -0x1p-30, 0x1p-30, 5,   -3};
  Random random(17);
  for (int n = 0; n < 150; ++n) points.push_back(random.uniform(-8, 8));
  for (int n = 0; n < 40; ++n) points.push_back(random.uniform(-25, 25));
  return points;
}

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

/// The bounds that layers_activation.h states, of a value and of a derivative.
struct ActivationBounds {
  double value, derivative;
};
ActivationBounds bounds_of(Activation kind, double x) {
  const double y = std::abs(activation(kind, x));
  if (kind == Activation::gelu_erf) {
    const double density = std::exp(-x * x / 2) * 0.3989422804014327;
    const double below = std::erfc(-x / std::sqrt(2.0)) / 2;
    return {8 * u * y, 8 * u * (below + std::abs(x) * density)};
  }
  if (kind == Activation::gelu_tanh) {
    const double c = 0.7978845608028654;
    const double w = c * (x + 0.044715 * x * x * x);
    const double bell = 1 / (std::cosh(w) * std::cosh(w));
    const double slope = std::abs(x / 2 * c * (1 + 3 * 0.044715 * x * x) * bell);
    return {u * (12 * std::abs(w) + 5) * y, u * (12 * std::abs(w) + 10) * (sigma(2 * w) + slope)};
  }
  if (kind == Activation::silu) {
    return {5 * u * y, 9 * u * sigma(x) * (1 + std::abs(x) * sigma(-x))};
  }
  return {0, 0};
}

TEST(Activation, ValuesAndDerivativesStayWithinTheirBounds) {
  const std::vector<double> points = activation_points();
  const Tensor<double> x({static_cast<std::int64_t>(points.size())}, points);
  Tensor<double> ones({x.extent(0)});
  for (double& one : ones.elements()) one = 1;
  const char* const names[] = {"relu", "gelu_erf", "gelu_tanh", "silu"};
  for (const Activation kind : activations) {
    const std::string name = names[static_cast<int>(kind)];
    Bound used(name);
    Bound used_derivative(name + "_derivative");
    const auto exact = *oracle::activation(kind, x);
    const auto exact_derivative = *oracle::activation_backward(kind, x, ones);
    for (std::size_t n = 0; n < points.size(); ++n) {
      SCOPED_TRACE(points[n]);
      const ActivationBounds bounds = bounds_of(kind, points[n]);
      const double tail = 0x1p-1060;
      used.check(activation(kind, points[n]), exact.values[n], bounds.value + tail);
      used_derivative.check(activation_derivative(kind, points[n]), exact_derivative.values[n],
                            bounds.derivative + tail);
    }
  }
}

TEST(Activation, TailsKeepTheirDigits) {
  // x·Φ(x) at −20: 1 + erf is exactly 0 there.
  EXPECT_NEAR(gelu_erf(-20) / -5.5072482372124676e-88, 1, 8 * u);
  EXPECT_LT(silu(-700), 0);
  EXPECT_LT(gelu_tanh(-10), 0);
}

TEST(Activation, BackwardMultipliesByTheDerivative) {
  const auto x = matrix({2, 2}, {-2, -0.25, 0.5, 3});
  const auto d_y = matrix({2, 2}, {1, -2, 4, 0.5});
  for (const Activation kind : activations) {
    const auto y = *activate(view(x), kind);
    const auto d_x = *activate_backward(view(x), kind, view(d_y));
    for (std::size_t n = 0; n < 4; ++n) {
      EXPECT_EQ(y.data()[n], activation(kind, x.data()[n]));
      EXPECT_EQ(d_x.data()[n], d_y.data()[n] * activation_derivative(kind, x.data()[n]));
    }
  }
}

TEST(GatedProduct, MultipliesAndSendsEachGradientThroughTheOther) {
  const auto gate = matrix({1, 3}, {2, -1, 0.5});
  const auto up = matrix({1, 3}, {3, 5, -8});
  const auto d_y = matrix({1, 3}, {1, 10, 100});
  expect_same_bits(*gated_product(view(gate), view(up)), matrix({1, 3}, {6, -5, -4}));
  const auto back = *gated_product_backward(view(gate), view(up), view(d_y));
  expect_same_bits(back.d_gate, matrix({1, 3}, {3, 50, -800}));
  expect_same_bits(back.d_up, matrix({1, 3}, {2, -10, 50}));
  const Tensor<double> wide({1, 4});
  EXPECT_EQ(message_of(gated_product(view(gate), view(wide))),
            "shape-mismatch: [gated_product] gate and up must have the same shape; gate has [1, 3],"
            " up has [1, 4]");
}

Tensor<double> as_row(Tensor<double> x) {
  const auto count = static_cast<std::int64_t>(x.size());
  return std::move(x).reshaped({1, count});
}

TEST(Activation, AgreesWithThePublishedVectors) {
  auto cases = test::onnx_nodes("gelu");
  for (test::OnnxNode& one : test::onnx_nodes("swish")) cases.push_back(std::move(one));
  if (cases.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(cases.size(), 5U);
  for (const test::OnnxNode& one : cases) {
    SCOPED_TRACE(one.name);
    ASSERT_EQ(one.attribute("alpha", 1), 1);
    const bool by_tanh = one.text("attributes").find("tanh") != std::string::npos;
    const Activation gelu = by_tanh ? Activation::gelu_tanh : Activation::gelu_erf;
    const Tensor<double> x = as_row(one.get("in.x"));
    const auto y = *activate(view(x), one.name == "swish" ? Activation::silu : gelu);
    expect_near_onnx(y, one.get("out.y"));
  }
}

TEST(GatedProduct, AgreesWithThePublishedSwiglu) {
  const auto cases = test::onnx_nodes("swiglu", "swiglu.");
  if (cases.empty()) GTEST_SKIP() << test::not_shared;
  const Tensor<double> a = as_row(cases[0].get("in.a"));
  const Tensor<double> b = as_row(cases[0].get("in.b"));
  const auto gate = *activate(view(a), Activation::silu);
  expect_near_onnx(*gated_product(view(gate), view(b)), cases[0].get("out.y"));
}

}  // namespace
}  // namespace attest::lab
