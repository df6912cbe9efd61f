// SPDX-License-Identifier: MIT
#include "tests/faults/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

extern char** environ;

namespace attest::faults {
namespace {

/// What is done with the files and the group of a child, freed when this goes.
class Spawning {
 public:
  explicit Spawning(const std::filesystem::path& log) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files_, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&files_, 1, 2);
    // A group of its own, so that a compiler's children can be ended together with it.
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes_, 0);
  }
  ~Spawning() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;

  [[nodiscard]] bool start(const std::vector<std::string>& command, pid_t& child) const {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    return posix_spawnp(&child, arguments[0], &files_, &attributes_, arguments.data(), environ) ==
           0;
  }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

std::string describe(const Ending& ending) {
  if (!ending.started) return "could not be started";
  if (ending.timed_out) return "not finished in time";
  if (ending.signal != 0) return "signal " + std::to_string(ending.signal);
  return "exit code " + std::to_string(ending.code);
}

Ending run(const std::vector<std::string>& command, const std::filesystem::path& log, int seconds) {
  using Clock = std::chrono::steady_clock;
  Ending ending;
  pid_t child = 0;
  ending.started = Spawning(log).start(command, child);
  if (!ending.started) return ending;

  const auto deadline = Clock::now() + std::chrono::seconds(seconds);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) {
      ending.timed_out = true;
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ending.code = WEXITSTATUS(status);
  return ending;
}

}  // namespace attest::faults
