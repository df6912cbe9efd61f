// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <type_traits>

// The portable body, as the kernels compile it.
#define ATTEST_ISA portable
#include "attest/linalg/kernels/exp2.h"

/// The elementary functions of the attention kernels on all floats, or on every so many of them.
///
/// Judged is the portable body, which rounds after every product. The others fuse products and sums and
/// round less often; the formulas are the same text.
namespace attest::test {

namespace body = kernels::portable;
using Floats = kernels::portable::Vec<float>;

inline constexpr double float_unit = 0x1p-24;

struct Sweep {
  float from = 0;
  float to = 0;
  std::uint32_t step = 1;  // every so many floats
};

/// The largest relative error in units of 2⁻²⁴, over positive and negative arguments.
template <class Function, class Truth>
double worst_of(const Sweep& sweep, const Function& function, const Truth& truth) {
  constexpr int width = kernels::portable::lanes<float>;
  double worst = 0;
  float where = 0;
  for (const float sign : {1.0F, -1.0F}) {
    auto bits = std::bit_cast<std::uint32_t>(sweep.from);
    const auto last = std::bit_cast<std::uint32_t>(sweep.to);
    while (bits <= last) {
      Floats x{};
      for (int lane = 0; lane < width; ++lane, bits += sweep.step) {
        x[lane] = sign * std::bit_cast<float>(std::min(bits, last));
      }
      const Floats found = function(x);
      for (int lane = 0; lane < width; ++lane) {
        const double expected = truth(static_cast<double>(x[lane]));
        const double apart = std::fabs(static_cast<double>(found[lane]) - expected);
        const double error = apart / std::fabs(expected) / float_unit;
        if (error > worst) where = x[lane];
        worst = std::max(worst, error);
      }
    }
  }
  std::cout << "largest error " << worst << " u, at " << where << "\n";
  return worst;
}

/// |r| ≤ ½ is all there is to 2ˣ: for other x it is multiplied by a power of two.
inline void judge_exp2(std::uint32_t step) {
  const auto exp2 = [](Floats x) { return body::exp2(x); };
  const auto truth = [](double x) { return std::exp2(x); };
  EXPECT_LE(worst_of({0x1p-26F, 0.5F, step}, exp2, truth), 3.25);
}

/// As the weights come about: x = t·log2 e, and the product rounds once, in units of x.
inline void judge_exp2_of_product(std::uint32_t step) {
  constexpr float log2e = 1.44269504088896340736F;
  const auto product = [](Floats t) { return body::exp2_of_product(t, body::broadcast(log2e)); };
  const auto truth = [](double t) { return std::exp2(t * static_cast<double>(log2e)); };
  for (const float size : {0.25F, 1.0F, 4.0F, 16.0F, 64.0F}) {
    const double rounded = static_cast<double>(size);  // u·|t|, as a share of exp(t)
    EXPECT_LE(worst_of({size / 4, size, step}, product, truth), 3.25 + rounded) << size;
  }
}

inline void judge_tanh(std::uint32_t step) {
  const auto tanh = [](Floats x) { return body::tanh_of(x); };
  const auto truth = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst_of({0x1p-100F, 100.0F, step}, tanh, truth), 4.5);
}

/// |error| ≤ 4u·max(1, |log2 x|), here for all mantissas around 1.
inline void judge_log2(std::uint32_t step) {
  constexpr int width = kernels::portable::lanes<float>;
  double worst = 0;
  for (auto bits = std::bit_cast<std::uint32_t>(0.25F);
       bits < std::bit_cast<std::uint32_t>(8.0F);) {
    Floats x{};
    for (int lane = 0; lane < width; ++lane, bits += step) x[lane] = std::bit_cast<float>(bits);
    const Floats found = body::log2_positive(x);
    for (int lane = 0; lane < width; ++lane) {
      const double expected = std::log2(static_cast<double>(x[lane]));
      const double size = std::max(1.0, std::fabs(expected));
      const double apart = std::fabs(static_cast<double>(found[lane]) - expected);
      worst = std::max(worst, apart / size / float_unit);
    }
  }
  std::cout << "largest error " << worst << " u\n";
  EXPECT_LE(worst, 4);
}

}  // namespace attest::test
