// SPDX-License-Identifier: MIT
#include "attest/linalg/softmax.h"

#include <gtest/gtest.h>

#include "attest/lab/elementary.h"
#include "attest/lab/softmax.h"
#include "tests/linalg/layers_support.h"

namespace attest {
namespace {

using namespace test::layers;  // NOLINT

enum class Kind { softmax, log_softmax };

template <class S>
Tensor<S> forward(Kind kind, const Tensor<S>& x, const Execution& how) {
  Tensor<S> y(x.shape());
  if (kind == Kind::softmax) {
    softmax(y.template view<2>(), x.template view<2>(), how);
  } else {
    log_softmax(y.template view<2>(), x.template view<2>(), how);
  }
  return y;
}

template <class S>
Tensor<S> backward(Kind kind, const Tensor<S>& y, const Tensor<S>& d_y, const Execution& how) {
  Tensor<S> d_x(y.shape());
  if (kind == Kind::softmax) {
    softmax_backward(d_x.template view<2>(), y.template view<2>(), d_y.template view<2>(), how);
  } else {
    log_softmax_backward(d_x.template view<2>(), y.template view<2>(), d_y.template view<2>(), how);
  }
  return d_x;
}

/// One row by a plain loop in T.
template <class T>
std::vector<T> plain_forward(Kind kind, const double* x, std::int64_t C) {
  T peak = static_cast<T>(x[0]);
  for (std::int64_t c = 0; c < C; ++c) peak = std::max(peak, static_cast<T>(x[c]));
  std::vector<T> out;
  T sum = 0;
  for (std::int64_t c = 0; c < C; ++c) {
    out.push_back(std::exp(static_cast<T>(x[c]) - peak));
    sum += out.back();
  }
  for (std::int64_t c = 0; c < C; ++c) {
    T& y = out[static_cast<std::size_t>(c)];
    y = kind == Kind::softmax ? y / sum : static_cast<T>(x[c]) - peak - std::log(sum);
  }
  return out;
}

/// The bound of attest/linalg/softmax.h, and what the twin itself may be off.
template <class S>
double bound(Kind kind, double exact, double below_peak, std::int64_t C) {
  const auto count = static_cast<double>(C);
  if (kind == Kind::softmax) {
    const double twin = 0x1p-53 * (below_peak + 4) * exact;
    return unit<S> * (count / 8 + 20 + below_peak) * exact + 2 * least<S> + twin +
           storing<S>(exact);
  }
  return unit<S> * (count / 8 + 20 + 2 * below_peak + 2 * std::log(count)) +
         0x1p-53 * (below_peak + 4) + storing<S>(std::fabs(exact));
}

template <class S>
void within_bound(Kind kind) {
  using T = AccumulatorOf<S>;
  const std::uint64_t seed = 4101;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    Contest contest(kind == Kind::softmax ? "softmax" : "log_softmax", isa, type_name<S>());
    for (const std::int64_t C : widths()) {
      const Tensor<double> x = random_rows<S>(random, {6, C}, C % 2 == 0 ? 10 : 60);
      const Tensor<double> y = numbers(forward(kind, stored<S>(x), {.isa = isa}));
      for (std::int64_t n = 0; n < x.extent(0); ++n) {
        const double* row = &x.data()[n * C];
        const auto twin = lab::softmax_row({row, static_cast<std::size_t>(C)});
        const auto plain = plain_forward<T>(kind, row, C);
        for (std::int64_t c = 0; c < C; ++c) {
          const auto at = static_cast<std::size_t>(c);
          const double exact =
              kind == Kind::softmax ? twin.weights[at] : twin.minus_peak[at] - lab::log(twin.sum);
          const double rounded = number(stored<S>(static_cast<double>(plain[at])));
          contest.judge(y(n, c), rounded, exact,
                        bound<S>(kind, exact, std::fabs(twin.minus_peak[at]), C),
                        "C " + std::to_string(C) + " seed " + std::to_string(seed));
        }
      }
    }
    contest.finish();
  }
}

TEST(Softmax, WithinItsBoundOnEveryInstructionSet) {
  within_bound<float>(Kind::softmax);
  within_bound<double>(Kind::softmax);
  within_bound<BFloat16>(Kind::softmax);
  within_bound<Half>(Kind::softmax);
}

TEST(LogSoftmax, WithinItsBoundOnEveryInstructionSet) {
  within_bound<float>(Kind::log_softmax);
  within_bound<double>(Kind::log_softmax);
  within_bound<BFloat16>(Kind::log_softmax);
  within_bound<Half>(Kind::log_softmax);
}

template <class S>
void backward_within_bound(Kind kind) {
  using T = AccumulatorOf<S>;
  const std::uint64_t seed = 4102;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    Contest contest(kind == Kind::softmax ? "softmax_backward" : "log_softmax_backward", isa,
                    type_name<S>());
    for (const std::int64_t C : widths()) {
      const Tensor<S> y = forward(kind, stored<S>(random_rows<S>(random, {5, C}, 6)), {.isa = isa});
      const Tensor<S> d_y = stored<S>(random_rows<S>(random, {5, C}, 3));
      const Tensor<double> d_x = numbers(backward(kind, y, d_y, {.isa = isa}));
      const auto count = static_cast<double>(C);
      for (std::int64_t n = 0; n < 5; ++n) {
        long double sum = 0;
        double sizes = 0;
        T plain_sum = 0;
        for (std::int64_t c = 0; c < C; ++c) {
          const double share = kind == Kind::softmax ? number(y(n, c)) : 1;
          sum += static_cast<long double>(share) * number(d_y(n, c));
          sizes += std::fabs(share * number(d_y(n, c)));
          plain_sum += static_cast<T>(share) * static_cast<T>(number(d_y(n, c)));
        }
        for (std::int64_t c = 0; c < C; ++c) {
          const double out = number(y(n, c));
          const double d = number(d_y(n, c));
          double exact = 0;
          double limit = 0;
          T plain = 0;
          if (kind == Kind::softmax) {
            exact = static_cast<double>(out * (d - sum));
            plain = static_cast<T>(out) * (static_cast<T>(d) - plain_sum);
            limit = unit<S> * std::fabs(out) * ((count / 8 + 12) * sizes + 3 * std::fabs(d));
          } else {
            const long double share = std::exp(static_cast<long double>(out));
            exact = static_cast<double>(d - share * sum);
            plain = static_cast<T>(d) - std::exp(static_cast<T>(out)) * plain_sum;
            limit = unit<S> *
                    ((count / 8 + 15) * static_cast<double>(share) * sizes + 2 * std::fabs(exact));
          }
          contest.judge(d_x(n, c), number(stored<S>(static_cast<double>(plain))), exact,
                        limit + least<S> + storing<S>(std::fabs(exact)),
                        "C " + std::to_string(C) + " seed " + std::to_string(seed));
        }
      }
    }
    contest.finish();
  }
}

