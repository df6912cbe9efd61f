// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <vector>

#include "attest/base/error.h"
#include "attest/base/result.h"
#include "attest/check/difference.h"

namespace attest::cli {

/// How the command ends.
enum Exit : int {
  done = 0,         ///< done, or match
  differs = 1,      ///< a comparison or a verification found something
  bad_input = 2,    ///< bad input or usage
  cannot_tell = 3,  ///< this input cannot decide
};

/// How a command ends that came to a verdict.
Exit exit_of(check::Verdict verdict);

/// Prints one line, `error <id>: <sentence>`, to standard error and returns bad_input.
int fail(const Failure& failure);

/// Prints one line, `note: …`, to standard error: what was taken for granted.
void note(const std::string& text);

/// Writes results to standard output; a closed pipe or a full disk is a failure, not a silence.
int write_out(const std::string& text);

/// Whether a file can be written there, before anything is calculated for it: whether it is no folder,
/// may be written to if it is there, and its folder if it is not. "-" can. Fails with cannot-write.
[[nodiscard]] Result<void> can_write(const std::string& option, const std::string& path);

/// Runs a subcommand after its options have been read; returns the exit code.
using Action = std::function<int()>;

/// Each adds one subcommand (or two that belong together) and says what it will do when chosen.
void add_demo(CLI::App& app, Action& action);
void add_exact(CLI::App& app, Action& action);
void add_attend(CLI::App& app, Action& action);
void add_check(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
void add_diff(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_probe(CLI::App& app, Action& action);

}  // namespace attest::cli
