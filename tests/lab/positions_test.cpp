// SPDX-License-Identifier: MIT
#include "attest/lab/positions.h"

#include <cfenv>
#include <cmath>

#include "layers_support.h"

namespace attest::lab {
namespace {

using namespace testing;

View<const double, 4> heads_view(const Tensor<double>& tensor) { return tensor.view<4>(); }

TEST(AlibiSlopes, ArePublishedForAnyHeadCount) {  // case A18
  EXPECT_EQ(alibi_slopes(3), (std::vector<double>{0.0625, 0.00390625, 0.25}));
  EXPECT_EQ(alibi_slopes(6), (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}));
  const auto twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12U);
  for (std::size_t h = 0; h < 8; ++h) EXPECT_EQ(twelve[h], std::ldexp(1, -static_cast<int>(h) - 1));
  EXPECT_EQ(twelve[8], std::sqrt(0.5));
  EXPECT_TRUE(alibi_slopes(0).empty());
}

TEST(RopeFrequencies, FollowTheBase) {  // case D12, before scaling
  const auto frequencies = *rope_frequencies({.base = 500000}, 8);
  ASSERT_EQ(frequencies.size(), 4U);
  EXPECT_EQ(frequencies[0], 1);
  EXPECT_DOUBLE_EQ(frequencies[1], 0.037606030930863936);
  EXPECT_DOUBLE_EQ(frequencies[2], 0.001414213562373095);
  EXPECT_DOUBLE_EQ(frequencies[3], 5.3182958969449886e-5);
  EXPECT_EQ(*rope_frequencies({}, 8), (std::vector<double>{1, 0.1, 0.01, 0.001}));
}

TEST(RopeFrequencies, FollowTheRotatedWidthNotTheHead) {
  EXPECT_EQ(*rope_frequencies({.rotary_dim = 4}, 8), *rope_frequencies({}, 4));
}

/// A quarter turn of every pair: cos 0, sin 1, so that (a, b) becomes (−b, a).
Tensor<double> quarter_turn(const Tensor<double>& x, RopePairing pairing, std::int64_t pairs) {
  const std::int64_t T = x.extent(2);
  const Tensor<double> cos({1, T, pairs});
  Tensor<double> sin({1, T, pairs});
  for (double& value : sin.elements()) value = 1;
  const Tensor<double>& fixed = sin;
  return *rope_turn(heads_view(x), {cos.view<3>(), fixed.view<3>(), pairing});
}

TEST(RopeTurn, HalfPairsAcrossTheMiddleInterleavedPairsNeighbours) {
  const Tensor<double> x({1, 1, 1, 4}, std::vector<double>{1, 2, 3, 4});
  const Tensor<double> half({1, 1, 1, 4}, std::vector<double>{-3, -4, 1, 2});
  const Tensor<double> interleaved({1, 1, 1, 4}, std::vector<double>{-2, 1, -4, 3});
  expect_same_bits(quarter_turn(x, RopePairing::half, 2), half);
  expect_same_bits(quarter_turn(x, RopePairing::interleaved, 2), interleaved);
}

TEST(RopeTurn, FeaturesBeyondTheRotatedWidthStay) {
  const Tensor<double> x({1, 1, 1, 6}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor<double> half({1, 1, 1, 6}, std::vector<double>{-3, -4, 1, 2, 5, 6});
  const Tensor<double> interleaved({1, 1, 1, 6}, std::vector<double>{-2, 1, -4, 3, 5, 6});
  expect_same_bits(quarter_turn(x, RopePairing::half, 2), half);
  expect_same_bits(quarter_turn(x, RopePairing::interleaved, 2), interleaved);
}

TEST(Rope, PositionZeroTurnsNothing) {
  Random random(2);
  const auto x = random_tensor(random, {2, 3, 1, 4});
  expect_same_bits(*rope(heads_view(x), {}), x);
}

TEST(Rope, RowTurnsByItsOffsetPlusItsIndex) {
  Random random(3);
  const auto x = random_tensor(random, {2, 2, 5, 6});
  const std::int64_t starts[] = {7, -2};
  const auto all = *rope(heads_view(x), {}, starts);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t t = 0; t < 5; ++t) {
      // one row alone, at the position that it has in the whole
      const std::int64_t position[] = {starts[b] + t};
      const View<const double, 4> row{&x(b, 0, t, 0), {1, 2, 1, 6}, {60, 30, 6, 1}};
      const auto alone = *rope(row, {}, position);
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 6; ++d) EXPECT_EQ(alone(0, h, 0, d), all(b, h, t, d));
      }
    }
  }
  const std::int64_t one[] = {4};
  const std::int64_t same[] = {4, 4};
  expect_same_bits(*rope(heads_view(x), {}, one), *rope(heads_view(x), {}, same));
}

