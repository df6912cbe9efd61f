// SPDX-License-Identifier: MIT
// Calls in bfloat16, on the sets that multiply pairs of them and on those that widen.
#include <gtest/gtest.h>

#include "attest/lab/attention.h"
#include "tests/attention/engine_cases_window.h"

namespace attest::test {
namespace {

EngineCase plain_case(std::int64_t H, std::int64_t T, std::int64_t S, std::int64_t D,
                      std::int64_t E) {
  EngineCase c{.storage = DType::bf16};
  c.query = Tensor<double>({1, H, T, D});
  c.key = Tensor<double>({1, H, S, D});
  c.value = Tensor<double>({1, H, S, E});
  return c;
}

/// Scores of a hundred thousand times 2⁻⁸ would be wrong by hundreds if query or scale were rounded
/// to bfloat16 before the product.
TEST(AttentionBFloat16, QueriesAreNotRoundedBeforeTheProduct) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed, 9);
    EngineCase c = plain_case(2, 20, 1, random.between(1, 9), 3);
    c.seed = seed;
    for (Tensor<double>* tensor : {&c.query, &c.key}) {
      for (double& x : tensor->elements()) x = static_cast<double>(random.between(-127, 127));
    }
    c.chosen.scale = random.uniform(-3, 3);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward found = run_engine(c, {.isa = isa});
      ASSERT_FALSE(found.failure);
      for_each_index(found.log_sum_exp.view<3>().extents, [&](const auto& i) {
        double dot = 0;  // of whole numbers, exact
        for (std::int64_t d = 0; d < c.query.extent(3); ++d) {
          dot += c.query(0, i[1], i[2], d) * c.key(0, i[1], 0, d);
        }
        const double score = *c.chosen.scale * dot;  // of one key, so log_sum_exp is the score
        // Rounded are: the factor, its product with the sum, and the product with log 2 or its like.
        EXPECT_LE(std::fabs(found.log_sum_exp(0, i[1], i[2]) - score),
                  4 * 0x1p-24 * std::fabs(score));
      });
    }
  }
}

/// Equal weights and small whole numbers: the mean is exact whatever the order, and so is its rounding.
TEST(AttentionBFloat16, MeansOfWholeNumbersAreExact) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed, 10);
    const std::int64_t S = std::int64_t{1} << random.between(0, 9);
    EngineCase c =
        plain_case(1, random.between(1, 70), 2 * S, random.between(1, 70), random.between(1, 70));
    c.seed = seed;
    c.layout = static_cast<Layout>(random.between(0, layouts - 1));
    c.chosen.scale = 0;
    // S of twice as many keys can be seen, at one end or scattered.
    c.visible = Tensor<bool>({1, 1, 1, 2 * S});
    const std::int64_t pattern = random.between(0, 2);
    for (std::int64_t j = 0; j < 2 * S; ++j) {
      (*c.visible)(0, 0, 0, j) = pattern == 0 ? j < S : pattern == 1 ? j >= S : j % 2 == 1;
    }
    for (double& x : c.value.elements()) x = static_cast<double>(random.between(-9, 9));
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward found =
          run_engine(c, {.isa = isa, .reproducible = Reproducible::per_row});
      ASSERT_FALSE(found.failure);
      for_each_index(found.output.view<4>().extents, [&](const auto& i) {
        double sum = 0;
        for (std::int64_t j = 0; j < 2 * S; ++j) {
          if ((*c.visible)(0, 0, 0, j)) sum += c.value(0, 0, j, i[3]);
        }
        ASSERT_EQ(found.output(0, 0, i[2], i[3]),
                  rounded_to(sum / static_cast<double>(S), DType::bf16));
      });
    }
  }
}

TEST(AttentionBFloat16, PairsAreThoseOfAbsolutePlaces) {
  for (const Isa isa : present_isas()) {
    SCOPED_TRACE(name_of(isa));
    expect_rows_alone_as_together([&](const EngineCase& c) {
      return run_engine(c, {.isa = isa, .reproducible = Reproducible::per_row});
    });
  }
}

}  // namespace
}  // namespace attest::test
