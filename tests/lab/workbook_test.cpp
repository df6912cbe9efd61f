// SPDX-License-Identifier: MIT
#include "attest/lab/workbook.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attest/base/random.h"
#include "tests/support/bits.h"
#include "tests/support/host_modes.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"

namespace attest::lab::workbook {
namespace {

using test::matrix_of;
using test::Rows;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double u = test::unit_roundoff;

Tensor<double> Q() { return fixture::query(); }
Tensor<double> K() { return fixture::query(); }
Tensor<double> V() { return fixture::value(); }

Tensor<bool> allow_of(const std::vector<const char*>& rows) {
  Tensor<bool> mask = test::mask_of(rows);
  Shape shape{mask.extent(2), mask.extent(3)};
  return std::move(mask).reshaped(std::move(shape));
}

Rows rows_of(const Tensor<double>& matrix) {
  Rows out;
  for (std::int64_t i = 0; i < matrix.extent(0); ++i) {
    out.emplace_back();
    for (std::int64_t j = 0; j < matrix.extent(1); ++j) out.back().push_back(matrix(i, j));
  }
  return out;
}

/// As a reader sees it: six decimals.
std::string six(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f", value);
  return text;
}

std::vector<std::string> six(const Tensor<double>& table) {
  std::vector<std::string> out;
  for (const double x : table.elements()) out.push_back(six(x));
  return out;
}

// ---- The workbook's twelve tests, one to one. Where it compares to seven places, so does this;
// ---- places = 7 means |a − b| rounds to 0 at seven decimals.

void expect_almost_equal(double a, double b, int places = 7) {
  EXPECT_LT(std::fabs(a - b), 0.5 * std::pow(10.0, -places)) << a << " and " << b;
}

TEST(Workbook, HandCalculatedWeightsAndValues) {
  const auto result = attention(Q(), K(), V());
  ASSERT_TRUE(result);
  const double a = std::exp(1 / std::sqrt(2.0)) / (std::exp(1 / std::sqrt(2.0)) + 1);
  expect_almost_equal(result->weights(0, 0), a);
  expect_almost_equal(result->output(0, 0), 10 * a);
  expect_almost_equal(result->output(0, 1), 20 * (1 - a));
}

TEST(Workbook, CausalDirectionAndDiagonal) {
  const auto result = attention(Q(), K(), V(), {.causal = true});
  ASSERT_TRUE(result);
  EXPECT_EQ(rows_of(result->weights)[0], (std::vector<double>{1, 0}));
  EXPECT_EQ(rows_of(result->output)[0], (std::vector<double>{10, 0}));
  EXPECT_GT(result->weights(1, 0), 0);
  EXPECT_GT(result->weights(1, 1), 0);
}

TEST(Workbook, MaskRenormalisesVisibleKeys) {
  const auto result = attention(Q(), K(), V(), {.allow = allow_of({"FT", "FT"})});
  ASSERT_TRUE(result);
  EXPECT_EQ(rows_of(result->weights), (Rows{{0, 1}, {0, 1}}));
  EXPECT_EQ(rows_of(result->output), (Rows{{0, 20}, {0, 20}}));
}

TEST(Workbook, NoVisibleKeyIsAnError) {
  for (const auto& mask : {allow_of({"FF", "FF"}), allow_of({"FT", "TT"})}) {
    const auto result = attention(Q(), K(), V(), {.causal = true, .allow = mask});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().id, "no-visible-key");
    EXPECT_NE(result.failure().message.find("query 0"), std::string::npos);
  }
}

TEST(Workbook, SoftmaxShiftAndLargeScores) {
  const std::vector<double> large{10000, 10000};
  const auto halves = softmax(large);
  ASSERT_TRUE(halves);
  EXPECT_EQ((*halves)(0), .5);
  EXPECT_EQ((*halves)(1), .5);
  const auto low = softmax(std::vector<double>{1, 2, 3});
  const auto high = softmax(std::vector<double>{1001, 1002, 1003});
  ASSERT_TRUE(low && high);
  // All differences from the peak are exact here, so more than "almost": the same bits.
  EXPECT_TRUE(test::same_bits(low->elements(), high->elements()));
}

TEST(Workbook, ShapeContracts) {
  EXPECT_FALSE(attention(Q(), matrix_of({{1}}), V()));
  EXPECT_FALSE(attention(Q(), K(), matrix_of({{1}})));
  const auto result = attention(matrix_of({{0, 0}}), K(), matrix_of({{1, 2, 3}, {3, 4, 5}}));
  ASSERT_TRUE(result);
  EXPECT_EQ(rows_of(result->output), (Rows{{2, 3, 4}}));
  const auto refused = attention(matrix_of({{0, 0}}), K(), V(), {.causal = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().id, "causal-needs-square");
}

TEST(Workbook, InvalidNumbersAndMasks) {
  // Of the workbook's list, types exclude the boolean among numbers, the ragged rows, the numbers
  // for a mask and the word "all": a Tensor<double> is a rectangle of doubles, a Tensor<bool> one
  // of booleans. They are refused where values are not typed yet, at the edge that reads files.
  for (const Rows& bad : {Rows{}, Rows{{std::nan(""), 0}}, Rows{{infinity, 0}}, Rows{{1e7, 0}}}) {
    const auto result = attention(matrix_of(bad), K(), V());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().id, "bad-matrix");
    EXPECT_NE(result.failure().message.find("query"), std::string::npos);
  }
  const auto result = attention(Q(), K(), V(), {.allow = allow_of({"T"})});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().id, "bad-allow");
}