TEST(Softmax, BackwardIsWithinItsBound) {
  backward_within_bound<float>(Kind::softmax);
  backward_within_bound<double>(Kind::softmax);
  backward_within_bound<BFloat16>(Kind::softmax);
  backward_within_bound<Half>(Kind::softmax);
}

TEST(LogSoftmax, BackwardIsWithinItsBound) {
  backward_within_bound<float>(Kind::log_softmax);
  backward_within_bound<double>(Kind::log_softmax);
  backward_within_bound<BFloat16>(Kind::log_softmax);
  backward_within_bound<Half>(Kind::log_softmax);
}

TEST(Softmax, GradientsAreCentralDifferences) {
  const std::uint64_t seed = 4103;
  for (const Kind kind : {Kind::softmax, Kind::log_softmax}) {
    for (const Isa isa : present_sets()) {
      Random random(seed);
      Tensor<double> x = random_rows<double>(random, {1, 19}, 2);
      const Tensor<double> d_y = random_rows<double>(random, {1, 19}, 2);
      const Execution how{.isa = isa};
      const Tensor<double> d_x = backward(kind, forward(kind, x, how), d_y, how);
      // The step h leaves h²/6 of a third derivative, whose size here is below 8·Σ|d_y|, and rounding
      // divided by it.
      const double h = 0x1p-17;
      double sizes = 0;
      for (const double d : d_y.elements()) sizes += std::fabs(d);
      const double tolerance = sizes * (8 * h * h / 6 + 2 * 40 * 0x1p-53 * 8 / h);
      for (std::int64_t c = 0; c < 19; ++c) {
        const auto loss_at = [&](double place) {
          Tensor<double> moved = x;
          moved(0, c) = place;
          const Tensor<double> y = forward(kind, moved, how);
          double loss = 0;
          for (std::int64_t j = 0; j < 19; ++j) loss += y(0, j) * d_y(0, j);
          return loss;
        };
        const double slope = (loss_at(x(0, c) + h) - loss_at(x(0, c) - h)) / (2 * h);
        EXPECT_NEAR(d_x(0, c), slope, tolerance) << "seed " << seed << " column " << c;
      }
    }
  }
}

