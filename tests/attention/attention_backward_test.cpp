// SPDX-License-Identifier: MIT
// What the contract of attention_backward says, one law a test.
#include <gtest/gtest.h>

#include "attest/base/threads.h"
#include "attest/lab/attention_row.h"
#include "tests/attention/engine_cases_gradients.h"
#include "tests/attention/engine_cases_seen.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20261101;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

TEST(AttentionBackward, SameBitsForAnyThreadCount) {
  ThreadPool one(1), two(2), three(3), five(5);
  for (std::uint64_t n = 0; n < 40; ++n) {
    const EngineCase c = engine_case(seed + n);
    const Flows flows = flows_for(c);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineGradients alone = run_engine_backward(c, flows, {.threads = &one, .isa = isa});
      ASSERT_FALSE(alone.failure) << alone.failure->message;
      for (ThreadPool* pool : {&two, &three, &five}) {
        ASSERT_TRUE(same_bits(alone, run_engine_backward(c, flows, {.threads = pool, .isa = isa})));
      }
    }
  }
}

/// Keys that no head of the group sees: [B, G, S].
Tensor<bool> seen_by_none(const EngineCase& c) {
  const Tensor<bool> seen = seen_by(c);
  const std::int64_t heads = c.query.extent(1) / c.key.extent(1);
  Tensor<bool> out({c.key.extent(0), c.key.extent(1), c.key.extent(2)});
  for (bool& none : out.elements()) none = true;
  for_each_index(seen.view<4>().extents, [&](const auto& i) {
    if (seen(i[0], i[1], i[2], i[3])) out(i[0], i[1] / heads, i[3]) = false;
  });
  return out;
}

/// Every sum that a bias of some shape asks of d_bias: over batches, heads, queries, keys.
TEST(AttentionBackward, SharedBiasesGetTheSameBitsForAnyThreadCount) {
  ThreadPool one(1), two(2), five(5);
  for (int axes = 0; axes < 16; ++axes) {
    Random random(seed, static_cast<std::uint64_t>(axes));
    EngineCase c{.seed = seed, .storage = DType::f32};
    c.query = stored_tensor(random, {2, 4, 200, 8}, 2, c.storage);
    c.key = stored_tensor(random, {2, 2, 230, 8}, 2, c.storage);
    c.value = stored_tensor(random, {2, 2, 230, 8}, 2, c.storage);
    const auto extent = [&](int axis, std::int64_t size) {
      return (axes >> axis & 1) != 0 ? size : 1;
    };
    c.bias = stored_tensor(random, {extent(0, 2), extent(1, 4), extent(2, 200), extent(3, 230)}, 2,
                           DType::f32);
    c.chosen.mask.key_lengths = {97, 230};  // the second batch reaches keys that the first does not
    const Flows flows = flows_for(c);
    const EngineGradients alone = run_engine_backward(c, flows, {.threads = &one});
    ASSERT_FALSE(alone.failure);
    for (int again = 0; again < 5; ++again) {
      for (ThreadPool* pool : {&two, &five}) {
        ASSERT_TRUE(same_bits(alone, run_engine_backward(c, flows, {.threads = pool})))
            << pool->threads() << " threads, axes " << axes;
      }
    }
  }
}

