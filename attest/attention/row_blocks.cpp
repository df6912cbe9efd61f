// SPDX-License-Identifier: MIT
#include "attest/attention/row_blocks.h"

#include <algorithm>

namespace attest::engine {
namespace {

/// Documents with fewer keys share a block of rows.
constexpr std::int64_t short_document = 32;

/// Where the ids of queries change, with both ends.
std::vector<std::int64_t> changes(const std::int64_t* ids, std::int64_t count) {
  std::vector<std::int64_t> out{0};
  for (std::int64_t i = 1; i < count; ++i) {
    if (ids[i] != ids[i - 1]) out.push_back(i);
  }
  out.push_back(count);
  return out;
}

}  // namespace

RowBlocks::RowBlocks(const Call& call) : shape_(call.shape), per_head_(call.shape.blocks()) {
  if (shape_.rows() == 0) return;
  const Mask& mask = *call.mask;
  const auto& ids = mask.documents.query;
  if (!mask.packing.query_starts.empty()) {
    cut_at_documents(mask.packing.query_starts, mask.packing.key_starts);
  } else if (!ids.empty()) {
    const auto batches = static_cast<std::int64_t>(ids.size()) / shape_.T;
    for (std::int64_t b = 0; b < batches; ++b) {
      const Starts starts = changes(ids.data() + b * shape_.T, shape_.T);
      cut_at_documents(starts, starts);
    }
  }
  if (starts_.empty()) return;
  per_head_ = 0;
  for (const Starts& starts : starts_) {
    per_head_ = std::max(per_head_, static_cast<std::int64_t>(starts.size()) - 1);
  }
}

void RowBlocks::cut_at_documents(const Starts& queries, const Starts& keys) {
  const std::int64_t group = shape_.heads_per_group();
  Starts starts{0};
  std::int64_t before = 0;  // keys of the document before
  for (std::size_t n = 0; n + 1 < queries.size(); ++n) {
    const std::int64_t first = queries[n] * group;
    const std::int64_t end = queries[n + 1] * group;
    if (first == end) continue;
    const std::int64_t length = keys[n + 1] - keys[n];
    const bool apart = std::max(before, length) >= short_document;
    if (apart && first > starts.back()) starts.push_back(first);
    while (end - starts.back() > kernels::block_rows) {
      starts.push_back(starts.back() + kernels::block_rows);
    }
    before = length;
  }
  starts.push_back(shape_.rows());
  starts_.push_back(std::move(starts));
}

BlockPlace RowBlocks::place(std::int64_t head, std::int64_t block) const {
  BlockPlace out{.b = head / shape_.G, .g = head % shape_.G, .first_row = 0, .rows = 0};
  if (starts_.empty()) {
    out.first_row = block * kernels::block_rows;
    out.rows = static_cast<int>(
        std::min<std::int64_t>(kernels::block_rows, shape_.rows() - out.first_row));
    return out;
  }
  const Starts& starts = starts_[starts_.size() == 1 ? 0 : static_cast<std::size_t>(out.b)];
  const auto n = static_cast<std::size_t>(block);
  if (n + 1 >= starts.size()) return out;
  out.first_row = starts[n];
  out.rows = static_cast<int>(starts[n + 1] - starts[n]);
  return out;
}

}  // namespace attest::engine
