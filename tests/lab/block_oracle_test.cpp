// SPDX-License-Identifier: MIT
// Values and gradients of whole blocks: against the oracle, and against differences of a loss.
#include <cmath>

#include "attest/lab/block.h"
#include "attest/lab/exact_sum.h"
#include "block_support.h"

namespace attest::lab {
namespace {

using namespace testing;

/// Beside the largest number of the result: some thirty roundings lie between input and output,
/// each within u of its own line, and the norms of these inputs, whose rows spread about as far as
/// their numbers reach, at most double what they are given: 2⁶ u. On the way back each norm divides
/// by its root once more, and sums run over rows and features: 2⁹ u. Both tiers have the same bits
/// on every machine, so the parts of these bounds that are used are constants.
constexpr double forward_factor = 0x1p6 * u;
constexpr double backward_factor = 0x1p9 * u;

TEST(Block, AgreesWithTheOracleForAnyConfig) {
  Bound used("block output");
  Bound used_weights("block attention weights");
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const BlockConfig config = random_config(random);
    const auto weights = random_weights(random, config, Optional::some);
    const auto x = random_tensor(random, {random.between(1, 4), config.model_dim});
    const auto got = *block(view(x), config, weights);
    const auto exact = *oracle::block(x, config, weights);
    used.check(got.output, exact.output, forward_factor);
    used_weights.check(got.attention.weights, exact.weights, forward_factor);
  }
}

TEST(Block, GradientsAgreeWithTheOracleForAnyConfig) {
  Bound used_x("block d_x");
  Bound used_weights("block d_weights");
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const BlockConfig config = random_config(random);
    const auto weights = random_weights(random, config, Optional::some);
    const auto x = random_tensor(random, {random.between(1, 3), config.model_dim});
    const auto d_output = random_tensor(random, x.shape());
    const auto got = *block_backward(view(x), config, weights, view(d_output));
    const auto exact = *oracle::block_backward(x, config, weights, d_output);
    used_x.check(got.d_x, exact.d_input, backward_factor);
    // A gradient that is zero but for cancellation (a key's bias) is small beside its neighbours
    // only: all parameters share the largest number of any of them.
    double largest = 0;
    oracle::for_each_parameter(got.d_weights, exact.d_weights,
                               [&](const char*, const auto& mine, const auto&) {
                                 for (const double value : mine.elements())
                                   largest = std::max(largest, std::abs(value));
                               });
    oracle::for_each_parameter(
        got.d_weights, exact.d_weights,
        [&](const char* name, const Tensor<double>& mine, const oracle::OracleTensor& theirs) {
          SCOPED_TRACE(name);
          ASSERT_EQ(mine.size(), theirs.values.size());
          for (std::size_t n = 0; n < mine.size(); ++n) {
            used_weights.check(mine.data()[n], theirs.values[n], backward_factor * largest);
          }
        });
  }
}

/// The gradients along one direction against a difference of losses, with no second program: a
/// five-point formula whose error is a 15th of what halving its step changes, and roundings over h.
TEST(Block, GradientsPredictTheChangeOfALoss) {
  for (std::uint64_t seed = 200; seed < 206; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    BlockConfig config = random_config(random);
    config.activation = Activation::gelu_tanh;  // no kink between two points
    const auto weights = random_weights(random, config, Optional::all);
    const auto x = random_tensor(random, {3, config.model_dim});
    const auto d_output = random_tensor(random, x.shape());
    const auto x_way = random_tensor(random, x.shape());
    const auto weights_way = random_weights(random, config, Optional::all);

    const auto moved = [](const Tensor<double>& from, const Tensor<double>& way, double step) {
      Tensor<double> to = from;
      for (std::size_t n = 0; n < to.size(); ++n) to.data()[n] += step * way.data()[n];
      return to;
    };
    double size = 0;  // Σ |d_output·output|: what a relative error of the outputs is worth
    const auto loss = [&](double step) {
      BlockWeights<double> w = weights;
      for (const BlockParameter& p : block_parameters(config)) {
        w.*p.tensor = moved(weights.*p.tensor, weights_way.*p.tensor, step);
      }
      const auto output = block(view(moved(x, x_way, step)), config, w)->output;
      std::vector<double> terms;
      size = 0;
      for (std::size_t n = 0; n < output.size(); ++n) {
        terms.push_back(d_output.data()[n] * output.data()[n]);
        size += std::abs(terms.back());
      }
      return exact_sum(terms);
    };
    const auto slope = [&](double h) {
      return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
    };
    const double h = 0x1p-11;
    const double measured = slope(h);
    const double truncation = std::abs(measured - slope(2 * h));

    const auto gradients = *block_backward(view(x), config, weights, view(d_output));
    std::vector<double> terms;
    const auto along = [&](const Tensor<double>& gradient, const Tensor<double>& way) {
      ASSERT_EQ(gradient.shape(), way.shape());
      for (std::size_t n = 0; n < way.size(); ++n) {
        terms.push_back(gradient.data()[n] * way.data()[n]);
      }
    };
    along(gradients.d_x, x_way);
    for (const BlockParameter& p : block_parameters(config)) {
      SCOPED_TRACE(p.name);
      along(gradients.d_weights.*p.tensor, weights_way.*p.tensor);
    }
    EXPECT_NEAR(exact_sum(terms), measured, truncation + forward_factor * size / h);
  }
}

}  // namespace
}  // namespace attest::lab