/// Rows are cut into blocks where documents begin; a boolean mask that says the same cuts nothing.
TEST(AttentionBackward, DocumentsAndTheirBooleanMaskGiveTheSameBits) {
  ThreadPool two(2);
  const std::vector<std::int64_t> starts{0, 1, 131, 171, 171, 202, 207, 227, 291, 420};
  const std::int64_t length = starts.back();
  Random random(seed, 9);
  EngineCase c{.seed = seed, .storage = DType::f32};
  c.query = stored_tensor(random, {1, 4, length, 8}, 2, c.storage);
  c.key = stored_tensor(random, {1, 2, length, 8}, 2, c.storage);
  c.value = stored_tensor(random, {1, 2, length, 8}, 2, c.storage);
  EngineCase packed = c, named = c, shown = c;
  packed.chosen.mask.packing = {starts, starts};
  shown.visible = Tensor<bool>({1, 1, length, length});
  for (std::size_t n = 0; n + 1 < starts.size(); ++n) {
    for (std::int64_t i = starts[n]; i < starts[n + 1]; ++i) {
      named.chosen.mask.documents.query.push_back(static_cast<std::int64_t>(n));
      for (std::int64_t j = starts[n]; j < starts[n + 1]; ++j) (*shown.visible)(0, 0, i, j) = true;
    }
  }
  named.chosen.mask.documents.key = named.chosen.mask.documents.query;
  const Flows flows = flows_for(c);
  for (const Isa isa : present_isas()) {
    const Execution execution{.threads = &two, .isa = isa};
    const EngineForward forward = run_engine(shown, execution);
    const EngineGradients backward = run_engine_backward(shown, flows, execution);
    ASSERT_FALSE(forward.failure || backward.failure);
    for (const EngineCase& other : {packed, named}) {
      EXPECT_TRUE(same_bits(forward, run_engine(other, execution)));
      EXPECT_TRUE(same_bits(backward, run_engine_backward(other, flows, execution)));
    }
  }
}

TEST(AttentionBackward, KeysThatNobodySeesNeverMatterAndGetExactZeros) {
  const double poisons[] = {not_a_number, engine_infinity, -engine_infinity};
  std::int64_t hidden = 0;
  for (std::uint64_t n = 0; n < 60; ++n) {
    const EngineCase c = engine_case(seed + 100 + n);
    const Flows flows = flows_for(c);
    const Tensor<bool> none = seen_by_none(c);
    EngineCase bad = c;
    for_each_index(none.view<3>().extents, [&](const auto& i) {
      if (!none(i[0], i[1], i[2])) return;
      const double poison = poisons[++hidden % 3];
      for (std::int64_t d = 0; d < c.key.extent(3); ++d) bad.key(i[0], i[1], i[2], d) = poison;
      for (std::int64_t e = 0; e < c.value.extent(3); ++e) bad.value(i[0], i[1], i[2], e) = poison;
    });
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineGradients found = run_engine_backward(bad, flows, {.isa = isa});
      ASSERT_TRUE(same_bits(run_engine_backward(c, flows, {.isa = isa}), found));
      for_each_index(none.view<3>().extents, [&](const auto& i) {
        if (!none(i[0], i[1], i[2])) return;
        for (std::int64_t d = 0; d < c.key.extent(3); ++d) {
          ASSERT_EQ(found.d_key(i[0], i[1], i[2], d), 0);
        }
        for (std::int64_t e = 0; e < c.value.extent(3); ++e) {
          ASSERT_EQ(found.d_value(i[0], i[1], i[2], e), 0);
        }
      });
    }
  }
  EXPECT_GT(hidden, 100);
}

