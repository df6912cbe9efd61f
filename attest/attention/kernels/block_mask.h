// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/dropout.h"
#include "attest/attention/kernels/mask_bits.h"
#include "attest/attention/kernels/memory.h"

/// Which keys of a block the rows may see, as bits, and the walk over blocks of keys.
namespace attest::kernels::ATTEST_ISA {

/// One word a key: bit r says that row r may see it.
struct BlockMask {
  std::uint64_t seen[block_keys];
  bool none = false;   ///< no row sees any key
  bool whole = false;  ///< every row sees every key
};

/// Ranges of keys: each row flips its bit where its range begins and where it ends.
ATTEST_INLINE void mark_ranges(BlockMask& mask, const std::int64_t* first, const std::int64_t* last,
                               int rows, std::int64_t begin, int keys) {
  std::uint64_t flips[block_keys + 1] = {};
  for (int r = 0; r < rows; ++r) {
    const std::int64_t from = first[r] > begin ? first[r] - begin : 0;
    const std::int64_t to = last[r] - begin < keys ? last[r] - begin : keys;
    if (from >= to) continue;
    flips[from] ^= std::uint64_t{1} << static_cast<unsigned>(r);
    flips[to] ^= std::uint64_t{1} << static_cast<unsigned>(r);
  }
  std::uint64_t seen = 0;
  for (int j = 0; j < keys; ++j) {
    seen ^= flips[j];
    mask.seen[j] = seen;
  }
}

/// Takes out what the boolean mask hides, 64 keys at a time.
template <class T>
inline void hide_by_mask(BlockMask& mask, const Modifiers<T>& modify, int rows, std::int64_t begin,
                         int keys) {
  const std::int64_t step = modify.visible_step;
  bool side_by_side = step != 1;  // the rows of each key
  for (int r = 1; r < rows; ++r) side_by_side &= modify.visible[r] == modify.visible[0] + r;
  if (side_by_side) {
    for (int j = 0; j < keys; ++j) {
      mask.seen[j] &= bits_of_bytes(modify.visible[0] + (begin + j) * step, rows);
    }
    return;
  }
  for (int from = 0; from < keys; from += 64) {
    const int count = keys - from < 64 ? keys - from : 64;
    std::uint64_t word[64] = {};  // of a row, then of a key
    for (int r = 0; r < rows; ++r) {
      if (r > 0 && modify.visible[r] == modify.visible[r - 1]) {
        word[r] = word[r - 1];
        continue;
      }
      const bool* row = modify.visible[r] + (begin + from) * step;
      if (step == 1) {
        word[r] = bits_of_bytes(row, count);
        continue;
      }
      for (int j = 0; j < count; ++j) {
        word[r] |= std::uint64_t{row[j * step] ? 1U : 0U} << static_cast<unsigned>(j);
      }
    }
    turn_bits(word);
    for (int j = 0; j < count; ++j) mask.seen[from + j] &= word[j];
  }
}

/// Takes out keys of other documents.
template <class T>
inline void hide_by_id(BlockMask& mask, const Modifiers<T>& modify, int rows, std::int64_t begin,
                       int keys) {
  constexpr int W = lanes<double>;
  I64 of_row[block_rows / W];
  for (int v = 0; v < block_rows; v += W) {
    for (int lane = 0; lane < W; ++lane) {
      of_row[v / W][lane] = modify.query_id[v + lane < rows ? v + lane : 0];
    }
  }
  for (int j = 0; j < keys; ++j) {
    std::uint64_t same = 0;
#pragma GCC unroll 8
    for (int v = 0; v < block_rows; v += W) {
      same |= bits_of_lanes<double>(of_row[v / W] == modify.key_id[begin + j])
              << static_cast<unsigned>(v);
    }
    mask.seen[j] &= same;
  }
}

/// The visibility of keys begin … begin + keys − 1.
template <class Block>
inline void make_mask(BlockMask& mask, const Block& block, std::int64_t begin, int keys) {
  const auto& modify = block.modify;
  bool inside = true;
  for (int r = 0; r < block.rows; ++r) {
    inside &= block.first_key[r] <= begin && block.last_key[r] >= begin + keys;
  }
  mask.whole = inside && modify.visible == nullptr && modify.query_id == nullptr;
  mask.none = false;
  if (mask.whole) return;
  mark_ranges(mask, block.first_key, block.last_key, block.rows, begin, keys);
  if (modify.visible != nullptr) hide_by_mask(mask, modify, block.rows, begin, keys);
  if (modify.query_id != nullptr) hide_by_id(mask, modify, block.rows, begin, keys);
  std::uint64_t some = 0;
  std::uint64_t all = ~std::uint64_t{0};
  for (int j = 0; j < keys; ++j) {
    some |= mask.seen[j];
    all &= mask.seen[j];
  }
  mask.none = some == 0;
  mask.whole = all == first_bits(block.rows);
}

/// The keys that some row of a block may see by its range: first and one past the last.
struct KeySpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
template <class Block>
inline KeySpan span_of(const Block& block) {
  KeySpan span{INT64_MAX, 0};
  for (int r = 0; r < block.rows; ++r) {
    if (block.first_key[r] >= block.last_key[r]) continue;
    span.begin = block.first_key[r] < span.begin ? block.first_key[r] : span.begin;
    span.end = block.last_key[r] > span.end ? block.last_key[r] : span.end;
  }
  return span;
}

/// The next keys of a span, up to an absolute multiple of `most`; the span shrinks by them.
struct NextKeys {
  std::int64_t begin = 0;
  int keys = 0;
};
ATTEST_INLINE NextKeys take_keys(KeySpan& span, std::int64_t most) {
  const std::int64_t cut = (span.begin / most + 1) * most;
  const std::int64_t end = cut < span.end ? cut : span.end;
  const NextKeys next{span.begin, static_cast<int>(end - span.begin)};
  span.begin = end;
  return next;
}

/// What rows may do with the keys of a block.
struct VisibleKeys {
  std::int64_t begin = 0;
  int keys = 0;
  const BlockMask* mask = nullptr;      // absent: every row sees every key
  const std::uint64_t* kept = nullptr;  // absent: no dropout
};

/// Calls body(VisibleKeys) for the blocks of a span, cut at absolute multiples of `most`; blocks
/// that no row sees are left out.
template <class Block, class Body>
ATTEST_INLINE void for_each_key_block(const Block& task, KeySpan span, std::int64_t most,
                                      Body body) {
  BlockMask mask;
  std::uint64_t kept[block_keys] = {};
  while (span.begin < span.end) {
    const NextKeys next = take_keys(span, most);
    make_mask(mask, task, next.begin, next.keys);
    if (!mask.whole && mask.none) continue;
    VisibleKeys visible{next.begin, next.keys, mask.whole ? nullptr : &mask};
    if (task.modify.dropout != nullptr) {
      kept_weights(kept, task.modify, task.rows, next.begin, next.keys);
      visible.kept = kept;
    }
    body(visible);
  }
}

}  // namespace attest::kernels::ATTEST_ISA
