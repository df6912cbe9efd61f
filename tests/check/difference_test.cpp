// SPDX-License-Identifier: MIT
#include "attest/check/difference.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "attest/io/json.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t farthest = std::numeric_limits<std::uint64_t>::max();

Tensor<double> row(std::initializer_list<double> numbers) {
  return Tensor<double>({static_cast<std::int64_t>(numbers.size())}, std::vector<double>(numbers));
}
DifferenceReport compare_rows(const AnyTensor& a, const AnyTensor& b,
                              const DifferenceOptions& options = {}) {
  return compare({{"weights", a}}, {{"weights", b}}, options);
}

TEST(UlpDistance, CountsStepsAcrossZeroAndBinades) {
  const double least = 0x1p-1074;
  EXPECT_EQ(ulp_distance(1, 1, DType::f64), 0U);
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-52, DType::f64), 1U);
  EXPECT_EQ(ulp_distance(1, 1 - 0x1p-53, DType::f64), 1U) << "below 1 the steps are half as long";
  EXPECT_EQ(ulp_distance(1 - 0x1p-53, 1 + 0x1p-52, DType::f64), 2U);
  EXPECT_EQ(ulp_distance(0.0, -0.0, DType::f64), 0U);
  EXPECT_EQ(ulp_distance(0.0, least, DType::f64), 1U);
  EXPECT_EQ(ulp_distance(-least, least, DType::f64), 2U);
  EXPECT_EQ(ulp_distance(1, 2, DType::f64), std::uint64_t{1} << 52U);
  EXPECT_EQ(ulp_distance(-1, 1, DType::f64), 2 * 0x3FF0000000000000U);
  EXPECT_EQ(ulp_distance(2, 1, DType::f64), ulp_distance(1, 2, DType::f64));
}

TEST(UlpDistance, UsesTheGridOfTheType) {
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-23, DType::f32), 1U);
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-30, DType::f32), 0U) << "both round to 1";
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-10, DType::f16), 1U);
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-7, DType::bf16), 1U);
  EXPECT_EQ(ulp_distance(-0x1p-24, 0x1p-24, DType::f16), 2U) << "the least f16, across zero";
  EXPECT_EQ(coarser_of(DType::f64, DType::f32), DType::f32);
  EXPECT_EQ(coarser_of(DType::f16, DType::bf16), DType::bf16);
  EXPECT_EQ(coarser_of(DType::i64, DType::f32), DType::f32);
}

TEST(UlpDistance, IsTheLargestForNaNAndInfinity) {
  EXPECT_EQ(ulp_distance(nan, nan, DType::f64), farthest);
  EXPECT_EQ(ulp_distance(1, infinity, DType::f64), farthest);
  EXPECT_EQ(ulp_distance(-infinity, infinity, DType::f64), farthest);
  EXPECT_EQ(ulp_distance(infinity, infinity, DType::f64), 0U);
  EXPECT_LT(ulp_distance(-1.7e308, 1.7e308, DType::f64), farthest);
}

TEST(Difference, EqualSetsMatchAndSayHowMuchWasCompared) {
  const auto report = compare_rows(row({1, 2, -infinity}), row({1, 2, -infinity}));
  EXPECT_EQ(report.verdict, Verdict::match);
  EXPECT_EQ(report.compared, 3);
  EXPECT_FALSE(report.first);
}

TEST(Difference, NaNBesideANumberComesFirstWhateverTheTolerance) {
  const DifferenceOptions loose{.ulp = farthest, .absolute = infinity, .relative = infinity};
  for (const auto& [a, b] :
       {std::pair{row({9, 2, nan}), row({1, 2, 3})}, std::pair{row({9, 2, 3}), row({1, 2, nan})}}) {
    for (const DifferenceOptions& options : {DifferenceOptions{}, loose}) {
      const auto report = compare_rows(a, b, options);
      EXPECT_EQ(report.verdict, Verdict::differs);
      ASSERT_TRUE(report.first);
      EXPECT_EQ(report.first->kind, DifferenceKind::nan);
      EXPECT_EQ(report.first->address, "weights[2]");
    }
  }
}

TEST(Difference, NaNInBothNeverPassesUnlessAskedFor) {
  const AnyTensor a = row({1, nan});
  EXPECT_EQ(compare_rows(a, a).verdict, Verdict::undecided);
  EXPECT_EQ(compare_rows(a, a).stages[0].nan_in_both, 1);
  EXPECT_EQ(compare_rows(a, a).compared, 1);
  EXPECT_EQ(compare_rows(a, a, {.shared_nan = SharedNaN::matches}).verdict, Verdict::match);
}

TEST(Difference, NothingComparedIsNoMatch) {
  const AnyTensor none = Tensor<double>({0, 3});
  const auto report = compare_rows(none, none);
  EXPECT_EQ(report.verdict, Verdict::undecided);
  EXPECT_EQ(report.compared, 0);
  EXPECT_NE(to_text(report).find("0 elements compared"), std::string::npos);
  EXPECT_EQ(compare({}, {}).verdict, Verdict::undecided);
}

