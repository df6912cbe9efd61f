// SPDX-License-Identifier: MIT
// What the contract of attention says, one law a test; random calls are in attention_law_test.cpp.
#include "attest/attention/attention.h"

#include <gtest/gtest.h>

#include <numbers>

#include "attest/check/engine_bound.h"
#include "attest/lab/attention.h"
#include "tests/attention/engine_cases_typed.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20261201;
constexpr DType storages[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

double unit_of(DType storage) { return storage == DType::f64 ? 0x1p-53 : 0x1p-24; }

/// With query 0 all weights are equal; of 2ⁿ keys each is a power of two, and small whole values mix
/// without a rounding. Sums of up to 2¹¹ whole numbers below 2⁴ stay below 2²⁴.
TEST(Attention, UniformWeightsOverAPowerOfTwoKeysGiveEqualBits) {
  for (const DType storage : storages) {
    for (std::int64_t keys = 1; keys <= 2048; keys *= 2) {
      Random random(seed, static_cast<std::uint64_t>(keys));
      EngineCase c{.seed = seed, .storage = storage};
      c.query = Tensor<double>({1, 1, 2, 7});
      c.key = stored_tensor(random, {1, 1, keys, 7}, 2, storage);
      c.value = Tensor<double>({1, 1, keys, 5});
      for (double& x : c.value.elements()) x = static_cast<double>(random.between(-15, 15));
      for (const Isa isa : present_isas()) {
        SCOPED_TRACE(name_of_case(c, isa));
        const EngineForward found = run_engine(c, {.isa = isa});
        for (std::int64_t e = 0; e < 5; ++e) {
          double sum = 0;
          for (std::int64_t j = 0; j < keys; ++j) sum += c.value(0, 0, j, e);
          const double mean = rounded_to(sum / static_cast<double>(keys), storage);
          EXPECT_EQ(found.output(0, 0, 0, e), mean);
          EXPECT_EQ(found.output(0, 0, 1, e), mean);
        }
      }
    }
  }
}

/// Causal, query 0: row i sees i + 1 values; of one key the output is that value, bit for bit.
TEST(Attention, ALoneVisibleKeyGivesItsValueExactly) {
  for (const DType storage : storages) {
    Random random(seed, 3);
    EngineCase c{.seed = seed, .storage = storage};
    c.query = stored_tensor(random, {2, 2, 9, 5}, 4, storage);
    c.key = stored_tensor(random, {2, 1, 9, 5}, 4, storage);
    c.value = stored_tensor(random, {2, 1, 9, 6}, 4, storage);
    c.chosen.mask.window = {.left = 0, .right = 0};
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward found = run_engine(c, {.isa = isa});
      for_each_index(found.output.view<4>().extents, [&](const auto& i) {
        EXPECT_EQ(found.output(i[0], i[1], i[2], i[3]), c.value(i[0], 0, i[2], i[3]));
      });
    }
  }
}

TEST(Attention, TheResultHasTheLayoutOfTheQuery) {
  Random random(seed, 4);
  const Tensor<double> wide = stored_tensor(random, {2, 3, 4, 5}, 1, DType::f32);
  for (const Layout layout : {Layout::dense, Layout::heads_inside}) {
    const Placed<float, 4> q = placed<float>(wide, layout);
    const View<const float, 4> view = q.view;
    const AttentionResult<float> found = attention(view, view, view);
    EXPECT_EQ(found.heads_inside, layout == Layout::heads_inside);
    EXPECT_EQ(found.output().extents, (std::array<std::int64_t, 4>{2, 3, 4, 5}));
    EngineCase c{.seed = seed, .query = wide, .key = wide, .value = wide};
    EXPECT_TRUE(
        same_bits(widened_tensor(found.output()).elements(), run_engine(c).output.elements()));
  }
}

TEST(Attention, ThrowsWhatItNames) {
  const Tensor<float> q({1, 1, 2, 3}), k({1, 1, 4, 3}), v({1, 1, 5, 3});
  EXPECT_THROW((void)attention(q.view<4>(), k.view<4>(), v.view<4>()), ShapeError);
  AttentionOptions<float> options;
  options.mask.key_lengths = {0};
  EXPECT_THROW((void)attention(q.view<4>(), k.view<4>(), k.view<4>(), options), ValueError);
}

