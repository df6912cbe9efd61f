// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>

namespace attest::engine {

/// Lets pieces of work add to the same keys one after another, in the order of their numbers.
///
/// Each piece walks over the keys from the first to the last. Before it adds to keys below `end` it
/// waits until every piece before it has left them; afterwards it says so. No sum depends on which
/// thread came first, and nothing is added twice to private copies. A piece waits only for pieces of
/// smaller number, which a ThreadPool has begun before it, so the first one never waits.
class Turns {
 public:
  explicit Turns(std::int64_t pieces)
      : left_(std::make_unique<std::atomic<std::int64_t>[]>(static_cast<std::size_t>(pieces))) {}

  /// Pieces from `first` on share keys with `piece`; those before belong to other keys.
  void await(std::int64_t first, std::int64_t piece, std::int64_t end) {
    for (std::int64_t other = piece - 1; other >= first; --other) {
      if (at(other) == everything_before) return;
      while (at(other) < end) std::this_thread::yield();
    }
  }
  void give(std::int64_t piece, std::int64_t end) {
    left_[static_cast<std::size_t>(piece)].store(end, std::memory_order_release);
  }
  /// The piece is done. Pieces before it that share keys may not be.
  void finish(std::int64_t first, std::int64_t piece) {
    std::int64_t other = piece - 1;
    while (other >= first && at(other) == everything) --other;
    const bool all = other < first || at(other) == everything_before;
    give(piece, all ? everything_before : everything);
  }

 private:
  [[nodiscard]] std::int64_t at(std::int64_t piece) const {
    return left_[static_cast<std::size_t>(piece)].load(std::memory_order_acquire);
  }

  static constexpr std::int64_t everything_before = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t everything = everything_before - 1;
  std::unique_ptr<std::atomic<std::int64_t>[]> left_;
};

}  // namespace attest::engine