template <class S>
void hostile_rows_stay_apart() {
  for (const Isa isa : present_sets()) {
    for (const std::int64_t C : {std::int64_t{1}, std::int64_t{3}, std::int64_t{16},
                                 std::int64_t{67}, std::int64_t{300}}) {
      Tensor<double> x({6, C});
      for (std::int64_t c = 0; c < C; ++c) {
        x(0, c) = 1;
        x(1, c) = c == C / 2 ? nan : 1;
        x(2, c) = 1;
        x(3, c) = c == C - 1 ? 2 : -inf;
        x(4, c) = -inf;
        x(5, c) = c == 0 ? inf : 0;
      }
      for (const Kind kind : {Kind::softmax, Kind::log_softmax}) {
        const Tensor<double> y = numbers(forward(kind, stored<S>(x), {.isa = isa}));
        for (std::int64_t c = 0; c < C; ++c) {
          const bool log = kind == Kind::log_softmax;
          EXPECT_EQ(y(0, c), y(2, c)) << "a row of equal scores beside a NaN, C " << C;
          EXPECT_FALSE(std::isnan(y(0, c))) << "NaN left its row, C " << C;
          EXPECT_TRUE(std::isnan(y(1, c))) << "C " << C;
          EXPECT_EQ(y(3, c), c == C - 1 ? (log ? 0 : 1) : (log ? -inf : 0)) << "C " << C;
          EXPECT_TRUE(std::isnan(y(4, c))) << "nothing but hidden scores, C " << C;
          EXPECT_TRUE(std::isnan(y(5, c))) << "an infinite score, C " << C;
        }
      }
    }
  }
}

TEST(Softmax, HostileRowsStayApart) {
  hostile_rows_stay_apart<float>();
  hostile_rows_stay_apart<double>();
  hostile_rows_stay_apart<BFloat16>();
  hostile_rows_stay_apart<Half>();
}

TEST(Softmax, HugeScoresDoNotOverflow) {
  for (const Isa isa : present_sets()) {
    Tensor<float> x({1, 40});
    for (float& score : x.elements()) score = -3e38F;
    x(0, 7) = 3e38F;
    x(0, 21) = 3e38F;
    const Tensor<float> y = forward(Kind::softmax, x, {.isa = isa});
    for (std::int64_t c = 0; c < 40; ++c) EXPECT_EQ(y(0, c), c == 7 || c == 21 ? 0.5F : 0.0F);
  }
}