/// The row's NaN is in the same blocks as the rows that must not notice.
TEST(AttentionBackward, ANaNInOneRowReachesOnlyTheKeysThatItSees) {
  std::int64_t untouched = 0;
  for (std::uint64_t n = 0; n < 80; ++n) {
    const EngineCase c = engine_case(seed + 200 + n);
    const Flows flows = flows_for(c);
    Flows bad = flows;
    Random random(seed + n, 4);
    const auto draw = [&](std::size_t axis) { return random.between(0, c.query.extent(axis) - 1); };
    const std::int64_t b = draw(0), h = draw(1), row = draw(2);
    for (std::int64_t e = 0; e < c.value.extent(3); ++e) bad.d_output(b, h, row, e) = not_a_number;
    const Tensor<bool> seen = seen_by(c);
    const std::int64_t own_group = h / (c.query.extent(1) / c.key.extent(1));
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineGradients clean = run_engine_backward(c, flows, {.isa = isa});
      const EngineGradients found = run_engine_backward(c, bad, {.isa = isa});
      for_each_index(clean.d_query.view<4>().extents, [&](const auto& i) {
        if (i[0] == b && i[1] == h && i[2] == row) return;
        ASSERT_TRUE(same_bits(found.d_query(i[0], i[1], i[2], i[3]),
                              clean.d_query(i[0], i[1], i[2], i[3])));
      });
      const auto compare = [&](const Tensor<double>& with, const Tensor<double>& without) {
        for_each_index(without.view<4>().extents, [&](const auto& i) {
          if (i[0] == b && i[1] == own_group && seen(b, h, row, i[2])) return;
          ++untouched;
          ASSERT_TRUE(same_bits(with(i[0], i[1], i[2], i[3]), without(i[0], i[1], i[2], i[3])))
              << "key " << i[2] << " is not seen by row " << row;
        });
      };
      compare(found.d_key, clean.d_key);
      compare(found.d_value, clean.d_value);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(untouched, 10000);
}

TEST(AttentionBackward, RowsThatSeeNothingGiveZeroGradientsOrFail) {
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    EngineCase c{.seed = seed, .storage = storage};
    Random random(seed, 8);
    c.query = stored_tensor(random, {1, 2, 4, 3}, 1, storage);
    c.key = stored_tensor(random, {1, 1, 2, 3}, 1, storage);
    c.value = stored_tensor(random, {1, 1, 2, 5}, 1, storage);
    c.chosen.mask = Mask::causal_bottom_right();  // the first two rows see nothing
    const Flows flows = flows_for(c);
    for (const Isa isa : present_isas()) {
      for (const EmptyRow policy : {EmptyRow::zero, EmptyRow::nan}) {
        c.chosen.empty_row = policy;
        const EngineGradients found = run_engine_backward(c, flows, {.isa = isa});
        ASSERT_FALSE(found.failure);
        for_each_index(found.d_query.view<4>().extents, [&](const auto& i) {
          const double x = found.d_query(i[0], i[1], i[2], i[3]);
          EXPECT_TRUE(i[2] < 2 ? x == 0 : std::isfinite(x));
        });
        for (const double x : found.d_key.elements()) EXPECT_TRUE(std::isfinite(x));
        for (const double x : found.d_value.elements()) EXPECT_TRUE(std::isfinite(x));
      }
      c.chosen.empty_row = EmptyRow::error;
      EXPECT_TRUE(run_engine_backward(c, flows, {.isa = isa}).failure);
    }
  }
}

/// With equal scores of one or two keys every number of the calculation is a small multiple of a
/// power of two.
TEST(AttentionBackward, SmallWholeNumbersGiveEqualBits) {
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    EngineCase c{.seed = seed, .storage = storage};
    c.query = Tensor<double>({1, 1, 1, 1}, std::vector<double>{2});
    c.key = Tensor<double>({1, 1, 2, 1}, std::vector<double>{0, 0});
    c.value = Tensor<double>({1, 1, 2, 1}, std::vector<double>{1, 5});
    c.chosen.scale = 0.5;
    Flows flows{Tensor<double>({1, 1, 1, 1}, std::vector<double>{4}), Tensor<double>({1, 1, 1})};
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineGradients found = run_engine_backward(c, flows, {.isa = isa});
      // weights ½, ½; d_weights 4, 20; delta 12. log_sum_exp = log 2 is rounded, so the weights are ½
      // to a few roundings only: d_value = 2 and d_scores = ∓4 to 8 of them.
      const double u = storage == DType::f64   ? 0x1p-53
                       : storage == DType::f32 ? 0x1p-24
                       : storage == DType::f16 ? 0x1p-11
                                               : 0x1p-8;
      EXPECT_NEAR(found.d_value(0, 0, 0, 0), 2, 2 * 8 * u);
      EXPECT_NEAR(found.d_key(0, 0, 0, 0), -4, 4 * 8 * u);
      EXPECT_NEAR(found.d_key(0, 0, 1, 0), 4, 4 * 8 * u);
      EXPECT_EQ(found.d_query(0, 0, 0, 0), 0);  // both keys are 0
    }
  }
}

}  // namespace
}  // namespace attest::test
