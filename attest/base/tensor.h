// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/shape.h"
#include "attest/base/view.h"

namespace attest {

/// Every tensor begins on a cache line, which is also the widest vector register.
inline constexpr std::size_t tensor_alignment = 64;

namespace detail {
struct AlignedDelete {
  void operator()(std::byte* memory) const noexcept {
    ::operator delete[](memory, std::align_val_t{tensor_alignment});
  }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

inline AlignedBytes aligned_bytes(std::size_t size) {
  // One byte more than nothing, so that an empty tensor still has an address of its own.
  const std::size_t room = std::max<std::size_t>(size, 1);
  return AlignedBytes(
      static_cast<std::byte*>(::operator new[](room, std::align_val_t{tensor_alignment})));
}
}  // namespace detail

/// A dense, row-major, owning tensor of any rank. Copies copy the elements; moves leave it empty.
///
/// `Tensor<double> scores({2, 3});` is all zeros. The elements begin at a multiple of 64 bytes.
template <class T>
class Tensor {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// Rank 1 with no element.
  Tensor() : Tensor(Shape{0}) {}

  /// Zeros of that shape; the product of the extents must fit (see `element_count`).
  explicit Tensor(Shape shape) : shape_(std::move(shape)) {
    const auto count = element_count(shape_);
    assert(count.has_value());
    size_ = static_cast<std::size_t>(count.value_or(0));
    bytes_ = detail::aligned_bytes(size_ * sizeof(T));
    std::fill_n(data(), size_, T{});
  }
  Tensor(std::initializer_list<std::int64_t> shape) : Tensor(Shape(shape)) {}

  /// A tensor of that shape with these elements, row by row.
  Tensor(Shape shape, std::span<const T> elements) : Tensor(std::move(shape)) {
    assert(elements.size() == size_);
    std::copy_n(elements.begin(), std::min(elements.size(), size_), data());
  }

  Tensor(const Tensor& other)
      : shape_(other.shape_),
        size_(other.size_),
        bytes_(detail::aligned_bytes(other.size_ * sizeof(T))) {
    std::copy_n(other.data(), size_, data());
  }
  Tensor& operator=(const Tensor& other) {
    if (this != &other) *this = Tensor(other);
    return *this;
  }
  Tensor(Tensor&& other) noexcept
      : shape_(std::exchange(other.shape_, Shape{0})),
        size_(std::exchange(other.size_, 0)),
        bytes_(std::move(other.bytes_)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    shape_ = std::exchange(other.shape_, Shape{0});
    size_ = std::exchange(other.size_, 0);
    bytes_ = std::move(other.bytes_);
    return *this;
  }
  ~Tensor() = default;

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::size_t rank() const noexcept { return shape_.size(); }
  [[nodiscard]] std::int64_t extent(std::size_t axis) const { return shape_[axis]; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] T* data() noexcept { return reinterpret_cast<T*>(bytes_.get()); }
  [[nodiscard]] const T* data() const noexcept { return reinterpret_cast<const T*>(bytes_.get()); }
  [[nodiscard]] std::span<T> elements() noexcept { return {data(), size_}; }
  [[nodiscard]] std::span<const T> elements() const noexcept { return {data(), size_}; }

  template <class... Index>
  [[nodiscard]] T& operator()(Index... index) {
    return data()[offset_of({static_cast<std::int64_t>(index)...})];
  }
  template <class... Index>
  [[nodiscard]] const T& operator()(Index... index) const {
    return data()[offset_of({static_cast<std::int64_t>(index)...})];
  }

  /// The tensor as a view of exactly this rank.
  template <std::size_t Rank>
  [[nodiscard]] View<T, Rank> view() {
    return {data(), extents<Rank>()};
  }
  template <std::size_t Rank>
  [[nodiscard]] View<const T, Rank> view() const {
    return {data(), extents<Rank>()};
  }

  /// The same elements under another shape of equal count; consumes the tensor.
  [[nodiscard]] Tensor reshaped(Shape shape) && {
    assert(element_count(shape) == element_count(shape_));
    shape_ = std::move(shape);
    return std::move(*this);
  }

 private:
  template <std::size_t Rank>
  [[nodiscard]] std::array<std::int64_t, Rank> extents() const {
    assert(shape_.size() == Rank);
    std::array<std::int64_t, Rank> out{};
    std::copy_n(shape_.begin(), Rank, out.begin());
    return out;
  }
  [[nodiscard]] std::size_t offset_of(std::initializer_list<std::int64_t> index) const {
    assert(index.size() == shape_.size());
    std::int64_t offset = 0;
    std::size_t axis = 0;
    for (const std::int64_t place : index) {
      assert(place >= 0 && place < shape_[axis]);
      offset = offset * shape_[axis++] + place;
    }
    return static_cast<std::size_t>(offset);
  }

  Shape shape_;
  std::size_t size_ = 0;
  detail::AlignedBytes bytes_;
};

/// A dense, row-major tensor whose number type is known only at run time: what files hold.
class AnyTensor {
 public:
  AnyTensor() : AnyTensor(DType::f64, Shape{0}) {}

  /// Zeros; the shape must have a count that fits.
  AnyTensor(DType dtype, Shape shape);

  /// The elements of a typed tensor, copied.
  template <class T>
  AnyTensor(const Tensor<T>& tensor)  // NOLINT(google-explicit-constructor)
      : AnyTensor(dtype_of<T>, tensor.shape()) {
    std::memcpy(bytes().data(), tensor.data(), bytes().size());
  }

  AnyTensor(const AnyTensor& other);
  AnyTensor& operator=(const AnyTensor& other);
  AnyTensor(AnyTensor&& other) noexcept
      : dtype_(other.dtype_),
        shape_(std::exchange(other.shape_, Shape{0})),
        size_(std::exchange(other.size_, 0)),
        memory_(std::move(other.memory_)) {}
  AnyTensor& operator=(AnyTensor&& other) noexcept {
    dtype_ = other.dtype_;
    shape_ = std::exchange(other.shape_, Shape{0});
    size_ = std::exchange(other.size_, 0);
    memory_ = std::move(other.memory_);
    return *this;
  }
  ~AnyTensor() = default;

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Native byte order, row-major; booleans are one byte, 0 or 1.
  [[nodiscard]] std::span<std::byte> bytes() noexcept {
    return {memory_.get(), size_ * size_of(dtype_)};
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {memory_.get(), size_ * size_of(dtype_)};
  }

  /// One element, in row-major order, as a double: exact for every type but wide integers, which
  /// round to nearest. Booleans are 0 and 1.
  [[nodiscard]] double number(std::size_t index) const noexcept;

  /// All elements as doubles. Fails (type) for booleans, and for an integer that a double cannot
  /// hold exactly; `name` says in the message whose they are.
  [[nodiscard]] Result<Tensor<double>> to_f64(std::string_view name) const;

  /// A boolean tensor. Fails (type) for any other dtype: a mask of numbers could mean "add", "keep"
  /// or "hide", and that must be said, not guessed.
  [[nodiscard]] Result<Tensor<bool>> to_bool(std::string_view name) const;

  /// Whole numbers. Fails (type) for floating-point and boolean tensors.
  [[nodiscard]] Result<Tensor<std::int64_t>> to_i64(std::string_view name) const;

  /// The same values in another floating-point type, rounded once to nearest even.
  [[nodiscard]] static AnyTensor from_f64(const Tensor<double>& values, DType dtype);

 private:
  DType dtype_;
  Shape shape_;
  std::size_t size_ = 0;
  detail::AlignedBytes memory_;
};

}  // namespace attest
