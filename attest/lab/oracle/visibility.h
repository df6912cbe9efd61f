// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/dropout.h"
#include "attest/base/mask.h"
#include "attest/base/view.h"

/// What a query sees and what dropout leaves it, from the options alone.
namespace attest::lab::oracle {

struct Extents {
  std::int64_t B = 0, H = 0, G = 0, T = 0, S = 0, D = 0, E = 0;
};

/// One query and one key of a batch and a query head.
struct Pair {
  std::int64_t b = 0, h = 0, i = 0, j = 0;
};

/// An entry that holds for every batch, or the batch's own.
inline std::int64_t entry_of_batch(const std::vector<std::int64_t>& entries, std::int64_t b) {
  return entries.size() == 1 ? entries[0] : entries[static_cast<std::size_t>(b)];
}

/// Keys of batch b that exist: its key length, or S.
inline std::int64_t own_keys(const Mask& mask, const Extents& n, std::int64_t b) {
  return mask.key_lengths.empty() ? n.S : entry_of_batch(mask.key_lengths, b);
}

/// A stretch of queries and keys, each from its begin to before its end.
struct Stretch {
  std::int64_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
};

/// The packed document that query i is in; of a call that is not packed, everything that exists.
inline Stretch own_stretch(const Mask& mask, const Extents& n, const Pair& p) {
  const Packing& packing = mask.packing;
  for (std::size_t d = 1; d < packing.query_starts.size(); ++d) {
    if (p.i < packing.query_starts[d]) {
      return {packing.query_starts[d - 1], packing.query_starts[d], packing.key_starts[d - 1],
              packing.key_starts[d]};
    }
  }
  return {0, n.T, 0, own_keys(mask, n, p.b)};
}

/// position of query i − j, both counted in the query's own stretch.
inline std::int64_t steps_back(const Mask& mask, const Extents& n, const Pair& p) {
  const Stretch own = own_stretch(mask, n, p);
  const std::int64_t row = p.i - own.query_begin;
  const std::int64_t column = p.j - own.key_begin;
  switch (mask.corner) {
    case Corner::square:
    case Corner::top_left:
      return row - column;
    case Corner::bottom_right:  // the last query stands at the last key
      return (own.key_end - own.key_begin - 1) - (own.query_end - own.query_begin - 1 - row) -
             column;
    case Corner::at_offset:
      return entry_of_batch(mask.query_offset, p.b) + row - column;
  }
  return row - column;
}

/// Whether packing and names put query i and key j into one document.
inline bool in_one_document(const Mask& mask, const Extents& n, const Pair& p) {
  if (!mask.packing.query_starts.empty()) {
    const Stretch own = own_stretch(mask, n, p);
    if (p.j < own.key_begin || p.j >= own.key_end) return false;
  }
  const std::vector<std::int64_t>& of_queries = mask.documents.query;
  const std::vector<std::int64_t>& of_keys = mask.documents.key;
  if (of_queries.empty() && of_keys.empty()) return true;
  // [T] or [B·T]: a list for all batches is the same one again and again.
  const auto query = static_cast<std::size_t>(p.b * n.T + p.i) % of_queries.size();
  const auto key = static_cast<std::size_t>(p.b * n.S + p.j) % of_keys.size();
  return of_queries[query] == of_keys[key];
}

/// Whether every rule of the mask lets query i see key j.
inline bool mask_lets_see(const Mask& mask, const Extents& n, const Pair& p) {
  if (!in_one_document(mask, n, p)) return false;
  const std::int64_t back = steps_back(mask, n, p);
  if (p.j >= own_keys(mask, n, p.b)) return false;
  if (mask.future_hidden && back < 0) return false;
  if (mask.window.left && back > *mask.window.left) return false;
  if (mask.window.right && -back > *mask.window.right) return false;
  if (mask.visible) {
    return broadcast(mask.visible, {n.B, n.H, n.T, n.S})(p.b, p.h, p.i, p.j);
  }
  return true;
}

/// Whether dropout leaves the weight of this pair in.
inline bool stays(const Dropout& dropout, const Pair& p) {
  if (dropout.rate == 0) return true;
  const WeightPlace place{static_cast<std::uint32_t>(p.b), static_cast<std::uint32_t>(p.h),
                          static_cast<std::uint32_t>(p.i), static_cast<std::uint32_t>(p.j)};
  return !dropped(dropout.seed, dropout_threshold(dropout.rate), place);
}

}  // namespace attest::lab::oracle
