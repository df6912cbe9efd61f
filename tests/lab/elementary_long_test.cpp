// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/lab/elementary_reference.h"

// The same comparison with MPFR as in elementary_test.cpp, over many more arguments. The count for
// exp can be set through ATTEST_LONG_COUNT; the other functions get a tenth of it.
namespace attest::lab::testing {
namespace {

constexpr std::uint64_t round_size = 1'000'000;

/// Calls compare(size, round) until enough has been compared.
template <typename Compare>
void expect_correct_on_many_arguments(const char* name, std::uint64_t count,
                                      const Compare& compare) {
  Findings found;
  // Rounds from 1000 on: other arguments than those of the short test.
  for (std::uint64_t round = 1000; found.compared < count; ++round) {
    const std::uint64_t left = count - found.compared;
    const std::uint64_t size = left < round_size ? left + left % 2 : round_size;
    found.add(compare(size, round));
    if ((round - 999) % 10 == 0 || found.compared >= count) {
      std::printf("%s: %llu of %llu compared, %llu wrong\n", name,
                  static_cast<unsigned long long>(found.compared),
                  static_cast<unsigned long long>(count),
                  static_cast<unsigned long long>(found.wrong));
      std::fflush(stdout);
    }
    if (found.wrong != 0) break;
  }
  EXPECT_EQ(found.wrong, 0U) << found.message;
}

std::uint64_t long_count() { return number_from_environment("ATTEST_LONG_COUNT", 100'000'000); }

void expect_correct_on_many_arguments(const char* name, std::uint64_t count) {
  const Subject& s = subject(name);
  expect_correct_on_many_arguments(name, count, [&s](std::uint64_t size, std::uint64_t round) {
    return compare_with_reference(s, size, round);
  });
}

TEST(ExpLong, IsCorrectlyRoundedOnManyArguments) {
  expect_correct_on_many_arguments("exp", long_count());
}

class OthersLong : public ::testing::TestWithParam<const char*> {};

TEST_P(OthersLong, AreCorrectlyRoundedOnManyArguments) {
  expect_correct_on_many_arguments(GetParam(), long_count() / 10);
}

std::string name_of(const ::testing::TestParamInfo<const char*>& parameter) {
  return parameter.param;
}

INSTANTIATE_TEST_SUITE_P(Elementary, OthersLong,
                         ::testing::Values("exp2", "expm1", "log", "tanh", "sech_squared", "erf",
                                           "normal_density", "sin", "cos"),
                         name_of);

TEST(RationalPowerLong, IsCorrectlyRoundedOnManyArguments) {
  expect_correct_on_many_arguments("rational_power", long_count() / 10,
                                   compare_powers_with_reference);
}

}  // namespace
}  // namespace attest::lab::testing
