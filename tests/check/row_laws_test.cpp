// SPDX-License-Identifier: MIT
#include "attest/check/row_laws.h"

#include <gtest/gtest.h>

#include "attest/base/random.h"

namespace attest::check {
namespace {

AttentionCase random_call(std::uint64_t seed) {
  Random random(seed);
  AttentionCase call;
  call.query = Tensor<double>({1, 2, 4, 3});
  call.key = Tensor<double>({1, 2, 6, 3});
  call.value = Tensor<double>({1, 2, 6, 2});
  for (auto* tensor : {&call.query, &call.key, &call.value}) {
    for (double& x : tensor->elements()) x = 4 * random.bell();
  }
  call.mask = Mask::causal_bottom_right();
  return call;
}

TEST(RowLaws, HoldForTheExactTier) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    AttentionCase call = random_call(seed);
    if (seed % 2 == 1) call.sink = {0.5, -2};
    const auto trace = lab::Trace::of(call).value();
    for (const std::string& prefix : trace.heads()) {
      const RowLaws laws = row_laws(trace, prefix);
      EXPECT_TRUE(laws.row_sums && laws.non_negative && laws.hidden_zero && laws.in_hull)
          << "seed " << seed << ": " << to_text(laws);
      EXPECT_EQ(laws.rows, 4);
    }
  }
}

TEST(RowLaws, LeaveOutRowsWithoutADistribution) {
  AttentionCase call = random_call(1);
  call.mask = Mask::causal_at(-1);
  call.empty_row = EmptyRow::zero;
  const RowLaws laws = row_laws(lab::Trace::of(call).value(), "h0.");
  EXPECT_EQ(laws.rows, 3);
  EXPECT_EQ(laws.skipped, 1);
}

TEST(RowLaws, SpeakOfTheSoftmaxWhereThereIsDropout) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    AttentionCase call = random_call(seed);
    call.dropout = {0.4, seed};
    const auto trace = lab::Trace::of(call).value();
    for (const std::string& prefix : trace.heads()) {
      const RowLaws laws = row_laws(trace, prefix);
      EXPECT_EQ(laws.rows, 4);
      EXPECT_EQ(to_text(laws), "softmax-sums ok   weights>=0 ok   hidden==0 ok") << "seed " << seed;
    }
  }
}

TEST(RowLaws, SayWhichLawIsViolated) {
  RowLaws laws;
  laws.hidden_zero = false;
  EXPECT_EQ(to_text(laws), "row-sums ok   weights>=0 ok   hidden==0 VIOLATED   output-in-hull ok");
}

}  // namespace
}  // namespace attest::check