TEST(Workbook, JointKeyValuePermutation) {
  const auto result = attention(Q(), K(), V());
  const auto permuted = attention(Q(), matrix_of({{0, 1}, {1, 0}}), matrix_of({{0, 20}, {10, 0}}));
  ASSERT_TRUE(result && permuted);
  // Sums are correctly rounded, so their order cannot matter: not almost, but the same bits.
  EXPECT_TRUE(test::same_bits(result->output.elements(), permuted->output.elements()));
}

TEST(Workbook, ConstantValuesRemainConstant) {
  const auto result = attention(Q(), K(), matrix_of({{3, -2}, {3, -2}}), {.causal = true});
  ASSERT_TRUE(result);
  for (std::int64_t i = 0; i < 2; ++i) {
    expect_almost_equal(result->output(i, 0), 3);
    expect_almost_equal(result->output(i, 1), -2);
  }
}

TEST(Workbook, MatrixMultiplication) {
  const auto product = matmul(matrix_of({{1, 2}}), matrix_of({{3, 4}, {5, 6}}));
  ASSERT_TRUE(product);
  EXPECT_EQ(rows_of(*product), (Rows{{13, 16}}));
  const auto refused = matmul(matrix_of({{1, 2}}), matrix_of({{3, 4}}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().id, "shape-mismatch");
}

TEST(Workbook, BlockShapeAndNormalisation) {
  const auto block = transformer_block(fixture::rows());
  ASSERT_TRUE(block);
  EXPECT_EQ(block->output.shape(), (Shape{3, 4}));
  EXPECT_EQ(block->maps.size(), 2U);
  expect_almost_equal(block->output(0, 0), 1, 5);
  expect_almost_equal(block->output(0, 1), -1, 5);
  for (const auto& row : rows_of(block->output)) {
    expect_almost_equal(std::accumulate(row.begin(), row.end(), 0.0), 0);
    for (const double x : row) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(Workbook, FutureChangeCannotChangeBlockPrefix) {
  Tensor<double> changed = fixture::rows();
  const double last[] = {10, -9, 8, -7};
  for (std::int64_t j = 0; j < 4; ++j) changed(2, j) = last[j];
  const auto original = transformer_block(fixture::rows());
  const auto altered = transformer_block(changed);
  ASSERT_TRUE(original && altered);
  EXPECT_TRUE(test::same_bits(original->output.elements().subspan(0, 8),
                              altered->output.elements().subspan(0, 8)));
  EXPECT_FALSE(test::same_bits(original->output.elements().subspan(8),
                               altered->output.elements().subspan(8)));
}

// ---- Its tables and its listing.

TEST(Workbook, ChapterThreeTablesAtSixDecimals) {
  using Texts = std::vector<std::string>;
  const auto open = attention(Q(), K(), V());
  const auto causal = attention(Q(), K(), V(), {.causal = true});
  ASSERT_TRUE(open && causal);
  EXPECT_EQ(six(open->weights), (Texts{"0.669762", "0.330238", "0.330238", "0.669762"}));
  EXPECT_EQ(six(causal->weights), (Texts{"1.000000", "0.000000", "0.330238", "0.669762"}));
  EXPECT_EQ(six(open->output), (Texts{"6.697615", "6.604769", "3.302385", "13.395231"}));
  EXPECT_EQ(six(causal->output), (Texts{"10.000000", "0.000000", "3.302385", "13.395231"}));
}

TEST(Workbook, BlockListingAtSixDecimals) {
  using Texts = std::vector<std::string>;
  const auto block = transformer_block(fixture::rows());
  ASSERT_TRUE(block);
  EXPECT_EQ(six(block->output),
            (Texts{"0.999998", "-0.999998", "0.999998", "-0.999998", "-0.999998", "0.999998",
                   "-0.999998", "0.999998", "1.347147", "0.577349", "-0.962248", "-0.962248"}));
  EXPECT_EQ(six(block->maps[0]), (Texts{"1.000000", "0.000000", "0.000000", "0.330238", "0.669762",
                                        "0.000000", "0.248255", "0.248255", "0.503490"}));
  EXPECT_EQ(six(block->maps[1]), (Texts{"1.000000", "0.000000", "0.000000", "0.330238", "0.669762",
                                        "0.000000", "0.333333", "0.333333", "0.333333"}));
}

TEST(Workbook, DroppingTheScaleWouldShow) {
  // Chapter 2: without the scale the first weight would be about 0.731059, and rows would still
  // sum to one.
  const auto result = attention(Q(), K(), V());
  ASSERT_TRUE(result);
  EXPECT_EQ(six(result->weights(0, 0)), "0.669762");
  EXPECT_EQ(six(std::exp(1.0) / (std::exp(1.0) + 1)), "0.731059");
}

// ---- Its contracts, at their edges.

TEST(Workbook, SixtyFourRowsAndColumnsAreAllowedAndNoMore) {
  EXPECT_TRUE(matrix(Tensor<double>({64, 64}), "x"));
  EXPECT_TRUE(matrix(Tensor<double>({1, 1}), "x"));
  const auto rows = matrix(Tensor<double>({65, 1}), "x");
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.failure().message, "[matrix] x: expected 1 to 64 rows; found 65");
  const auto columns = matrix(Tensor<double>({1, 65}), "left");
  ASSERT_FALSE(columns);
  EXPECT_EQ(columns.failure().message, "[matrix] left: expected 1 to 64 columns; found 65");
  EXPECT_FALSE(matrix(Tensor<double>({0, 3}), "x"));
  EXPECT_FALSE(matrix(Tensor<double>({3, 0}), "x"));
  EXPECT_FALSE(matrix(Tensor<double>({3}), "x"));
  EXPECT_FALSE(matrix(Tensor<double>({1, 2, 3}), "x"));
}

TEST(Workbook, AMillionIsAllowedAndNothingAbove) {
  for (const double fine : {1e6, -1e6, 0.0, -0.0, 5e-324}) {
    EXPECT_TRUE(matrix(matrix_of({{1, fine}}), "x")) << fine;
  }
  for (const double wrong : {std::nextafter(1e6, infinity), -std::nextafter(1e6, infinity),
                             infinity, -infinity, std::nan("")}) {
    const auto refused = matrix(matrix_of({{1, 2}, {3, wrong}}), "value");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.failure().id, "bad-matrix");
    EXPECT_EQ(refused.failure().message.find("[matrix] value: "), 0U);
    EXPECT_NE(refused.failure().message.find("[1,1]"), std::string::npos);
  }
}

TEST(Workbook, EveryArgumentIsChecked) {
  const auto bad = matrix_of({{1e7, 0}, {0, 0}});
  const auto named = [](const auto& result, const char* name) {
    return !result && result.failure().message.find(name) != std::string::npos;
  };
  EXPECT_TRUE(named(attention(bad, K(), V()), "query"));
  EXPECT_TRUE(named(attention(Q(), bad, V()), "key"));
  EXPECT_TRUE(named(attention(Q(), K(), bad), "value"));
  EXPECT_TRUE(named(matmul(bad, K()), "left"));
  EXPECT_TRUE(named(matmul(Q(), bad), "right"));
  EXPECT_TRUE(named(transformer_block(bad), "block input"));
}

TEST(Workbook, CausalNeedsEqualLengthsAndAllowItsShape) {
  const auto three = matrix_of({{1, 0}, {0, 1}, {1, 1}});
  const auto refused = attention(three, K(), V(), {.causal = true});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().message.find("T = 3"), std::string::npos);
  EXPECT_NE(refused.failure().message.find("S = 2"), std::string::npos);
  EXPECT_TRUE(attention(three, K(), V()));
  EXPECT_TRUE(attention(three, K(), V(), {.allow = allow_of({"TT", "TF", "FT"})}));
  for (const auto& mask : {allow_of({"TTT", "TTT"}), allow_of({"TT", "TT"}), allow_of({"TT"})}) {
    const auto wrong = attention(three, K(), V(), {.allow = mask});
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.failure().id, "bad-allow");
    EXPECT_NE(wrong.failure().message.find("[3, 2]"), std::string::npos);
  }
}

