// SPDX-License-Identifier: MIT
#include "attest/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "attest/base/error.h"

namespace attest {
namespace {

Failure failure_of(ErrorKind kind) { return {kind, "some-id", "[operation] 2 is not 3"}; }

TEST(Result, HoldsAValueOrAFailureNeverBoth) {
  Result<int> good = 7;
  EXPECT_TRUE(good);
  EXPECT_TRUE(good.has_value());
  EXPECT_EQ(*good, 7);
  *good = 8;
  EXPECT_EQ(good.value(), 8);
  const Result<int> bad = failure_of(ErrorKind::shape);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.failure().id, "some-id");
  EXPECT_EQ(bad.failure().message, "[operation] 2 is not 3");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result);
  EXPECT_EQ(**result, 5);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, ArrowReachesTheMembers) {
  Result<std::string> result = std::string("four");
  EXPECT_EQ(result->size(), 4U);
  const Result<std::string> fixed = std::string("four");
  EXPECT_EQ(fixed->size(), 4U);
}

TEST(Result, OfNothingIsSuccessOrFailure) {
  const Result<void> good;
  EXPECT_TRUE(good);
  EXPECT_NO_THROW(good.value());
  const Result<void> bad = failure_of(ErrorKind::value);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.failure().id, "some-id");
  EXPECT_THROW(bad.value(), ValueError);
}

template <class Kind>
void expect_thrown(ErrorKind kind) {
  const Result<int> bad = failure_of(kind);
  try {
    (void)bad.value();
    FAIL() << "nothing was thrown";
  } catch (const Kind& error) {
    EXPECT_EQ(error.kind(), kind);
    EXPECT_EQ(error.id(), "some-id");
    EXPECT_STREQ(error.what(), "[operation] 2 is not 3");
  }
}

TEST(Result, ValueThrowsTheErrorOfTheFailuresKind) {
  expect_thrown<ShapeError>(ErrorKind::shape);
  expect_thrown<ValueError>(ErrorKind::value);
  expect_thrown<TypeError>(ErrorKind::type);
  expect_thrown<FileError>(ErrorKind::file);
  expect_thrown<Error>(ErrorKind::file);
}

TEST(Result, EveryErrorIsARuntimeError) {
  Result<int> bad = failure_of(ErrorKind::type);
  EXPECT_THROW((void)bad.value(), std::runtime_error);
  EXPECT_THROW((void)std::move(bad).value(), Error);
}

}  // namespace
}  // namespace attest
