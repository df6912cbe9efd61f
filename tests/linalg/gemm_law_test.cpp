// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "attest/base/random.h"
#include "attest/base/text.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers_activation.h"
#include "attest/linalg/gemm.h"
#include "tests/support/bits.h"

namespace attest {
namespace {

double number(double x) { return x; }
double number(BFloat16 x) { return to_double(x); }
double number(Half x) { return to_double(x); }

template <class T>
T rounded(double x) {
  return rounded_to<T>(x);
}

/// One rounding to the type of c, relative and below its smallest normal number.
template <class Out>
constexpr double u_of = std::is_same_v<Out, BFloat16> ? 0x1p-8
                        : std::is_same_v<Out, Half>   ? 0x1p-11
                                                      : 0;
template <class Out>
constexpr double tiny_of = std::is_same_v<Out, BFloat16> ? 0x1p-134
                           : std::is_same_v<Out, Half>   ? 0x1p-25
                                                         : 0;

/// Where the elements of a matrix lie: every way that strides can say.
enum class Layout { rows, columns, padded_rows, padded_columns, scattered, backwards };
constexpr std::array layouts{Layout::rows,           Layout::columns,   Layout::padded_rows,
                             Layout::padded_columns, Layout::scattered, Layout::backwards};

/// A matrix in memory of its own, and around its elements numbers that would show if they were read.
template <class T>
struct Matrix {
  std::vector<T> memory;
  View<T, 2> view;

  Matrix(Layout layout, std::int64_t rows, std::int64_t cols) {
    std::array<std::int64_t, 2> steps{cols, 1};
    if (layout == Layout::columns) steps = {1, rows};
    if (layout == Layout::padded_rows) steps = {cols + 3, 1};
    if (layout == Layout::padded_columns) steps = {1, rows + 5};
    if (layout == Layout::scattered) steps = {3 * cols + 1, 3};
    std::int64_t size = 1;
    for (const std::size_t axis : {0U, 1U}) {
      size += std::max<std::int64_t>((axis == 0 ? rows : cols) - 1, 0) * steps[axis];
    }
    memory.assign(static_cast<std::size_t>(size), rounded<T>(std::nan("")));
    view = View<T, 2>(memory.data(), {rows, cols}, steps);
    if (layout == Layout::backwards && rows > 0) {
      view.data += (rows - 1) * steps[0];
      view.strides[0] = -steps[0];
    }
  }

