// SPDX-License-Identifier: MIT
#include "attest/lab/layers.h"

#include <cfenv>
#include <cmath>
#include <limits>

#include "attest/lab/softmax.h"
#include "layers_support.h"

namespace attest::lab {
namespace {

using namespace testing;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

View<const std::int64_t, 1> ids_view(const std::vector<std::int64_t>& ids) {
  return {ids.data(), {static_cast<std::int64_t>(ids.size())}};
}

// ---- linear -----------------------------------------------------------------------------------

TEST(Linear, GivesTheWorkbooksProduct) {
  const auto x = matrix({1, 2}, {1, 2});
  const auto weight = matrix({2, 2}, {3, 4, 5, 6});
  expect_same_bits(*linear(view(x), view(weight)), matrix({1, 2}, {13, 16}));
  const auto bias = matrix({2}, {0.5, -16});
  expect_same_bits(*linear(view(x), view(weight), vector_view(bias)), matrix({1, 2}, {13.5, 0}));
}

TEST(Linear, KeepsTheSmallTermsUnderCancellation) {
  const auto x = matrix({1, 3}, {1e16, 1, -1e16});
  const auto weight = matrix({3, 1}, {1, 1, 1});
  const auto bias = matrix({1}, {0x1p-60});
  EXPECT_EQ((*linear(view(x), view(weight)))(0, 0), 1);
  const auto minus_one = matrix({3, 1}, {1, 0, 1});
  EXPECT_EQ((*linear(view(x), view(minus_one), vector_view(bias)))(0, 0), 0x1p-60);
}

TEST(Linear, ReadsAnyStrides) {
  Random random(11);
  const auto x = random_tensor(random, {3, 5});
  const auto weight = random_tensor(random, {5, 4});
  Tensor<double> x_turned({5, 3});
  Tensor<double> weight_turned({4, 5});
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < 5; ++i) x_turned(i, n) = x(n, i);
  }
  for (int i = 0; i < 5; ++i) {
    for (int o = 0; o < 4; ++o) weight_turned(o, i) = weight(i, o);
  }
  const auto turned = [](const Tensor<double>& t) { return t.view<2>().swapped(0, 1); };
  const auto y = *linear(view(x), view(weight));
  expect_same_bits(y, *linear(turned(x_turned), turned(weight_turned)));

  const auto back = *linear_backward(view(x), view(weight), view(y));
  const auto back_turned = *linear_backward(turned(x_turned), turned(weight_turned), view(y));
  expect_same_bits(back.d_x, back_turned.d_x);
  expect_same_bits(back.d_weight, back_turned.d_weight);
}

TEST(Linear, StaysWithinItsBound) {
  Bound used("linear");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const std::int64_t N = random.between(1, 4);
    const std::int64_t I = random.between(1, 9);
    const std::int64_t O = random.between(1, 5);
    const auto x = random_tensor(random, {N, I});
    const auto weight = random_tensor(random, {I, O});
    const auto bias = random_tensor(random, {O});
    const auto y = *linear(view(x), view(weight), vector_view(bias));
    const auto exact = *oracle::linear(x, {weight, bias});
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t o = 0; o < O; ++o) {
        double size = 0;
        for (std::int64_t i = 0; i < I; ++i) size += std::abs(x(n, i) * weight(i, o));
        used.check(y(n, o), exact(n, o), u * (size + std::abs(y(n, o))));
      }
    }
  }
}

TEST(Linear, GradientsAgreeWithTheOracle) {
  Bound used("linear_backward");
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const auto x = random_tensor(random, {3, 4});
    const auto weight = random_tensor(random, {4, 5});
    const auto d_y = random_tensor(random, {3, 5});
    const auto got = *linear_backward(view(x), view(weight), view(d_y));
    const auto exact = *oracle::linear_backward(x, {weight, Tensor<double>({5})}, d_y);
    // Sums of at most five products of numbers in [−1, 1]: u for each product and for the sum.
    for (std::size_t n = 0; n < got.d_x.size(); ++n) {
      used.check(got.d_x.data()[n], exact.d_input.values[n], u * (5 + 5));
    }
    for (std::size_t n = 0; n < got.d_weight.size(); ++n) {
      used.check(got.d_weight.data()[n], exact.d_weight.values[n], u * (3 + 3));
    }
    for (std::size_t n = 0; n < got.d_bias.size(); ++n) {
      EXPECT_EQ(got.d_bias.data()[n], oracle::nearest_double(exact.d_bias.values[n]));
    }
  }
}

