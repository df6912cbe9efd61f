// SPDX-License-Identifier: MIT
#include "attest/check/block/block_layout.h"

#include <algorithm>

#include "attest/check/block/attend.h"
#include "attest/check/block/numbers.h"

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

std::optional<PackedOrder> order_shown(const Shape& shape, std::int64_t H, std::int64_t D) {
  if (shape.size() < 4) return std::nullopt;
  const Shape last(shape.end() - 3, shape.end());
  std::optional<PackedOrder> out;
  for (const auto& [form, order] : {std::pair{Shape{3, H, D}, PackedOrder::blocked},
                                    std::pair{Shape{H, 3, D}, PackedOrder::by_head},
                                    std::pair{Shape{H, D, 3}, PackedOrder::interleaved}}) {
    if (last != form) continue;
    if (out) return std::nullopt;
    out = order;
  }
  return out;
}

Tensor<double> packed_part(const Tensor<double>& from, int which, PackedOrder order,
                           std::int64_t H) {
  const std::int64_t all = from.shape().back(), width = all / 3, D = width / H;
  const std::int64_t rows = static_cast<std::int64_t>(from.size()) / all;
  Tensor<double> out(from.rank() == 1 ? Shape{width} : Shape{rows, width});
  for (std::int64_t n = 0; n < rows * width; ++n) {
    const std::int64_t column = n % width, h = column / D, d = column % D;
    const std::int64_t at = order == PackedOrder::blocked   ? which * width + column
                            : order == PackedOrder::by_head ? (h * 3 + which) * D + d
                                                            : column * 3 + which;
    out.data()[n] = from.data()[n / width * all + at];
  }
  return out;
}

void repack(BlockDump& dump, Packing packing) {
  const BlockConfig& c = dump.config;
  const AttendShape shape{1, c.heads, c.kv_heads, 1, c.head_dim, c.value_dim};
  const auto cut_again = [&](Tensor<double>& query, Tensor<double>& key, Tensor<double>& value) {
    Tensor<double>* const parts[] = {&query, &key, &value};
    if (std::any_of(std::begin(parts), std::end(parts),
                    [](const Tensor<double>* part) { return part->size() == 0; })) {
      return;
    }
    const std::int64_t rows = query.rank() == 2 ? query.extent(0) : 1;
    Numbers before[3];
    for (int n = 0; n < 3; ++n) before[n] = given(*parts[n], rows, false);
    for (int n = 0; n < 3; ++n) {
      const Numbers after = repacked(before[0], before[1], before[2], n, packing, shape);
      std::copy(after.value.begin(), after.value.end(), parts[n]->data());
    }
  };
  BlockWeights<double>& w = dump.weights;
  cut_again(w.query_weight, w.key_weight, w.value_weight);
  cut_again(w.query_bias, w.key_bias, w.value_bias);
  if (!dump.packed_table) return;
  cut_again(dump.stages.at(BlockStage::query).values, dump.stages.at(BlockStage::key).values,
            dump.stages.at(BlockStage::value).values);
}

}  // namespace attest::check::block
