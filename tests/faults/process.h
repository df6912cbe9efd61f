// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <vector>

/// Programs started and waited for.
namespace attest::faults {

/// How a program ended.
struct Ending {
  bool started = false;
  bool timed_out = false;
  int signal = 0;  ///< the signal that ended it, 0 if it ended by itself
  int code = 0;    ///< its exit code

  [[nodiscard]] bool exited_with(int wanted) const {
    return started && !timed_out && signal == 0 && code == wanted;
  }
};

/// "exit code 1", "signal 11", "not finished in time".
[[nodiscard]] std::string describe(const Ending& ending);

/// Runs a program to its end, both its outputs going to `log` and its input being empty. After
/// `seconds` it and its children are killed.
[[nodiscard]] Ending run(const std::vector<std::string>& command, const std::filesystem::path& log,
                         int seconds);

}  // namespace attest::faults
