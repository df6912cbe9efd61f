// SPDX-License-Identifier: MIT
#include "attest/base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attest/base/random.h"
#include "tests/support/bits.h"

namespace attest {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// What a 16-bit pattern means, from the definition: ± 2^(e − bias) · (1 + f / 2^fraction_bits).
double by_definition(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const std::uint32_t fraction = bits & ((1U << fraction_bits) - 1);
  const auto exponent = static_cast<int>((bits >> fraction_bits) & ((1U << exponent_bits) - 1));
  const double sign = (bits >> 15U) != 0 ? -1 : 1;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * infinity : std::numeric_limits<double>::quiet_NaN();
  }
  const double part = std::ldexp(static_cast<double>(fraction), -fraction_bits);
  if (exponent == 0) return sign * std::ldexp(part, 1 - bias);
  return sign * std::ldexp(1 + part, exponent - bias);
}

TEST(DType, EveryHalfMeansWhatItsBitsSay) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = by_definition(bits, 5, 10);
    const double found = to_double(Half{static_cast<std::uint16_t>(bits)});
    ASSERT_TRUE(test::same_bits(found, expected)) << "bits " << bits << ": " << test::hex(found);
  }
}

TEST(DType, EveryBFloat16MeansWhatItsBitsSay) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    const double expected = by_definition(bits, 8, 7);
    ASSERT_TRUE(test::same_bits(to_double(value), expected)) << "bits " << bits;
    ASSERT_TRUE(test::same_bits(static_cast<double>(to_float(value)), expected)) << "bits " << bits;
  }
}

TEST(DType, EveryHalfAndBFloat16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    const double half = to_double(Half{word});
    const double brain = to_double(BFloat16{word});
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(to_double(to_half(half)))) << "bits " << bits;
    } else {
      ASSERT_EQ(to_half(half).bits, word);
    }
    if (std::isnan(brain)) {
      ASSERT_TRUE(std::isnan(to_double(to_bfloat16(brain)))) << "bits " << bits;
    } else {
      ASSERT_EQ(to_bfloat16(brain).bits, word);
    }
  }
}

/// Between each two neighbours: the midpoint goes to the even one, and one step of a double to
/// either side of it decides; so no first rounding to binary32 can have happened.
template <class Narrow, class Widen>
void expect_nearest_even(Narrow narrow, Widen widen, std::uint16_t largest_finite) {
  for (std::uint16_t low = 0; low < largest_finite; ++low) {
    const auto high = static_cast<std::uint16_t>(low + 1);
    const double middle = (widen(low) + widen(high)) / 2;
    const std::uint16_t even = low % 2 == 0 ? low : high;
    ASSERT_EQ(narrow(middle), even) << "between " << low << " and " << high;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0)), low);
    ASSERT_EQ(narrow(std::nextafter(middle, infinity)), high);
    ASSERT_EQ(narrow(-middle), even | 0x8000U);
  }
}

TEST(DType, HalfRoundsOnceToNearestEven) {
  expect_nearest_even([](double x) { return to_half(x).bits; },
                      [](std::uint16_t bits) { return to_double(Half{bits}); }, 0x7BFF);
}

TEST(DType, BFloat16RoundsOnceToNearestEven) {
  expect_nearest_even([](double x) { return to_bfloat16(x).bits; },
                      [](std::uint16_t bits) { return to_double(BFloat16{bits}); }, 0x7F7F);
}

TEST(DType, OutOfRangeBecomesInfinityFromHalfAStepBeyondTheLargest) {
  EXPECT_EQ(to_half(65504).bits, 0x7BFF);
  EXPECT_EQ(to_half(std::nextafter(65520.0, 0.0)).bits, 0x7BFF);
  EXPECT_EQ(to_half(65520).bits, 0x7C00);
  EXPECT_EQ(to_half(-1e300).bits, 0xFC00);
  EXPECT_EQ(to_half(infinity).bits, 0x7C00);
  const double largest = 0x1.FEp127;
  EXPECT_EQ(to_bfloat16(largest).bits, 0x7F7F);
  EXPECT_EQ(to_bfloat16(0x1.FFp127).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(std::nextafter(0x1.FFp127, 0.0)).bits, 0x7F7F);
}

TEST(DType, ZerosKeepTheirSignAndTinyNumbersVanishToIt) {
  EXPECT_EQ(to_half(0.0).bits, 0);
  EXPECT_EQ(to_half(-0.0).bits, 0x8000);
  EXPECT_EQ(to_half(0x1p-25).bits, 0);  // half the smallest subnormal: a tie, to even
  EXPECT_EQ(to_half(0x1.0000000000001p-25).bits, 1);
  EXPECT_EQ(to_half(-0x1p-26).bits, 0x8000);
  EXPECT_EQ(to_half(5e-324).bits, 0);
  EXPECT_EQ(to_bfloat16(0x1p-134).bits, 0);
  EXPECT_EQ(to_bfloat16(0x1.0000000000001p-134).bits, 1);
  EXPECT_EQ(to_bfloat16(-5e-324).bits, 0x8000);
}