/// Keys [first, last) of a case without a mask.
EngineCase keys_of(const EngineCase& c, std::int64_t first, std::int64_t last) {
  const auto rows = [&](const Tensor<double>& from) {
    Tensor<double> out({from.extent(0), from.extent(1), last - first, from.extent(3)});
    for_each_index(out.view<4>().extents, [&](const auto& i) {
      out(i[0], i[1], i[2], i[3]) = from(i[0], i[1], first + i[2], i[3]);
    });
    return out;
  };
  EngineCase out{.seed = c.seed, .storage = c.storage, .query = c.query, .chosen = c.chosen};
  out.key = rows(c.key);
  out.value = rows(c.value);
  return out;
}

/// Ranges of keys joined are the whole: each part within its bound, a weight of a part off by what
/// the two log_sum_exps are off, and four roundings.
template <class T>
void expect_merged(const EngineCase& c, std::int64_t cut) {
  using Acc = AccumulatorOf<T>;
  const EngineCase parts[] = {keys_of(c, 0, cut), keys_of(c, cut, c.key.extent(2))};
  Tensor<T> output[3] = {Tensor<T>(c.output_shape()), Tensor<T>(c.output_shape()),
                         Tensor<T>(c.output_shape())};
  const Shape rows{c.query.extent(0), c.query.extent(1), c.query.extent(2)};
  Tensor<Acc> sums[3] = {Tensor<Acc>(rows), Tensor<Acc>(rows), Tensor<Acc>(rows)};
  std::vector<check::EngineBound> bounds;
  for (std::size_t n = 0; n < 2; ++n) {
    const TypedCase<T, T> typed(parts[n]);
    ASSERT_TRUE((try_attention<T, T>({output[n].template view<4>(), sums[n].template view<3>()},
                                     typed.inputs(), typed.options)));
    bounds.push_back(
        check::engine_bound(parts[n].inputs(), parts[n].options(), {c.storage, Isa::portable})
            .value());
  }
  const auto part = [&](std::size_t n) {
    return AttentionOutputs<const T>{std::as_const(output[n]).template view<4>(),
                                     std::as_const(sums[n]).template view<3>()};
  };
  merge_attention<T>({output[2].template view<4>(), sums[2].template view<3>()}, part(0), part(1));
  const auto exact = lab::attention(c.inputs(), c.options()).value();
  const double u = unit_of(c.storage);
  for_each_index(exact.output.view<4>().extents, [&](const auto& i) {
    const double lse = exact.log_sum_exp(i[0], i[1], i[2]);
    double lse_error = 4 * u * (1 + std::fabs(lse)), error = 0;
    for (const auto& bound : bounds) {
      lse_error += bound.log_sum_exp(i[0], i[1], i[2]);
      error = std::max(error, bound.output(i[0], i[1], i[2], i[3]));
    }
    EXPECT_TRUE(within(widened(sums[2](i[0], i[1], i[2])), lse, lse_error));
    EXPECT_TRUE(within(widened(output[2](i[0], i[1], i[2], i[3])),
                       exact.output(i[0], i[1], i[2], i[3]),
                       (error + 2 * (2 * lse_error + 4 * u)) * (1 + u)));  // values up to 2
  });
}

TEST(Attention, RangesOfKeysMergeIntoTheWhole) {
  for (std::uint64_t n = 0; n < 12; ++n) {
    Random random(seed, 100 + n);
    const std::int64_t S = random.between(2, 300);
    for (const DType storage : {DType::f32, DType::f64}) {
      EngineCase c{.seed = seed + n, .storage = storage, .bias_storage = storage};
      c.query = stored_tensor(random, {1, 2, 3, 6}, 2, storage);
      c.key = stored_tensor(random, {1, 1, S, 6}, 2, storage);
      c.value = stored_tensor(random, {1, 1, S, 4}, 2, storage);
      SCOPED_TRACE(name_of_case(c, Isa::portable));
      const std::int64_t cut = random.between(1, S - 1);
      if (storage == DType::f64) {
        expect_merged<double>(c, cut);
      } else {
        expect_merged<float>(c, cut);
      }
    }
  }
}

