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
/// Each piece says which keys it will add to, and walks over them from the first to the last.
/// Before it adds to some of them it waits until every piece before it has left these; afterwards
/// it says so. No sum depends on which thread came first, and nothing is added twice to private
/// copies. A piece waits only for pieces of smaller number, which must have been begun before it,
/// so the first never waits.
class Turns {
 public:
  explicit Turns(std::int64_t pieces)
      : pieces_(std::make_unique<Piece[]>(static_cast<std::size_t>(pieces))) {}

  /// The piece will add to keys begin … end − 1, and to no others.
  void start(std::int64_t piece, std::int64_t begin, std::int64_t end) {
    Piece& own = at(piece);
    own.end = end;
    own.left.store(begin < end ? begin : everything, std::memory_order_release);
  }
  /// Pieces from `first` on share keys with `piece`; those before belong to other keys.
  void await(std::int64_t first, std::int64_t piece, std::int64_t begin, std::int64_t end) {
    for (std::int64_t other = piece - 1; other >= first; --other) {
      const std::int64_t left = wait_for(at(other), begin, end);
      if (left == everything_before) return;
    }
  }
  /// Keys below `end` will not be touched again.
  void give(std::int64_t piece, std::int64_t end) {
    Piece& own = at(piece);
    own.left.store(end < own.end ? end : everything, std::memory_order_release);
  }
  /// The piece is done. Pieces before it that share keys may not be.
  void finish(std::int64_t first, std::int64_t piece) {
    std::int64_t other = piece - 1;
    while (other >= first && left_by(at(other)) == everything) --other;
    const bool all = other < first || left_by(at(other)) == everything_before;
    at(piece).left.store(all ? everything_before : everything, std::memory_order_release);
  }

 private:
  static constexpr std::int64_t not_begun = -1;
  static constexpr std::int64_t everything_before = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t everything = everything_before - 1;
  struct Piece {
    std::atomic<std::int64_t> left{not_begun};  // keys below are free; publishes `end`
    std::int64_t end = 0;
  };

  [[nodiscard]] Piece& at(std::int64_t piece) { return pieces_[static_cast<std::size_t>(piece)]; }
  [[nodiscard]] static std::int64_t left_by(const Piece& piece) {
    return piece.left.load(std::memory_order_acquire);
  }
  /// Until `other` has left keys begin … end − 1 or it is known that it does not come there.
  [[nodiscard]] static std::int64_t wait_for(const Piece& other, std::int64_t begin,
                                             std::int64_t end) {
    for (int looks = 0;; ++looks) {
      const std::int64_t left = left_by(other);
      if (left >= end || (left != not_begun && other.end <= begin)) return left;
      if (looks > looks_before_yield) std::this_thread::yield();
    }
  }
  static constexpr int looks_before_yield = 100;
  std::unique_ptr<Piece[]> pieces_;
};

}  // namespace attest::engine
