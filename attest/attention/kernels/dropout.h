// SPDX-License-Identifier: MIT
#pragma once

#include "attest/attention/kernels/mask_bits.h"
#include "attest/attention/kernels/memory.h"
#include "attest/linalg/kernels/philox.h"

/// Which weights dropout keeps: random bits that are a function of the place alone.
namespace attest::kernels::ATTEST_ISA {

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

}  // namespace attest::kernels::ATTEST_ISA
