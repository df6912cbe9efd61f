// SPDX-License-Identifier: MIT
#include "attest/base/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "attest/base/shape.h"
#include "tests/support/bits.h"

namespace attest {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountIsTheProductAndNothingIfItDoesNotFit) {
  EXPECT_EQ(element_count(Shape{}), 1);
  EXPECT_EQ(element_count(Shape{2, 3, 4}), 24);
  EXPECT_EQ(element_count(Shape{largest, 1}), largest);
  EXPECT_FALSE(element_count(Shape{-1}).has_value());
  EXPECT_FALSE(element_count(Shape{0, -1}).has_value());
  EXPECT_FALSE(element_count(Shape{largest, 2}).has_value());
  EXPECT_FALSE(element_count(Shape{std::int64_t{1} << 32U, std::int64_t{1} << 31U}).has_value());
}

TEST(Shape, AnEmptyAxisMakesTheCountZero) {
  EXPECT_EQ(element_count(Shape{0}), 0);
  EXPECT_EQ(element_count(Shape{5, 0, 7}), 0);
}

TEST(Shape, PrintsAsAList) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{2}), "[2]");
  EXPECT_EQ(to_string(Shape{2, 3, 4}), "[2, 3, 4]");
}

TEST(Shape, RowMajorStridesMakeTheLastAxisContiguous) {
  EXPECT_EQ(row_major_strides(Shape{2, 3, 4}), (std::vector<std::int64_t>{12, 4, 1}));
  EXPECT_TRUE(row_major_strides(Shape{}).empty());
}

TEST(Tensor, BeginsAsZerosOnACacheLine) {
  for (std::int64_t n : {1, 3, 17, 1000}) {
    const Tensor<double> tensor({n, 2});
    EXPECT_EQ(tensor.size(), static_cast<std::size_t>(2 * n));
    EXPECT_EQ(tensor.rank(), 2U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % tensor_alignment, 0U);
    for (const double x : tensor.elements()) EXPECT_TRUE(test::same_bits(x, 0.0));
  }
}

TEST(Tensor, EmptyOnesHaveAnAddressAndPresentViews) {
  const Tensor<double> by_default;
  EXPECT_EQ(by_default.shape(), Shape{0});
  const Tensor<double> empty({2, 0, 3});
  EXPECT_EQ(empty.size(), 0U);
  EXPECT_NE(empty.data(), nullptr);
  EXPECT_TRUE(static_cast<bool>(empty.view<3>()));
}

TEST(Tensor, RankZeroIsOneNumber) {
  Tensor<double> number{Shape{}};
  EXPECT_EQ(number.size(), 1U);
  number() = 7;
  EXPECT_EQ(number.elements()[0], 7);
}

TEST(Tensor, IndicesCountRowByRow) {
  Tensor<int> tensor({2, 3, 4});
  for (std::size_t n = 0; n < tensor.size(); ++n) tensor.elements()[n] = static_cast<int>(n);
  EXPECT_EQ(tensor(0, 0, 0), 0);
  EXPECT_EQ(tensor(0, 0, 3), 3);
  EXPECT_EQ(tensor(0, 1, 0), 4);
  EXPECT_EQ(tensor(1, 2, 3), 23);
  const auto view = tensor.view<3>();
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(view(i, j, k), tensor(i, j, k));
    }
  }
}

TEST(Tensor, CopiesTheElementsAndMovesLeaveItEmpty) {
  const std::vector<double> numbers{1, 2, 3, 4};
  Tensor<double> first({2, 2}, numbers);
  Tensor<double> copy = first;
  copy(0, 0) = 9;
  EXPECT_EQ(first(0, 0), 1);
  const double* const place = first.data();
  const Tensor<double> moved = std::move(first);
  EXPECT_EQ(moved.data(), place);
  EXPECT_EQ(first.size(), 0U);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(first.shape(), Shape{0});
  first = copy;
  EXPECT_EQ(first(0, 0), 9);
  EXPECT_EQ(copy.size(), 4U);
  Tensor<double>& alias = first;
  first = alias;
  EXPECT_EQ(first(1, 1), 4);
}

