// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attest/base/dtype.h"
#include "attest/base/threads.h"
#include "attest/base/view.h"
#include "attest/linalg/kernels/gemm.h"

/// Where the sums of a matrix product are kept, and what becomes of them. For gemm.cpp alone.
namespace attest::linalg_detail {

using kernels::GemmActivation;
using kernels::GemmKernels;

/// What differs between number types: which kernels, and what follows them.
struct Chosen {
  const GemmKernels& kernels;
  void (*finish)(const kernels::GemmFinish&) noexcept;
  kernels::RoundTo16 round;
};

template <class Out, class In, class Sum>
struct Product {
  View<Out, 2> c;
  View<const In, 2> a;
  View<const In, 2> b;
  const Sum* bias = nullptr;  // [N], beside each other
  GemmActivation activation = GemmActivation::none;
  bool accumulate = false;
};

inline std::int64_t length(Range range) { return range.end - range.begin; }

/// Sums are kept in C itself where it can hold them, else in scratch until they are whole.
template <class Out, class In, class Sum>
class Sums {
 public:
  Sums(const Product<Out, In, Sum>& product, const Chosen& chosen)
      : product_(product),
        chosen_(chosen),
        through_scratch_(!std::is_same_v<Out, Sum> ||
                         (product.c.strides[1] != 1 && product.c.extent(1) > 1)) {}

  [[nodiscard]] bool through_scratch() const { return through_scratch_; }
  /// Scratch for a part of that size.
  [[nodiscard]] std::int64_t bytes(std::int64_t rows, std::int64_t cols) const {
    return through_scratch_ ? rows * cols * static_cast<std::int64_t>(sizeof(Sum)) : 0;
  }
  void keep_in(std::byte* scratch, std::int64_t columns) {
    scratch_ = reinterpret_cast<Sum*>(scratch);
    columns_ = columns;
  }
  /// The part whose first element is c(i, j) is worked on from here.
  void begin_part(std::int64_t i, std::int64_t j) {
    first_row_ = i;
    first_col_ = j;
  }

  [[nodiscard]] Sum* at(std::int64_t i, std::int64_t j) const {
    if constexpr (std::is_same_v<Out, Sum>) {
      if (!through_scratch_) {
        return product_.c.data + i * product_.c.strides[0] + j * product_.c.strides[1];
      }
    }
    return scratch_ + (i - first_row_) * columns_ + (j - first_col_);
  }
  [[nodiscard]] std::int64_t stride() const {
    return through_scratch_ ? columns_ : product_.c.strides[0];
  }

  /// Whether what C holds must be brought before the first sum, and sums changed after the last.
  [[nodiscard]] bool fetches() const { return through_scratch_ && product_.accumulate; }
  [[nodiscard]] bool finishes() const {
    return through_scratch_ || product_.bias != nullptr ||
           product_.activation != GemmActivation::none;
  }

  /// What C holds, into scratch.
  void fetch(Range rows, Range cols) const {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      Sum* const sums = at(i, cols.begin);
      for (std::int64_t j = cols.begin; j < cols.end; ++j) {
        if constexpr (std::is_same_v<Out, BFloat16>) {
          sums[j - cols.begin] = to_float(product_.c(i, j));
        } else if constexpr (std::is_same_v<Out, Half>) {
          sums[j - cols.begin] = static_cast<float>(to_double(product_.c(i, j)));
        } else {
          sums[j - cols.begin] = product_.c(i, j);
        }
      }
    }
  }

  /// Bias and activation onto sums, and those in scratch into C.
  void finish(Range rows, Range cols) const {
    if (product_.bias != nullptr || product_.activation != GemmActivation::none) {
      chosen_.finish({.c = at(rows.begin, cols.begin),
                      .c_stride = stride(),
                      .rows = length(rows),
                      .cols = length(cols),
                      .bias = product_.bias == nullptr ? nullptr : product_.bias + cols.begin,
                      .activation = product_.activation});
    }
    if (!through_scratch_) return;
    for (std::int64_t i = rows.begin; i < rows.end; ++i) hand_over(i, cols);
  }

 private:
  /// One row from scratch into C.
  void hand_over(std::int64_t i, Range cols) const {
    const Sum* const sums = at(i, cols.begin);
    Out* const to = product_.c.data + i * product_.c.strides[0];
    const std::int64_t step = product_.c.strides[1];
    if constexpr (std::is_same_v<Out, Sum>) {
      for (std::int64_t j = cols.begin; j < cols.end; ++j) to[j * step] = sums[j - cols.begin];
    } else {
      constexpr std::int64_t at_once = 256;
      std::array<std::uint16_t, at_once> rounded;
      for (std::int64_t j = cols.begin; j < cols.end; j += at_once) {
        const std::int64_t count = std::min(at_once, cols.end - j);
        chosen_.round(sums + (j - cols.begin), rounded.data(), count);
        for (std::int64_t n = 0; n < count; ++n) {
          to[(j + n) * step].bits = rounded[static_cast<std::size_t>(n)];
        }
      }
    }
  }

  const Product<Out, In, Sum>& product_;
  const Chosen& chosen_;
  const bool through_scratch_;
  Sum* scratch_ = nullptr;
  std::int64_t columns_ = 0;
  std::int64_t first_row_ = 0;
  std::int64_t first_col_ = 0;
};

}  // namespace attest::linalg_detail
