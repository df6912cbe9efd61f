// SPDX-License-Identifier: MIT
// What hides stays hidden, what is empty stays defined, what is wrong is named.
#include <gtest/gtest.h>

#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"
#include "tests/attention/engine_cases_seen.h"
#include "tests/attention/engine_cases_typed.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20260901;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Puts `poison` into key j and value j of every head of batch b.
EngineCase poisoned(EngineCase c, std::int64_t b, std::int64_t j, double poison) {
  for (std::int64_t g = 0; g < c.key.extent(1); ++g) {
    for (std::int64_t d = 0; d < c.key.extent(3); ++d) c.key(b, g, j, d) = poison;
    for (std::int64_t e = 0; e < c.value.extent(3); ++e) c.value(b, g, j, e) = poison;
  }
  return c;
}

TEST(Edge, HiddenNaNAndInfinityNeverLeak) {
  std::int64_t untouched = 0, reached = 0;
  for (std::uint64_t n = 0; n < 120; ++n) {
    const EngineCase c = engine_case(seed + n);
    Random random(seed + n, 5);
    const std::int64_t b = random.between(0, c.query.extent(0) - 1);
    const std::int64_t j = random.between(0, c.key.extent(2) - 1);
    const double poisons[] = {not_a_number, engine_infinity, -engine_infinity};
    const double poison = poisons[random.between(0, 2)];
    const Tensor<bool> seen = seen_by(c);
    const EngineCase bad = poisoned(c, b, j, poison);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward clean = run_engine(c, {.isa = isa});
      const EngineForward found = run_engine(bad, {.isa = isa});
      ASSERT_FALSE(clean.failure || found.failure);
      for_each_index(clean.log_sum_exp.view<3>().extents, [&](const auto& i) {
        if (i[0] == b && seen(i[0], i[1], i[2], j)) {
          const bool nan_key = std::isnan(poison) && c.chosen.scale.value_or(1) != 0;
          ASSERT_TRUE(!nan_key || std::isnan(found.log_sum_exp(i[0], i[1], i[2])));
          ++reached;
          return;
        }
        ++untouched;
        ASSERT_TRUE(
            same_bits(found.log_sum_exp(i[0], i[1], i[2]), clean.log_sum_exp(i[0], i[1], i[2])))
            << "row " << i[0] << ", " << i[1] << ", " << i[2] << " does not see key " << j;
        for (std::int64_t e = 0; e < c.value.extent(3); ++e) {
          ASSERT_TRUE(
              same_bits(found.output(i[0], i[1], i[2], e), clean.output(i[0], i[1], i[2], e)))
              << "row " << i[0] << ", " << i[1] << ", " << i[2] << " does not see key " << j;
        }
      });
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(untouched, 1000);
  EXPECT_GT(reached, 1000);
}

/// A diagonal of infinities in values: each is inside the block that its neighbours read.
TEST(Edge, AnInfiniteValueReachesOnlyTheRowsThatSeeIt) {
  constexpr std::int64_t length = 150;
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Random random(seed, 9);
    EngineCase c{.seed = seed, .storage = storage};
    c.query = stored_tensor(random, {1, 1, length, 9}, 1, storage);
    c.key = stored_tensor(random, {1, 1, length, 9}, 1, storage);
    c.value = stored_tensor(random, {1, 1, length, 5}, 1, storage);
    c.value(0, 0, 77, 3) = engine_infinity;
    c.chosen.mask = Mask::causal();
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward found = run_engine(c, {.isa = isa});
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t e = 0; e < 5; ++e) {
          const double x = found.output(0, 0, i, e);
          EXPECT_EQ(x == engine_infinity, i >= 77 && e == 3) << i << ", " << e << ": " << x;
          EXPECT_EQ(std::isfinite(x), i < 77 || e != 3);
        }
      }
    }
  }
}

EngineCase small_case(DType storage) {
  Random random(seed, 11);
  EngineCase c{.seed = seed, .storage = storage};
  if (storage == DType::f64) c.bias_storage = DType::f64;
  c.query = stored_tensor(random, {1, 2, 3, 4}, 1, storage);
  c.key = stored_tensor(random, {1, 2, 5, 4}, 1, storage);
  c.value = stored_tensor(random, {1, 2, 5, 3}, 1, storage);
  return c;
}