TEST(Attention, MergingWithNothingChangesNoBit) {
  Tensor<float> some({1, 1, 1, 3}, std::vector<float>{0.1F, -2.5F, 3e-5F}), none({1, 1, 1, 3});
  Tensor<float> lse({1, 1, 1}, std::vector<float>{0.7F});
  Tensor<float> empty({1, 1, 1}, std::vector<float>{static_cast<float>(-engine_infinity)});
  const AttentionOutputs<const float> a{std::as_const(some).view<4>(),
                                        std::as_const(lse).view<3>()};
  const AttentionOutputs<const float> b{std::as_const(none).view<4>(),
                                        std::as_const(empty).view<3>()};
  for (const bool swap : {false, true}) {
    Tensor<float> output({1, 1, 1, 3}), sums({1, 1, 1});
    merge_attention<float>({output.view<4>(), sums.view<3>()}, swap ? b : a, swap ? a : b);
    for (std::size_t e = 0; e < 3; ++e) EXPECT_EQ(output.elements()[e], some.elements()[e]);
    EXPECT_EQ(sums(0, 0, 0), 0.7F);
  }
  // Case A16 of the field: natural logarithms, not base 2.
  Tensor<double> o1({1, 1, 1, 1}, std::vector<double>{2}),
      o2({1, 1, 1, 1}, std::vector<double>{10});
  Tensor<double> l1({1, 1, 1}, std::vector<double>{std::numbers::ln2});
  Tensor<double> l2({1, 1, 1}, std::vector<double>{2 * std::numbers::ln2});
  Tensor<double> output({1, 1, 1, 1}), sums({1, 1, 1});
  merge_attention<double>({output.view<4>(), sums.view<3>()},
                          {std::as_const(o1).view<4>(), std::as_const(l1).view<3>()},
                          {std::as_const(o2).view<4>(), std::as_const(l2).view<3>()});
  EXPECT_NEAR(output(0, 0, 0, 0), 22 / 3.0, 22 / 3.0 * 8 * 0x1p-53);
  EXPECT_NEAR(sums(0, 0, 0), 1.791759469228055, 1.8 * 8 * 0x1p-53);
}

/// A weight is the output where the values are the rows of the identity: the same bound, and the
/// error of log_sum_exp that it is made of.
TEST(Attention, RowsOfWeightsAreThoseOfTheExactTier) {
  for (std::uint64_t n = 0; n < 40; ++n) {
    const EngineCase c = engine_case(seed + n, DType::f32);
    if (c.key.extent(2) > 100) continue;
    const auto exact = lab::attention(c.inputs(), c.options()).value();
    EngineCase identity = c;
    const std::int64_t S = c.key.extent(2), T = c.query.extent(2);
    identity.value = Tensor<double>({c.key.extent(0), c.key.extent(1), S, S});
    for_each_index(identity.value.view<4>().extents, [&](const auto& i) {
      identity.value(i[0], i[1], i[2], i[3]) = i[2] == i[3] ? 1 : 0;
    });
    const auto bound =
        check::engine_bound(identity.inputs(), identity.options(), {c.storage, Isa::portable})
            .value();
    with_types(c, [&]<class X, class Bias>() {
      const TypedCase<X, Bias> typed(c);
      const EngineForward forward = run_engine(c);
      Tensor<AccumulatorOf<X>> sums(forward.log_sum_exp.shape());
      for (std::size_t k = 0; k < sums.size(); ++k) {
        sums.elements()[k] = static_cast<AccumulatorOf<X>>(forward.log_sum_exp.elements()[k]);
      }
      const std::int64_t b = c.query.extent(0) - 1, h = c.query.extent(1) - 1, first = T / 2;
      const auto found = attention_weights<X, Bias>(
          typed.inputs(), typed.options, std::as_const(sums).template view<3>(),
          {.b = b, .h = h, .first_query = first, .queries = T - first});
      SCOPED_TRACE(name_of_case(c, Isa::portable));
      for (std::int64_t i = first; i < T; ++i) {
        const double lse = exact.log_sum_exp(b, h, i);
        const double more = 2 * bound.log_sum_exp(b, h, i) + 16 * 0x1p-24 * (1 + std::fabs(lse));
        for (std::int64_t j = 0; j < S; ++j) {
          const double right = exact.weights(b, h, i, j);
          const double limit = bound.output(b, h, i, j) + right * std::expm1(more);
          EXPECT_TRUE(within(static_cast<double>(found(i - first, j)), right,
                             std::isfinite(lse) ? limit : 0))
              << "weights[" << i << ", " << j << "]";
        }
      }
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace attest::test
