// SPDX-License-Identifier: MIT
#include "attest/linalg/kernels/amx_tile.h"
#include "attest/linalg/kernels/machine.h"

namespace attest::kernels::ATTEST_ISA {
namespace {

/// Two tiles of each operand, four of sums: the blocking that products of matrices use.
float multiply_add(std::int64_t rounds) {
  using Tile = HardwareTile;
  Tile::begin();
  alignas(64) std::uint16_t ones[16][32];  // bfloat16
  for (auto& row : ones) {
    for (std::uint16_t& one : row) one = 0x3F80;
  }
  Tile::zero<0>();
  Tile::zero<1>();
  Tile::zero<2>();
  Tile::zero<3>();
  Tile::load<4>(ones);
  Tile::load<5>(ones);
  Tile::load<6>(ones);
  Tile::load<7>(ones);
  for (std::int64_t round = 0; round < rounds; ++round) {
    Tile::dot<0, 4, 6>();
    Tile::dot<1, 4, 7>();
    Tile::dot<2, 5, 6>();
    Tile::dot<3, 5, 7>();
  }
  alignas(64) float sums[16][16] = {};
  Tile::store<0>(sums[0], 16);
  Tile::end();
  return sums[0][0] / 16.0F;  // 32 products of 1 a round; as for dot products of pairs, 2 a round
}

}  // namespace

const Bf16Kernels machine_bf16{
    .multiply_add = multiply_add,
    .multiply_add_flops = 4.0 * 16 * 16 * 32 * 2,
};

}  // namespace attest::kernels::ATTEST_ISA
