// SPDX-License-Identifier: MIT
// attest/check/gtest.h inside a GoogleTest program.
#include "attest/check/gtest.h"

#if __has_include(<gmock/gmock.h>)
#include <gmock/gmock.h>
#endif

#include <sstream>

#include "attest/base/random.h"
#include "attest/lab/attention.h"

namespace attest::check {
namespace {

Dump dump_with(const Mask& made, const Mask& claimed) {
  Random random(3);
  AttentionCase call;
  call.query = Tensor<double>({1, 3, 4, 5});
  call.key = Tensor<double>({1, 3, 7, 5});
  call.value = Tensor<double>({1, 3, 7, 6});
  for (Tensor<double>* each : {&call.query, &call.key, &call.value}) {
    for (double& x : each->elements()) x = static_cast<float>(random.bell());
  }
  call.mask = made;
  const auto output = lab::attention(call.inputs(), call.options()).value().output;
  call.mask = claimed;
  return dump_of(std::move(call), output);
}

const Mask first = Mask::causal_top_left();
const Mask last = Mask::causal_bottom_right();

TEST(GoogleTestMatcher, PassesRightAttentionAlone) {
  EXPECT_TRUE(is_right(dump_with(last, last)));
  EXPECT_FALSE(is_right(dump_with(first, last)));
}

TEST(GoogleTestMatcher, TakesOutputsInFloat) {
  const Dump wide = dump_with(last, last);
  const Tensor<double>& numbers = wide.stages[0].values;
  Tensor<float> output(numbers.shape());
  for (std::size_t n = 0; n < output.size(); ++n) {
    output.data()[n] = static_cast<float>(numbers.data()[n]);
  }
  EXPECT_TRUE(is_right(dump_of(wide.claim.call, output)));
  output.data()[5] += 0.25F;
  EXPECT_FALSE(is_right(dump_of(wide.claim.call, output)));
}

TEST(GoogleTestMatcher, AFailurePrintsTheDiagnosis) {
  const testing::AssertionResult result = is_right(dump_with(first, last));
  EXPECT_NE(std::string(result.message()).find("causal.top_left"), std::string::npos)
      << result.message();
}

TEST(GoogleTestMatcher, NamesAMistake) {
  EXPECT_TRUE(is_explained_by(dump_with(first, last), "causal.top_left"));
  EXPECT_FALSE(is_explained_by(dump_with(first, last), "mask.inverted"));
  EXPECT_FALSE(is_explained_by(dump_with(last, last), "causal.top_left"));
}

TEST(GoogleTestMatcher, ANameMayLeaveOutItsValue) {
  // Three keys more than queries: top-left is the corner of the last key, moved by -3.
  EXPECT_TRUE(is_explained_by(dump_with(first, last), "causal.offset_by"));
  EXPECT_TRUE(is_explained_by(dump_with(first, last), "causal.offset_by (-3)"));
  EXPECT_FALSE(is_explained_by(dump_with(first, last), "causal.offset_by (-2)"));
}

TEST(GoogleTestMatcher, SaysThatANameIsUnknown) {
  const testing::AssertionResult result = is_explained_by(dump_with(first, last), "causal.topleft");
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("there is no mistake 'causal.topleft'"),
            std::string::npos)
      << result.message();
}

TEST(GoogleTestMatcher, WhatCannotBeJudgedDoesNotPass) {
  Dump dump = dump_with(last, last);
  dump.claim.call.mask = Mask::causal();  // T is not S
  const testing::AssertionResult result = is_right(dump);
  EXPECT_FALSE(result);
  EXPECT_NE(std::string(result.message()).find("cannot be judged"), std::string::npos);
}

#if __has_include(<gmock/gmock.h>)
TEST(GoogleTestMatcher, WorksAsAGoogleMockMatcher) {
  EXPECT_THAT(dump_with(last, last), IsRight());
  EXPECT_THAT(dump_with(first, last), testing::Not(IsRight()));
  EXPECT_THAT(dump_with(first, last), IsExplainedBy("causal.top_left"));
}
#endif

}  // namespace
}  // namespace attest::check