TEST(Difference, InfinitiesAreEqualBySignAndNoToleranceReachesThem) {
  const DifferenceOptions loose{.ulp = farthest - 1, .absolute = 1e308, .relative = 1e308};
  const auto report = compare_rows(row({1, infinity}), row({1, 1e308}), loose);
  EXPECT_EQ(report.verdict, Verdict::differs);
  EXPECT_EQ(report.first->kind, DifferenceKind::infinity);
  EXPECT_EQ(compare_rows(row({infinity}), row({-infinity}), loose).verdict, Verdict::differs);
}

TEST(Difference, NamesTheFirstAddressInTheOrderOfTheFirstSet) {
  Tensor<double> a({2, 2});
  Tensor<double> b({2, 2});
  b(1, 0) = 0x1p-52;
  const auto report = compare({{"query", a}, {"h1.weights", a}, {"output", a}},
                              {{"output", b}, {"h1.weights", b}, {"query", a}});
  ASSERT_TRUE(report.first);
  EXPECT_EQ(report.first->address, "h1.weights[1,0]");
  EXPECT_EQ(report.first->absolute, 0x1p-52);
  EXPECT_EQ(report.first->relative, infinity) << "the reference is 0";
  EXPECT_EQ(report.stages[0].verdict, Verdict::match);
  EXPECT_EQ(report.differing, 2);
}

TEST(Difference, ToleranceIsExactByDefaultAndAnyChosenLimitSuffices) {
  const AnyTensor a = row({1, 0.0});
  const AnyTensor b = row({1 + 0x1p-52, -0.0});
  EXPECT_EQ(compare_rows(a, b).differing, 2) << "the sign of zero is a bit too";
  EXPECT_EQ(compare_rows(a, b, {.ulp = 0}).differing, 1);
  EXPECT_EQ(compare_rows(a, b, {.ulp = 1}).verdict, Verdict::match);
  EXPECT_EQ(compare_rows(a, b, {.absolute = 0x1p-52}).verdict, Verdict::match);
  EXPECT_EQ(compare_rows(a, b, {.absolute = 0x1p-53}).verdict, Verdict::differs);
  EXPECT_EQ(compare_rows(a, b, {.absolute = 0, .relative = 0x1p-52}).verdict, Verdict::match);
}

TEST(Difference, UlpsAreCountedOnTheCoarserGrid) {
  const Tensor<float> coarse({1}, std::array{0.1F});
  const auto report = compare_rows(row({0.1}), AnyTensor(coarse), {.ulp = 0});
  EXPECT_EQ(report.verdict, Verdict::match) << "0.1 rounds to 0.1f";
  EXPECT_EQ(report.stages[0].coarser, DType::f32);
  EXPECT_GT(report.stages[0].max_absolute, 0);
}

TEST(Difference, ReportsTheLargestDifferenceOfAStage) {
  const auto report = compare_rows(row({1, 10, 100}), row({1.5, 10, 101}));
  const StageDifference& stage = report.stages[0];
  EXPECT_EQ(stage.max_absolute, 1);
  EXPECT_EQ(stage.max_relative, 0.5);
  EXPECT_EQ(stage.worst->address, "weights[2]");
  EXPECT_EQ(stage.first->address, "weights[0]");
}

TEST(Difference, ShapesAndMissingNamesDiffer) {
  const auto shapes = compare_rows(Tensor<double>({2, 3}), Tensor<double>({3, 2}));
  EXPECT_EQ(shapes.verdict, Verdict::differs);
  EXPECT_EQ(shapes.stages[0].structure, DifferenceKind::shape);
  EXPECT_EQ(shapes.stages[0].note, "[2, 3] against [3, 2]");
  const auto missing = compare({{"a", row({1})}}, {{"b", row({1})}});
  EXPECT_EQ(missing.verdict, Verdict::differs);
  ASSERT_EQ(missing.stages.size(), 2U);
  EXPECT_EQ(missing.stages[1].note, "only in the second set");
}

TEST(Difference, WideIntegersAreComparedExactly) {
  const Tensor<std::int64_t> a({1}, std::array{(std::int64_t{1} << 53U) + 1});
  const Tensor<std::int64_t> b({1}, std::array{std::int64_t{1} << 53U});
  const auto report = compare_rows(AnyTensor(a), AnyTensor(b));
  EXPECT_EQ(report.verdict, Verdict::differs);
  EXPECT_EQ(report.stages[0].max_ulp, 1U);
}

TEST(Difference, JsonIsJson) {
  const auto report = compare_rows(row({1, nan, 3}), row({infinity, 2, 3}));
  const auto parsed = io::parse_json(to_json(report), "report");
  ASSERT_TRUE(parsed) << parsed.failure().message;
  EXPECT_EQ(*parsed->find("verdict")->string_if(), "differs");
}

}  // namespace
}  // namespace attest::check
