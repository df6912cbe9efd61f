// SPDX-License-Identifier: MIT
#include "attest/linalg/rope.h"

#include <gtest/gtest.h>

#include "attest/lab/positions.h"
#include "tests/linalg/layers_support.h"

namespace attest {
namespace {

using namespace test::layers;  // NOLINT

constexpr RopePairing pairings[] = {RopePairing::half, RopePairing::interleaved};

enum class Way { forward, back };

template <class S>
Tensor<S> turned(Way way, const Tensor<S>& x, const RopeConfig& config, const RopePlaces& places,
                 const Execution& how) {
  Tensor<S> y(x.shape());
  if (way == Way::forward) {
    rope(y.template view<4>(), x.template view<4>(), config, places, how);
  } else {
    rope_backward(y.template view<4>(), x.template view<4>(), config, places, how);
  }
  return y;
}

Tensor<double> exactly(Way way, const Tensor<double>& x, const RopeConfig& config,
                       std::span<const std::int64_t> offsets) {
  return way == Way::forward ? lab::rope(x.view<4>(), config, offsets).value()
                             : lab::rope_backward(x.view<4>(), config, offsets).value();
}

/// The two features that turn together, and by which frequency; the feature itself if it stays.
struct Pair {
  std::int64_t first;
  std::int64_t second;
  std::int64_t frequency;
};
Pair pair_of(std::int64_t d, std::int64_t R, RopePairing pairing) {
  if (d >= R) return {d, d, -1};
  if (pairing == RopePairing::interleaved) return {d / 2 * 2, d / 2 * 2 + 1, d / 2};
  const std::int64_t i = d % (R / 2);
  return {i, i + R / 2, i};
}

template <class S>
void judge(Contest& contest, Way way, const Tensor<double>& x, const RopeConfig& config,
           std::span<const std::int64_t> offsets, const Tensor<double>& found, std::uint64_t seed) {
  using T = AccumulatorOf<S>;
  const Tensor<double> exact = exactly(way, x, config, offsets);
  const std::int64_t H = x.extent(1);
  const std::int64_t T_ = x.extent(2);
  const std::int64_t D = x.extent(3);
  const std::int64_t R = config.rotary_dim == 0 ? D : config.rotary_dim;
  for (std::int64_t n = 0; n < x.extent(0) * H * T_; ++n) {
    const std::int64_t b = n / (H * T_);
    const std::int64_t offset =
        offsets.empty() ? 0 : offsets[offsets.size() == 1 ? 0 : static_cast<std::size_t>(b)];
    const auto position = static_cast<double>(offset + n % T_);
    for (std::int64_t d = 0; d < D; ++d) {
      const double* row = &x.data()[n * D];
      const double result = exact.data()[n * D + d];
      const double ours = found.data()[n * D + d];
      const std::string where = "D " + std::to_string(D) + " R " + std::to_string(R) +
                                " position " + std::to_string(position) + " seed " +
                                std::to_string(seed);
      const Pair pair = pair_of(d, R, config.pairing);
      if (pair.frequency < 0) {
        EXPECT_EQ(ours, row[d]) << where;
        continue;
      }
      const double frequency =
          std::pow(config.base, static_cast<double>(-2 * pair.frequency) / static_cast<double>(R));
      const double angle = position * frequency;
      const double a = row[pair.first];
      const double c = row[pair.second];
      // A plain loop that finds the angle in T loses it at far positions: it is given ours.
      const auto cosine = static_cast<T>(std::cos(angle));
      const auto sine = static_cast<T>(way == Way::back ? -std::sin(angle) : std::sin(angle));
      const T plain = d == pair.first ? static_cast<T>(a) * cosine - static_cast<T>(c) * sine
                                      : static_cast<T>(c) * cosine + static_cast<T>(a) * sine;
      // The twin's own angle errs by 2·2⁻⁵³·|angle|, its turn by 3·2⁻⁵³: within one more w.
      const double w = 0x1p-53 * (4 + (4 + std::fabs(std::log(config.base))) * std::fabs(angle));
      const double bound = (4 * unit<S> + 2 * w) * (std::fabs(a) + std::fabs(c)) + least<S>;
      contest.judge(ours, number(stored<S>(static_cast<double>(plain))), result,
                    bound + storing<S>(std::fabs(result)), where);
    }
  }
}

template <class S>
void within_bound() {
  const std::uint64_t seed = 4401;
  for (const Isa isa : present_sets()) {
    for (const Way way : {Way::forward, Way::back}) {
      Random random(seed);
      Contest contest(way == Way::forward ? "rope" : "rope_backward", isa, type_name<S>());
      for (const RopePairing pairing : pairings) {
        for (std::int64_t D = 2; D <= 70; ++D) {
          const std::int64_t rotary = D % 3 == 0 ? 2 * random.between(1, D / 2) : D / 2 * 2;
          const RopeConfig config{pairing, rotary, D % 4 == 0 ? 500000.0 : 10000.0};
          const Tensor<double> x = random_rows<S>(random, {2, 3, 5, D}, 3);
          const std::int64_t offsets[] = {random.between(-9, 9), random.between(0, 100000)};
          const std::span<const std::int64_t> given(offsets, D % 2 == 0 ? 2 : D % 3 == 0 ? 1 : 0);
          const Tensor<S> y = turned(way, stored<S>(x), config, {.offsets = given}, {.isa = isa});
          judge<S>(contest, way, x, config, given, numbers(y), seed);
        }
      }
      contest.finish();
    }
  }
}

TEST(Rope, WithinItsBoundF32) { within_bound<float>(); }
TEST(Rope, WithinItsBoundF64) { within_bound<double>(); }
TEST(Rope, WithinItsBoundBf16) { within_bound<BFloat16>(); }
TEST(Rope, WithinItsBoundF16) { within_bound<Half>(); }

TEST(Rope, PairingsDifferOnlyInWhereFeaturesStand) {
  const std::uint64_t seed = 4402;
  for (const Isa isa : present_sets()) {
    Random random(seed);
    for (std::int64_t R = 2; R <= 70; R += 2) {
      const Tensor<float> x = stored<float>(random_rows<float>(random, {1, 2, 4, R}, 3));
      Tensor<float> rearranged(x.shape());
      for (std::int64_t n = 0; n < 8; ++n) {
        for (std::int64_t i = 0; i < R / 2; ++i) {
          rearranged.data()[n * R + 2 * i] = x.data()[n * R + i];
          rearranged.data()[n * R + 2 * i + 1] = x.data()[n * R + i + R / 2];
        }
      }
      const std::int64_t offset[] = {17};
      const RopePlaces places{.offsets = offset};
      const Execution how{.isa = isa};
      const auto half = turned(Way::forward, x, {.pairing = RopePairing::half}, places, how);
      const auto inter =
          turned(Way::forward, rearranged, {.pairing = RopePairing::interleaved}, places, how);
      for (std::int64_t n = 0; n < 8; ++n) {
        for (std::int64_t i = 0; i < R / 2; ++i) {
          EXPECT_EQ(half.data()[n * R + i], inter.data()[n * R + 2 * i]) << "seed " << seed;
          EXPECT_EQ(half.data()[n * R + i + R / 2], inter.data()[n * R + 2 * i + 1]);
        }
      }
    }
  }
}

TEST(Rope, ExplicitPositionsAreOffsetsSpelledOut) {
  const std::uint64_t seed = 4403;
  Random random(seed);
  const Tensor<float> x = stored<float>(random_rows<float>(random, {2, 3, 70, 24}, 3));
  const std::int64_t offsets[] = {5, -40};
  Tensor<std::int64_t> positions({2, 70});
  for (std::int64_t t = 0; t < 70; ++t) {
    positions(0, t) = 5 + t;
    positions(1, t) = t - 40;
  }
  Tensor<std::int64_t> shared({1, 70});
  for (std::int64_t t = 0; t < 70; ++t) shared(0, t) = t;
  for (const Isa isa : present_sets()) {
    for (const RopePairing pairing : pairings) {
      const RopeConfig config{.pairing = pairing};
      EXPECT_TRUE(same_bytes(
          turned(Way::forward, x, config, {.offsets = offsets}, {.isa = isa}),
          turned(Way::forward, x, config, {.positions = positions.view<2>()}, {.isa = isa})));
      EXPECT_TRUE(
          same_bytes(turned(Way::back, x, config, {}, {.isa = isa}),
                     turned(Way::back, x, config, {.positions = shared.view<2>()}, {.isa = isa})));
    }
  }
}

TEST(Rope, SameBitsForAnyThreadCountAnyStridesAndInPlace) {
  const std::uint64_t seed = 4404;
  Random random(seed);
  const Tensor<float> x = stored<float>(random_rows<float>(random, {2, 4, 333, 66}, 3));
  const std::int64_t offsets[] = {3, 1000};
  for (const Isa isa : present_sets()) {
    for (const RopePairing pairing : pairings) {
      const RopeConfig config{.pairing = pairing, .rotary_dim = 50};
      ThreadPool one(1);
      const RopePlaces places{.offsets = offsets};
      const auto y = turned(Way::forward, x, config, places, {.threads = &one, .isa = isa});
      for (const int threads : {2, 3}) {
        ThreadPool pool(threads);
        EXPECT_TRUE(
            same_bytes(y, turned(Way::forward, x, config, places, {.threads = &pool, .isa = isa})))
            << threads << " threads";
      }
      Tensor<float> packed({2, 333, 4, 66});  // [B, T, H, D]
      const View<float, 4> heads = packed.view<4>().swapped(1, 2);
      for (std::int64_t n = 0; n < 2 * 4 * 333 * 66; ++n) {
        heads(n / (4 * 333 * 66), n / (333 * 66) % 4, n / 66 % 333, n % 66) = x.data()[n];
      }
      rope(heads, heads, config, places, {.isa = isa});
      std::int64_t different = 0;
      for (std::int64_t n = 0; n < 2 * 4 * 333 * 66; ++n) {
        different +=
            heads(n / (4 * 333 * 66), n / (333 * 66) % 4, n / 66 % 333, n % 66) != y.data()[n];
      }
      EXPECT_EQ(different, 0) << "seed " << seed;
    }
  }
}

TEST(Rope, BackwardIsTheTranspose) {
  // ⟨rope(x), d⟩ = ⟨x, rope_backward(d)⟩, both sums of n products of numbers below 3.
  const std::uint64_t seed = 4405;
  for (const Isa isa : present_sets()) {
    for (const RopePairing pairing : pairings) {
      Random random(seed);
      const Tensor<double> x = random_rows<double>(random, {1, 2, 7, 18}, 3);
      const Tensor<double> d = random_rows<double>(random, {1, 2, 7, 18}, 3);
      const RopeConfig config{.pairing = pairing, .rotary_dim = 12};
      const auto y = turned(Way::forward, x, config, {}, {.isa = isa});
      const auto back = turned(Way::back, d, config, {}, {.isa = isa});
      double left = 0;
      double right = 0;
      for (std::size_t n = 0; n < x.size(); ++n) {
        left += y.data()[n] * d.data()[n];
        right += x.data()[n] * back.data()[n];
      }
      const auto count = static_cast<double>(x.size());
      EXPECT_NEAR(left, right, 2 * (count + 10) * 0x1p-53 * count * 3 * 6) << "seed " << seed;
    }
  }
}

TEST(Rope, NaNReachesItsPartnerAlone) {
  for (const Isa isa : present_sets()) {
    for (const RopePairing pairing : pairings) {
      Tensor<float> x({1, 1, 3, 40});
      for (float& element : x.elements()) element = 1;
      x(0, 0, 1, 5) = static_cast<float>(nan);
      const auto y =
          turned(Way::forward, x, {.pairing = pairing, .rotary_dim = 36}, {}, {.isa = isa});
      const Pair pair = pair_of(5, 36, pairing);
      for (std::int64_t t = 0; t < 3; ++t) {
        for (std::int64_t d = 0; d < 40; ++d) {
          const bool reached = t == 1 && (d == pair.first || d == pair.second);
          EXPECT_EQ(std::isnan(y(0, 0, t, d)), reached) << "row " << t << " feature " << d;
        }
      }
    }
  }
}

TEST(Rope, NonsenseIsRefusedWithBothNumbers) {
  Tensor<float> x({2, 1, 3, 6});
  Tensor<float> y({2, 1, 3, 6});
  const auto id = [&](const RopeConfig& config, const RopePlaces& places = {}) {
    const auto result = try_rope(y.view<4>(), x.view<4>(), config, places);
    return result ? std::string("accepted") : result.failure().id;
  };
  EXPECT_EQ(id({}), "accepted");
  for (const std::int64_t R : {-2, 1, 3, 8}) EXPECT_EQ(id({.rotary_dim = R}), "bad-option") << R;
  for (const double base : {0.0, -1.0, nan, inf}) EXPECT_EQ(id({.base = base}), "bad-option");
  const std::int64_t three[] = {1, 2, 3};
  EXPECT_EQ(id({}, {.offsets = three}), "bad-option");
  const std::int64_t distant[] = {(std::int64_t{1} << 53) - 2};
  EXPECT_EQ(id({}, {.offsets = distant}), "bad-option");
  Tensor<std::int64_t> positions({2, 4});
  EXPECT_EQ(id({}, {.positions = positions.view<2>()}), "shape-mismatch");
  Tensor<std::int64_t> places({1, 3});
  EXPECT_EQ(id({}, {.positions = places.view<2>()}), "accepted");
  EXPECT_EQ(id({}, {.offsets = {three, 1}, .positions = places.view<2>()}), "bad-option");
  Tensor<float> other({2, 1, 4, 6});
  const auto shape = try_rope(other.view<4>(), x.view<4>(), {});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.failure().message,
            "[rope] x and y must have the same shape; x has [2, 1, 3, 6], y has [2, 1, 4, 6]");
  EXPECT_EQ(try_rope(y.view<4>().swapped(2, 3), x.view<4>().swapped(2, 3), {}).failure().id,
            "bad-stride");
  const View<float, 4> upon(y.data(), {2, 1, 3, 6}, {6, 6, 6, 1});
  EXPECT_EQ(try_rope(upon, x.view<4>(), {}).failure().id, "bad-stride");
  EXPECT_THROW(rope(y.view<4>(), x.view<4>(), {.rotary_dim = 3}), ValueError);
  Tensor<float> none({0, 1, 3, 6});
  EXPECT_TRUE(try_rope(none.view<4>(), none.view<4>(), {}));
}

}  // namespace
}  // namespace attest
