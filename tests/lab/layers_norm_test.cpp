// SPDX-License-Identifier: MIT
#include "attest/lab/layers_norm.h"

#include <cmath>

#include "layers_support.h"

namespace attest::lab {
namespace {

using namespace testing;

TEST(LayerNorm, ConstantRowBecomesZeros) {
  const auto x = matrix({2, 4}, {7, 7, 7, 7, 0.1, 0.1, 0.1, 0.1});
  expect_same_bits(layer_norm(view(x), {})->output, Tensor<double>({2, 4}));
  const auto bias = matrix({4}, {1, 2, 3, 4});
  const auto shifted = *layer_norm(view(x), {.gain = {}, .bias = vector_view(bias)});
  expect_same_bits(shifted.output, matrix({2, 4}, {1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(LayerNorm, UsesThePopulationVariance) {
  const auto x = matrix({1, 4}, {1, 0, 0, 0});
  const auto norm = *layer_norm(view(x), {.gain = {}, .bias = {}, .epsilon = 0});
  EXPECT_EQ(norm.mean(0), 0.25);
  EXPECT_EQ(norm.variance(0), 0.1875);  // with C − 1 it would be 0.25, and the row [1.5, −0.5, …]
  EXPECT_DOUBLE_EQ(norm.output(0, 0), 1.7320508075688772);
  EXPECT_DOUBLE_EQ(norm.output(0, 1), -0.57735026918962576);
}

TEST(LayerNorm, EpsilonStandsInsideTheRoot) {
  const auto x = matrix({1, 4}, {1, 0, 0, 0});
  const auto norm = *layer_norm(view(x), {.gain = {}, .bias = {}, .epsilon = 0.0625});
  expect_same_bits(norm.output, matrix({1, 4}, {1.5, -0.5, -0.5, -0.5}));  // √(3/16 + 1/16) = 1/2
}

TEST(LayerNorm, GainAndBiasActOnTheirOwnFeature) {
  const auto x = matrix({1, 4}, {1, 0, 0, 0});
  const auto gain = matrix({4}, {1, 2, 4, 0});
  const auto bias = matrix({4}, {0, 1, 0, 5});
  const auto norm = *layer_norm(
      view(x), {.gain = vector_view(gain), .bias = vector_view(bias), .epsilon = 0.0625});
  expect_same_bits(norm.output, matrix({1, 4}, {1.5, 0, -2, 5}));
}

TEST(LayerNorm, OrderOfFeaturesCannotMatter) {
  Random random(3);
  const auto x = random_tensor(random, {1, 9}, -1e3, 1e3);
  Tensor<double> reversed({1, 9});
  for (int c = 0; c < 9; ++c) reversed(0, 8 - c) = x(0, c);
  const auto a = *layer_norm(view(x), {});
  const auto b = *layer_norm(view(reversed), {});
  for (int c = 0; c < 9; ++c) EXPECT_EQ(a.output(0, c), b.output(0, 8 - c));
}

struct NormInputs {
  Tensor<double> x, gain, bias, d_y;
  double epsilon;
  NormParameters parameters() const { return {gain.view<1>(), bias.view<1>(), epsilon}; }
};

/// Rows near zero and rows a thousand times their spread away from it.
NormInputs norm_inputs(Random& random) {
  const std::int64_t N = random.between(1, 4);
  const std::int64_t C = random.between(2, 9);
  const double centre = random.uniform(0, 1) < 0.5 ? 0 : random.uniform(-1000, 1000);
  NormInputs in{random_tensor(random, {N, C}, centre - 1, centre + 1),
                random_tensor(random, {C}, 0.5, 2), random_tensor(random, {C}),
                random_tensor(random, {N, C}), 0};
  const double epsilons[] = {0, 1e-5, 0.1};
  in.epsilon = epsilons[random.between(0, 2)];
  return in;
}

TEST(LayerNorm, StaysWithinItsBound) {
  Bound used("layer_norm");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const NormInputs in = norm_inputs(random);
    const auto got = *layer_norm(view(in.x), in.parameters());
    const auto exact = *oracle::norm(in.x, {Norm::layer_norm, in.gain, in.bias, in.epsilon});
    for (std::int64_t n = 0; n < in.x.extent(0); ++n) {
      const double root = std::sqrt(got.variance(n) + in.epsilon);
      const double k = std::abs(got.mean(n)) / root;
      for (std::int64_t c = 0; c < in.x.extent(1); ++c) {
        const double y = got.output(n, c);
        const double size = std::abs(in.x(n, c) - got.mean(n)) / root;
        const double bound = in.gain(c) * ((7 + 2 * k) * size + 2 * k) + std::abs(y);
        used.check(y, exact(n, c), u * bound);
      }
    }
  }
}

TEST(RmsNorm, StaysWithinItsBound) {
  Bound used("rms_norm");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const NormInputs in = norm_inputs(random);
    const auto got = *rms_norm(view(in.x), in.parameters());
    const auto exact = *oracle::norm(in.x, {Norm::rms_norm, in.gain, in.bias, in.epsilon});
    for (std::int64_t n = 0; n < in.x.extent(0); ++n) {
      const double root = std::sqrt(got.variance(n) + in.epsilon);
      for (std::int64_t c = 0; c < in.x.extent(1); ++c) {
        const double y = got.output(n, c);
        const double size = std::abs(in.gain(c) * in.x(n, c)) / root;
        used.check(y, exact(n, c), u * (5 * size + std::abs(y)));
      }
    }
  }
}

/// d_x passes about eight roundings, each scaled by the largest d_n/root and at worst by n² (n
/// times the mean of d_n·n) and by the k digits' worth that x − mean has lost. d_gain sums N
/// products d_y·n, and n errs as layer_norm's bound says.
void expect_norm_gradients(Norm kind) {
  Bound used_x(kind == Norm::layer_norm ? "layer_norm d_x" : "rms_norm d_x");
  Bound used_gain(kind == Norm::layer_norm ? "layer_norm d_gain" : "rms_norm d_gain");
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const NormInputs in = norm_inputs(random);
    const bool centred = kind == Norm::layer_norm;
    const auto norm = *(centred ? layer_norm(view(in.x), in.parameters())
                                : rms_norm(view(in.x), in.parameters()));
    const auto got = *(centred ? layer_norm_backward(view(in.x), in.parameters(), view(in.d_y))
                               : rms_norm_backward(view(in.x), in.parameters(), view(in.d_y)));
    const auto exact = *oracle::norm_backward(in.x, {kind, in.gain, in.bias, in.epsilon}, in.d_y);
    const std::int64_t N = in.x.extent(0);
    const std::int64_t C = in.x.extent(1);
    std::vector<double> gain_bound(static_cast<std::size_t>(C), 0);
    for (std::int64_t n = 0; n < N; ++n) {
      const double root = std::sqrt(norm.variance(n) + in.epsilon);
      const double mean = centred ? norm.mean(n) : 0;
      const double k = std::abs(mean) / root;
      double largest_n = 0;
      double largest_d = 0;
      for (std::int64_t c = 0; c < C; ++c) {
        const double size = std::abs(in.x(n, c) - mean) / root;
        largest_n = std::max(largest_n, size);
        largest_d = std::max(largest_d, std::abs(in.d_y(n, c) * in.gain(c)));
        gain_bound[static_cast<std::size_t>(c)] +=
            u * std::abs(in.d_y(n, c)) * ((8 + 2 * k) * size + 2 * k);
      }
      const double grown = (1 + largest_n) * (1 + largest_n) * (1 + k);
      for (std::int64_t c = 0; c < C; ++c) {
        used_x.check(got.d_x(n, c), exact.d_input(n, c), 8 * u * largest_d / root * grown);
      }
    }
    for (std::int64_t c = 0; c < C; ++c) {
      const double bound = gain_bound[static_cast<std::size_t>(c)] + u * std::abs(got.d_gain(c));
      used_gain.check(got.d_gain(c), exact.d_gain.values[static_cast<std::size_t>(c)], bound);
      EXPECT_EQ(got.d_bias(c),
                oracle::nearest_double(exact.d_bias.values[static_cast<std::size_t>(c)]));
    }
  }
}

TEST(LayerNorm, GradientsAgreeWithTheOracle) { expect_norm_gradients(Norm::layer_norm); }
TEST(RmsNorm, GradientsAgreeWithTheOracle) { expect_norm_gradients(Norm::rms_norm); }

TEST(RmsNorm, GivesHandValues) {
  const auto x = matrix({2, 4}, {2, 0, 0, 0, 1, -1, 1, 1});
  const auto norm = *rms_norm(view(x), {.gain = {}, .bias = {}, .epsilon = 0});
  expect_same_bits(norm.output, matrix({2, 4}, {2, 0, 0, 0, 1, -1, 1, 1}));
  EXPECT_EQ(norm.variance(0), 1);
  EXPECT_EQ(norm.mean.size(), 0U);
  const auto inside = *rms_norm(view(x), {.gain = {}, .bias = {}, .epsilon = 3});
  EXPECT_EQ(inside.output(1, 0), 0.5);  // 1/√(1 + 3); outside the root it would be 1/(1 + 3)
  const Tensor<double> zeros({1, 4});
  expect_same_bits(rms_norm(view(zeros), {})->output, zeros);
}

TEST(LayerNorm, ShapeErrorsNameBothNumbers) {
  const Tensor<double> x({2, 3});
  const Tensor<double> four({4});
  EXPECT_EQ(message_of(layer_norm(view(x), {.gain = vector_view(four)})),
            "shape-mismatch: [layer_norm] x and gain must have the same C; x has 3, gain has 4");
  EXPECT_EQ(message_of(rms_norm(view(x), {.gain = {}, .bias = vector_view(four)})),
            "shape-mismatch: [rms_norm] x and bias must have the same C; x has 3, bias has 4");
  EXPECT_EQ(message_of(layer_norm(view(x), {.gain = {}, .bias = {}, .epsilon = -1})),
            "bad-option: [layer_norm] epsilon must be finite and at least 0; found -1");
  const Tensor<double> empty({2, 0});
  EXPECT_EQ(message_of(layer_norm(view(empty), {})),
            "shape-mismatch: [layer_norm] C must be at least 1; x has 0 features");
}

/// X normalised over its last axes, from `axis` on: rows of all that lies before.
void expect_onnx_norms(const std::string& folder, Norm kind) {
  const auto cases = test::onnx_nodes(folder);
  if (cases.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(cases.size(), 19U);
  for (const test::OnnxNode& one : cases) {
    SCOPED_TRACE(one.name);
    Tensor<double> x = one.get("in.X");
    const Tensor<double> gain = one.get("in.W");
    const auto features = static_cast<std::int64_t>(gain.size());
    const auto rows = static_cast<std::int64_t>(x.size()) / features;
    const Tensor<double> flat = std::move(x).reshaped({rows, features});
    const bool biased = one.has("in.B");
    const Tensor<double> bias = biased ? one.get("in.B") : Tensor<double>();
    NormParameters norm{{gain.data(), {features}}, {}, one.attribute("epsilon", 1e-5)};
    if (biased) norm.bias = {bias.data(), {features}};
    const auto got =
        *(kind == Norm::layer_norm ? layer_norm(view(flat), norm) : rms_norm(view(flat), norm));
    expect_near_onnx(got.output, one.get("out.Y"));
    if (one.has("out.Mean")) expect_near_onnx(got.mean, one.get("out.Mean"));
  }
}

TEST(LayerNorm, AgreesWithThePublishedVectors) {
  expect_onnx_norms("layer_normalization", Norm::layer_norm);
}
TEST(RmsNorm, AgreesWithThePublishedVectors) {
  expect_onnx_norms("rms_normalization", Norm::rms_norm);
}

}  // namespace
}  // namespace attest::lab
