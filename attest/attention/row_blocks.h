// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "attest/attention/call.h"

namespace attest::engine {

/// Some of the rows that read key/value head g of batch b; perhaps none.
struct BlockPlace {
  std::int64_t b = 0;
  std::int64_t g = 0;
  std::int64_t first_row = 0;
  int rows = 0;
};

/// How the rows that read one key/value head are cut into blocks for the kernels: every 64 rows,
/// and also where a document begins, since a block sees all keys that one of its rows sees.
/// Documents so short that a block of their own would cost more than it saves stay together.
///
/// No bit of a result depends on the cuts: a row's numbers are its own, and sums over rows go on
/// from block to block in the same order.
class RowBlocks {
 public:
  explicit RowBlocks(const Call& call);
  /// The most that one head has.
  [[nodiscard]] std::int64_t per_head() const { return per_head_; }
  /// Block `block` of one of the B·G heads; no rows if it has fewer.
  [[nodiscard]] BlockPlace place(std::int64_t head, std::int64_t block) const;

 private:
  using Starts = std::vector<std::int64_t>;  // first rows, and the end
  void cut_at_documents(const Starts& queries, const Starts& keys);

  Shape shape_;
  std::vector<Starts> starts_;  // [B], or [1] for all; empty: every 64 rows
  std::int64_t per_head_ = 0;
};

}  // namespace attest::engine
