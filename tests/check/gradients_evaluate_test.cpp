// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>

#include "attest/base/text.h"
#include "attest/check/gradients/evaluate.h"
#include "attest/check/gradients/judge.h"
#include "tests/check/gradients_program.h"
#include "tests/support/random_case.h"

namespace attest::test {
namespace {

using namespace check::gradients;

GradientDump random_dump(std::uint64_t seed) {
  Random random(seed, 1);
  GradientDump out;
  out.claim.call = random_case(seed);
  out.claim.precision = check::Precision::f64;
  const AttentionCase& call = out.claim.call;
  const std::int64_t B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  out.d_output = random_tensor(random, {B, H, T, call.value.extent(3)});
  if (random.between(0, 1) == 0) out.d_log_sum_exp = random_tensor(random, {B, H, T});
  if (random.between(0, 3) == 0) out.claim.call.dropout = {.rate = 0.3, .seed = seed};
  if (call.query.extent(3) % 2 == 0 && random.between(0, 1) == 0) {
    check::RopeClaim rope;
    rope.config.pairing = random.between(0, 1) == 0 ? RopePairing::half : RopePairing::interleaved;
    for (std::int64_t i = 0; i < T; ++i) rope.query_positions.push_back(random.between(0, 9));
    for (std::int64_t j = 0; j < B * call.key.extent(2); ++j) {
      rope.key_positions.push_back(random.between(0, 9));
    }
    out.claim.rope = rope;
  }
  return out;
}

TEST(GradientRecipe, TheClaimsOwnGivesTheExactTiersGradients) {
  std::int64_t compared = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    const GradientDump dump = random_dump(seed);
    SCOPED_TRACE(describe(seed, dump.claim.call));
    const auto exact = exact_gradients(dump);
    ASSERT_TRUE(exact) << exact.failure().message;
    const Problem problem(dump);
    const Noise noise = Noise::of(check::Precision::f64);
    const AllCells cells = whole_pass(problem, noise, {});
    for (std::size_t of = 0; of < cells.size(); ++of) {
      const auto numbers = (*exact)[of].elements();
      ASSERT_EQ(numbers.size(), cells[of].value.size()) << of;
      for (std::size_t n = 0; n < numbers.size(); ++n) {
        ASSERT_LE(used(cells[of].value[n], numbers[n], deviations * cells[of].noise[n] + 0x1p-1060),
                  1)
            << of << " #" << n << " " << cells[of].value[n] << " " << numbers[n];
        ++compared;
      }
    }
  }
  std::printf("%lld numbers compared\n", static_cast<long long>(compared));
}

TEST(GradientRecipe, ASampleHasTheNumbersOfTheWhole) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const GradientDump dump = random_dump(seed);
    SCOPED_TRACE(describe(seed, dump.claim.call));
    const Problem problem(dump);
    const Noise noise = Noise::of(check::Precision::f64);
    const AllCells whole = whole_pass(problem, noise, {});
    const std::int64_t T = problem.shape.T, S = problem.shape.S;
    const Sample sample{.rows = {T / 2}, .keys = {S - 1}};
    const auto cells = evaluate(make_workspace(problem, noise, sample), {});
    ASSERT_TRUE(cells);
    const bool sampled = T > 1 || S > 1;
    const auto& bias = dump.claim.call.bias;
    const bool one_number = bias && bias->extent(2) == 1 && T > 1 && bias->extent(3) == 1;
    for (std::size_t of = 0; of < whole.size(); ++of) {
      if (of == 3 && one_number && sampled) {  // that no sample has
        EXPECT_TRUE((*cells)[of].value.empty());
        continue;
      }
      const auto at = places(problem, sample, {}, static_cast<GradientOf>(of));
      ASSERT_EQ(at.size(), (*cells)[of].value.size());
      for (std::size_t n = 0; n < at.size(); ++n) {
        ASSERT_EQ((*cells)[of].value[n], whole[of].value[at[n]]) << of << " #" << n;
        ASSERT_EQ((*cells)[of].noise[n], whole[of].noise[at[n]]) << of << " #" << n;
      }
    }
  }
}

/// 70 queries are more than are worked on at once; what is carried from run to run must not show.
TEST(GradientRecipe, LongCallsAreTheExactTiersToo) {
  Random random(4);
  GradientDump dump;
  AttentionCase& call = dump.claim.call;
  dump.claim.precision = check::Precision::f64;
  const std::int64_t B = 2, H = 4, G = 2, T = 70, S = 75, D = 11, E = 9;
  call.query = random_tensor(random, {B, H, T, D});
  call.key = random_tensor(random, {B, G, S, D});
  call.value = random_tensor(random, {B, G, S, E});
  call.bias = random_tensor(random, {1, H, T, S});
  call.sink.assign(H, 0.5);
  call.mask = Mask::causal_bottom_right();
  dump.d_output = random_tensor(random, {B, H, T, E});
  const auto exact = exact_gradients(dump);
  ASSERT_TRUE(exact) << exact.failure().message;
  const Problem problem(dump);
  const Noise noise = Noise::of(check::Precision::f64);
  const AllCells cells = whole_pass(problem, noise, {});
  for (std::size_t of = 0; of < cells.size(); ++of) {
    ASSERT_EQ((*exact)[of].size(), cells[of].value.size());
    for (std::size_t n = 0; n < cells[of].value.size(); ++n) {
      ASSERT_LE(used(cells[of].value[n], (*exact)[of].elements()[n],
                     deviations * cells[of].noise[n] + 0x1p-1060),
                1)
          << of << " #" << n;
    }
  }
  // What needs another query, or another head's, on the way.
  const Sample all = everything(problem.shape);
  const Workspace workspace = make_workspace(problem, noise, all);
  for (const RowsTerm rows : {RowsTerm::per_key, RowsTerm::first_row, RowsTerm::first_head}) {
    const GradientRecipe recipe{.rows = rows};
    const AllCells streamed = whole_pass(problem, noise, recipe);
    const auto held = evaluate(workspace, recipe);
    ASSERT_TRUE(held);
    for (std::size_t of = 0; of < streamed.size(); ++of) {
      for (std::size_t n = 0; n < streamed[of].value.size(); ++n) {
        ASSERT_LE(used(streamed[of].value[n], (*held)[of].value[n],
                       deviations * (*held)[of].noise[n] + 0x1p-1060),
                  1)
            << static_cast<int>(rows) << ": " << of << " #" << n;
      }
    }
  }
}

TEST(GradientRecipe, TheTestsProgramIsRight) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const GradientDump dump = random_dump(seed);
    SCOPED_TRACE(describe(seed, dump.claim.call));
    Program<double> program(dump);
    program.run();
    const auto exact = exact_gradients(dump);
    ASSERT_TRUE(exact) << exact.failure().message;
    const AllCells noise = whole_pass(Problem(dump), Noise::of(check::Precision::f64), {});
    for (const ObservedGradient& own : program.gradients()) {
      const auto of = static_cast<std::size_t>(own.of);
      for (std::size_t n = 0; n < own.values.size(); ++n) {
        ASSERT_LE(used(own.values.elements()[n], (*exact)[of].elements()[n],
                       deviations * noise[of].noise[n] + 0x1p-1060),
                  1)
            << own.name << " #" << n;
      }
    }
  }
}

}  // namespace
}  // namespace attest::test
