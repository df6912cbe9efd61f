// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace attest {

/// The number types that tensors in memory and in files may have.
enum class DType { f64, f32, f16, bf16, boolean, i64, i32, i16, i8, u64, u32, u16, u8 };

/// Bytes of one element.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;

/// "f64", "bf16", "bool", "i64" …: the names that messages and the command use.
[[nodiscard]] std::string_view name_of(DType dtype) noexcept;

/// The dtype of that name, or nothing.
[[nodiscard]] std::optional<DType> dtype_from_name(std::string_view name) noexcept;

[[nodiscard]] bool is_floating(DType dtype) noexcept;

/// IEEE 754 binary16, as 16 bits: 1 sign, 5 exponent, 10 fraction. Storage only.
struct Half {
  std::uint16_t bits = 0;
  bool operator==(const Half&) const = default;
};

/// bfloat16, as 16 bits: the upper half of a binary32. Storage only.
struct BFloat16 {
  std::uint16_t bits = 0;
  bool operator==(const BFloat16&) const = default;
};

/// Widening is exact; a NaN stays a NaN.
[[nodiscard]] double to_double(Half value) noexcept;
[[nodiscard]] inline float to_float(BFloat16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}
[[nodiscard]] double to_double(BFloat16 value) noexcept;

/// Narrowing rounds once, to nearest, ties to even, straight from binary64: out of range becomes
/// infinity, tiny values subnormals or zero, NaN a quiet NaN. The host's rounding mode is not used.
[[nodiscard]] Half to_half(double value) noexcept;
[[nodiscard]] BFloat16 to_bfloat16(double value) noexcept;
[[nodiscard]] float to_float_nearest(double value) noexcept;

/// The DType that belongs to a C++ type: `dtype_of<float>`.
template <class T>
inline constexpr DType dtype_of = T::no_such_dtype;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<Half> = DType::f16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::i16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::i8;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::u64;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::u32;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::u16;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

namespace detail {
template <class T>
struct Accumulator {
  using Type = float;
};
template <>
struct Accumulator<double> {
  using Type = double;
};
template <class T>
struct Accumulator<const T> {
  using Type = const typename Accumulator<T>::Type;
};
}  // namespace detail

/// A number rounded once to T, to nearest even.
template <class T>
[[nodiscard]] T rounded_to(double value) noexcept {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<T, Half>) {
    return to_half(value);
  } else {
    return static_cast<T>(value);
  }
}

/// What sums of T are kept in: double for double, float for float and the 16-bit types.
template <class T>
using AccumulatorOf = typename detail::Accumulator<T>::Type;

}  // namespace attest
