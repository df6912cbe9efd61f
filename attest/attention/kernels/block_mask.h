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

/// bit[r] of word j and bit[j] of word r change places: sixty-four words as a square of bits, halved
/// again and again.
ATTEST_INLINE void turn_bits(std::uint64_t* word) {
  constexpr std::uint64_t kept[6] = {0x00000000FFFFFFFF, 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF,
                                     0x0F0F0F0F0F0F0F0F, 0x3333333333333333, 0x5555555555555555};
#pragma GCC unroll 6
  for (int stage = 0; stage < 6; ++stage) {
    const int half = 32 >> stage;
    const auto shift = static_cast<unsigned>(half);
    for (int start = 0; start < 64; start += 2 * half) {
      for (int r = start; r < start + half; ++r) {
        const std::uint64_t change = ((word[r] >> shift) ^ word[r + half]) & kept[stage];
        word[r] ^= change << shift;
        word[r + half] ^= change;
      }
    }
  }
}

/// Bit k says that byte k of up to 64 is not 0.
ATTEST_INLINE std::uint64_t bits_of_bytes(const bool* from, int count) {
#if defined(__AVX512BW__)
  const __m512i bytes = _mm512_maskz_loadu_epi8(first_bits(count), from);
  return _mm512_test_epi8_mask(bytes, bytes);
#else
  unsigned char bytes[64] = {};
  __builtin_memcpy(bytes, from, static_cast<std::size_t>(count));
  std::uint64_t bits = 0;
#if defined(__AVX2__)
  for (int at = 0; at < 64; at += 32) {
    __m256i part;
    __builtin_memcpy(&part, bytes + at, sizeof part);
    const auto zero = static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(part, _mm256_setzero_si256())));
    bits |= std::uint64_t{~zero} << static_cast<unsigned>(at);
  }
#else
  for (int at = 0; at < 64; ++at) {
    bits |= std::uint64_t{bytes[at] != 0 ? 1U : 0U} << static_cast<unsigned>(at);
  }
#endif
  return bits;
#endif
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

/// Lanes that are set (−1), as bits.
template <class T>
ATTEST_INLINE std::uint64_t bits_of_lanes(Lanes<T> mask) {
#if defined(__AVX512DQ__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_movepi32_mask(bits_as<__m512i>(mask));
  } else {
    return _mm512_movepi64_mask(bits_as<__m512i>(mask));
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return static_cast<std::uint64_t>(_mm256_movemask_ps(bits_as<__m256>(mask)));
  } else {
    return static_cast<std::uint64_t>(_mm256_movemask_pd(bits_as<__m256d>(mask)));
  }
#else
  std::uint64_t bits = 0;
  for (int lane = 0; lane < lanes<T>; ++lane) {
    bits |= std::uint64_t{mask[lane] != 0 ? 1U : 0U} << static_cast<unsigned>(lane);
  }
  return bits;
#endif
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

/// Lanes whose bit is set.
template <class T>
ATTEST_INLINE Lanes<T> lanes_of_bits(std::uint64_t bits) {
  using Integer = typename VecTypes<T>::Integer;
  const Lanes<T> one = broadcast_integer<T>(1) << lane_numbers<T>();
  return (broadcast_integer<T>(static_cast<Integer>(bits & first_bits(lanes<T>))) & one) != 0;
}

/// Dropout with a row in each lane: one quad of keys at a time.
template <class T>
inline void keep_by_rows(std::uint64_t* kept, const Modifiers<T>& modify, int rows,
                         std::int64_t begin, int keys) {
  constexpr int W = lanes<float>;
  for (int first = 0; first < rows; first += W) {
    const int count = rows - first < W ? rows - first : W;
    std::uint32_t place[3][W] = {};
    for (int lane = 0; lane < count; ++lane) {
      place[0][lane] = modify.dropout[first + lane].i;
      place[1][lane] = modify.dropout[first + lane].h;
      place[2][lane] = modify.dropout[first + lane].b;
    }
    for (std::int64_t quad = begin / 4; quad * 4 < begin + keys; ++quad) {
      U32 word[4] = {static_cast<std::uint32_t>(quad) + U32{}};
      for (int k = 0; k < 3; ++k) __builtin_memcpy(&word[k + 1], place[k], sizeof word[k]);
      philox(word, modify.seed);
      for (int k = 0; k < 4; ++k) {
        const std::int64_t j = quad * 4 + k - begin;
        if (j < 0 || j >= keys) continue;
        const I32 keep = bits_as<I32>(word[k] >= modify.dropout_threshold);
        kept[j] |= (bits_of_lanes<float>(keep) & first_bits(count)) << static_cast<unsigned>(first);
      }
    }
  }
}

/// Dropout with a quad of keys in each lane: one row at a time, for few of them.
template <class T>
inline void keep_by_quads(std::uint64_t* kept, const Modifiers<T>& modify, int rows,
                          std::int64_t begin, int keys) {
  constexpr int W = lanes<float>;
  for (int r = 0; r < rows; ++r) {
    const DropoutPlace& place = modify.dropout[r];
    for (std::int64_t quad = begin / 4; quad * 4 < begin + keys; quad += W) {
      U32 word[4] = {bits_as<U32>(lane_numbers<float>()) + static_cast<std::uint32_t>(quad),
                     place.i + U32{}, place.h + U32{}, place.b + U32{}};
      philox(word, modify.seed);
      for (int k = 0; k < 4; ++k) {
        const std::uint64_t keep =
            bits_of_lanes<float>(bits_as<I32>(word[k] >= modify.dropout_threshold));
        for (int lane = 0; lane < W; ++lane) {
          const std::int64_t j = (quad + lane) * 4 + k - begin;
          if (j < 0 || j >= keys) continue;
          kept[j] |= (keep >> static_cast<unsigned>(lane) & 1U) << static_cast<unsigned>(r);
        }
      }
    }
  }
}

/// One word a key: bit r says that row r keeps this weight. `begin` may be any key.
template <class T>
inline void kept_weights(std::uint64_t* kept, const Modifiers<T>& modify, int rows,
                         std::int64_t begin, int keys) {
  for (int j = 0; j < keys; ++j) kept[j] = 0;
  if (2 * rows < lanes<float>) {
    keep_by_quads(kept, modify, rows, begin, keys);
  } else {
    keep_by_rows(kept, modify, rows, begin, keys);
  }
}

/// What rows may do with the keys of a block.
struct VisibleKeys {
  std::int64_t begin = 0;
  int keys = 0;
  const BlockMask* mask = nullptr;      // absent: every row sees every key
  const std::uint64_t* kept = nullptr;  // absent: no dropout
};

/// Calls body(VisibleKeys) for the blocks of a span, cut at absolute multiples of `most`; blocks that no
/// row sees are left out.
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
