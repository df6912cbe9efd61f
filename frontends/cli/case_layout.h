// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attest/base/conventions.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"

namespace attest::cli {

/// How the axes of files lie in memory.
enum class FileLayout {
  bhtd,    ///< [B, H, T, D], [H, T, D] or [T, D]
  bthd,    ///< [B, T, H, D] or [T, H, D]
  packed,  ///< [B, T, H·D] or [T, H·D], with --heads and --kv-heads
  lbe,     ///< [T, B, H·D], with --heads and --kv-heads
};

/// The layout that --layout says, or else the convention. Fails with bad-layout.
[[nodiscard]] Result<FileLayout> layout_of(const std::string& word,
                                           const std::optional<Convention>& convention);

/// A tensor of a file as it lies there, and where [B, H, T, D] stands in it.
struct PlacedTensor {
  AnyTensor memory;
  std::array<std::int64_t, 4> extents{};
  std::array<std::int64_t, 4> strides{};

  /// To be called with the tensor's own number type alone.
  template <class T>
  [[nodiscard]] View<const T, 4> view() const {
    return {reinterpret_cast<const T*>(memory.bytes().data()), extents, strides};
  }
};

/// Finds the axes of a tensor of any accepted rank and layout. Fails with bad-rank or bad-heads.
[[nodiscard]] Result<PlacedTensor> placed(AnyTensor tensor, FileLayout layout, std::int64_t heads,
                                          std::string_view name);

/// Its numbers in the order [B, H, T, D]. Fails as AnyTensor::to_f64.
[[nodiscard]] Result<Tensor<double>> widened(const PlacedTensor& from, std::string_view name);

/// The rank and the layout that a call came in.
struct GivenLayout {
  std::size_t rank = 4;
  FileLayout layout = FileLayout::bhtd;
};

/// The output [B, H, T, E] in the rank and layout that the query came in.
[[nodiscard]] Tensor<double> as_given(const GivenLayout& given, const Tensor<double>& output);
/// Weights [B, H, T, S] or log_sum_exp [B, H, T], without the axes that the query did not have.
[[nodiscard]] Tensor<double> without_missing_axes(const GivenLayout& given, Tensor<double> values);

}  // namespace attest::cli