  template <class Draw>
  void fill(const Draw& draw) {
    for (std::int64_t i = 0; i < view.extent(0); ++i) {
      for (std::int64_t j = 0; j < view.extent(1); ++j) view(i, j) = rounded<T>(draw());
    }
  }
};

std::vector<Isa> present() {
  std::vector<Isa> out;
  for (const IsaState& row : instruction_sets()) {
    if (row.present) out.push_back(row.isa);
  }
  return out;
}

template <class T>
constexpr double roundoff = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;

/// The contract's n: roundings that a term may go through.
double roundings(std::int64_t K) {
  return static_cast<double>(std::min<std::int64_t>(K, 512) + (K + 223) / 224);
}
double gamma(double n, double u) { return n * u / (1 - n * u); }

/// One element's exact sum, and the sum of its terms' sizes.
struct Sums {
  double exact = 0;
  double sizes = 0;
};
template <class T>
Sums sums_of(const View<T, 2>& a, const View<T, 2>& b, std::int64_t i, std::int64_t j) {
  std::vector<double> terms;
  Sums out;
  for (std::int64_t k = 0; k < a.extent(1); ++k) {
    terms.push_back(number(a(i, k)) * number(b(k, j)));  // exact unless these are doubles
    out.sizes += std::fabs(terms.back());
  }
  out.exact = lab::exact_sum(terms);
  return out;
}

/// What a plain loop gives.
template <class Sum, class T>
Sum plain_sum(const View<T, 2>& a, const View<T, 2>& b, std::int64_t i, std::int64_t j) {
  Sum sum = 0;
  for (std::int64_t k = 0; k < a.extent(1); ++k) {
    sum += static_cast<Sum>(number(a(i, k))) * static_cast<Sum>(number(b(k, j)));
  }
  return sum;
}

template <class In, class Out>
struct Types {
  using Input = In;
  using Output = Out;
  using Sum = AccumulatorOf<In>;
};

template <class T>
class GemmLaw : public ::testing::Test {};
using AllTypes =
    ::testing::Types<Types<float, float>, Types<double, double>, Types<BFloat16, BFloat16>,
                     Types<BFloat16, float>, Types<Half, Half>, Types<Half, float>>;
TYPED_TEST_SUITE(GemmLaw, AllTypes);

struct Size {
  std::int64_t M, N, K;
};

/// Sizes beside every edge of a tile, and some anywhere from 1 to 70 and beyond a block of K.
Size draw_size(Random& random) {
  const auto one = [&] {
    constexpr std::array edges{1, 2, 6, 7, 8, 12, 13, 16, 17, 31, 32, 33, 64, 65};
    if (random.between(0, 1) == 0) return random.between(1, 70);
    return std::int64_t{edges[static_cast<std::size_t>(random.between(0, edges.size() - 1))]};
  };
  Size out{one(), one(), one()};
  if (random.between(0, 4) == 0) out.K = random.between(200, 1100);
  return out;
}

Layout draw_layout(Random& random) {
  return layouts[static_cast<std::size_t>(random.between(0, layouts.size() - 1))];
}

std::string told(std::uint64_t seed, Isa isa, Size size) {
  return sentence("seed ", seed, ", ", name_of(isa), ", M ", size.M, ", N ", size.N, ", K ",
                  size.K);
}

// "the same bits": whole numbers small enough have one sum in any order.
TYPED_TEST(GemmLaw, WholeNumbersAreExactInEveryLayout) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  ThreadPool pool(2);
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    const Size size = draw_size(random);
    Matrix<In> a(draw_layout(random), size.M, size.K);
    Matrix<In> b(draw_layout(random), size.K, size.N);
    Matrix<Out> before(draw_layout(random), size.M, size.N);
    for (auto* input : {&a, &b}) {
      input->fill([&] { return static_cast<double>(random.between(-8, 8)); });
    }
    before.fill([&] { return static_cast<double>(random.between(-8, 8)); });
    const bool accumulate = random.between(0, 1) == 0;
    for (const Isa isa : present()) {
      Matrix<Out> c = before;
      c.view.data = c.memory.data() + (before.view.data - before.memory.data());
      gemm(c.view, View<const In, 2>(a.view), View<const In, 2>(b.view),
           {.into = accumulate ? Into::accumulate : Into::overwrite},
           {.threads = &pool, .isa = isa});
      for (std::int64_t i = 0; i < size.M; ++i) {
        for (std::int64_t j = 0; j < size.N; ++j) {
          const double old = accumulate ? number(before.view(i, j)) : 0;
          const double sum = sums_of(a.view, b.view, i, j).exact + old;
          ASSERT_EQ(number(c.view(i, j)), number(rounded<Out>(sum)))
              << told(seed, isa, size) << " at " << i << ", " << j;
          c.view(i, j) = rounded<Out>(std::nan(""));
        }
      }
      for (const Out& around : c.memory) {
        ASSERT_TRUE(std::isnan(number(around))) << "written outside, " << told(seed, isa, size);
      }
    }
  }
}

// Products so large that they are worked on in parts: of M, of N, and of K.
TYPED_TEST(GemmLaw, PartsJoinExactly) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  ThreadPool pool(2);
  for (const Size size : {Size{2060, 530, 3}, Size{14, 600, 4200}, Size{2, 1100, 4200}}) {
    Random random(static_cast<std::uint64_t>(size.M));
    Matrix<In> a(Layout::rows, size.M, size.K);
    Matrix<In> b(Layout::columns, size.K, size.N);
    for (auto* input : {&a, &b}) {
      input->fill([&] { return static_cast<double>(random.between(-2, 2)); });
    }
    const Matrix<double> sums = [&] {
      Matrix<double> out(Layout::rows, size.M, size.N);
      for (std::int64_t i = 0; i < size.M; ++i) {
        for (std::int64_t j = 0; j < size.N; ++j) {
          out.view(i, j) = plain_sum<double>(a.view, b.view, i, j);
        }
      }
      return out;
    }();
    for (const Isa isa : present()) {
      for (const Layout layout : {Layout::rows, Layout::scattered}) {
        const bool accumulate = layout == Layout::scattered;
        Matrix<Out> c(layout, size.M, size.N);
        if (accumulate) c.fill([] { return 3.0; });
        gemm(c.view, View<const In, 2>(a.view), View<const In, 2>(b.view),
             {.into = accumulate ? Into::accumulate : Into::overwrite},
             {.threads = &pool, .isa = isa});
        for (std::int64_t i = 0; i < size.M; ++i) {
          for (std::int64_t j = 0; j < size.N; ++j) {
            const double sum = sums.view(i, j) + (accumulate ? 3 : 0);
            ASSERT_EQ(number(c.view(i, j)), number(rounded<Out>(sum)))
                << told(0, isa, size) << " at " << i << ", " << j;
          }
        }
      }
    }
  }
}

