// SPDX-License-Identifier: MIT
#include "attest/attention/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "attest/attention/attention.h"
#include "attest/base/random.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"

namespace attest {
namespace {

using test::random_numbers;

template <class T>
View<const T, 4> whole(const Tensor<T>& tensor) {
  return tensor.template view<4>();
}

/// Positions [first, last) of a [B, G, S, D] view.
template <class T>
View<const T, 4> part(View<const T, 4> view, std::int64_t first, std::int64_t last) {
  view.data += first * view.strides[2];
  view.extents[2] = last - first;
  return view;
}

template <class T>
void expect_equal(View<const T, 4> a, View<const T, 4> b, const std::string& what) {
  ASSERT_EQ(a.extents, b.extents) << what;
  for (std::int64_t n = 0; n < a.extent(0); ++n) {
    for (std::int64_t g = 0; g < a.extent(1); ++g) {
      for (std::int64_t j = 0; j < a.extent(2); ++j) {
        for (std::int64_t d = 0; d < a.extent(3); ++d) {
          const T left = a(n, g, j, d), right = b(n, g, j, d);
          ASSERT_EQ(std::memcmp(&left, &right, sizeof(T)), 0)
              << what << ", element " << n << ' ' << g << ' ' << j << ' ' << d;
        }
      }
    }
  }
}

template <class T>
class KvCacheOf : public ::testing::Test {};
using Numbers = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(KvCacheOf, Numbers);

TYPED_TEST(KvCacheOf, HoldsWhatWasAppendedBitForBit) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const std::int64_t B = random.between(1, 3), G = random.between(1, 3);
    const std::int64_t D = random.between(1, 5), E = random.between(1, 5);
    const std::int64_t S = random.between(0, 20);
    const auto key = random_numbers<T>(random, {B, G, S, D});
    const auto value =
        random_numbers<T>(random, {B, S, G, E});  // heads inside: strides must be read
    const Growth growth = seed % 2 == 0 ? Growth::doubling : Growth::fixed;
    const std::int64_t room = growth == Growth::fixed ? S : random.between(0, 3);
    KvCache<T> cache({.B = B, .G = G, .capacity = room, .D = D, .E = E}, growth);
    for (std::int64_t at = 0; at < S;) {
      const std::int64_t next = std::min(S, at + random.between(0, 6));
      cache.append(part(whole(key), at, next), part(whole(value).swapped(1, 2), at, next));
      EXPECT_EQ(cache.offset(), at) << "seed " << seed;
      at = next;
      EXPECT_EQ(cache.length(), at) << "seed " << seed;
      EXPECT_GE(cache.capacity(), at) << "seed " << seed;
    }
    const std::string what = "seed " + std::to_string(seed);
    expect_equal(cache.key(), whole(key), what);
    expect_equal(cache.value(), whole(value).swapped(1, 2), what);
  }
}

TEST(KvCache, DoublesItsCapacityAndNoMore) {
  KvCache<float> cache({.capacity = 2}, Growth::doubling);
  const Tensor<float> one({1, 1, 1, 1});
  const Tensor<float> nine({1, 1, 9, 1});
  for (const std::int64_t wanted : {2, 2, 4, 4, 8}) {
    cache.append(whole(one), whole(one));
    EXPECT_EQ(cache.capacity(), wanted);
  }
  cache.append(whole(nine), whole(nine));  // 14 fit in 2 · 8
  EXPECT_EQ(cache.capacity(), 16);
}

/// Whoever walked over 2^40 batches would not come back.
TEST(KvCache, AnAppendOfNothingWalksOverNothing) {
  constexpr std::int64_t countless = std::int64_t{1} << 40U;
  KvCache<float> cache({.B = countless}, Growth::doubling);
  const float unread = 0;
  const View<const float, 4> nothing{&unread, {countless, 1, 0, 1}};
  cache.append(nothing, nothing);
  EXPECT_EQ(cache.length(), 0);
}

TEST(KvCache, AppendsAPartOfItself) {
  Random random(7);
  const auto key = random_numbers<float>(random, {2, 1, 3, 2});
  KvCache<float> cache({.B = 2, .capacity = 3, .D = 2, .E = 2}, Growth::doubling);
  cache.append(whole(key), whole(key));
  cache.append(cache.key(), cache.value());  // grows while its own memory is read
  expect_equal(part(cache.key(), 0, 3), whole(key), "first half");
  expect_equal(part(cache.key(), 3, 6), whole(key), "second half");
}