TEST(Tensor, ReshapingKeepsTheElementsWhereTheyAre) {
  Tensor<double> tensor({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const double* const place = tensor.data();
  const Tensor<double> other = std::move(tensor).reshaped({3, 1, 2});
  EXPECT_EQ(other.data(), place);
  EXPECT_EQ(other(2, 0, 1), 6);
  EXPECT_EQ(other(1, 0, 0), 3);
}

TEST(AnyTensor, HoldsWhatATypedTensorHeld) {
  const Tensor<std::int16_t> numbers({3}, std::vector<std::int16_t>{-32768, 0, 32767});
  const AnyTensor any = numbers;
  EXPECT_EQ(any.dtype(), DType::i16);
  EXPECT_EQ(any.shape(), Shape{3});
  EXPECT_EQ(any.bytes().size(), 6U);
  EXPECT_EQ(any.number(0), -32768);
  EXPECT_EQ(any.number(2), 32767);
  const auto back = any.to_i64("x");
  ASSERT_TRUE(back);
  EXPECT_EQ((*back)(0), -32768);
}

TEST(AnyTensor, CopiesAreIndependent) {
  AnyTensor first = Tensor<double>({2}, std::vector<double>{1, 2});
  const AnyTensor copy = first;
  first.bytes()[7] = std::byte{0};
  EXPECT_EQ(copy.number(0), 1);
  EXPECT_NE(first.number(0), 1);
  first = copy;
  EXPECT_EQ(first.number(0), 1);
}

TEST(AnyTensor, NarrowFloatsRoundOnceAndWidenExactly) {
  const std::vector<double> numbers{1, -0.0, 1 + 0x1p-11 + 0x1p-40, 65504, 1e-40};
  const Tensor<double> wide({5}, numbers);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const AnyTensor narrow = AnyTensor::from_f64(wide, dtype);
    EXPECT_EQ(narrow.dtype(), dtype);
    const auto back = narrow.to_f64("x");
    ASSERT_TRUE(back);
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      const double x = numbers[n];
      const double expected = dtype == DType::f64   ? x
                              : dtype == DType::f32 ? static_cast<double>(static_cast<float>(x))
                              : dtype == DType::f16 ? to_double(to_half(x))
                                                    : to_double(to_bfloat16(x));
      EXPECT_TRUE(test::same_bits(back->elements()[n], expected)) << name_of(dtype) << " " << n;
    }
  }
}

TEST(AnyTensor, BooleansAreNoNumbersAndNumbersNoBooleans) {
  const std::array<bool, 2> values{true, false};
  const AnyTensor booleans = Tensor<bool>({2}, values);
  const auto numbers = booleans.to_f64("mask");
  ASSERT_FALSE(numbers);
  EXPECT_EQ(numbers.failure().kind, ErrorKind::type);
  EXPECT_NE(numbers.failure().message.find("mask has dtype bool"), std::string::npos);
  ASSERT_FALSE(booleans.to_i64("mask"));
  const auto back = booleans.to_bool("mask");
  ASSERT_TRUE(back);
  EXPECT_TRUE((*back)(0));
  EXPECT_FALSE((*back)(1));
  for (const DType dtype : {DType::f32, DType::u8, DType::i64}) {
    const auto refused = AnyTensor(dtype, {1}).to_bool("mask");
    ASSERT_FALSE(refused) << name_of(dtype);
    EXPECT_EQ(refused.failure().id, "wrong-dtype");
  }
}

TEST(AnyTensor, WholeNumbersThatADoubleCannotHoldAreRefused) {
  const std::int64_t edge = std::int64_t{1} << 53U;
  for (const std::int64_t fine : {edge - 1, 1 - edge, std::int64_t{0}}) {
    const AnyTensor any = Tensor<std::int64_t>({1}, std::vector{fine});
    ASSERT_TRUE(any.to_f64("x")) << fine;
    EXPECT_EQ((*any.to_f64("x"))(0), static_cast<double>(fine));
  }
  for (const std::int64_t wrong : {edge + 1, -edge - 1, largest}) {
    const AnyTensor any = Tensor<std::int64_t>({1}, std::vector{wrong});
    ASSERT_FALSE(any.to_f64("x")) << wrong;
    EXPECT_EQ(any.to_f64("x").failure().kind, ErrorKind::type);
  }
  const AnyTensor huge = Tensor<std::uint64_t>({1}, std::vector{~std::uint64_t{0}});
  EXPECT_FALSE(huge.to_f64("x"));
  EXPECT_FALSE(huge.to_i64("x"));
  EXPECT_FALSE(AnyTensor(DType::f64, {1}).to_i64("x"));
}

}  // namespace
}  // namespace attest
