// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"

/// Small tensors written as they look.
namespace attest::test {

using Rows = std::vector<std::vector<double>>;

inline Tensor<double> matrix_of(const Rows& rows) {
  const std::size_t width = rows.empty() ? 0 : rows.front().size();
  Tensor<double> out({static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(width)});
  std::size_t n = 0;
  for (const auto& row : rows) {
    for (const double x : row) out.elements()[n++] = x;
  }
  return out;
}

/// [1, 1, rows, columns]: one batch, one head.
inline Tensor<double> one_head(const Rows& rows) {
  Tensor<double> out = matrix_of(rows);
  Shape shape{1, 1, out.extent(0), out.extent(1)};
  return std::move(out).reshaped(std::move(shape));
}

/// Rows of 'T' and 'F' (or of 'x' and '.'): what may be seen.
inline Tensor<bool> mask_of(const std::vector<const char*>& rows) {
  const std::string first = rows.front();
  Tensor<bool> out(
      {1, 1, static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(first.size())});
  std::size_t n = 0;
  for (const char* row : rows) {
    for (const char* c = row; *c != '\0'; ++c) out.elements()[n++] = *c == 'T' || *c == 'x';
  }
  return out;
}

inline Tensor<double> random_tensor(Random& random, Shape shape, double low = -2, double high = 2) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = random.uniform(low, high);
  return out;
}

/// Whole numbers from −size to size: their sums and products are exact.
inline Tensor<double> random_whole_tensor(Random& random, Shape shape, std::int64_t size) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = static_cast<double>(random.between(-size, size));
  return out;
}

/// Of any type, each rounded once.
template <class T>
Tensor<T> random_numbers(Random& random, Shape shape) {
  Tensor<T> out(std::move(shape));
  for (T& x : out.elements()) x = rounded_to<T>(random.uniform(-2, 2));
  return out;
}

/// As a bell has them, and as a float holds them.
inline Tensor<double> random_bell(Random& random, Shape shape) {
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = static_cast<double>(to_float_nearest(random.bell()));
  return out;
}

}  // namespace attest::test
