// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "attest/check/mistakes/claim.h"

/// Transposes and reshapes of whole tensors, as a tensor library has them.
namespace attest::test {

using Axes = std::vector<std::size_t>;

/// The axes in that order.
inline Tensor<double> permuted(const Tensor<double>& in, const Axes& axes) {
  Shape shape;
  for (const std::size_t axis : axes) shape.push_back(in.extent(axis));
  Tensor<double> out(shape);
  Shape place(shape.size(), 0);
  for (double& to : out.elements()) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      std::size_t at = 0;
      while (axes[at] != axis) ++at;
      offset = offset * in.extent(axis) + place[at];
    }
    to = in.elements()[static_cast<std::size_t>(offset)];
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++place[axis] < shape[axis]) break;
      place[axis] = 0;
    }
  }
  return out;
}

inline Tensor<double> reshaped(Tensor<double> in, const Shape& shape) {
  return std::move(in).reshaped(shape);
}

/// [B, N, L, W] to [B, L, N, W], and back.
inline const Axes heads_and_rows{0, 2, 1, 3};

/// The rows [from, to) of [B, N, L, W].
inline Tensor<double> rows_of(const Tensor<double>& in, std::int64_t from, std::int64_t to) {
  Tensor<double> out({in.extent(0), in.extent(1), to - from, in.extent(3)});
  for (std::int64_t b = 0; b < in.extent(0); ++b) {
    for (std::int64_t n = 0; n < in.extent(1); ++n) {
      for (std::int64_t l = from; l < to; ++l) {
        for (std::int64_t w = 0; w < in.extent(3); ++w) out(b, n, l - from, w) = in(b, n, l, w);
      }
    }
  }
  return out;
}

inline Tensor<double> joined(const Tensor<double>& a, const Tensor<double>& b) {
  Tensor<double> out({a.extent(0), a.extent(1), a.extent(2) + b.extent(2), a.extent(3)});
  for (std::int64_t at = 0; at < out.extent(0) * out.extent(1); ++at) {
    const std::int64_t n = out.extent(1), L = out.extent(2), first = a.extent(2);
    for (std::int64_t l = 0; l < L; ++l) {
      for (std::int64_t w = 0; w < out.extent(3); ++w) {
        out(at / n, at % n, l, w) =
            l < first ? a(at / n, at % n, l, w) : b(at / n, at % n, l - first, w);
      }
    }
  }
  return out;
}

inline Tensor<double> numbered(const Shape& shape, double from) {
  Tensor<double> out(shape);
  for (double& x : out.elements()) x = from++;
  return out;
}

/// Tensors in which no two numbers are equal.
inline check::Claim numbered_claim(const lab::AttentionShape& shape, std::int64_t past = 0) {
  check::Claim claim;
  claim.shape = shape;
  claim.past = past;
  claim.call.query = numbered({shape.B, shape.H, shape.T, shape.D}, 1);
  claim.call.key = numbered({shape.B, shape.G, shape.S, shape.D}, 100001);
  claim.call.value = numbered({shape.B, shape.G, shape.S, shape.E}, 200001);
  return claim;
}

}  // namespace attest::test