// "|error| ≤ γ·Σ|a·b|, then one rounding to bfloat16", and no worse than twice the plain loop.
TYPED_TEST(GemmLaw, ErrorIsWithinTheBoundAndTwiceThePlainLoop) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  using Sum = typename TypeParam::Sum;
  constexpr double u = roundoff<Sum>;
  const double u_out = u_of<Out>;
  for (const Isa isa : present()) {
    double used = 0;
    double worst = 0;
    double worst_plain = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      Random random(seed);
      const Size size = draw_size(random);
      Matrix<In> a(draw_layout(random), size.M, size.K);
      Matrix<In> b(draw_layout(random), size.K, size.N);
      Matrix<Out> c(Layout::rows, size.M, size.N);
      for (auto* input : {&a, &b}) input->fill([&] { return random.uniform(-1, 2); });
      gemm(c.view, View<const In, 2>(a.view), View<const In, 2>(b.view), {}, {.isa = isa});
      for (std::int64_t i = 0; i < size.M; ++i) {
        for (std::int64_t j = 0; j < size.N; ++j) {
          const Sums sums = sums_of(a.view, b.view, i, j);
          // One more rounding of each product where the judge's own products round.
          const double inner =
              gamma(roundings(size.K) + (std::is_same_v<In, double> ? 1 : 0), u) * sums.sizes;
          const double bound = inner + u_out * (std::fabs(sums.exact) + inner) + tiny_of<Out>;
          ASSERT_TRUE(test::within(number(c.view(i, j)), sums.exact, bound))
              << told(seed, isa, size) << " at " << i << ", " << j;
          const double error = std::fabs(number(c.view(i, j)) - sums.exact);
          const auto plain = rounded<Out>(number(plain_sum<Sum>(a.view, b.view, i, j)));
          used = std::max(used, error / bound);
          worst = std::max(worst, error / sums.sizes);
          worst_plain = std::max(worst_plain, std::fabs(number(plain) - sums.exact) / sums.sizes);
        }
      }
    }
    EXPECT_LE(worst, 2 * worst_plain) << name_of(isa);
    std::printf("%-10s uses %.3f of the bound, %.2f of the plain loop's error\n",
                std::string(name_of(isa)).c_str(), used, worst / worst_plain);
  }
}

// "the same bits for any number of threads", also where pieces and packed parts are many.
TYPED_TEST(GemmLaw, SameBitsForAnyThreadCount) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  ThreadPool one(1);
  ThreadPool two(2);
  ThreadPool three(3);
  for (const Size size : {Size{65, 70, 33}, Size{3, 1100, 600}, Size{300, 130, 2100},
                          Size{13, 5, 4700}, Size{1, 1, 1}}) {
    Random random(static_cast<std::uint64_t>(size.M));
    Matrix<In> a(Layout::rows, size.M, size.K);
    Matrix<In> b(Layout::columns, size.K, size.N);
    for (auto* input : {&a, &b}) input->fill([&] { return random.uniform(-1, 1); });
    for (const Isa isa : present()) {
      std::vector<Matrix<Out>> results;
      for (ThreadPool* pool : {&one, &two, &three}) {
        results.emplace_back(Layout::rows, size.M, size.N);
        Matrix<Out>& c = results.back();
        gemm(View<Out, 2>(c.memory.data(), {size.M, size.N}), View<const In, 2>(a.view),
             View<const In, 2>(b.view), {.activation = Activation::silu},
             {.threads = pool, .isa = isa});
      }
      for (std::size_t n = 1; n < results.size(); ++n) {
        EXPECT_EQ(std::memcmp(results[0].memory.data(), results[n].memory.data(),
                              sizeof(Out) * static_cast<std::size_t>(size.M * size.N)),
                  0)
            << told(0, isa, size) << ", " << n + 1 << " threads";
      }
    }
  }
}

// "a row of c does not depend on how many other rows there are", nor on where the inputs lie.
TYPED_TEST(GemmLaw, ARowDoesNotDependOnTheOthers) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  constexpr Size size{41, 75, 700};
  Random random(5);
  Matrix<In> a(Layout::rows, size.M, size.K);
  Matrix<In> b(Layout::rows, size.K, size.N);
  Matrix<In> turned(Layout::columns, size.K, size.N);
  for (auto* input : {&a, &b}) input->fill([&] { return random.uniform(-1, 1); });
  for (std::int64_t k = 0; k < size.K; ++k) {
    for (std::int64_t j = 0; j < size.N; ++j) turned.view(k, j) = b.view(k, j);
  }
  for (const Isa isa : present()) {
    Matrix<Out> whole(Layout::rows, size.M, size.N);
    gemm(whole.view, View<const In, 2>(a.view), View<const In, 2>(b.view), {}, {.isa = isa});
    for (const std::int64_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 40}) {
      Matrix<Out> some(Layout::columns, rows, size.N);
      const View<const In, 2> first(a.memory.data(), {rows, size.K});
      gemm(some.view, first, View<const In, 2>(turned.view), {}, {.isa = isa});
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < size.N; ++j) {
          ASSERT_EQ(number(some.view(i, j)), number(whole.view(i, j)))
              << told(5, isa, size) << ", " << rows << " rows, at " << i << ", " << j;
        }
      }
    }
  }
}

