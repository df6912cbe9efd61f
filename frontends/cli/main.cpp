// SPDX-License-Identifier: MIT
// The command: reads options, calls the library, prints. No arithmetic lives here.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "attest/base/text.h"
#include "frontends/cli/arguments.h"
#include "frontends/cli/command.h"
#include "frontends/cli/print.h"

namespace attest::cli {

namespace {

/// A closed or full standard error is no reason to fail: the exit code still says it.
void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

/// Files must never get the numbers of the three standard streams: what is then printed would land in
/// them. A stream that was closed is opened the wrong way round, so that using it fails.
void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1) continue;
    const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != stream) close(opened);
  }
}

}  // namespace

int fail(const Failure& failure) {
  say("error " + failure.id + ": " + one_line(failure.message, 2000));
  return Exit::bad_input;
}

Exit exit_of(check::Verdict verdict) {
  switch (verdict) {
    case check::Verdict::match:
      return Exit::done;
    case check::Verdict::differs:
      return Exit::differs;
    case check::Verdict::undecided:
      break;
  }
  return Exit::cannot_tell;
}

void note(const std::string& text) { say("note: " + one_line(text, 2000)); }

Result<void> can_write(const std::string& option, const std::string& path) {
  const auto bad = [&](std::string_view why) {
    return Failure{ErrorKind::file, "cannot-write",
                   sentence("[attest] ", option, " ", path, ": ", why)};
  };
  namespace files = std::filesystem;
  if (path == "-") return {};
  std::error_code error;
  const files::file_status there = files::status(path, error);
  if (files::is_directory(there)) return bad("is a folder; name a file in it");
  if (files::exists(there) && access(path.c_str(), W_OK) != 0) return bad("cannot be written to");
  if (files::exists(there) && !files::is_regular_file(there)) return {};
  const files::path folder = files::path(path).parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
    return bad("its folder cannot be written to");
  }
  return {};
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
  attest check dump.safetensors --causal bottom-right --html report.html
  attest trace --workbook two-position --causal --row 1
  attest why --workbook block 'h0.weights[2,2]'
  attest attend dump.safetensors --causal bottom-right --out result.npz
  attest attend dump.safetensors --compare
  attest probe probe.safetensors --features causal --snippet numpy
  attest verify
  attest inspect --isa
)";

/// CLI11 explains in several lines; the convention here is one sentence.
int usage_error(const CLI::ParseError& error) {
  std::string message = error.what();
  for (char& c : message) c = c == '\n' ? ' ' : c;
  return fail({ErrorKind::value, "usage", "[attest] " + message + " (see attest --help)"});
}

/// CLI11 does not say which word it took for a command.
bool names_no_command(const CLI::App& app, const std::vector<std::string>& reversed) {
  if (reversed.empty() || reversed.back().starts_with('-')) return false;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == reversed.back()) return false;
  }
  return true;
}

int run(int argc, char** argv) {
  reserve_standard_streams();
  CLI::App app{description};
  app.name("attest");
  app.set_version_flag("--version", "attest " ATTEST_VERSION);
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  Action action;
  add_demo(app, action);
  add_exact(app, action);
  add_check(app, action);
  add_attend(app, action);
  add_trace(app, action);
  add_diff(app, action);
  add_verify(app, action);
  add_bench(app, action);
  add_probe(app, action);
  add_inspect(app, action);
  std::vector<std::string> arguments = normalised_arguments(argc, argv);
  if (names_no_command(app, arguments)) {
    return fail({ErrorKind::value, "usage",
                 "[attest] there is no command '" + arguments.back() + "' (see attest --help)"});
  }
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
  } catch (const std::length_error&) {
    return attest::cli::fail(
        {ErrorKind::value, "out-of-memory", "[attest] more than memory can hold"});
  } catch (const std::exception& error) {
    return attest::cli::fail(
        {ErrorKind::value, "internal", std::string("[attest] ") + error.what()});
  }
}
