// SPDX-License-Identifier: MIT
#include "attest/base/view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>

namespace attest {
namespace {

std::array<int, 24> counting() {
  std::array<int, 24> out{};
  std::iota(out.begin(), out.end(), 0);
  return out;
}

TEST(View, DefaultIsAbsentAndAnEmptyOneIsPresent) {
  EXPECT_FALSE(static_cast<bool>(View<double, 2>()));
  double element = 0;
  EXPECT_TRUE(static_cast<bool>(View<double, 2>(&element, {0, 3})));
}

TEST(View, DenseMeansTheLastAxisIsContiguous) {
  auto memory = counting();
  const View<int, 3> view(memory.data(), {2, 3, 4});
  EXPECT_EQ(view.strides, (std::array<std::int64_t, 3>{12, 4, 1}));
  EXPECT_EQ(view.extent(1), 3);
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_EQ(view(0, 1, 2), 6);
}

TEST(View, SwappedMovesNoElement) {
  auto memory = counting();
  const View<int, 3> view(memory.data(), {2, 3, 4});
  const auto swapped = view.swapped(0, 2);
  EXPECT_EQ(swapped.extents, (std::array<std::int64_t, 3>{4, 3, 2}));
  EXPECT_EQ(swapped.data, view.data);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(&swapped(k, j, i), &view(i, j, k));
    }
  }
}

TEST(View, StridesMayBeNegativeOrZero) {
  auto memory = counting();
  const View<int, 2> reversed(memory.data() + 23, {4, 6}, {-6, -1});
  EXPECT_EQ(reversed(0, 0), 23);
  EXPECT_EQ(reversed(3, 5), 0);
  const View<int, 2> repeated(memory.data() + 5, {4, 6}, {0, 0});
  EXPECT_EQ(repeated(3, 5), 5);
}

TEST(View, WritesThroughAndReadsAsConst) {
  auto memory = counting();
  const View<int, 1> view(memory.data(), {24});
  view(3) = 77;
  const View<const int, 1> reading = view;
  EXPECT_EQ(reading(3), 77);
  static_assert(!std::is_convertible_v<View<const int, 1>, View<int, 1>>);
}

TEST(View, BroadcastsOnlyFromOne) {
  using Extents = std::array<std::int64_t, 3>;
  EXPECT_TRUE(broadcasts_to<3>(Extents{2, 3, 4}, Extents{2, 3, 4}));
  EXPECT_TRUE(broadcasts_to<3>(Extents{1, 3, 1}, Extents{2, 3, 4}));
  EXPECT_TRUE(broadcasts_to<3>(Extents{1, 1, 1}, Extents{0, 3, 4}));
  EXPECT_FALSE(broadcasts_to<3>(Extents{2, 3, 2}, Extents{2, 3, 4}));
  EXPECT_FALSE(broadcasts_to<3>(Extents{2, 3, 4}, Extents{1, 3, 4}));
  EXPECT_FALSE(broadcasts_to<3>(Extents{0, 3, 4}, Extents{2, 3, 4}));
}

TEST(View, BroadcastRepeatsByZeroStride) {
  auto memory = counting();
  const View<int, 3> part(memory.data(), {1, 3, 1});
  const auto whole = broadcast(part, {2, 3, 4});
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(&whole(i, j, k), &part(0, j, 0));
    }
  }
}

}  // namespace
}  // namespace attest
