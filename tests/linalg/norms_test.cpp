// SPDX-License-Identifier: MIT
#include "attest/linalg/norms.h"

#include <gtest/gtest.h>

#include "attest/lab/layers_norm.h"
#include "tests/linalg/layers_support.h"

namespace attest {
namespace {

using namespace test::layers;  // NOLINT

template <class S>
struct Forward {
  Tensor<S> y;
  Tensor<AccumulatorOf<S>> mean;
  Tensor<AccumulatorOf<S>> inverse;
};

/// Rows, parameters and what comes back, all numbers that S has.
struct Inputs {
  Norm kind;
  Tensor<double> x;
  Tensor<double> gain;
  Tensor<double> bias;
  Tensor<double> d_y;
  double epsilon = 1e-5;

  [[nodiscard]] std::int64_t N() const { return x.extent(0); }
  [[nodiscard]] std::int64_t C() const { return x.extent(1); }
};

template <class S>
Inputs inputs(Random& random, Norm kind, std::int64_t N, std::int64_t C, double offset) {
  Inputs out{kind, random_rows<S>(random, {N, C}, 4), random_rows<S>(random, {C}, 2),
             random_rows<S>(random, {C}, 2), random_rows<S>(random, {N, C}, 2)};
  for (double& x : out.x.elements()) x = number(stored<S>(x + offset));
  return out;
}

template <class S>
Forward<S> forward(const Inputs& in, const Execution& how) {
  const Tensor<S> x = stored<S>(in.x);
  const Tensor<S> gain = stored<S>(in.gain);
  const Tensor<S> bias = stored<S>(in.bias);
  Forward<S> out{Tensor<S>(in.x.shape()), Tensor<AccumulatorOf<S>>({in.N()}),
                 Tensor<AccumulatorOf<S>>({in.N()})};
  NormOptions<S> options{.kind = in.kind,
                         .gain = gain.template view<1>(),
                         .bias = bias.template view<1>(),
                         .epsilon = in.epsilon,
                         .mean = {},
                         .inverse_deviation = out.inverse.template view<1>()};
  if (in.kind == Norm::layer_norm) options.mean = out.mean.template view<1>();
  norm(out.y.template view<2>(), x.template view<2>(), options, how);
  return out;
}

template <class S>
struct Backward {
  Tensor<S> d_x;
  Tensor<AccumulatorOf<S>> d_gain;
  Tensor<AccumulatorOf<S>> d_bias;
};

template <class S>
Backward<S> backward(const Inputs& in, const Forward<S>& saved, const Execution& how) {
  const Tensor<S> x = stored<S>(in.x);
  const Tensor<S> gain = stored<S>(in.gain);
  const Tensor<S> d_y = stored<S>(in.d_y);
  Backward<S> out{Tensor<S>(in.x.shape()), Tensor<AccumulatorOf<S>>({in.C()}),
                  Tensor<AccumulatorOf<S>>({in.C()})};
  norm_backward(NormGradients<S>{out.d_x.template view<2>(), out.d_gain.template view<1>(),
                                 out.d_bias.template view<1>()},
                {.kind = in.kind,
                 .x = x.template view<2>(),
                 .d_y = d_y.template view<2>(),
                 .gain = gain.template view<1>(),
                 .mean = saved.mean.template view<1>(),
                 .inverse_deviation = saved.inverse.template view<1>()},
                how);
  return out;
}

lab::NormResult exact_forward(const Inputs& in) {
  const lab::NormParameters p{in.gain.view<1>(), in.bias.view<1>(), in.epsilon};
  return in.kind == Norm::layer_norm ? lab::layer_norm(in.x.view<2>(), p).value()
                                     : lab::rms_norm(in.x.view<2>(), p).value();
}
lab::NormGradients exact_backward(const Inputs& in) {
  const lab::NormParameters p{in.gain.view<1>(), in.bias.view<1>(), in.epsilon};
  return in.kind == Norm::layer_norm
             ? lab::layer_norm_backward(in.x.view<2>(), p, in.d_y.view<2>()).value()
             : lab::rms_norm_backward(in.x.view<2>(), p, in.d_y.view<2>()).value();
}

/// One row by plain loops in T.
template <class T>
struct Plain {
  std::vector<T> n;
  std::vector<T> y;
  std::vector<T> d_x;
};
template <class T>
Plain<T> plain_row(const Inputs& in, std::int64_t row) {
  const auto C = static_cast<T>(in.C());
  T mean = 0;
  if (in.kind == Norm::layer_norm) {
    for (std::int64_t c = 0; c < in.C(); ++c) mean += static_cast<T>(in.x(row, c));
    mean /= C;
  }
  T variance = 0;
  for (std::int64_t c = 0; c < in.C(); ++c) {
    const T d = static_cast<T>(in.x(row, c)) - mean;
    variance += d * d;
  }
  const T root = std::sqrt(variance / C + static_cast<T>(in.epsilon));
  Plain<T> out;
  T shift = 0;
  T stretch = 0;
  for (std::int64_t c = 0; c < in.C(); ++c) {
    out.n.push_back((static_cast<T>(in.x(row, c)) - mean) / root);
    out.y.push_back(out.n.back() * static_cast<T>(in.gain(c)) + static_cast<T>(in.bias(c)));
    const T d_n = static_cast<T>(in.d_y(row, c)) * static_cast<T>(in.gain(c));
    shift += d_n;
    stretch += d_n * out.n.back();
  }
  if (in.kind == Norm::rms_norm) shift = 0;
  for (std::int64_t c = 0; c < in.C(); ++c) {
    const T d_n = static_cast<T>(in.d_y(row, c)) * static_cast<T>(in.gain(c));
    const T n = out.n[static_cast<std::size_t>(c)];
    out.d_x.push_back((d_n - shift / C - n * (stretch / C)) / root);
  }
  return out;
}

/// What the bounds of the contract are made of, for one row.
struct RowSizes {
  double inverse;
  double k;  // |mean|·inverse
  double normalised(const Inputs& in, const lab::NormResult& exact, std::int64_t n,
                    std::int64_t c) const {
    const double mean = in.kind == Norm::layer_norm ? exact.mean(n) : 0;
    return std::fabs(in.x(n, c) - mean) * inverse;
  }
};
RowSizes sizes_of(const Inputs& in, const lab::NormResult& exact, std::int64_t n) {
  const double inverse = 1 / std::sqrt(exact.variance(n) + in.epsilon);
  return {inverse, in.kind == Norm::layer_norm ? std::fabs(exact.mean(n)) * inverse : 0};
}

std::string where(const char* what, const Inputs& in, std::uint64_t seed) {
  return std::string(what) + " N " + std::to_string(in.N()) + " C " + std::to_string(in.C()) +
         " seed " + std::to_string(seed);
}

template <class S>
void judge_forward(Contest& contest, const Inputs& in, const Forward<S>& found,
                   std::uint64_t seed) {
  const lab::NormResult exact = exact_forward(in);
  const double u = unit<S> + 0x1p-53;  // ours, and the twin's, whose constants are smaller
  const auto C = static_cast<double>(in.C());
  for (std::int64_t n = 0; n < in.N(); ++n) {
    const RowSizes row = sizes_of(in, exact, n);
    const auto plain = plain_row<AccumulatorOf<S>>(in, n);
    for (std::int64_t c = 0; c < in.C(); ++c) {
      const double size = row.normalised(in, exact, n, c);
      const double gain = std::fabs(in.gain(c));
      const double y = exact.output(n, c);
      const double bound = in.kind == Norm::layer_norm
                               ? u * (gain * ((C / 8 + 20) * (size + 1) + row.k) + 2 * std::fabs(y))
                               : u * ((C / 16 + 12) * gain * size + 2 * std::fabs(y));
      contest.judge(number(found.y(n, c)),
                    number(stored<S>(static_cast<double>(plain.y[static_cast<std::size_t>(c)]))), y,
                    bound + storing<S>(std::fabs(y)), where("y", in, seed));
    }
  }
}

template <class S>
void judge_backward(Contest& contest, const Inputs& in, const Backward<S>& found,
                    std::uint64_t seed) {
  const lab::NormResult exact = exact_forward(in);
  const lab::NormGradients gradients = exact_backward(in);
  const double u = unit<S> + 0x1p-53;
  const auto C = static_cast<double>(in.C());
  const double m = C / 8 + 16;
  std::vector<double> gain_sizes(static_cast<std::size_t>(in.C()), 0);
  std::vector<AccumulatorOf<S>> plain_gain(static_cast<std::size_t>(in.C()), 0);
  for (std::int64_t n = 0; n < in.N(); ++n) {
    const RowSizes row = sizes_of(in, exact, n);
    const auto plain = plain_row<AccumulatorOf<S>>(in, n);
    double a = 0;
    double b = 0;
    for (std::int64_t c = 0; c < in.C(); ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double e = row.normalised(in, exact, n, c) + row.k + 1;
      const double d_n = std::fabs(in.d_y(n, c) * in.gain(c));
      a += d_n / C;
      b += d_n * e / C;
      gain_sizes[at] += std::fabs(in.d_y(n, c)) * e;
      plain_gain[at] += static_cast<AccumulatorOf<S>>(in.d_y(n, c)) * plain.n[at];
    }
    for (std::int64_t c = 0; c < in.C(); ++c) {
      const double e = row.normalised(in, exact, n, c) + row.k + 1;
      const double d_n = std::fabs(in.d_y(n, c) * in.gain(c));
      const double d_x = gradients.d_x(n, c);
      contest.judge(number(found.d_x(n, c)),
                    number(stored<S>(static_cast<double>(plain.d_x[static_cast<std::size_t>(c)]))),
                    d_x, 2 * m * u * (d_n + a + e * b) * row.inverse + storing<S>(std::fabs(d_x)),
                    where("d_x", in, seed));
    }
  }
  const double rows = static_cast<double>(in.N()) / 64 + 84;
  for (std::int64_t c = 0; c < in.C(); ++c) {
    const auto at = static_cast<std::size_t>(c);
    contest.judge(number(found.d_gain(c)), number(plain_gain[at]), gradients.d_gain(c),
                  (rows + C / 8 + 20) * u * gain_sizes[at], where("d_gain", in, seed));
    double sizes = 0;
    for (std::int64_t n = 0; n < in.N(); ++n) sizes += std::fabs(in.d_y(n, c));
    contest.judge(number(found.d_bias(c)), gradients.d_bias(c), gradients.d_bias(c),
                  rows * u * sizes, where("d_bias", in, seed));
  }
}

template <class S>
void within_bound(Norm kind) {
  const std::uint64_t seed = 4301;
  const char* const name = kind == Norm::layer_norm ? "layer_norm" : "rms_norm";
  for (const Isa isa : present_sets()) {
    Random random(seed);
    Contest contest(name, isa, type_name<S>());
    Contest back(std::string(name) + "_backward", isa, type_name<S>());
    for (const std::int64_t C : widths()) {
      for (const double offset : {0.0, 30.0}) {
        const Inputs in = inputs<S>(random, kind, C % 5 == 0 ? 40 : 3, C, offset);
        const Forward<S> found = forward<S>(in, {.isa = isa});
        judge_forward<S>(contest, in, found, seed);
        judge_backward<S>(back, in, backward<S>(in, found, {.isa = isa}), seed);
      }
    }
    contest.finish();
    back.finish();
  }
}

TEST(LayerNorm, WithinItsBoundF32) { within_bound<float>(Norm::layer_norm); }
TEST(LayerNorm, WithinItsBoundF64) { within_bound<double>(Norm::layer_norm); }
TEST(LayerNorm, WithinItsBoundBf16) { within_bound<BFloat16>(Norm::layer_norm); }
TEST(LayerNorm, WithinItsBoundF16) { within_bound<Half>(Norm::layer_norm); }
TEST(RmsNorm, WithinItsBoundF32) { within_bound<float>(Norm::rms_norm); }
TEST(RmsNorm, WithinItsBoundF64) { within_bound<double>(Norm::rms_norm); }
TEST(RmsNorm, WithinItsBoundBf16) { within_bound<BFloat16>(Norm::rms_norm); }
TEST(RmsNorm, WithinItsBoundF16) { within_bound<Half>(Norm::rms_norm); }

TEST(Norms, GradientsAreCentralDifferences) {
  const std::uint64_t seed = 4302;
  for (const Isa isa : present_sets()) {
    for (const Norm kind : {Norm::layer_norm, Norm::rms_norm}) {
      Random random(seed);
      Inputs in = inputs<double>(random, kind, 1, 23, 0.5);
      const Execution how{.isa = isa};
      const Backward<double> found = backward<double>(in, forward<double>(in, how), how);
      const auto loss = [&] {
        const Tensor<double> y = forward<double>(in, how).y;
        double sum = 0;
        for (std::size_t n = 0; n < y.size(); ++n) sum += y.data()[n] * in.d_y.data()[n];
        return sum;
      };
      // The step h leaves h²/6 of a third derivative, and rounding over it; with a deviation above
      // ½ and |gain|, |d_y| ≤ 2 both sums are below 23·4·2³ times a small number.
      const double h = 0x1p-17;
      const double tolerance = 23 * 4 * 8 * (h * h + 32 * 0x1p-53 / h);
      const auto slope_at = [&](double& place) {
        const double before = place;
        place = before + h;
        const double above = loss();
        place = before - h;
        const double below = loss();
        place = before;
        return (above - below) / (2 * h);
      };
      for (std::int64_t c = 0; c < 23; ++c) {
        EXPECT_NEAR(found.d_x(0, c), slope_at(in.x(0, c)), tolerance) << "seed " << seed;
        EXPECT_NEAR(found.d_gain(c), slope_at(in.gain(c)), tolerance) << "seed " << seed;
        EXPECT_NEAR(found.d_bias(c), slope_at(in.bias(c)), tolerance) << "seed " << seed;
      }
    }
  }
}

TEST(Norms, SameBitsForAnyThreadCountAndAnyRowMates) {
  const std::uint64_t seed = 4303;
  for (const Isa isa : present_sets()) {
    for (const Norm kind : {Norm::layer_norm, Norm::rms_norm}) {
      Random random(seed);
      const Inputs in = inputs<float>(random, kind, 1111, 77, 1);
      ThreadPool one(1);
      const Execution alone{.threads = &one, .isa = isa};
      const Forward<float> y = forward<float>(in, alone);
      const Backward<float> d = backward<float>(in, y, alone);
      for (const int threads : {2, 3}) {
        ThreadPool pool(threads);
        const Execution how{.threads = &pool, .isa = isa};
        const Forward<float> again = forward<float>(in, how);
        const Backward<float> back = backward<float>(in, again, how);
        EXPECT_TRUE(same_bytes(y.y, again.y)) << threads << " threads";
        EXPECT_TRUE(same_bytes(y.mean, again.mean) && same_bytes(y.inverse, again.inverse));
        EXPECT_TRUE(same_bytes(d.d_x, back.d_x)) << threads << " threads";
        EXPECT_TRUE(same_bytes(d.d_gain, back.d_gain)) << threads << " threads";
        EXPECT_TRUE(same_bytes(d.d_bias, back.d_bias)) << threads << " threads";
      }
      Inputs row = in;
      row.x = Tensor<double>({1, 77});
      std::copy_n(&in.x.data()[900 * 77], 77, row.x.data());
      const Forward<float> single = forward<float>(row, alone);
      EXPECT_EQ(std::memcmp(single.y.data(), &y.y.data()[900 * 77], 77 * sizeof(float)), 0);
    }
  }
}

TEST(Norms, HostileRowsStayApart) {
  for (const Isa isa : present_sets()) {
    for (const Norm kind : {Norm::layer_norm, Norm::rms_norm}) {
      for (const std::int64_t C : {std::int64_t{2}, std::int64_t{16}, std::int64_t{67}}) {
        Random random(4304);
        Inputs in = inputs<float>(random, kind, 5, C, 0);
        for (std::int64_t c = 0; c < C; ++c) {
          in.x(0, c) = c % 2 == 0 ? 1 : -1;
          in.x(1, c) = c == C - 1 ? nan : 1;
          in.x(2, c) = c == C / 2 ? inf : 1;
          in.x(3, c) = c % 2 == 0 ? 1e30 : -1e30;  // whose squares overflow
          in.x(4, c) = 0;
          in.bias(c) = 0.5;
        }
        const Forward<float> y = forward<float>(in, {.isa = isa});
        for (std::int64_t c = 0; c < C; ++c) {
          EXPECT_TRUE(std::isfinite(y.y(0, c))) << "C " << C;
          EXPECT_TRUE(std::isnan(y.y(1, c))) << "C " << C;
          EXPECT_EQ(y.y(3, c), 0.5F) << "C " << C;
          EXPECT_EQ(y.y(4, c), 0.5F) << "C " << C;
        }
        EXPECT_TRUE(std::isnan(y.y(2, C / 2)));
      }
    }
  }
}

TEST(LayerNorm, ARowFarFromZeroKeepsItsDigitsHoweverLong) {
  // Whole numbers beside 2¹⁵: each sum is exact in the twin; here only k, not k·C, may be lost.
  const std::uint64_t seed = 4305;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    Contest contest("layer_norm far from zero", isa, "f32");
    Inputs in = inputs<float>(random, Norm::layer_norm, 2, 4000, 0);
    for (double& x : in.x.elements()) x = 32768 + static_cast<double>(random.between(-8, 8));
    judge_forward<float>(contest, in, forward<float>(in, {.isa = isa}), seed);
    contest.finish();
  }
}

TEST(Norms, NonsenseIsRefusedWithBothNumbers) {
  Tensor<float> x({2, 3});
  Tensor<float> y({2, 3});
  Tensor<float> four({4});
  const auto gain = try_norm(y.view<2>(), x.view<2>(), {.gain = four.view<1>()});
  ASSERT_FALSE(gain);
  EXPECT_EQ(gain.failure().message,
            "[layer_norm] x and gain must have the same C; x has 3, gain has 4");
  for (const double epsilon : {-1.0, nan, inf}) {
    EXPECT_EQ(try_norm(y.view<2>(), x.view<2>(), {.epsilon = epsilon}).failure().id, "bad-option");
  }
  EXPECT_THROW(norm(y.view<2>(), x.view<2>(), {.mean = four.view<1>()}), ShapeError);
  Tensor<float> two({2});
  EXPECT_EQ(try_norm(y.view<2>(), x.view<2>(), {.kind = Norm::rms_norm, .mean = two.view<1>()})
                .failure()
                .id,
            "bad-option");
  Tensor<float> thin({2, 0});
  EXPECT_EQ(try_norm(thin.view<2>(), thin.view<2>()).failure().id, "shape-mismatch");
  Tensor<float> none({0, 3});
  EXPECT_TRUE(try_norm(none.view<2>(), none.view<2>()));
  const NormGradients<float> wanted{.d_x = y.view<2>()};
  EXPECT_EQ(try_norm_backward(wanted, {.x = x.view<2>(), .d_y = x.view<2>()}).failure().message,
            "[layer_norm_backward] mean must be given");
  EXPECT_EQ(
      try_norm_backward(wanted, {.kind = Norm::rms_norm, .x = x.view<2>(), .d_y = x.view<2>()})
          .failure()
          .message,
      "[rms_norm_backward] inverse_deviation must be given");
}

TEST(Norms, NoRowsGiveZeroParameterGradients) {
  Tensor<float> none({0, 3});
  Tensor<float> statistics({0});
  Tensor<float> d_gain({3});
  Tensor<float> d_bias({3});
  for (float& d : d_gain.elements()) d = 7;
  for (float& d : d_bias.elements()) d = 7;
  norm_backward(NormGradients<float>{{}, d_gain.view<1>(), d_bias.view<1>()},
                {.x = none.view<2>(),
                 .d_y = none.view<2>(),
                 .mean = statistics.view<1>(),
                 .inverse_deviation = statistics.view<1>()});
  for (std::int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(d_gain(c), 0);
    EXPECT_EQ(d_bias(c), 0);
  }
}

}  // namespace
}  // namespace attest
