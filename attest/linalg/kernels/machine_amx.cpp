// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/machine.h"
#include "attest/linalg/kernels/vec.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// What LDTILECFG reads: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t first_row = 0;
  std::uint8_t unused[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

/// Two tiles of each operand, four of sums: the blocking that products of matrices use.
float multiply_add(std::int64_t rounds) {
  const TileShapes shapes;
  // g++ 12 believes the instruction to read eight bytes of this, and leaves out the stores of the rest.
  __asm__ volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
  alignas(64) std::uint16_t ones[16][32];  // bfloat16
  for (auto& row : ones) {
    for (std::uint16_t& one : row) one = 0x3F80;
  }
  __asm__ volatile("" : : "r"(ones) : "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[16][16] = {};
  _tile_stored(0, sums, 64);
  __asm__ volatile("" : : "r"(sums) : "memory");
  _tile_release();
  return sums[0][0] / 16.0F;  // 32 products of 1 a round; as for dot products of pairs, 2 a round
}

}  // namespace

const Bf16Kernels machine_bf16{
    .multiply_add = multiply_add,
    .multiply_add_flops = 4.0 * 16 * 16 * 32 * 2,
};

}  // namespace attest::kernels::ATTEST_ISA
