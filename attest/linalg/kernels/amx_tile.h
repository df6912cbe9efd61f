// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/vec.h"

/// The tiles of the machine, all eight of them 16 rows of 64 bytes, as the bodies of gemm_amx.h and
/// attention's forward_amx.h want them. These are written against such a class, so that they can be
/// tested where there are no tiles (tests/linalg/emulated_tile.h):
///
///     Tile::begin() / end()           around all work of a call, on the thread that does it
///     Tile::zero<t>()                 tile t = 0
///     Tile::load<t>(from, stride)     16 rows of 16 words that begin on cache lines; stride in words
///     Tile::dot<c, a, b>()            c[i, j] += Σ over 16 words k of a[i, k]·b[k, j], two products each
///     Tile::store<t>(to, stride)      16 rows of 16 floats; stride in floats
///
/// Tiles 0 to 3 are sums, two rows of two; 4 and 5 hold left factors, 6 and 7 right ones.
///
/// A dot product adds sixteen products of even numbers, sixteen of odd ones, these two sums and c, each
/// addition rounded to nearest even; subnormal numbers count as 0, whatever MXCSR says.
namespace attest::kernels::ATTEST_ISA {

struct HardwareTile {
  struct alignas(64) Shape {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t unused[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };

  ATTEST_INLINE static void begin() {
    const Shape shape;
    // g++ 12 does not see that the instruction reads memory, and would drop the stores before it.
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
  }
  ATTEST_INLINE static void end() { _tile_release(); }

  // The intrinsics of g++ are macros that want the number of the tile as it is written.
  template <int t>
  ATTEST_INLINE static void zero() {
    static_assert(t >= 0 && t < 4);
    if constexpr (t == 0) _tile_zero(0);
    if constexpr (t == 1) _tile_zero(1);
    if constexpr (t == 2) _tile_zero(2);
    if constexpr (t == 3) _tile_zero(3);
  }
  template <int t>
  ATTEST_INLINE static void load(const void* from, std::int64_t stride = 16) {
    static_assert(t >= 0 && t < 8);
    const std::int64_t bytes = stride * 4;
    __asm__ volatile("" : : : "memory");  // what is read was stored by plain code
    if constexpr (t == 0) _tile_loadd(0, from, bytes);
    if constexpr (t == 1) _tile_loadd(1, from, bytes);
    if constexpr (t == 2) _tile_loadd(2, from, bytes);
    if constexpr (t == 3) _tile_loadd(3, from, bytes);
    if constexpr (t == 4) _tile_loadd(4, from, bytes);
    if constexpr (t == 5) _tile_loadd(5, from, bytes);
    if constexpr (t == 6) _tile_loadd(6, from, bytes);
    if constexpr (t == 7) _tile_loadd(7, from, bytes);
  }
  template <int c, int a, int b>
  ATTEST_INLINE static void dot() {
    static_assert(c >= 0 && c < 4 && a == 4 + c / 2 && b == 6 + c % 2);
    if constexpr (c == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (c == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (c == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (c == 3) _tile_dpbf16ps(3, 5, 7);
  }
  template <int t>
  ATTEST_INLINE static void store(float* to, std::int64_t stride) {
    static_assert(t >= 0 && t < 4);
    const std::int64_t bytes = stride * 4;
    if constexpr (t == 0) _tile_stored(0, to, bytes);
    if constexpr (t == 1) _tile_stored(1, to, bytes);
    if constexpr (t == 2) _tile_stored(2, to, bytes);
    if constexpr (t == 3) _tile_stored(3, to, bytes);
    __asm__ volatile("" : : : "memory");  // what was stored is read by plain code
  }
};

}  // namespace attest::kernels::ATTEST_ISA
