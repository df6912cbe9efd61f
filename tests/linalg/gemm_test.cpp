// SPDX-License-Identifier: MIT
#include "attest/linalg/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/workbook.h"

namespace attest {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

View<const float, 2> view(const std::vector<float>& numbers, std::int64_t rows, std::int64_t cols) {
  return {numbers.data(), {rows, cols}};
}

std::vector<Isa> present() {
  std::vector<Isa> out;
  for (const IsaState& row : instruction_sets()) {
    if (row.present) out.push_back(row.isa);
  }
  return out;
}

std::vector<float> product(View<const float, 2> a, View<const float, 2> b,
                           const GemmOptions<float>& options, Isa isa) {
  std::vector<float> c(static_cast<std::size_t>(a.extent(0) * b.extent(1)), nan);
  gemm(View<float, 2>(c.data(), {a.extent(0), b.extent(1)}), a, b, options, {.isa = isa});
  return c;
}

TEST(Gemm, AgreesWithTheExactTierOnWholeNumbers) {
  const Tensor<double> left({2, 3}, std::array<double, 6>{1, 2, 3, 4, 5, 6});
  const Tensor<double> right({3, 2}, std::array<double, 6>{7, 8, 9, 10, 11, 12});
  const Tensor<double> exact = lab::workbook::matmul(left, right).value();
  for (const Isa isa : present()) {
    Tensor<double> c({2, 2});
    gemm(c.view<2>(), left.view<2>(), right.view<2>(), {}, {.isa = isa});
    for (std::size_t n = 0; n < c.size(); ++n) {
      EXPECT_EQ(c.elements()[n], exact.elements()[n]) << name_of(isa);
    }
  }
}

TEST(Gemm, StridesSayTransposes) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  for (const Isa isa : present()) {
    const auto m = view(a, 2, 3);
    EXPECT_EQ(product(m, m.swapped(0, 1), {}, isa), (std::vector<float>{14, 32, 32, 77}));
    EXPECT_EQ(product(m.swapped(0, 1), m, {}, isa),
              (std::vector<float>{17, 22, 27, 22, 29, 36, 27, 36, 45}));
  }
}

TEST(Gemm, EmptySumIsZeroThenBiasAndActivation) {
  const std::vector<float> bias{-1, 0, 2};
  const View<const float, 2> a(nullptr, {2, 0});
  const View<const float, 2> b(nullptr, {0, 3});
  for (const Isa isa : present()) {
    EXPECT_EQ(product(a, b, {}, isa), std::vector<float>(6, 0));
    const View<const float, 1> added(bias.data(), {3});
    EXPECT_EQ(product(a, b, {.bias = added}, isa), (std::vector<float>{-1, 0, 2, -1, 0, 2}));
    EXPECT_EQ(product(a, b, {.bias = added, .activation = Activation::relu}, isa),
              (std::vector<float>{0, 0, 2, 0, 0, 2}));
    std::vector<float> kept{1, 2, 3, 4, 5, 6};
    gemm(View<float, 2>(kept.data(), {2, 3}), a, b, {.into = Into::accumulate}, {.isa = isa});
    EXPECT_EQ(kept, (std::vector<float>{1, 2, 3, 4, 5, 6})) << name_of(isa);
  }
}

TEST(Gemm, NothingToWriteIsNoFailure) {
  const std::vector<float> numbers{1, 2, 3};
  EXPECT_TRUE(try_gemm(View<float, 2>(nullptr, {0, 3}), View<const float, 2>(nullptr, {0, 1}),
                       view(numbers, 1, 3)));
  EXPECT_TRUE(try_gemm(View<float, 2>(nullptr, {3, 0}), view(numbers, 3, 1),
                       View<const float, 2>(nullptr, {1, 0})));
}

TEST(Gemm, WhatWasInAnOverwrittenMatrixIsNeverRead) {
  const std::vector<float> ones(600, 1);
  for (const Isa isa : present()) {  // `product` begins with NaN everywhere
    EXPECT_EQ(product(view(ones, 1, 600), view(ones, 600, 1), {}, isa), std::vector<float>{600});
  }
}