constexpr DType storages[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

TEST(Edge, ABiasOfMinusInfinityHidesWhateverTheScore) {
  for (const DType storage : storages) {
    EngineCase c = small_case(storage);
    c.bias = Tensor<double>({1, 1, 1, 5});
    (*c.bias)(0, 0, 0, 2) = -engine_infinity;
    EngineCase masked = c;
    masked.bias = Tensor<double>({1, 1, 1, 5});
    masked.visible = Tensor<bool>({1, 1, 1, 5});
    for (std::int64_t j = 0; j < 5; ++j) (*masked.visible)(0, 0, 0, j) = j != 2;
    const EngineCase bad = poisoned(c, 0, 2, not_a_number);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward by_mask = run_engine(masked, {.isa = isa});
      EXPECT_TRUE(same_bits(run_engine(c, {.isa = isa}), by_mask));
      EXPECT_TRUE(same_bits(run_engine(bad, {.isa = isa}), by_mask));
    }
    // All of them hidden so: the row is empty.
    for (double& x : c.bias->elements()) x = -engine_infinity;
    EXPECT_EQ(run_engine(c).failure.value_or(Failure{}).id, "no-visible-key");
    c.chosen.empty_row = EmptyRow::zero;
    const EngineForward zero = run_engine(c);
    for (const double x : zero.output.elements()) EXPECT_TRUE(same_bits(x, 0.0));
    for (const double x : zero.log_sum_exp.elements()) EXPECT_EQ(x, -engine_infinity);
    c.chosen.empty_row = EmptyRow::nan;
    const EngineForward nan = run_engine(c);
    for (const double x : nan.output.elements()) EXPECT_TRUE(std::isnan(x));
    for (const double x : nan.log_sum_exp.elements()) EXPECT_EQ(x, -engine_infinity);
  }
}

TEST(Edge, APlusInfiniteOrNaNScoreMakesItsRowNaNAndNoOther) {
  for (const DType storage : storages) {
    for (const double loud : {engine_infinity, not_a_number}) {
      EngineCase c = small_case(storage);
      c.bias = Tensor<double>({1, 1, 3, 5});
      (*c.bias)(0, 0, 1, 4) = loud;
      for (const Isa isa : present_isas()) {
        SCOPED_TRACE(name_of_case(c, isa));
        const EngineForward found = run_engine(c, {.isa = isa});
        ASSERT_FALSE(found.failure) << found.failure->message;
        for_each_index(found.output.view<4>().extents, [&](const auto& i) {
          EXPECT_EQ(std::isnan(found.output(i[0], i[1], i[2], i[3])), i[2] == 1);
        });
      }
    }
  }
}

TEST(Edge, EmptyExtentsAreFine) {
  for (const DType storage : storages) {
    for (int axis = 0; axis < 3; ++axis) {  // B, T, S
      EngineCase c = small_case(storage);
      const std::int64_t B = axis == 0 ? 0 : 1, T = axis == 1 ? 0 : 3, S = axis == 2 ? 0 : 5;
      c.query = Tensor<double>({B, 2, T, 4});
      c.key = Tensor<double>({B, 2, S, 4});
      c.value = Tensor<double>({B, 2, S, 3});
      for (const Isa isa : present_isas()) {
        SCOPED_TRACE(name_of_case(c, isa));
        const EngineForward found = run_engine(c, {.isa = isa});
        EXPECT_EQ(found.failure.has_value(), axis == 2);
        EXPECT_EQ(found.output.size(), static_cast<std::size_t>(B * 2 * T * 3));
        c.chosen.empty_row = EmptyRow::zero;
        const EngineForward zero = run_engine(c, {.isa = isa});
        ASSERT_FALSE(zero.failure) << zero.failure->message;
        for (const double x : zero.output.elements()) EXPECT_TRUE(same_bits(x, 0.0));
        c.chosen.empty_row = EmptyRow::error;
      }
    }
  }
}

/// The engine refuses what the exact tier refuses, by the same id.
TEST(Edge, WrongOptionsAreNamedAsTheExactTierNamesThem) {
  std::vector<EngineCase> wrong(10, small_case(DType::f32));
  wrong[0].key = Tensor<double>({1, 2, 4, 4});      // S
  wrong[1].key = Tensor<double>({1, 2, 5, 3});      // D
  wrong[2].chosen.mask = Mask::causal();            // T ≠ S
  wrong[3].chosen.softcap = 0;                      // > 0
  wrong[4].chosen.scale = not_a_number;             // finite
  wrong[5].chosen.sink = {1};                       // [H]
  wrong[6].visible = Tensor<bool>({1, 1, 2, 5});    // broadcasts
  wrong[7].chosen.mask.key_lengths = {6};           // ≤ S
  wrong[8].chosen.dropout.rate = 1;                 // < 1
  wrong[9].chosen.mask.packing = {{0, 3}, {0, 4}};  // ends with S
  for (std::size_t n = 0; n < wrong.size(); ++n) {
    const auto exact = lab::attention(wrong[n].inputs(), wrong[n].options());
    const EngineForward found = run_engine(wrong[n]);
    ASSERT_FALSE(exact) << n;
    ASSERT_TRUE(found.failure) << n;
    EXPECT_EQ(found.failure->id, exact.failure().id) << n << ": " << found.failure->message;
    EXPECT_EQ(found.failure->message.rfind("[attention] ", 0), 0U) << found.failure->message;
  }
}

}  // namespace
}  // namespace attest::test
