// SPDX-License-Identifier: MIT
#include <limits>

#include "attest/base/random.h"
#include "attest/lab/elementary.h"
#include "tests/linalg/exp2_cases.h"

namespace attest::test {
namespace {

constexpr std::uint32_t step = 1009;  // exp2_long_test takes every float

TEST(Exp2, OfFloatsErrsByLessThanItsConstant) { judge_exp2(step); }
TEST(Exp2, OfAProductRoundsTheProductOnce) { judge_exp2_of_product(step); }
TEST(Exp2, TanhOfFloatsErrsByLessThanItsConstant) { judge_tanh(step); }
TEST(Exp2, Log2OfFloatsErrsByLessThanItsConstant) { judge_log2(step); }

using Doubles = kernels::portable::Vec<double>;

/// Of doubles only a sample can be had; the exact tier's functions are correctly rounded.
template <class Function, class Truth>
double worst_double(std::uint64_t stream, double most, const Function& function,
                    const Truth& truth) {
  Random random(20261130, stream);
  double worst = 0;
  for (int n = 0; n < 200000; ++n) {
    const double x = random.uniform(-most, most);
    const double found = function(kernels::portable::broadcast(x))[0];
    const double expected = truth(x);
    worst = std::max(worst, std::fabs(found - expected) / std::fabs(expected) / 0x1p-53);
  }
  std::cout << "largest error " << worst << " u\n";
  return worst;
}

TEST(Exp2, OfDoublesErrsByLessThanItsConstant) {
  const auto exp2 = [](Doubles x) { return body::exp2(x); };
  const auto tanh = [](Doubles x) { return body::tanh_of(x); };
  // The judge's own rounding is one more half unit or so, of the result.
  EXPECT_LE(worst_double(1, 0.5, exp2, lab::exp2), 2 + 1);
  EXPECT_LE(worst_double(2, 3, tanh, lab::tanh), 7 + 1);
  EXPECT_LE(worst_double(3, 0.5, tanh, lab::tanh), 7 + 1);
}

TEST(Exp2, KeepsItsEdges) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto exp2 = [](float x) { return body::exp2(body::broadcast(x))[0]; };
  const auto power = [](float t, float c) {
    return body::exp2_of_product(body::broadcast(t), body::broadcast(c))[0];
  };
  const auto tanh = [](float x) { return body::tanh_of(body::broadcast(x))[0]; };
  EXPECT_EQ(exp2(0), 1);
  EXPECT_EQ(exp2(-126), 0x1p-126F);
  EXPECT_EQ(exp2(-127), 0);
  EXPECT_EQ(exp2(-infinity), 0);
  EXPECT_TRUE(std::isnan(exp2(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(power(0, 1.5F), 1);
  EXPECT_EQ(power(-infinity, 1.5F), 0);
  EXPECT_TRUE(std::isnan(power(std::numeric_limits<float>::quiet_NaN(), 1.5F)));
  EXPECT_EQ(tanh(infinity), 1);
  EXPECT_EQ(tanh(-infinity), -1);
  EXPECT_EQ(tanh(0), 0);
  EXPECT_TRUE(std::signbit(tanh(-0.0F)));
  EXPECT_TRUE(std::isnan(tanh(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace attest::test
