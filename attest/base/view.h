// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace attest {

/// A strided window on elements that somebody else owns: a pointer, extents and strides.
///
/// Strides count elements, not bytes, and may be zero (a broadcast axis) or negative. A default
/// constructed view is absent: it has no data, and tests false. Views are copied, never checked on
/// access; whoever makes one answers for it.
template <class T, std::size_t Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> extents{};
  std::array<std::int64_t, Rank> strides{};

  constexpr View() = default;
  constexpr View(T* elements, std::array<std::int64_t, Rank> shape,
                 std::array<std::int64_t, Rank> steps)
      : data(elements), extents(shape), strides(steps) {}

  /// A dense, row-major view.
  constexpr View(T* elements, std::array<std::int64_t, Rank> shape)
      : data(elements), extents(shape) {
    std::int64_t step = 1;
    for (std::size_t axis = Rank; axis-- > 0;) {
      strides[axis] = step;
      step *= shape[axis];
    }
  }

  /// Reading access to what one may also write.
  constexpr operator View<const T, Rank>() const  // NOLINT(google-explicit-constructor)
      requires(!std::is_const_v<T>) {
    return {data, extents, strides};
  }

  /// Whether there is anything to look at; an empty tensor (an extent of 0) is present.
  constexpr explicit operator bool() const noexcept { return data != nullptr; }

  [[nodiscard]] constexpr std::int64_t extent(std::size_t axis) const { return extents[axis]; }

  /// The element at these indices, one for each axis.
  template <class... Index>
  requires(sizeof...(Index) == Rank) [[nodiscard]] constexpr T& operator()(Index... index) const {
    const std::array<std::int64_t, Rank> place{static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) offset += place[axis] * strides[axis];
    return data[offset];
  }

  /// The view with axes `a` and `b` exchanged; no element moves.
  [[nodiscard]] constexpr View swapped(std::size_t a, std::size_t b) const {
    View out = *this;
    std::swap(out.extents[a], out.extents[b]);
    std::swap(out.strides[a], out.strides[b]);
    return out;
  }
};

/// Whether two shapes agree where `part` may be 1: the right-aligned broadcasting of masks and
/// biases, both written with all their axes.
template <std::size_t Rank>
[[nodiscard]] constexpr bool broadcasts_to(const std::array<std::int64_t, Rank>& part,
                                           const std::array<std::int64_t, Rank>& whole) {
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (part[axis] != whole[axis] && part[axis] != 1) return false;
  }
  return true;
}

/// The same elements seen with extent `whole`; axes of extent 1 are repeated by a zero stride.
/// To be called only if `broadcasts_to` holds.
template <class T, std::size_t Rank>
[[nodiscard]] constexpr View<T, Rank> broadcast(View<T, Rank> part,
                                                const std::array<std::int64_t, Rank>& whole) {
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (part.extents[axis] != whole[axis]) part.strides[axis] = 0;
    part.extents[axis] = whole[axis];
  }
  return part;
}

}  // namespace attest