TEST(Linear, ShapeErrorsNameBothNumbers) {
  const Tensor<double> x({2, 3});
  const Tensor<double> weight({4, 5});
  EXPECT_EQ(
      message_of(linear(view(x), view(weight))),
      "shape-mismatch: [linear] x and weight must agree; x has 3 features, weight has 4 rows");
  const Tensor<double> good({3, 5});
  const Tensor<double> bias({6});
  EXPECT_EQ(message_of(linear(view(x), view(good), vector_view(bias))),
            "shape-mismatch: [linear] weight and bias must agree; weight has 5 columns, bias has 6 "
            "entries");
  EXPECT_EQ(message_of(linear_backward(view(x), view(good), view(x))),
            "shape-mismatch: [linear_backward] y and d_y must have the same shape; y has [2, 5], "
            "d_y has [2, 3]");
  EXPECT_EQ(message_of(linear({}, view(good))), "shape-mismatch: [linear] x must be given");
}

TEST(Layers, HostRoundingModeChangesNoBit) {
  Random random(5);
  const auto x = random_tensor(random, {3, 6});
  const auto weight = random_tensor(random, {6, 4});
  const auto y = *linear(view(x), view(weight));
  const auto norm = *layer_norm(view(x), {});
  const auto back = *layer_norm_backward(view(x), {}, view(x));
  const auto bent = *activate(view(x), Activation::gelu_tanh);
  std::fesetround(FE_UPWARD);
  const auto y_upward = *linear(view(x), view(weight));
  const auto norm_upward = *layer_norm(view(x), {});
  const auto back_upward = *layer_norm_backward(view(x), {}, view(x));
  const auto bent_upward = *activate(view(x), Activation::gelu_tanh);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  expect_same_bits(y, y_upward);
  expect_same_bits(norm.output, norm_upward.output);
  expect_same_bits(back.d_x, back_upward.d_x);
  expect_same_bits(bent, bent_upward);
}

// ---- embedding --------------------------------------------------------------------------------

