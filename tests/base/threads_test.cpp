// SPDX-License-Identifier: MIT
#include "attest/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace attest {
namespace {

TEST(Partition, CoversEveryItemOnceInOrder) {
  for (std::int64_t count = 0; count < 40; ++count) {
    for (std::int64_t parts = 1; parts < 12; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t part = 0; part < parts; ++part) {
        const Range range = partition(count, parts, part);
        ASSERT_EQ(range.begin, next) << count << " in " << parts;
        ASSERT_LE(range.begin, range.end);
        next = range.end;
      }
      ASSERT_EQ(next, count) << count << " in " << parts;
    }
  }
}

TEST(Partition, LengthsDifferByOneAtMostLongerOnesFirst) {
  EXPECT_EQ(partition(10, 4, 0), (Range{0, 3}));
  EXPECT_EQ(partition(10, 4, 1), (Range{3, 6}));
  EXPECT_EQ(partition(10, 4, 2), (Range{6, 8}));
  EXPECT_EQ(partition(10, 4, 3), (Range{8, 10}));
  EXPECT_EQ(partition(2, 4, 3), (Range{2, 2}));
}

TEST(ThreadPool, RunsEachPieceOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t pieces : {0, 1, 2, 3, 7, 8, 9, 100}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(pieces));
      pool.run(pieces, [&](std::int64_t piece) { ++seen[static_cast<std::size_t>(piece)]; });
      for (const auto& times : seen) ASSERT_EQ(times.load(), 1) << threads << " " << pieces;
    }
  }
}

TEST(ThreadPool, ZeroAsksForOnePerProcessor) {
  const ThreadPool pool;
  EXPECT_GE(pool.threads(), 1);
}

TEST(ThreadPool, PieceMayWaitForSmallerOnes) {
  // Would hang if a piece could begin before a smaller one that nobody has begun yet.
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    constexpr std::int64_t pieces = 200;
    std::vector<std::atomic<bool>> finished(pieces);
    std::atomic<bool> in_order = true;
    std::atomic<std::int64_t> done = 0;
    pool.run(pieces, [&](std::int64_t piece) {
      if (piece > 0) {
        while (!finished[static_cast<std::size_t>(piece - 1)]) std::this_thread::yield();
      }
      if (done++ != piece) in_order = false;
      finished[static_cast<std::size_t>(piece)] = true;
    });
    EXPECT_TRUE(in_order) << threads;
  }
}

TEST(ThreadPool, WritesAreSeenWhenRunReturns) {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64, 0);
  for (std::int64_t round = 1; round <= 1000; ++round) {
    pool.run(64, [&](std::int64_t piece) { values[static_cast<std::size_t>(piece)] += piece; });
    for (std::size_t n = 0; n < values.size(); ++n) {
      ASSERT_EQ(values[n], static_cast<std::int64_t>(n) * round) << "round " << round;
    }
  }
}

TEST(ThreadPool, NestedRunsStayOnTheirThread) {
  ThreadPool pool(3);
  std::vector<std::int64_t> inner_sum(6, 0);
  std::atomic<bool> strayed{false};
  pool.run(6, [&](std::int64_t outer) {
    const auto me = std::this_thread::get_id();
    std::int64_t next = 0;
    pool.run(5, [&](std::int64_t inner) {
      if (std::this_thread::get_id() != me || inner != next++) strayed = true;
      inner_sum[static_cast<std::size_t>(outer)] += inner;
    });
  });
  EXPECT_FALSE(strayed.load());
  for (const auto sum : inner_sum) EXPECT_EQ(sum, 10);
  // The pool is whole again after it.
  std::atomic<int> count{0};
  pool.run(9, [&](std::int64_t) { ++count; });
  EXPECT_EQ(count.load(), 9);
}

TEST(ThreadPool, TwoCallersTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};
  std::atomic<bool> mixed{false};
  std::atomic<std::int64_t> total{0};
  const auto caller = [&](int mark) {
    for (int round = 0; round < 200; ++round) {
      pool.run(6, [&, mark](std::int64_t piece) {
        const int before = inside.fetch_add(mark);
        // Were the other caller's pieces running now, the sum would hold both marks.
        if (mark == 1 ? before >= 1000 : before % 1000 != 0) mixed = true;
        total += piece;
        inside.fetch_sub(mark);
      });
    }
  };
  std::thread one(caller, 1);
  std::thread two(caller, 1000);
  one.join();
  two.join();
  EXPECT_FALSE(mixed.load());
  EXPECT_EQ(total.load(), 2 * 200 * 15);
}

TEST(ThreadPool, ComesAndGoesWithoutWork) {
  for (int round = 0; round < 100; ++round) const ThreadPool pool(4);
}

}  // namespace
}  // namespace attest