TEST(Rope, AnyStridesGiveTheSameBits) {
  Random random(4);
  const auto rows = random_tensor(random, {2, 5, 3, 4});  // [B, T, H, D]
  const auto x = heads_view(rows).swapped(1, 2);          // [B, H, T, D]
  Tensor<double> dense({2, 3, 5, 4});
  for (int b = 0; b < 2; ++b) {
    for (int t = 0; t < 5; ++t) {
      for (int h = 0; h < 3; ++h) {
        for (int d = 0; d < 4; ++d) dense(b, h, t, d) = rows(b, t, h, d);
      }
    }
  }
  expect_same_bits(*rope(x, {}), *rope(heads_view(dense), {}));
}

RopeConfig random_config(Random& random, std::int64_t D) {
  return {.pairing = random.between(0, 1) == 0 ? RopePairing::half : RopePairing::interleaved,
          .rotary_dim = random.between(0, 1) == 0 ? 0 : 2 * random.between(1, D / 2),
          .base = random.between(0, 1) == 0 ? 10000.0 : 500000.0};
}

/// The largest pair sum times the bound that positions.h states, for positions up to `last`.
double rope_bound(const Tensor<double>& x, std::int64_t last) {
  double largest = 0;
  for (const double value : x.elements()) largest = std::max(largest, std::abs(value));
  return u * (2 * static_cast<double>(last) + 3) * 2 * largest;
}

TEST(Rope, StaysWithinItsBoundForwardAndBack) {
  Bound used("rope");
  Bound used_back("rope_backward");
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed_text(seed));
    Random random(seed);
    const std::int64_t D = 2 * random.between(1, 4);
    const RopeConfig config = random_config(random, D);
    const auto x = random_tensor(random, {1, 2, 4, D});
    const std::int64_t start[] = {random.between(0, 1) == 0 ? 0 : random.between(0, 5000)};
    const auto got = *rope(heads_view(x), config, start);
    const auto back = *rope_backward(heads_view(x), config, start);
    const auto exact = *oracle::rope(x, config, start[0]);
    const auto exact_back = *oracle::rope_backward(x, config, start[0], x);
    for (std::size_t n = 0; n < x.size(); ++n) {
      used.check(got.data()[n], exact.values[n], rope_bound(x, start[0] + 3));
      used_back.check(back.data()[n], exact_back.values[n], rope_bound(x, start[0] + 3));
    }
  }
}

TEST(Rope, BackwardIsTheInverseTurn) {
  Random random(6);
  const auto x = random_tensor(random, {1, 2, 6, 8});
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    const RopeConfig config{.pairing = pairing};
    const auto there = *rope(heads_view(x), config);
    const auto back = *rope_backward(heads_view(there), config);
    for (std::size_t n = 0; n < x.size(); ++n) {
      // There and back by the same rounded cos and sin: the angle's own error drops out.
      EXPECT_NEAR(back.data()[n], x.data()[n], 12 * u);
    }
  }
}

TEST(Rope, ScoresDependOnDistanceAlone) {
  Random random(7);
  const auto query = random_tensor(random, {1, 1, 1, 8});
  const auto key = random_tensor(random, {1, 1, 1, 8});
  const auto score = [&](std::int64_t i, std::int64_t j) {
    const std::int64_t at_query[] = {i};
    const std::int64_t at_key[] = {j};
    const auto q = *rope(heads_view(query), {}, at_query);
    const auto k = *rope(heads_view(key), {}, at_key);
    double dot = 0;
    for (std::size_t d = 0; d < 8; ++d) dot += q.data()[d] * k.data()[d];
    return dot;
  };
  // eight products of turned numbers, each off by the bound of a turn at position 105
  const double bound = 8 * 2 * 2 * u * (2 * 105 + 4);
  EXPECT_NEAR(score(5, 2), score(105, 102), bound);
  EXPECT_GT(std::abs(score(5, 2) - score(5, 3)), bound);
}