// "a row of c does not depend on …", where B is read in place: every layout of it, and edges of each.
TYPED_TEST(GemmLaw, FewRowsAreSummedAsMany) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  ThreadPool pool(3);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    Size size = draw_size(random);
    size.M = 20;
    if (seed % 20 == 0) size = {20, 700, 4200};  // more than one group of K, and columns enough
    Matrix<In> a(draw_layout(random), size.M, size.K);
    Matrix<In> b(draw_layout(random), size.K, size.N);
    Matrix<Out> before(Layout::rows, size.M, size.N);
    for (auto* input : {&a, &b}) input->fill([&] { return random.uniform(-1, 1); });
    before.fill([&] { return random.uniform(-1, 1); });
    const Into into = random.between(0, 1) == 0 ? Into::accumulate : Into::overwrite;
    for (const Isa isa : present()) {
      const Execution how{.threads = &pool, .isa = isa};
      Matrix<Out> whole = before;
      const View<Out, 2> all(whole.memory.data(), {size.M, size.N});
      gemm(all, View<const In, 2>(a.view), View<const In, 2>(b.view), {.into = into}, how);
      for (const std::int64_t rows : {1, 2, 3, 4, 7, 16}) {
        const std::int64_t first = random.between(0, size.M - rows);
        Matrix<Out> some = before;
        const View<Out, 2> c(some.memory.data() + first * size.N, {rows, size.N});
        const View<const In, 2> few(&a.view(first, 0), {rows, size.K}, a.view.strides);
        gemm(c, few, View<const In, 2>(b.view), {.into = into}, how);
        ASSERT_EQ(std::memcmp(c.data, all.data + first * size.N,
                              sizeof(Out) * static_cast<std::size_t>(rows * size.N)),
                  0)
            << told(seed, isa, size) << ", " << rows << " rows";
      }
    }
  }
}

/// The activation's part of docs/accuracy.md, that of the layer: relative, and what is lost beside the
/// smallest number.
double activation_bound(Activation kind, double x, double u, double tiny) {
  const double y = std::fabs(lab::activation(kind, x));
  const double z = 1.5957691216057308 * (x + 0.044715 * x * x * x);
  double units = 0;
  if (kind == Activation::gelu_erf) units = 16;
  if (kind == Activation::gelu_tanh) units = 6 * std::fabs(z) + 10;
  if (kind == Activation::silu) units = 8;
  return units * u * y + (std::fabs(x) + 1) * tiny;
}

// "activation(a·b + bias)": a·b is the number 0 here, or 1·x, so that only what follows can err.
TYPED_TEST(GemmLaw, BiasAndActivationAreWithinTheirBounds) {
  using In = typename TypeParam::Input;
  using Out = typename TypeParam::Output;
  using Sum = typename TypeParam::Sum;
  constexpr double u = roundoff<Sum>;
  const double tiny = std::is_same_v<Sum, double> ? 0x1p-1073 : 0x1p-148;
  const double u_out = u_of<Out>;
  constexpr std::int64_t N = 999;
  const In one = rounded<In>(1);
  std::vector<In> zeros(N, rounded<In>(0));
  Random random(7);
  std::vector<Sum> bias(N);
  for (std::size_t j = 0; j < N; ++j) {
    bias[j] = static_cast<Sum>(j < 300 ? random.uniform(-1, 1) : random.uniform(-45, 20));
  }
  for (const Isa isa : present()) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
      std::vector<Out> c(N);
      gemm(View<Out, 2>(c.data(), {1, N}), View<const In, 2>(&one, {1, 1}),
           View<const In, 2>(zeros.data(), {1, N}),
           {.bias = View<const Sum, 1>(bias.data(), {N}), .activation = kind}, {.isa = isa});
      for (std::size_t j = 0; j < N; ++j) {
        const double x = bias[j];
        const double y = lab::activation(kind, x);
        const double inner = activation_bound(kind, x, u, tiny);
        ASSERT_TRUE(
            test::within(number(c[j]), y, inner + u_out * (std::fabs(y) + inner) + tiny_of<Out>))
            << name_of(isa) << ", activation " << static_cast<int>(kind) << " of " << x;
      }
    }
  }
}

}  // namespace
}  // namespace attest
