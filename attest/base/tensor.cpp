// SPDX-License-Identifier: MIT
#include "attest/base/tensor.h"

#include <limits>

#include "attest/base/text.h"

namespace attest {
namespace {

template <class T>
T load(const std::byte* memory, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, memory + index * sizeof(T), sizeof(T));
  return value;
}

Failure wrong_type(std::string_view name, DType found, std::string_view wanted) {
  return {ErrorKind::type, "wrong-dtype",
          sentence("[tensor] ", name, " has dtype ", name_of(found), "; expected ", wanted)};
}

/// Whether a binary64 holds this whole number exactly: converting it there and back changes nothing.
/// 2⁶³ and 2⁶⁴ themselves cannot be converted back, and are no values of the types.
template <class I>
bool is_exact(I value) noexcept {
  const auto wide = static_cast<double>(value);
  constexpr double beyond = std::is_signed_v<I> ? 0x1p63 : 0x1p64;
  return wide < beyond && static_cast<I>(wide) == value;
}

}  // namespace

AnyTensor::AnyTensor(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  const auto count = element_count(shape_);
  assert(count.has_value());
  size_ = static_cast<std::size_t>(count.value_or(0));
  memory_ = detail::aligned_bytes(size_ * size_of(dtype_));
  std::fill_n(memory_.get(), size_ * size_of(dtype_), std::byte{});
}

AnyTensor::AnyTensor(const AnyTensor& other) : AnyTensor(other.dtype_, other.shape_) {
  std::copy(other.bytes().begin(), other.bytes().end(), bytes().begin());
}

AnyTensor& AnyTensor::operator=(const AnyTensor& other) {
  if (this != &other) *this = AnyTensor(other);
  return *this;
}

double AnyTensor::number(std::size_t index) const noexcept {
  const std::byte* memory = memory_.get();
  switch (dtype_) {
    case DType::f64:
      return load<double>(memory, index);
    case DType::f32:
      return static_cast<double>(load<float>(memory, index));
    case DType::f16:
      return to_double(load<Half>(memory, index));
    case DType::bf16:
      return to_double(load<BFloat16>(memory, index));
    case DType::boolean:
      return load<std::uint8_t>(memory, index) != 0 ? 1 : 0;
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(memory, index));
    case DType::i32:
      return load<std::int32_t>(memory, index);
    case DType::i16:
      return load<std::int16_t>(memory, index);
    case DType::i8:
      return load<std::int8_t>(memory, index);
    case DType::u64:
      return static_cast<double>(load<std::uint64_t>(memory, index));
    case DType::u32:
      return load<std::uint32_t>(memory, index);
    case DType::u16:
      return load<std::uint16_t>(memory, index);
    case DType::u8:
      return load<std::uint8_t>(memory, index);
  }
  return 0;
}

Result<Tensor<double>> AnyTensor::to_f64(std::string_view name) const {
  if (dtype_ == DType::boolean) return wrong_type(name, dtype_, "numbers");
  Tensor<double> out(shape_);
  for (std::size_t i = 0; i < size_; ++i) {
    const bool exact = dtype_ == DType::i64   ? is_exact(load<std::int64_t>(memory_.get(), i))
                       : dtype_ == DType::u64 ? is_exact(load<std::uint64_t>(memory_.get(), i))
                                              : true;
    if (!exact) {
      return Failure{ErrorKind::type, "integer-too-large",
                     sentence("[tensor] ", name, " holds a whole number at element ", i,
                              " that binary64 cannot hold exactly")};
    }
    out.elements()[i] = number(i);
  }
  return out;
}

Result<Tensor<bool>> AnyTensor::to_bool(std::string_view name) const {
  if (dtype_ != DType::boolean) return wrong_type(name, dtype_, "bool");
  Tensor<bool> out(shape_);
  for (std::size_t i = 0; i < size_; ++i) {
    out.elements()[i] = load<std::uint8_t>(memory_.get(), i) != 0;
  }
  return out;
}

Result<Tensor<std::int64_t>> AnyTensor::to_i64(std::string_view name) const {
  if (is_floating(dtype_) || dtype_ == DType::boolean) {
    return wrong_type(name, dtype_, "whole numbers");
  }
  Tensor<std::int64_t> out(shape_);
  for (std::size_t i = 0; i < size_; ++i) {
    if (dtype_ == DType::i64) {
      out.elements()[i] = load<std::int64_t>(memory_.get(), i);
    } else if (dtype_ == DType::u64) {
      const auto value = load<std::uint64_t>(memory_.get(), i);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Failure{ErrorKind::type, "integer-too-large",
                       sentence("[tensor] ", name, " holds ", value, " at element ", i,
                                ", beyond the largest i64")};
      }
      out.elements()[i] = static_cast<std::int64_t>(value);
    } else {
      out.elements()[i] = static_cast<std::int64_t>(number(i));
    }
  }
  return out;
}

AnyTensor AnyTensor::from_f64(const Tensor<double>& values, DType dtype) {
  AnyTensor out(dtype, values.shape());
  std::byte* memory = out.memory_.get();
  const auto store = [memory](std::size_t index, auto value) {
    std::memcpy(memory + index * sizeof value, &value, sizeof value);
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values.elements()[i];
    switch (dtype) {
      case DType::f32:
        store(i, to_float_nearest(value));
        break;
      case DType::f16:
        store(i, to_half(value));
        break;
      case DType::bf16:
        store(i, to_bfloat16(value));
        break;
      default:
        assert(dtype == DType::f64);
        store(i, value);
    }
  }
  return out;
}

}  // namespace attest
