// SPDX-License-Identifier: MIT
#include "attest/base/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace attest {

Range partition(std::int64_t count, std::int64_t parts, std::int64_t part) noexcept {
  const std::int64_t share = count / parts;
  const std::int64_t longer = count % parts;
  const std::int64_t begin = part * share + std::min(part, longer);
  return {begin, begin + share + (part < longer ? 1 : 0)};
}

struct ThreadPool::Team {
  std::mutex turn;  // one run at a time
  std::mutex guard;
  std::condition_variable_any wake;
  std::condition_variable done;
  const std::function<void(std::int64_t)>* work = nullptr;
  std::int64_t pieces = 0;
  std::uint64_t generation = 0;
  int running = 0;
  int size = 1;
  std::atomic<std::int64_t> next{0};  // the first piece that nobody has begun
  std::vector<std::jthread> members;  // last: joined before anything above goes away

  void perform() {
    for (std::int64_t piece = next++; piece < pieces; piece = next++) (*work)(piece);
  }

  void serve(const std::stop_token& stop);
};

namespace {
thread_local bool inside_a_run = false;
}  // namespace

void ThreadPool::Team::serve(const std::stop_token& stop) {
  inside_a_run = true;
  std::uint64_t seen = 0;
  std::unique_lock lock(guard);
  while (wake.wait(lock, stop, [&] { return generation != seen; })) {
    seen = generation;
    lock.unlock();
    perform();
    lock.lock();
    if (--running == 0) done.notify_one();
  }
}

ThreadPool::ThreadPool(int threads) : team_(std::make_unique<Team>()) {
  if (threads <= 0) threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  team_->size = threads;
  for (int worker = 1; worker < threads; ++worker) {
    team_->members.emplace_back(
        [team = team_.get()](const std::stop_token& stop) { team->serve(stop); });
  }
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const noexcept { return team_->size; }

void ThreadPool::run(std::int64_t pieces, const std::function<void(std::int64_t)>& work) {
  if (inside_a_run || team_->size == 1 || pieces <= 1) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) work(piece);
    return;
  }
  const std::lock_guard turn(team_->turn);
  {
    const std::lock_guard lock(team_->guard);
    team_->work = &work;
    team_->pieces = pieces;
    team_->next = 0;
    team_->running = team_->size - 1;
    ++team_->generation;
  }
  team_->wake.notify_all();
  inside_a_run = true;
  team_->perform();
  inside_a_run = false;
  std::unique_lock lock(team_->guard);
  team_->done.wait(lock, [this] { return team_->running == 0; });
  team_->work = nullptr;
}

}  // namespace attest