TEST(KvCache, TruncateForgetsAndClearForgetsAll) {
  Random random(8);
  const auto key = random_numbers<float>(random, {1, 1, 5, 2});
  KvCache<float> cache({.capacity = 6, .D = 2, .E = 2});
  cache.append(whole(key), whole(key));
  cache.truncate(2);
  EXPECT_EQ(cache.length(), 2);
  cache.append(part(whole(key), 4, 5), part(whole(key), 4, 5));
  EXPECT_EQ(cache.offset(), 2);
  expect_equal(part(cache.key(), 2, 3), part(whole(key), 4, 5), "after the cut");
  EXPECT_EQ(test::failure_id(cache.try_truncate(4)), "bad-option");
  EXPECT_EQ(test::failure_id(cache.try_truncate(-1)), "bad-option");
  cache.clear();
  EXPECT_EQ(cache.length(), 0);
  EXPECT_EQ(cache.offset(), 0);
  EXPECT_EQ(cache.capacity(), 6);
}

TEST(KvCache, RefusesWhatDoesNotFitAndIsUnchanged) {
  KvCache<float> cache({.B = 2, .G = 3, .capacity = 4, .D = 5, .E = 6});
  const Tensor<float> key({2, 3, 3, 5}), value({2, 3, 3, 6});
  cache.append(whole(key), whole(value));
  EXPECT_EQ(test::failure_message(cache.try_append(whole(key), whole(value))),
            "[kv_cache] the cache holds 3 of 4 keys; 3 more do not fit");
  const auto refuses = [&](Shape key_shape, Shape value_shape) {
    const Tensor<float> k(std::move(key_shape)), v(std::move(value_shape));
    return test::failure_id(cache.try_append(whole(k), whole(v)));
  };
  EXPECT_EQ(refuses({1, 3, 1, 5}, {2, 3, 1, 6}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 1, 1, 5}, {2, 3, 1, 6}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 3, 1, 6}, {2, 3, 1, 6}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 3, 1, 5}, {1, 3, 1, 6}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 3, 1, 5}, {2, 1, 1, 6}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 3, 1, 5}, {2, 3, 1, 5}), "shape-mismatch");
  EXPECT_EQ(refuses({2, 3, 1, 5}, {2, 3, 0, 6}), "shape-mismatch");
  EXPECT_EQ(test::failure_id(cache.try_append({}, {})), "shape-mismatch");
  EXPECT_THROW(cache.append(whole(key), whole(value)), ValueError);
  EXPECT_EQ(cache.length(), 3);
  EXPECT_EQ(cache.offset(), 0);

  using Cache = KvCache<float>;
  EXPECT_EQ(test::failure_id(Cache::try_make({.capacity = -1})), "bad-option");
  EXPECT_EQ(test::failure_id(Cache::try_make({.capacity = 1, .D = 0})), "bad-option");
  EXPECT_EQ(test::failure_id(Cache::try_make({.capacity = std::int64_t{1} << 62U, .D = 4})),
            "too-large");
}

/// The law that a cache is for: chunk after chunk gives what one call with all queries gives.
TYPED_TEST(KvCacheOf, DecodingInChunksGivesTheBitsOfOneCall) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(100 + seed);
    const std::int64_t B = random.between(1, 2), G = random.between(1, 2);
    const std::int64_t H = G * random.between(1, 2), S = random.between(1, 24);
    const std::int64_t D = random.between(1, 9), E = random.between(1, 9);
    const auto query = random_numbers<T>(random, {B, H, S, D});
    const auto key = random_numbers<T>(random, {B, G, S, D});
    const auto value = random_numbers<T>(random, {B, G, S, E});
    const Execution per_row{.reproducible = Reproducible::per_row};
    const auto at_once =
        attention(whole(query), whole(key), whole(value), {.mask = Mask::causal()}, per_row);
    KvCache<T> cache({.B = B, .G = G, .capacity = 1, .D = D, .E = E}, Growth::doubling);
    for (std::int64_t at = 0; at < S;) {
      const std::int64_t next = std::min(S, at + random.between(1, 5));
      cache.append(part(whole(key), at, next), part(whole(value), at, next));
      const auto queries = part(whole(query), at, next);
      const auto by_offset = attention(queries, cache.key(), cache.value(),
                                       {.mask = Mask::causal_at(cache.offset())}, per_row);
      const auto by_corner = attention(queries, cache.key(), cache.value(),
                                       {.mask = Mask::causal_bottom_right()}, per_row);
      const std::string what = "seed " + std::to_string(100 + seed);
      expect_equal(by_offset.output(), part(at_once.output(), at, next), what + " by offset");
      expect_equal(by_corner.output(), part(at_once.output(), at, next), what + " by corner");
      at = next;
    }
  }
}

}  // namespace
}  // namespace attest
