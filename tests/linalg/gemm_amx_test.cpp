// SPDX-License-Identifier: MIT
// The body of the matrix product on tiles, with tiles of plain C++: packing, padding and the walk over
// tiles are tested on every machine; only four instructions are left for those that have them.
#define ATTEST_ISA emulated
#include "attest/linalg/kernels/gemm_amx.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"
#include "attest/base/text.h"
#include "tests/linalg/emulated_tile.h"

namespace attest::kernels::emulated {
namespace {

/// Memory that begins on a cache line and is NaN until it is written to.
struct Packed {
  Tensor<std::uint16_t> memory;
  explicit Packed(std::int64_t numbers) : memory({numbers + 64}) {
    for (std::uint16_t& bits : memory.elements()) bits = 0x7FC0;
  }
};

std::int64_t padded(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

struct Sizes {
  std::int64_t M, N, K;
  bool a_turned, b_turned, add;
};

// Small whole numbers: equal, whatever the order of the sums.
void expect_exact(const Sizes& size, std::uint64_t seed) {
  const GemmKernels kernels = gemm_tiles_kernels<EmulatedTile>();
  Random random(seed);
  const auto draw = [&](std::int64_t count) {
    std::vector<std::uint16_t> out;
    for (std::int64_t n = 0; n < count; ++n) {
      out.push_back(to_bfloat16(static_cast<double>(random.between(-8, 8))).bits);
    }
    return out;
  };
  const auto a = draw(size.M * size.K);
  const auto b = draw(size.K * size.N);
  const std::int64_t a_strides[2] = {size.a_turned ? 1 : size.K, size.a_turned ? size.M : 1};
  const std::int64_t b_strides[2] = {size.b_turned ? 1 : size.N, size.b_turned ? size.K : 1};
  const std::int64_t depth = padded(size.K, kernels.depth_step);
  Packed packed_a(padded(size.M, kernels.row_width) * depth);
  Packed packed_b(padded(size.N, kernels.col_width) * depth);
  kernels.pack_a({a.data(), a_strides[0], a_strides[1], size.M, size.K, packed_a.memory.data()});
  kernels.pack_b({b.data(), b_strides[1], b_strides[0], size.N, size.K, packed_b.memory.data()});
  const std::int64_t stride = size.N + 3;
  std::vector<float> c(static_cast<std::size_t>(size.M * stride), 0.5F);
  kernels.multiply({packed_a.memory.data(), packed_b.memory.data(), size.M, size.N, size.K,
                    c.data(), stride, size.add});
  EXPECT_FALSE(EmulatedTile::state().configured) << "tiles are given back";
  EXPECT_EQ(EmulatedTile::state().refused, 0);
  const auto number = [](std::uint16_t bits) { return to_double(BFloat16{bits}); };
  for (std::int64_t i = 0; i < size.M; ++i) {
    for (std::int64_t j = 0; j < stride; ++j) {
      double sum = size.add || j >= size.N ? 0.5 : 0;
      for (std::int64_t k = 0; k < size.K && j < size.N; ++k) {
        sum += number(a[static_cast<std::size_t>(i * a_strides[0] + k * a_strides[1])]) *
               number(b[static_cast<std::size_t>(k * b_strides[0] + j * b_strides[1])]);
      }
      ASSERT_EQ(c[static_cast<std::size_t>(i * stride + j)], sum) << sentence(
          "seed ", seed, ", M ", size.M, ", N ", size.N, ", K ", size.K, " at ", i, ", ", j);
    }
  }
}

TEST(GemmTiles, WholeNumbersAreExact) {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    Random random(seed, 1);
    expect_exact({random.between(1, 70), random.between(1, 70), random.between(0, 230),
                  random.between(0, 1) == 0, random.between(0, 1) == 0, random.between(0, 1) == 0},
                 seed);
  }
}

TEST(GemmTiles, EdgesOfTilesAreExact) {
  std::uint64_t seed = 1000;
  for (const std::int64_t M : {1, 15, 16, 17, 32, 33}) {
    for (const std::int64_t N : {1, 16, 17, 31, 32, 33}) {
      for (const std::int64_t K : {1, 2, 31, 32, 33, 64}) {
        ++seed;
        expect_exact({M, N, K, false, seed % 2 == 1, false}, seed);
      }
    }
  }
}

// The machine's kernels are these with other tiles: the same layout, so the same driver.
TEST(GemmTiles, BlockFitsTheFirstLevelCache) {
  const GemmKernels kernels = gemm_tiles_kernels<EmulatedTile>();
  const std::int64_t panels = 2 * (kernels.row_width + kernels.col_width);
  EXPECT_LT(panels * kernels.depth_block * kernels.packed_bytes, 32 << 10);
  EXPECT_EQ(kernels.depth_block % kernels.depth_step, 0);
}

}  // namespace
}  // namespace attest::kernels::emulated