TEST(Workbook, MismatchesNameBothNumbers) {
  const auto widths = attention(matrix_of({{1, 2, 3}}), K(), V());
  ASSERT_FALSE(widths);
  EXPECT_NE(widths.failure().message.find('3'), std::string::npos);
  EXPECT_NE(widths.failure().message.find('2'), std::string::npos);
  const auto counts = attention(Q(), K(), matrix_of({{1}, {2}, {3}}));
  ASSERT_FALSE(counts);
  EXPECT_EQ(counts.failure().message,
            "[attention] key and value must have the same S; key has 2, value has 3");
  const auto product = matmul(matrix_of({{1, 2, 3}}), matrix_of({{1}, {2}}));
  ASSERT_FALSE(product);
  EXPECT_NE(product.failure().message.find("3 columns"), std::string::npos);
  EXPECT_NE(product.failure().message.find("2 rows"), std::string::npos);
}

TEST(Workbook, SoftmaxRejectsWhatIsNoScore) {
  EXPECT_EQ(test::failure_id(softmax({})), "bad-scores");
  EXPECT_EQ(test::failure_id(softmax(std::vector{0.0, std::nan("")})), "bad-scores");
  EXPECT_EQ(test::failure_id(softmax(std::vector{infinity, 0.0})), "bad-scores");
  EXPECT_EQ(test::failure_id(softmax(std::vector{-infinity, -infinity})), "no-visible-key");
  const auto hidden = softmax(std::vector{-infinity, 3.0, -infinity});
  ASSERT_TRUE(hidden);
  EXPECT_EQ((*hidden)(0), 0);
  EXPECT_EQ((*hidden)(1), 1);
}

