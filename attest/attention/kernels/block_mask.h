// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/memory.h"
#include "attest/linalg/kernels/philox.h"

/// Which keys of a block the rows may see, as bits, and the random bits of dropout.
namespace attest::kernels::ATTEST_ISA {

/// One word a key: bit r says that row r may see it.
struct BlockMask {
  std::uint64_t seen[block_keys];
  bool none = false;   ///< no row sees any key
  bool whole = false;  ///< every row sees every key
};

ATTEST_INLINE std::uint64_t first_bits(int count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << static_cast<unsigned>(count)) - 1;
}

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
  if (modify.visible != nullptr) {
    std::uint64_t allowed[block_keys] = {};
    for (int r = 0; r < block.rows; ++r) {
      const bool* row = modify.visible[r] + begin * modify.visible_step;
      for (int j = 0; j < keys; ++j) {
        const std::uint64_t one = row[j * modify.visible_step] ? 1 : 0;
        allowed[j] |= one << static_cast<unsigned>(r);
      }
    }
    for (int j = 0; j < keys; ++j) mask.seen[j] &= allowed[j];
  }
  if (modify.query_id != nullptr) {
    std::uint64_t allowed[block_keys] = {};
    for (int r = 0; r < block.rows; ++r) {
      for (int j = 0; j < keys; ++j) {
        const std::uint64_t one = modify.key_id[begin + j] == modify.query_id[r] ? 1 : 0;
        allowed[j] |= one << static_cast<unsigned>(r);
      }
    }
    for (int j = 0; j < keys; ++j) mask.seen[j] &= allowed[j];
  }
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

/// Lanes whose bit is set.
template <class T>
ATTEST_INLINE Lanes<T> lanes_of_bits(std::uint64_t bits) {
  using Integer = typename VecTypes<T>::Integer;
  const Lanes<T> one = broadcast_integer<T>(1) << lane_numbers<T>();
  return (broadcast_integer<T>(static_cast<Integer>(bits & first_bits(lanes<T>))) & one) != 0;
}

/// One word a key: bit r says that row r keeps this weight. `begin` may be any key.
template <class T>
inline void kept_weights(std::uint64_t* kept, const Modifiers<T>& modify, int rows,
                         std::int64_t begin, int keys) {
  for (int j = 0; j < keys; ++j) kept[j] = 0;
  for (int r = 0; r < rows; ++r) {
    const DropoutPlace& place = modify.dropout[r];
    std::uint32_t word[4];
    std::int64_t have = -1;
    for (int j = 0; j < keys; ++j) {
      const std::int64_t key = begin + j;
      if (key / 4 != have) {
        have = key / 4;
        philox(static_cast<std::uint32_t>(have), place.i, place.h, place.b, modify.seed, word);
      }
      const std::uint64_t keep = word[key % 4] >= modify.dropout_threshold ? 1 : 0;
      kept[j] |= keep << static_cast<unsigned>(r);
    }
  }
}

}  // namespace attest::kernels::ATTEST_ISA
