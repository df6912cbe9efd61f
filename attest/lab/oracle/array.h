// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "attest/base/shape.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"
#include "attest/lab/oracle/real.h"

namespace attest::lab::oracle {

/// A small dense, row-major array of any scalar: a Real, or a variable on a tape.
///
/// The default one, of shape [0], is absent: no bias, a gain of one, no sink.
template <class Scalar>
struct Array {
  Shape shape{0};
  std::vector<Scalar> values;

  Array() = default;
  explicit Array(Shape extents)
      : shape(std::move(extents)),
        values(static_cast<std::size_t>(element_count(shape).value_or(0))) {}

  [[nodiscard]] bool present() const { return shape != Shape{0}; }
  [[nodiscard]] std::int64_t extent(std::size_t axis) const { return shape[axis]; }
  [[nodiscard]] std::int64_t last_extent() const { return shape.back(); }

  /// How many rows there are if all axes but the last are taken as one.
  [[nodiscard]] std::int64_t rows() const {
    return last_extent() == 0 ? 0 : static_cast<std::int64_t>(values.size()) / last_extent();
  }

  template <class... Index>
  [[nodiscard]] Scalar& operator()(Index... index) {
    return values[offset_of({static_cast<std::int64_t>(index)...})];
  }
  template <class... Index>
  [[nodiscard]] const Scalar& operator()(Index... index) const {
    return values[offset_of({static_cast<std::int64_t>(index)...})];
  }

  /// Element c of a row, all axes but the last taken as one.
  [[nodiscard]] Scalar& in_row(std::int64_t row, std::int64_t c) {
    return values[static_cast<std::size_t>(row * last_extent() + c)];
  }
  [[nodiscard]] const Scalar& in_row(std::int64_t row, std::int64_t c) const {
    return values[static_cast<std::size_t>(row * last_extent() + c)];
  }

 private:
  [[nodiscard]] std::size_t offset_of(std::initializer_list<std::int64_t> index) const {
    std::int64_t offset = 0;
    std::size_t axis = 0;
    for (const std::int64_t place : index) offset = offset * shape[axis++] + place;
    return static_cast<std::size_t>(offset);
  }
};

/// Where an array of this shape keeps the element of a broadcast index: axes of extent 1 repeat.
template <class Scalar>
[[nodiscard]] const Scalar& broadcast_at(const Array<Scalar>& part,
                                         const std::array<std::int64_t, 4>& index) {
  const auto along = [&](std::size_t axis) { return part.shape[axis] == 1 ? 0 : index[axis]; };
  return part(along(0), along(1), along(2), along(3));
}

/// The same numbers, exactly.
[[nodiscard]] inline Array<Real> to_real(const Tensor<double>& tensor) {
  Array<Real> out;
  out.shape = tensor.shape();
  for (const double x : tensor.elements()) out.values.emplace_back(x);
  return out;
}

[[nodiscard]] inline Array<Real> to_real(const View<const double, 4>& view) {
  if (!view) return {};
  Array<Real> out(Shape(view.extents.begin(), view.extents.end()));
  for (std::int64_t a = 0; a < view.extent(0); ++a) {
    for (std::int64_t b = 0; b < view.extent(1); ++b) {
      for (std::int64_t c = 0; c < view.extent(2); ++c) {
        for (std::int64_t d = 0; d < view.extent(3); ++d) out(a, b, c, d) = Real(view(a, b, c, d));
      }
    }
  }
  return out;
}

/// Σ_k first(k) · second(k).
template <class First, class Second>
[[nodiscard]] Real sum_of_products(std::int64_t count, const Real& start, First first,
                                   Second second) {
  Real sum = start;
  for (std::int64_t k = 0; k < count; ++k) sum += first(k) * second(k);
  return sum;
}

}  // namespace attest::lab::oracle