TEST(Workbook, NormaliseUsesThePopulationVarianceWithEpsilonInside) {
  // Row (0, 0, 0, 4): mean 1, variance (1 + 1 + 1 + 9) / 4 = 3, and with ε = 1 the root is 2.
  const auto norm = normalise(matrix_of({{0, 0, 0, 4}, {7, 7, 7, 7}}), 1.0);
  EXPECT_EQ(norm.mean(0), 1);
  EXPECT_EQ(norm.variance(0), 3);
  EXPECT_EQ(rows_of(norm.values)[0], (std::vector<double>{-.5, -.5, -.5, 1.5}));
  EXPECT_EQ(rows_of(norm.values)[1], (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(norm.mean(1), 7);
  EXPECT_EQ(norm.variance(1), 0);
}

TEST(Workbook, DefaultEpsilonIsTenToTheMinusFive) {
  const auto norm = normalise(matrix_of({{1, -1}}));
  // (x − mean) / √(1 + 1e-5): sum, root and quotient are one rounding each.
  const long double expected = 1 / std::sqrt(1 + 1e-5L);
  EXPECT_TRUE(test::within(norm.values(0, 0), expected, 3 * u * expected));
}

TEST(Workbook, AddNeedsEqualShapes) {
  const auto sum = add(matrix_of({{1, 2}}), matrix_of({{10, 20}}));
  ASSERT_TRUE(sum);
  EXPECT_EQ(rows_of(*sum), (Rows{{11, 22}}));
  const auto refused = add(matrix_of({{1, 2}}), matrix_of({{1}}));
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().message.find("[1, 2]"), std::string::npos);
  EXPECT_NE(refused.failure().message.find("[1, 1]"), std::string::npos);
}

TEST(Workbook, BlockNeedsFourFeaturesAndStaysWithinTheLimits) {
  const auto narrow = transformer_block(matrix_of({{1, 2, 3}}));
  ASSERT_FALSE(narrow);
  EXPECT_EQ(narrow.failure().id, "block-width");
  EXPECT_NE(narrow.failure().message.find('3'), std::string::npos);
  BlockParameters large;
  large.P1(0, 0) = 10;
  const auto beyond = transformer_block(matrix_of({{1e6, 0, 0, 0}}), large);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.failure().id, "bad-matrix");
  BlockParameters misfit;
  misfit.WO = matrix_of({{1, 2, 3, 4}});
  EXPECT_EQ(test::failure_id(transformer_block(fixture::rows(), misfit)), "shape-mismatch");
}