TEST(Gemm, NaNAndInfinityPropagateToTheirOwnPlaces) {
  constexpr std::int64_t M = 19, N = 37, K = 20;
  for (const float special : {nan, infinity}) {
    std::vector<float> a(M * K, 1);
    const std::vector<float> b(K * N, 1);
    a[3 * K + 7] = special;
    for (const Isa isa : present()) {
      const auto c = product(view(a, M, K), view(b, K, N), {.activation = Activation::relu}, isa);
      for (std::int64_t i = 0; i < M; ++i) {
        for (std::int64_t j = 0; j < N; ++j) {
          const float found = c[static_cast<std::size_t>(i * N + j)];
          const float expected = i == 3 ? special : float{K};
          EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
              << name_of(isa) << ": " << found << " at " << i << ", " << j;
        }
      }
    }
  }
  const std::vector<float> zero{0};
  const std::vector<float> infinite{infinity};
  for (const Isa isa : present()) {
    EXPECT_TRUE(std::isnan(product(view(zero, 1, 1), view(infinite, 1, 1), {}, isa)[0]));
  }
}

TEST(Gemm, ActivationsOfWhatIsNotFinite) {
  const std::vector<float> ones(5, 1);
  const std::vector<float> numbers{-infinity, infinity, nan, -0.0F, -3e38F};
  for (const Isa isa : present()) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
      const auto y = product(view(ones, 1, 1), view(numbers, 1, 5), {.activation = kind}, isa);
      EXPECT_EQ(y[0], 0) << name_of(isa) << " " << static_cast<int>(kind);
      EXPECT_EQ(y[1], infinity);
      EXPECT_TRUE(std::isnan(y[2]));
      EXPECT_EQ(y[3], 0);
      EXPECT_EQ(y[4], 0);
    }
  }
}

TEST(Gemm, RoundsToBFloat16ToNearestEvenOnce) {
  // 1 + 2⁻⁸ lies between two bfloat16 numbers; 1 + 3·2⁻⁸ too, and rounds up.
  const std::array<BFloat16, 3> a{to_bfloat16(1), to_bfloat16(0x1p-8), to_bfloat16(0x1p-20)};
  constexpr std::int64_t N = 3 * 17;  // whole vectors and a rest
  std::vector<BFloat16> b;
  for (const std::array<double, 3>& row :
       {std::array<double, 3>{1, 1, 1}, std::array<double, 3>{1, 3, 1},
        std::array<double, 3>{0, 0, 1}}) {
    for (std::int64_t j = 0; j < N; ++j) {
      b.push_back(to_bfloat16(row[static_cast<std::size_t>(j % 3)]));
    }
  }
  constexpr std::array<double, 3> expected{1, 1 + 0x1p-6, 1 + 0x1p-7};
  for (const Isa isa : present()) {
    std::array<BFloat16, N> c{};
    gemm(View<BFloat16, 2>(c.data(), {1, N}), View<const BFloat16, 2>(a.data(), {1, 3}),
         View<const BFloat16, 2>(b.data(), {3, N}), {}, {.isa = isa});
    for (std::size_t j = 0; j < c.size(); ++j) {
      EXPECT_EQ(to_double(c[j]), expected[j % 3]) << name_of(isa) << ", column " << j;
    }
  }
}

TEST(Gemm, HalvesAreReadAndRoundedAsIeee754Says) {
  // Every 16 bits that are no NaN, times 1; then sums that lie between two of them, or beyond all.
  constexpr std::int64_t N = 1 << 16;
  const std::array<Half, 2> ones{to_half(1), to_half(1)};
  std::vector<Half> b(2 * N);
  std::vector<float> sums(N);
  for (std::int64_t j = 0; j < N; ++j) {
    const Half number{static_cast<std::uint16_t>(j)};
    const Half other = to_half(to_double(number) * 0x1p-11);  // half of the last place, or so
    b[static_cast<std::size_t>(j)] = number;
    b[static_cast<std::size_t>(N + j)] = other;
    sums[static_cast<std::size_t>(j)] =
        0.0F + static_cast<float>(to_double(number)) + static_cast<float>(to_double(other));
  }
  for (const Isa isa : present()) {
    for (const std::int64_t M : {1, 20}) {  // few rows read b in place, many pack it
      std::vector<Half> a(static_cast<std::size_t>(2 * M), ones[0]);
      std::vector<Half> c(static_cast<std::size_t>(M * N));
      gemm(View<Half, 2>(c.data(), {M, N}), View<const Half, 2>(a.data(), {M, 2}),
           View<const Half, 2>(b.data(), {2, N}), {}, {.isa = isa});
      for (std::size_t j = 0; j < N; ++j) {
        const Half found = c[(static_cast<std::size_t>(M) - 1) * N + j];
        const Half expected = to_half(double{sums[j]});
        ASSERT_TRUE(found == expected ||
                    (std::isnan(to_double(found)) && std::isnan(to_double(expected))))
            << name_of(isa) << ", bits " << j << ", M " << M;
      }
    }
  }
}

