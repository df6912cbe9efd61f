// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/gemm_pairs.h"

/// The matrix product on tiles of 16 rows of 64 bytes, written against the few operations of amx_tile.h
/// so that it can be tested where there are no tiles. Tiles 0 to 3 are sums, two rows of two; 4 and 5
/// hold A, 6 and 7 hold B.
namespace attest::kernels::ATTEST_ISA {

inline constexpr int tile_rows = 16;
inline constexpr int tile_depth = 32;  // bfloat16 numbers in a row of a tile
inline constexpr std::int64_t tile_words = 256;

/// A as tiles: for each 16 rows, for each 32 depths, 16 rows of 32 numbers; zeros where there is
/// nothing.
inline void gemm_pack_tiles(const GemmPack& pack) noexcept {
  const auto* const from = static_cast<const std::uint16_t*>(pack.from);
  auto* to = static_cast<std::uint32_t*>(pack.to);
  for (std::int64_t i = 0; i < pack.lines; i += tile_rows) {
    for (std::int64_t k = 0; k < pack.depth; k += tile_depth) {
      for (std::int64_t r = 0; r < tile_rows; ++r, to += tile_depth / 2) {
        const bool there = i + r < pack.lines;
        const std::uint16_t* const line = from + (there ? i + r : i) * pack.line_stride;
        if (there && pack.depth_stride == 1 && k + tile_depth <= pack.depth) {
          __builtin_memcpy(to, line + k, 2 * tile_depth);
          continue;
        }
        for (std::int64_t word = 0; word < tile_depth / 2; ++word) {
          to[word] = there ? pair_at(pack, line, k + 2 * word) : 0U;
        }
      }
    }
  }
}

/// Up to 32 rows by 32 columns. Bytes moved per 32 depths: 4 KiB read for 65,536 flops.
template <class Tile, bool two_rows, bool two_cols>
ATTEST_INLINE void tiles_product(const std::uint32_t* a, const std::uint32_t* b, std::int64_t tiles,
                                 float* sums) {
  const std::uint32_t* const a_below = a + tiles * tile_words;
  const std::uint32_t* const b_beside = b + tiles * tile_words;
  Tile::template zero<0>();
  if constexpr (two_cols) Tile::template zero<1>();
  if constexpr (two_rows) Tile::template zero<2>();
  if constexpr (two_rows && two_cols) Tile::template zero<3>();
  for (std::int64_t k = 0; k < tiles; ++k) {
    Tile::template load<6>(b + k * tile_words);
    Tile::template load<4>(a + k * tile_words);
    Tile::template dot<0, 4, 6>();
    if constexpr (two_cols) {
      Tile::template load<7>(b_beside + k * tile_words);
      Tile::template dot<1, 4, 7>();
    }
    if constexpr (two_rows) {
      Tile::template load<5>(a_below + k * tile_words);
      Tile::template dot<2, 5, 6>();
      if constexpr (two_cols) Tile::template dot<3, 5, 7>();
    }
  }
  constexpr std::int64_t stride = 2 * tile_rows;
  Tile::template store<0>(sums, stride);
  if constexpr (two_cols) Tile::template store<1>(sums + tile_rows, stride);
  if constexpr (two_rows) Tile::template store<2>(sums + tile_rows * stride, stride);
  if constexpr (two_rows && two_cols) {
    Tile::template store<3>(sums + tile_rows * stride + tile_rows, stride);
  }
}

/// Writes what is wanted of a 32 by 32 square of sums, or adds it.
inline void write_sums(const float* sums, float* c, std::int64_t stride, int rows, int cols,
                       bool add) {
  constexpr int W = lanes<float>;
  for (int r = 0; r < rows; ++r, sums += 2 * tile_rows, c += stride) {
    int j = 0;
    for (; j + W <= cols; j += W) {
      const F32 sum = load(sums + j);
      store<float>(c + j, add ? load(c + j) + sum : sum);
    }
    for (; j < cols; ++j) c[j] = add ? c[j] + sums[j] : sums[j];
  }
}

template <class Tile>
inline void gemm_multiply_tiles(const GemmBlock& block) noexcept {
  const auto* const a = static_cast<const std::uint32_t*>(block.a);
  const auto* const b = static_cast<const std::uint32_t*>(block.b);
  auto* const c = static_cast<float*>(block.c);
  const std::int64_t tiles = (block.depth + tile_depth - 1) / tile_depth;
  constexpr std::int64_t square = 2 * tile_rows;
  alignas(64) float sums[square * square];
  Tile::begin();
  for (std::int64_t j = 0; j < block.cols; j += square) {
    const std::int64_t cols = block.cols - j < square ? block.cols - j : square;
    for (std::int64_t i = 0; i < block.rows; i += square) {
      const std::int64_t rows = block.rows - i < square ? block.rows - i : square;
      const std::uint32_t* const a_tiles = a + i * tiles * tile_depth / 2;
      const std::uint32_t* const b_tiles = b + j * tiles * tile_depth / 2;
      if (rows > tile_rows && cols > tile_rows) {
        tiles_product<Tile, true, true>(a_tiles, b_tiles, tiles, sums);
      } else if (rows > tile_rows) {
        tiles_product<Tile, true, false>(a_tiles, b_tiles, tiles, sums);
      } else if (cols > tile_rows) {
        tiles_product<Tile, false, true>(a_tiles, b_tiles, tiles, sums);
      } else {
        tiles_product<Tile, false, false>(a_tiles, b_tiles, tiles, sums);
      }
      write_sums(sums, c + i * block.c_stride + j, block.c_stride, static_cast<int>(rows),
                 static_cast<int>(cols), block.add);
    }
  }
  Tile::end();
}

/// A block of 224 depths keeps two panels of each side (28 KiB) in a first-level cache of 32 KiB.
template <class Tile>
inline GemmKernels gemm_tiles_kernels() noexcept {
  return {.row_width = tile_rows,
          .col_width = tile_rows,
          .depth_step = tile_depth,
          .depth_block = 224,
          .packed_bytes = 2,
          .pack_a = gemm_pack_tiles,
          .pack_b = gemm_pack_pairs<tile_rows, tile_depth>,
          .multiply = gemm_multiply_tiles<Tile>};
}

}  // namespace attest::kernels::ATTEST_ISA