TEST(Workbook, WithoutTheCausalRuleTheFutureReachesThePast) {
  Tensor<double> changed = fixture::rows();
  changed(2, 0) = 5;
  const auto original = transformer_block(fixture::rows(), {}, {.causal = false});
  const auto altered = transformer_block(changed, {}, {.causal = false});
  ASSERT_TRUE(original && altered);
  EXPECT_FALSE(test::same_bits(original->maps[0].elements().subspan(0, 3),
                               altered->maps[0].elements().subspan(0, 3)));
}

TEST(Workbook, SameBitsUnderHostRoundingModes) {
  const auto tenths =
      matrix_of({{.1, .2, -.3, .7}, {1.1, -.9, 1e-300, .3}, {.01, 5e-324, 3.3, -1}});
  const auto everything = [&tenths] {
    std::vector<double> out;
    const auto append = [&out](const Tensor<double>& t) {
      out.insert(out.end(), t.elements().begin(), t.elements().end());
    };
    const auto block = transformer_block(tenths);
    for (const Stage& stage : block->stages) append(stage.values);
    append(*matmul(tenths, BlockParameters().W1));
    append(*softmax(std::vector{.1, .2, -.3}));
    append(normalise(tenths).values);
    append(*add(tenths, tenths));
    append(attention(tenths, tenths, tenths)->output);
    return out;
  };
  const std::vector<double> expected = everything();
  for (const auto& [mode, found] : test::under_host_modes(everything)) {
    EXPECT_TRUE(test::same_bits(found, expected)) << mode;
  }
}

TEST(Workbook, WholeNumberProductsAreExact) {
  constexpr std::uint64_t seed = 41;
  Random random(seed);
  for (int n = 0; n < 200; ++n) {
    const std::int64_t rows = random.between(1, 9);
    const std::int64_t inner = random.between(1, 64);
    const std::int64_t columns = random.between(1, 9);
    const auto left = test::random_whole_tensor(random, {rows, inner}, 1000000);
    const auto right = test::random_whole_tensor(random, {inner, columns}, 1000);
    const auto product = matmul(left, right);
    ASSERT_TRUE(product) << "seed " << seed << " case " << n;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += static_cast<std::int64_t>(left(i, k)) * static_cast<std::int64_t>(right(k, j));
        }
        ASSERT_EQ((*product)(i, j), static_cast<double>(sum)) << "seed " << seed << " case " << n;
      }
    }
  }
}

}  // namespace
}  // namespace attest::lab::workbook
