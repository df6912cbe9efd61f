// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace attest {

/// Half-open range of work items.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Range&) const = default;
};

/// Part `part` of `count` items cut into `parts` contiguous ranges whose lengths differ by one at
/// most, the longer ones first. Depends on its arguments alone.
[[nodiscard]] Range partition(std::int64_t count, std::int64_t parts, std::int64_t part) noexcept;

/// A fixed team of threads that runs numbered pieces of work.
///
/// `run(pieces, work)` calls `work(0) … work(pieces − 1)`, each once, and returns when all are done.
/// Pieces are begun in the order of their numbers, each by the first worker that is free: which
/// worker it is depends on timing, so work that gives the same bits for any number of threads writes
/// to places that belong to its piece. A piece may wait for one of a smaller number, never for a
/// greater. The calling thread is a worker. `work` must not throw. Calls from inside `work`, and from
/// two threads at once, run one after another on the calling thread's turn; nesting runs the inner
/// pieces on the calling thread alone.
class ThreadPool {
 public:
  /// `threads` ≥ 1 workers, the caller included; 0 asks for one per processor.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const noexcept;
  void run(std::int64_t pieces, const std::function<void(std::int64_t)>& work);

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

}  // namespace attest