TEST(Softmax, SameBitsForAnyThreadCountAndAnyRowMates) {
  const std::uint64_t seed = 4104;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    const Tensor<float> x = stored<float>(random_rows<float>(random, {301, 333}, 9));
    const Tensor<float> d_y = stored<float>(random_rows<float>(random, {301, 333}, 9));
    for (const Kind kind : {Kind::softmax, Kind::log_softmax}) {
      ThreadPool one(1);
      const Tensor<float> y = forward(kind, x, {.threads = &one, .isa = isa});
      const Tensor<float> d_x = backward(kind, y, d_y, {.threads = &one, .isa = isa});
      for (const int threads : {2, 3}) {
        ThreadPool pool(threads);
        const Execution how{.threads = &pool, .isa = isa};
        EXPECT_TRUE(same_bytes(y, forward(kind, x, how))) << threads << " threads";
        EXPECT_TRUE(same_bytes(d_x, backward(kind, y, d_y, how))) << threads << " threads";
      }
      Tensor<float> alone({1, 333});
      std::copy_n(&x.data()[200 * 333], 333, alone.data());
      const Tensor<float> row = forward(kind, alone, {.isa = isa});
      EXPECT_EQ(std::memcmp(row.data(), &y.data()[200 * 333], 333 * sizeof(float)), 0);
    }
  }
}

TEST(Softmax, InPlaceAndStridedRowsGiveTheSameBits) {
  const std::uint64_t seed = 4105;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    Tensor<float> wide = stored<float>(random_rows<float>(random, {9, 50}, 5));
    Tensor<float> x({9, 37});
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t c = 0; c < 37; ++c) x(n, c) = wide(n, c);
    }
    const float guard = wide(4, 37);
    const Tensor<float> y = forward(Kind::softmax, x, {.isa = isa});
    const View<float, 2> part(wide.data(), {9, 37}, {50, 1});
    softmax(part, part, {.isa = isa});
    for (std::int64_t n = 0; n < 9; ++n) {
      for (std::int64_t c = 0; c < 37; ++c) EXPECT_EQ(part(n, c), y(n, c));
    }
    EXPECT_EQ(wide(4, 37), guard) << "numbers beyond the row were written";
  }
}

TEST(Softmax, NonsenseIsRefusedWithBothNumbers) {
  Tensor<float> x({2, 3});
  Tensor<float> y({2, 4});
  const auto other = try_softmax(y.view<2>(), x.view<2>());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.failure().message,
            "[softmax] x and y must have the same shape; x has [2, 3], y has [2, 4]");
  EXPECT_EQ(try_softmax(View<float, 2>{}, x.view<2>()).failure().id, "shape-mismatch");
  EXPECT_EQ(try_softmax(x.view<2>(), View<float, 2>{}).failure().id, "shape-mismatch");
  const View<float, 2> across(y.data(), {2, 3}, {1, 2});
  EXPECT_EQ(try_softmax(x.view<2>(), across).failure().id, "bad-stride");
  const View<float, 2> upon(y.data(), {2, 3}, {2, 1});
  EXPECT_EQ(try_softmax(upon, x.view<2>()).failure().id, "bad-stride");
  EXPECT_THROW(softmax(y.view<2>(), x.view<2>()), ShapeError);
  EXPECT_EQ(try_softmax_backward(x.view<2>(), x.view<2>(), y.view<2>()).failure().id,
            "shape-mismatch");
  Tensor<float> none({0, 3});
  EXPECT_TRUE(try_softmax(none.view<2>(), none.view<2>()));
  Tensor<float> thin({3, 0});
  EXPECT_TRUE(try_softmax(thin.view<2>(), thin.view<2>()));
  for (const IsaState& row : instruction_sets()) {
    if (row.present) continue;
    EXPECT_EQ(try_softmax(x.view<2>(), x.view<2>(), {.isa = row.isa}).failure().id, "bad-isa");
  }
}

}  // namespace
}  // namespace attest
