// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "attest/attention/call.h"
#include "attest/base/result.h"
#include "attest/base/text.h"

/// The checks of an attention call, apart from its number types. Not public.
namespace attest::engine {

struct Sizes {
  bool given = false;  ///< query, key and value are there
  std::array<std::int64_t, 4> query{};
  std::array<std::int64_t, 4> key{};
  std::array<std::int64_t, 4> value{};
};

struct Numbers {
  bool wide = false;                                  ///< the call computes in f64, else in f32
  const std::array<std::int64_t, 4>* bias = nullptr;  // its extents
  std::optional<double> scale{};
  std::optional<double> softcap{};
  const std::vector<double>* alibi_slopes = nullptr;
  const std::vector<double>* sink = nullptr;
  Dropout dropout{};
};

/// Memory that a call writes or reads.
struct Place {
  const char* name = "";
  const void* data = nullptr;  // of the first element; absent, or no elements: nothing is checked
  std::int64_t repeated = 0;   // the extent of an axis whose elements are all one, if there is any
};
template <class T, std::size_t Rank>
[[nodiscard]] Place place_of(const char* name, const View<T, Rank>& view) {
  Place out{name, view.data};
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (view.extents[axis] == 0) return {name};
    if (view.extents[axis] > 1 && view.strides[axis] == 0) out.repeated = view.extents[axis];
  }
  return out;
}

/// Fails with shape-mismatch if elements of a result share memory by a stride of 0, or if it begins
/// where another result or an input does. (Memory that overlaps otherwise is not noticed: strides
/// may interleave tensors that share none.)
[[nodiscard]] Result<void> check_places(std::initializer_list<Place> results,
                                        std::initializer_list<Place> inputs);

/// Fails with shape-mismatch or too-large.
[[nodiscard]] Result<void> check_sizes(const Sizes& sizes);
/// Fails with causal-needs-square, shape-mismatch or bad-option.
[[nodiscard]] Result<void> check_mask(const Mask& mask, const Shape& shape);
[[nodiscard]] Result<void> check_numbers(const Numbers& numbers, const Shape& shape);

}  // namespace attest::engine
