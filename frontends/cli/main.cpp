// SPDX-License-Identifier: MIT
// The command: reads options, calls the library, prints. No arithmetic lives here.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <new>

#include "attest/base/text.h"
#include "frontends/cli/arguments.h"
#include "frontends/cli/command.h"

namespace attest::cli {

int fail(const Failure& failure) {
  fmt::print(stderr, "error {}: {}\n", failure.id, failure.message);
  return Exit::bad_input;
}

int write_out(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return Exit::done;
  return fail({ErrorKind::file, "cannot-write", "[attest] standard output cannot be written"});
}

namespace {

constexpr const char* description = R"(Attention you can check.

Examples:
  attest demo
  attest trace --workbook two-position --causal --row 1
  attest why --workbook block 'h0.weights[2,2]'
  attest attend dump.safetensors --causal bottom-right --out result.npz
  attest verify
)";

/// CLI11 explains in several lines; the convention here is one sentence.
int usage_error(const CLI::ParseError& error) {
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  return fail({ErrorKind::value, "usage", "[attest] " + message + " (see attest --help)"});
}

int run(int argc, char** argv) {
  CLI::App app{description};
  app.name("attest");
  app.set_version_flag("--version", "attest " ATTEST_VERSION);
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  Action action;
  add_demo(app, action);
  add_exact(app, action);
  add_attend(app, action);
  add_trace(app, action);
  add_diff(app, action);
  add_verify(app, action);
  std::vector<std::string> arguments = normalised_arguments(argc, argv);
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp& help) {
    return write_out(app.help("", CLI::AppFormatMode::Normal)) + (help.get_exit_code());
  } catch (const CLI::CallForVersion& version) {
    return write_out(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    return usage_error(error);
  }
  return action();
}

}  // namespace
}  // namespace attest::cli

int main(int argc, char** argv) {
  using attest::ErrorKind;
  try {
    return attest::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return attest::cli::fail({ErrorKind::value, "out-of-memory", "[attest] not enough memory"});
  } catch (const std::exception& error) {
    return attest::cli::fail(
        {ErrorKind::value, "internal", std::string("[attest] ") + error.what()});
  }
}
