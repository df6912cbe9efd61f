// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
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

/// Memory that a call writes or reads, by its first element.
struct Place {
  const char* name = "";
  const void* data = nullptr;  // absent, or without elements: nothing is checked
};
template <class T, std::size_t Rank>
[[nodiscard]] Place place_of(const char* name, const View<T, Rank>& view) {
  for (const std::int64_t extent : view.extents) {
    if (extent == 0) return {name};
  }
  return {name, view.data};
}

/// Fails with shape-mismatch if a result begins where another result or an input does. (Memory that
/// overlaps otherwise is not noticed: strides may interleave tensors that share none.)
[[nodiscard]] Result<void> check_places(const std::vector<Place>& results,
                                        const std::vector<Place>& inputs);

/// Fails with shape-mismatch if elements of a result share memory by a stride of 0.
template <class T, std::size_t Rank>
[[nodiscard]] Result<void> check_apart(const char* name, const View<T, Rank>& result) {
  if (place_of(name, result).data == nullptr) return {};
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (result.strides[axis] == 0 && result.extents[axis] > 1) {
      return Failure{ErrorKind::shape, "shape-mismatch",
                     sentence("[attention] elements of ", name, " must not share memory; axis ",
                              axis, " has stride 0 and extent ", result.extents[axis])};
    }
  }
  return {};
}

/// Fails with shape-mismatch or too-large.
[[nodiscard]] Result<void> check_sizes(const Sizes& sizes);
/// Fails with causal-needs-square, shape-mismatch or bad-option.
[[nodiscard]] Result<void> check_mask(const Mask& mask, const Shape& shape);
[[nodiscard]] Result<void> check_numbers(const Numbers& numbers, const Shape& shape);

}  // namespace attest::engine