TEST(Rope, HostRoundingModeChangesNoBit) {
  Random random(8);
  const auto x = random_tensor(random, {1, 2, 4, 6});
  const auto usual = *rope(heads_view(x), {});
  std::fesetround(FE_UPWARD);
  const auto upward = *rope(heads_view(x), {});
  std::fesetround(FE_TONEAREST);
  expect_same_bits(usual, upward);
}

TEST(Rope, FailuresNameBothNumbers) {
  const Tensor<double> x({2, 1, 3, 4});
  EXPECT_EQ(message_of(rope(heads_view(x), {.rotary_dim = 6})),
            "bad-option: [rope] rotary_dim must be even and between 2 and D = 4; found 6");
  EXPECT_EQ(message_of(rope(heads_view(x), {.rotary_dim = 3})),
            "bad-option: [rope] rotary_dim must be even and between 2 and D = 4; found 3");
  EXPECT_EQ(message_of(rope(heads_view(x), {.base = 0})),
            "bad-option: [rope] base must be positive and finite; found 0");
  const std::int64_t three[] = {0, 1, 2};
  EXPECT_EQ(message_of(rope(heads_view(x), {}, three)),
            "bad-option: [rope] offsets must have 1 or B = 2 entries; it has 3");
  const std::int64_t far[] = {std::int64_t{1} << 60U};
  EXPECT_EQ(message_of(rope(heads_view(x), {}, far)),
            "bad-option: [rope] positions must stay within 2^53; 3 rows start at "
            "1152921504606846976");
  const Tensor<double> table({1, 5, 2});
  EXPECT_EQ(message_of(rope_turn(heads_view(x), {table.view<3>(), table.view<3>()})),
            "shape-mismatch: [rope] cos must be [B or 1, T, at most D/2]; x has shape [2, 1, 3, 4],"
            " cos has [1, 5, 2]");
}

/// The rows of a cache [P, R/2] that position ids [B, T] name, or the cache if it is [B, T, R/2].
Tensor<double> looked_up(const test::OnnxNode& one, const char* cache_name) {
  Tensor<double> cache = one.get(cache_name);
  if (!one.has("in.position_ids")) return cache;
  const Tensor<double> ids = one.get("in.position_ids");
  const std::int64_t pairs = cache.extent(1);
  Tensor<double> rows({ids.extent(0), ids.extent(1), pairs});
  for (std::size_t n = 0; n < ids.size(); ++n) {
    const auto position = static_cast<std::int64_t>(ids.data()[n]);
    for (std::int64_t i = 0; i < pairs; ++i) {
      rows.data()[static_cast<std::int64_t>(n) * pairs + i] = cache(position, i);
    }
  }
  return rows;
}

TEST(RopeTurn, AgreesWithThePublishedVectors) {
  const auto cases = test::onnx_nodes("rotary_embedding");
  if (cases.empty()) GTEST_SKIP() << test::not_shared;
  EXPECT_EQ(cases.size(), 8U);
  for (const test::OnnxNode& one : cases) {
    SCOPED_TRACE(one.name);
    const Tensor<double> cos = looked_up(one, "in.cos_cache");
    const Tensor<double> sin = looked_up(one, "in.sin_cache");
    const bool interleaved = one.attribute("interleaved", 0) == 1;
    const RopeTurns turns{cos.view<3>(), sin.view<3>(),
                          interleaved ? RopePairing::interleaved : RopePairing::half};
    const Tensor<double> x = one.get("in.input");
    const Tensor<double> published = one.get("out.output");
    if (x.rank() == 4) {
      expect_near_onnx(*rope_turn(heads_view(x), turns), published);
      continue;
    }
    // [B, T, H·D], heads side by side
    const auto H = static_cast<std::int64_t>(one.attribute("num_heads", 0));
    ASSERT_GT(H, 0);
    const std::int64_t B = x.extent(0);
    const std::int64_t T = x.extent(1);
    const std::int64_t D = x.extent(2) / H;
    const auto heads = [&](const Tensor<double>& packed) {
      return View<const double, 4>{packed.data(), {B, H, T, D}, {T * H * D, D, H * D, 1}};
    };
    const auto y = *rope_turn(heads(x), turns);
    for (std::int64_t n = 0; n < B * H * T * D; ++n) {
      const std::int64_t b = n / (H * T * D);
      const std::int64_t h = n / (T * D) % H;
      const std::int64_t t = n / D % T;
      EXPECT_NEAR(y.data()[n], heads(published)(b, h, t, n % D), 1e-5);
    }
  }
}

}  // namespace
}  // namespace attest::lab