// "the host's settings change no bit": rounding upwards, and subnormal numbers taken for zero.
TEST(Gemm, TheHostsArithmeticChangesNothing) {
  constexpr std::int64_t N = 40, K = 33;
  std::vector<float> b(K * N);
  for (std::size_t n = 0; n < b.size(); ++n) b[n] = 1 / static_cast<float>(n + 3);
  b[5] = 0x1p-140F;
  for (const Isa isa : present()) {
    for (const std::int64_t M : {2, 30}) {
      std::vector<float> a(static_cast<std::size_t>(M * K), 0.3F);
      const auto plain = product(view(a, M, K), view(b, K, N), {}, isa);
      ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
      const auto upward = product(view(a, M, K), view(b, K, N), {}, isa);
      EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the host's mode comes back";
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(plain, upward) << name_of(isa) << ", M " << M;
    }
  }
}

TEST(Gemm, AStridedBiasIsReadWhereItLies) {
  const std::vector<float> bias{1, nan, 2, nan, 3};
  const std::vector<float> zero{0, 0, 0};
  for (const Isa isa : present()) {
    EXPECT_EQ(product(view(zero, 1, 1), view(zero, 1, 3),
                      {.bias = View<const float, 1>(bias.data(), {3}, {2})}, isa),
              (std::vector<float>{1, 2, 3}));
  }
}

struct Refusal {
  std::string id;
  std::string message;
};
Refusal refusal(const Result<void>& result) {
  if (result) return {"accepted", ""};
  return {result.failure().id, result.failure().message};
}

TEST(Gemm, FailuresNameBothNumbers) {
  std::vector<float> memory(64, 1);
  const auto m = [&](std::int64_t rows, std::int64_t cols) {
    return View<float, 2>(memory.data(), {rows, cols});
  };
  const auto shape = [&](View<float, 2> c, View<const float, 2> a, View<const float, 2> b) {
    const Refusal found = refusal(try_gemm(c, a, b));
    EXPECT_EQ(found.id, "shape-mismatch");
    return found.message;
  };
  EXPECT_EQ(shape(m(2, 4), m(2, 3), m(5, 4)),
            "[gemm] a and b must have the same K; a has 3 columns, b has 5 rows");
  EXPECT_EQ(shape(m(7, 4), m(2, 3), m(3, 4)),
            "[gemm] a and c must have the same M; a has 2 rows, c has 7");
  EXPECT_EQ(shape(m(2, 5), m(2, 3), m(3, 4)),
            "[gemm] b and c must have the same N; b has 4 columns, c has 5");
  EXPECT_EQ(shape(m(2, 4), View<const float, 2>(nullptr, {2, 3}), m(3, 4)),
            "[gemm] a of extents 2 and 3 is absent");
  EXPECT_EQ(shape(m(2, 4), m(2, -3), m(-3, 4)), "[gemm] a cannot have the extents 2 and -3");
  const View<const float, 1> bias(memory.data(), {5});
  EXPECT_EQ(refusal(try_gemm(m(2, 4), m(2, 3), m(3, 4), {.bias = bias})).message,
            "[gemm] bias and b must have the same N; bias has 5, b has 4 columns");
  const View<float, 2> flat(memory.data(), {2, 4}, {0, 1});
  EXPECT_EQ(refusal(try_gemm(flat, m(2, 3), m(3, 4))).id, "bad-option");
  EXPECT_EQ(refusal(try_gemm(m(2, 4), m(2, 3), m(3, 4),
                             {.activation = Activation::relu, .into = Into::accumulate}))
                .id,
            "bad-option");
  EXPECT_EQ(memory, std::vector<float>(64, 1));  // "on failure c is untouched"
  EXPECT_THROW(gemm(m(2, 4), m(2, 3), m(5, 4)), ShapeError);
}

TEST(Gemm, RefusesInstructionSetsThatAreNotThere) {
  std::vector<float> memory(4, 1);
  const View<float, 2> one(memory.data(), {1, 1});
  for (const IsaState& row : instruction_sets()) {
    const Refusal found = refusal(try_gemm(one, one, one, {}, {.isa = row.isa}));
    EXPECT_EQ(found.id, row.present ? "accepted" : "bad-isa") << name_of(row.isa);
  }
}

}  // namespace
}  // namespace attest