TEST(Embedding, LooksUpRowsAndSumsTheirGradients) {
  const auto table = matrix({3, 2}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::int64_t> ids{2, 0, 2};
  expect_same_bits(*embedding(view(table), ids_view(ids)), matrix({3, 2}, {5, 6, 1, 2, 5, 6}));
  const auto d_y = matrix({3, 2}, {1e16, 1, 7, 8, -1e16, 2});
  expect_same_bits(*embedding_backward(3, ids_view(ids), view(d_y)),
                   matrix({3, 2}, {7, 8, 0, 0, 0, 3}));
}

TEST(Embedding, AnIdOutsideTheTableIsNamed) {
  const Tensor<double> table({3, 2});
  EXPECT_EQ(
      message_of(embedding(view(table), ids_view(std::vector<std::int64_t>{0, 3}))),
      "id-out-of-range: [embedding] id 3 at position 1 is out of range; the table has 3 rows");
  EXPECT_EQ(
      message_of(embedding(view(table), ids_view(std::vector<std::int64_t>{-1}))),
      "id-out-of-range: [embedding] id -1 at position 0 is out of range; the table has 3 rows");
  EXPECT_EQ(
      message_of(embedding_backward(3, ids_view(std::vector<std::int64_t>{0, 1}), view(table))),
      "shape-mismatch: [embedding_backward] ids and d_y must agree; ids has 2 entries, d_y "
      "has 3 rows");
}

// ---- cross entropy ----------------------------------------------------------------------------

TEST(CrossEntropy, DividesByTheCountOfAllTargets) {  // case B01
  const std::vector<std::int64_t> targets{0, 1, 1, 1};
  const auto column_sums = [](const Tensor<double>& d) {
    std::vector<double> sums{0, 0};
    for (int n = 0; n < 4; ++n) {
      for (int v = 0; v < 2; ++v) sums[static_cast<std::size_t>(v)] += d(n, v);
    }
    return sums;
  };
  const Tensor<double> even({4, 2});
  EXPECT_EQ(column_sums(*cross_entropy_backward(view(even), {ids_view(targets), {}})),
            (std::vector<double>{0.25, -0.25}));
  Tensor<double> odd({4, 2});
  for (int n = 0; n < 4; ++n) odd(n, 0) = std::log(3.0);
  EXPECT_DOUBLE_EQ(cross_entropy(view(odd), {ids_view(targets), {}})->loss, 1.1116412889528632);
  const auto sums = column_sums(*cross_entropy_backward(view(odd), {ids_view(targets), {}}));
  EXPECT_DOUBLE_EQ(sums[0], 0.5);
  EXPECT_DOUBLE_EQ(sums[1], -0.5);
}

TEST(CrossEntropy, IgnoredPositionsCountInNothing) {  // case B02
  // p = ½ at the two supervised positions; what stands at the padding is never read.
  const auto logits = matrix({4, 2}, {0, 0, 5, 5, not_a_number, 1, infinity, infinity});
  const std::vector<std::int64_t> targets{1, 0, -100, -100};
  const Targets ignoring{ids_view(targets), -100};
  const auto loss = *cross_entropy(view(logits), ignoring);
  EXPECT_EQ(loss.count, 2);
  EXPECT_EQ(loss.loss, 0.69314718055994531);
  EXPECT_EQ(loss.losses(2), 0);
  expect_same_bits(*cross_entropy_backward(view(logits), ignoring),
                   matrix({4, 2}, {0.25, -0.25, -0.25, 0.25, 0, 0, 0, 0}));
}

TEST(CrossEntropy, NoTargetIsLossZeroAndCountZero) {  // case B04 a
  const auto logits = matrix({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::int64_t> targets{7, 7};
  const auto loss = *cross_entropy(view(logits), {ids_view(targets), 7});
  EXPECT_EQ(loss.count, 0);
  EXPECT_EQ(loss.loss, 0);
  expect_same_bits(*cross_entropy_backward(view(logits), {ids_view(targets), 7}),
                   Tensor<double>({2, 3}));
}

TEST(CrossEntropy, ATargetOutsideTheVocabularyIsNamed) {  // case B04 b
  const auto logits = matrix({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::int64_t> targets{1, 3};
  EXPECT_EQ(message_of(cross_entropy(view(logits), {ids_view(targets), {}})),
            "target-out-of-range: [cross_entropy] target 3 at position 1 is out of range; the "
            "vocabulary has V = 3");
  EXPECT_EQ(message_of(cross_entropy_backward(view(logits), {ids_view(targets), {}})),
            "target-out-of-range: [cross_entropy_backward] target 3 at position 1 is out of range; "
            "the vocabulary has V = 3");
  EXPECT_EQ(message_of(cross_entropy(view(logits), {ids_view(std::vector<std::int64_t>{1}), {}})),
            "shape-mismatch: [cross_entropy] logits and targets must agree; logits has 2 rows, "
            "targets has 1");
}

TEST(CrossEntropy, GivesTheHandValue) {  // case B04 c
  const auto logits = matrix({1, 3}, {1, 2, 3});
  const std::vector<std::int64_t> targets{1};
  EXPECT_DOUBLE_EQ(cross_entropy(view(logits), {ids_view(targets), {}})->loss, 1.4076059644443803);
}

TEST(CrossEntropy, ConfidenceAmongLargeLogitsKeepsItsDigits) {
  const auto logits = matrix({1, 2}, {1e6 + 30, 1e6});
  const std::vector<std::int64_t> targets{0};
  // log(1 + e^−30); peak + log(sum) alone would round it away beside 10⁶.
  EXPECT_NEAR(cross_entropy(view(logits), {ids_view(targets), {}})->loss, 9.3576229688397e-14,
              2 * u);
}

TEST(CrossEntropy, StaysWithinItsBound) {
  Bound used("cross_entropy");
  Bound used_gradient("cross_entropy_backward");
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const std::int64_t N = random.between(1, 5);
    const std::int64_t V = random.between(1, 6);
    const auto logits = random_tensor(random, {N, V}, -10, 10);
    Tensor<std::int64_t> targets({N});
    for (std::int64_t& target : targets.elements()) target = random.between(-1, V - 1);
    targets(0) = 0;  // the oracle wants at least one
    const Targets ignoring{{targets.data(), {N}}, -1};
    const auto got = *cross_entropy(view(logits), ignoring);
    const auto exact = *oracle::cross_entropy(logits, targets, -1);
    EXPECT_EQ(got.count, exact.counted);
    const double spread = std::log(static_cast<double>(V));
    // the bound of one loss, averaged; then a rounding of the sum and one of the quotient
    used.check(got.loss, exact.mean, u * (2 + 2 * spread + got.loss + 2 * got.loss));
    const auto d = *cross_entropy_backward(view(logits), ignoring);
    const auto exact_d = *oracle::cross_entropy_backward(logits, targets, -1);
    for (std::size_t n = 0; n < d.size(); ++n) {
      used_gradient.check(d.data()[n], exact_d.values[n],
                          u * (8 + spread) / static_cast<double>(got.count));
    }
  }
}

// ---- softmax -----------------------------------------------------------------------------------

TEST(Softmax, AgreesWithThePublishedVectors) {
  const auto cases = test::onnx_nodes("softmax");
  if (cases.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(cases.size(), 7U);
  for (const test::OnnxNode& one : cases) {
    SCOPED_TRACE(one.name);
    const Tensor<double> x = one.get("in.x");
    const std::size_t axis = one.axis(x.rank());
    const auto step = static_cast<std::size_t>(row_major_strides(x.shape())[axis]);
    const auto extent = static_cast<std::size_t>(x.extent(axis));
    Tensor<double> y(x.shape());
    for (std::size_t n = 0; n < x.size(); ++n) {
      if (n / step % extent != 0) continue;  // the first element along the axis stands for its row
      std::vector<double> row;
      for (std::size_t j = 0; j < extent; ++j) row.push_back(x.data()[n + j * step]);
      const SoftmaxRow soft = softmax_row(row);
      for (std::size_t j = 0; j < extent; ++j) y.data()[n + j * step] = soft.weights[j];
    }
    expect_near_onnx(y, one.get("out.y"));
  }
}

}  // namespace
}  // namespace attest::lab