TEST(DType, DoubleToHalfIsNotRoundedTwice) {
  // 1 + 2⁻¹¹ + 2⁻⁴⁰ lies above the midpoint of 1 and 1 + 2⁻¹⁰; binary32 would drop the 2⁻⁴⁰ and
  // leave a tie that goes down to 1.
  EXPECT_EQ(to_half(1 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(to_half(1 + 3 * 0x1p-11 - 0x1p-40).bits, 0x3C01);
  EXPECT_EQ(to_bfloat16(1 + 0x1p-8 + 0x1p-40).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(1 + 3 * 0x1p-8 - 0x1p-40).bits, 0x3F81);
}

TEST(DType, NaNStaysAQuietNaN) {
  const double payload_below = std::bit_cast<double>(0x7FF0000000000001ULL);
  for (const double nan : {std::nan(""), -std::nan(""), payload_below}) {
    EXPECT_TRUE(std::isnan(to_double(to_half(nan))));
    EXPECT_TRUE(std::isnan(to_double(to_bfloat16(nan))));
    EXPECT_TRUE(std::isnan(to_float_nearest(nan)));
    EXPECT_NE(to_half(nan).bits & 0x0200U, 0U);
    EXPECT_NE(to_bfloat16(nan).bits & 0x0040U, 0U);
  }
}

/// Doubles around everything that binary32 can hold, with many exact midpoints among them.
double hostile_double(Random& random) {
  const auto exponent = random.between(-160, 135);
  std::uint64_t fraction = random.bits() & ((1ULL << 52U) - 1);
  if (random.between(0, 2) == 0) fraction &= ~((1ULL << 28U) - 1);  // a tie of binary32, or exact
  if (random.between(0, 9) == 0) fraction |= (1ULL << 52U) - (1ULL << 28U);
  const std::uint64_t sign = random.bits() << 63U;
  return std::bit_cast<double>(sign | (static_cast<std::uint64_t>(exponent + 1023) << 52U) |
                               fraction);
}

TEST(DType, FloatNarrowingAgreesWithTheHardware) {
  constexpr std::uint64_t seed = 20;
  Random random(seed);
  for (int n = 0; n < 300000; ++n) {
    const double value = n % 4 == 0 ? std::bit_cast<double>(random.bits()) : hostile_double(random);
    const auto hardware = static_cast<float>(value);
    const float found = to_float_nearest(value);
    if (std::isnan(hardware)) {
      ASSERT_TRUE(std::isnan(found)) << "seed " << seed << " draw " << n;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(hardware))
          << "seed " << seed << " draw " << n << ": " << test::hex(value);
    }
  }
}

// Case D14 of the field: bf16 bytes and what they mean, and rounding to bf16.
TEST(DType, BFloat16BytesAreNotHalfBytes) {
  struct Row {
    std::uint16_t bits;
    double brain;
    double half;
  };
  const Row rows[] = {{0x3F80, 1, 1.875},
                      {0x4049, 3.140625, 2.142578125},
                      {0x3DCD, .10009765625, 1.4501953125},
                      {0x0001, 9.183549615799121e-41, 0x1p-24},
                      {0x7F7F, 3.3895313892515355e+38, std::nan("")}};
  for (const Row& row : rows) {
    EXPECT_TRUE(test::same_bits(to_double(BFloat16{row.bits}), row.brain)) << row.bits;
    EXPECT_TRUE(test::same_bits(to_double(Half{row.bits}), row.half)) << row.bits;
  }
  EXPECT_EQ(to_double(BFloat16{0xFF80}), -infinity);
  EXPECT_TRUE(std::isnan(to_double(Half{0xFF80})));
  EXPECT_TRUE(std::isnan(to_double(BFloat16{0x7FC0})));
}

TEST(DType, RoundingToBFloat16IsNotCutting) {
  EXPECT_EQ(to_bfloat16(1.00390625).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.01171875).bits, 0x3F82);
  EXPECT_NE(to_bfloat16(1.01171875).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(.1).bits, 0x3DCD);
  EXPECT_NE(to_bfloat16(.1).bits, 0x3DCC);
  EXPECT_EQ(to_bfloat16(3.4028234663852886e+38).bits, 0x7F80);
  EXPECT_EQ(to_double(to_bfloat16(65504)), 65536);
  EXPECT_EQ(to_bfloat16(1e-40).bits, 0x0001);
}

TEST(DType, NamesAndSizesBelongTogether) {
  struct Row {
    DType dtype;
    std::string_view name;
    std::size_t size;
    bool floating;
  };
  const Row rows[] = {{DType::f64, "f64", 8, true},       {DType::f32, "f32", 4, true},
                      {DType::f16, "f16", 2, true},       {DType::bf16, "bf16", 2, true},
                      {DType::boolean, "bool", 1, false}, {DType::i64, "i64", 8, false},
                      {DType::i32, "i32", 4, false},      {DType::i16, "i16", 2, false},
                      {DType::i8, "i8", 1, false},        {DType::u64, "u64", 8, false},
                      {DType::u32, "u32", 4, false},      {DType::u16, "u16", 2, false},
                      {DType::u8, "u8", 1, false}};
  for (const Row& row : rows) {
    EXPECT_EQ(name_of(row.dtype), row.name);
    EXPECT_EQ(size_of(row.dtype), row.size) << row.name;
    EXPECT_EQ(is_floating(row.dtype), row.floating) << row.name;
    ASSERT_TRUE(dtype_from_name(row.name).has_value()) << row.name;
    EXPECT_EQ(*dtype_from_name(row.name), row.dtype);
  }
  for (const char* name : {"", "F32", "float32", "f128", "bool ", "i"}) {
    EXPECT_FALSE(dtype_from_name(name).has_value()) << name;
  }
  EXPECT_EQ(dtype_of<double>, DType::f64);
  EXPECT_EQ(dtype_of<BFloat16>, DType::bf16);
  EXPECT_EQ(dtype_of<bool>, DType::boolean);
  EXPECT_EQ(dtype_of<std::int64_t>, DType::i64);
}

}  // namespace
}  // namespace attest
