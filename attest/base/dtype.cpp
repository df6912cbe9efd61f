// SPDX-License-Identifier: MIT
#include "attest/base/dtype.h"

#include <array>
#include <utility>

namespace attest {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Row, 13> table{{{DType::f64, "f64", 8},
                                     {DType::f32, "f32", 4},
                                     {DType::f16, "f16", 2},
                                     {DType::bf16, "bf16", 2},
                                     {DType::boolean, "bool", 1},
                                     {DType::i64, "i64", 8},
                                     {DType::i32, "i32", 4},
                                     {DType::i16, "i16", 2},
                                     {DType::i8, "i8", 1},
                                     {DType::u64, "u64", 8},
                                     {DType::u32, "u32", 4},
                                     {DType::u16, "u16", 2},
                                     {DType::u8, "u8", 1}}};

const Row& row_of(DType dtype) noexcept { return table[static_cast<std::size_t>(dtype)]; }

/// A narrow binary format: how many exponent and fraction bits follow the sign.
struct Format {
  int exponent_bits;
  int fraction_bits;
};

/// Rounds a binary64 to a narrower format on its bits alone, to nearest, ties to even.
std::uint32_t narrow(double value, Format format) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52U) & 0x7FFU);
  const std::uint64_t fraction = bits & ((1ULL << 52U) - 1);
  const int width = 1 + format.exponent_bits + format.fraction_bits;
  const std::uint32_t sign = (bits >> 63U) != 0 ? 1U << (width - 1) : 0U;
  const std::uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.fraction_bits;

  if (exponent == 0x7FF) {
    const std::uint32_t quiet = 1U << (format.fraction_bits - 1);
    return sign | infinity | (fraction != 0 ? quiet : 0U);
  }
  if (exponent == 0) return sign;  // binary64 subnormals lie far below half of any narrow subnormal

  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int narrow_exponent = exponent - 1023 + bias;
  const std::uint64_t significand = fraction | (1ULL << 52U);
  // How many low bits go: more of them when the result is subnormal.
  int dropped = 52 - format.fraction_bits;
  if (narrow_exponent < 1) dropped += 1 - narrow_exponent;
  if (dropped > 53) return sign;  // less than half of the smallest subnormal

  std::uint64_t kept = significand >> dropped;
  const std::uint64_t rest = significand & ((1ULL << dropped) - 1);
  const std::uint64_t half = 1ULL << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1U) != 0)) ++kept;

  // With the hidden bit added to the exponent field, a carry out of the fraction (into the next
  // binade, from subnormal to normal, or up to infinity) needs no case of its own.
  const int field = narrow_exponent < 1 ? 0 : narrow_exponent - 1;
  const std::uint64_t encoded = (static_cast<std::uint64_t>(field) << format.fraction_bits) + kept;
  return sign | (encoded >= infinity ? infinity : static_cast<std::uint32_t>(encoded));
}

/// Widens a narrow format to binary64, exactly.
double widen(std::uint32_t bits, Format format) noexcept {
  const std::uint32_t fraction = bits & ((1U << format.fraction_bits) - 1);
  const std::uint32_t top = (1U << format.exponent_bits) - 1;
  const std::uint32_t exponent = (bits >> format.fraction_bits) & top;
  const std::uint64_t sign =
      static_cast<std::uint64_t>((bits >> (format.exponent_bits + format.fraction_bits)) & 1U)
      << 63U;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto wide_fraction = static_cast<std::uint64_t>(fraction) << (52 - format.fraction_bits);
  if (exponent == top) {
    const std::uint64_t quiet = fraction != 0 ? 1ULL << 51U : 0U;
    return std::bit_cast<double>(sign | (0x7FFULL << 52U) | wide_fraction | quiet);
  }
  if (exponent != 0) {
    const auto field = static_cast<std::uint64_t>(static_cast<int>(exponent) - bias + 1023);
    return std::bit_cast<double>(sign | (field << 52U) | wide_fraction);
  }
  if (fraction == 0) return std::bit_cast<double>(sign);
  // A narrow subnormal is a normal binary64: move its leading bit to the hidden place.
  const int shift = std::countl_zero(wide_fraction) - 11;
  const auto field = static_cast<std::uint64_t>(1 - bias + 1023 - shift);
  return std::bit_cast<double>(sign | (field << 52U) |
                               ((wide_fraction << shift) & ((1ULL << 52U) - 1)));
}

constexpr Format binary16{5, 10};
constexpr Format bfloat16{8, 7};
constexpr Format binary32{8, 23};

}  // namespace

std::size_t size_of(DType dtype) noexcept { return row_of(dtype).size; }
std::string_view name_of(DType dtype) noexcept { return row_of(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (const Row& row : table) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool is_floating(DType dtype) noexcept {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

double to_double(Half value) noexcept { return widen(value.bits, binary16); }
double to_double(BFloat16 value) noexcept { return widen(value.bits, bfloat16); }
Half to_half(double value) noexcept {
  return {static_cast<std::uint16_t>(narrow(value, binary16))};
}
BFloat16 to_bfloat16(double value) noexcept {
  return {static_cast<std::uint16_t>(narrow(value, bfloat16))};
}
float to_float_nearest(double value) noexcept {
  return std::bit_cast<float>(narrow(value, binary32));
}

}  // namespace attest
