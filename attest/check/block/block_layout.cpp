// SPDX-License-Identifier: MIT
#include "attest/check/block/block_layout.h"

namespace attest::check::block {

Tensor<double> transposed(const Tensor<double>& matrix) {
  const std::int64_t O = matrix.extent(0), I = matrix.extent(1);
  Tensor<double> out({I, O});
  for (std::int64_t o = 0; o < O; ++o) {
    for (std::int64_t i = 0; i < I; ++i) out(i, o) = matrix(o, i);
  }
  return out;
}

Tensor<double> columns_of(const Tensor<double>& from, std::int64_t first, std::int64_t count) {
  const std::int64_t rows = from.rank() == 2 ? from.extent(0) : 1;
  const std::int64_t all = from.shape().back();
  Tensor<double> out(from.rank() == 2 ? Shape{rows, count} : Shape{count});
  for (std::int64_t n = 0; n < rows * count; ++n) {
    out.data()[n] = from.data()[n / count * all + first + n % count];
  }
  return out;
}

Tensor<double> beside(const Tensor<double>& heads, std::int64_t H) {
  const std::int64_t W = heads.shape().back();
  const std::int64_t T = heads.extent(heads.rank() - 2);
  const std::int64_t rows = static_cast<std::int64_t>(heads.size()) / (H * W);
  Tensor<double> out({rows, H * W});
  for (std::int64_t n = 0; n < rows * H * W; ++n) {
    const std::int64_t r = n / (H * W), h = n / W % H;
    out.data()[n] = heads.data()[((r / T * H + h) * T + r % T) * W + n % W];
  }
  return out;
}

}  // namespace attest::check::block
