// SPDX-License-Identifier: MIT
// Are the tests any good? This program makes the mistakes of mutations.txt, one at a time, in
// copies of the library's source, and asks whether tests notice.
//
// For each mistake a copy is edited and compiled like the original, and linked before the unmutated
// library with the objects of the test programs, which are compiled once. Then the tests must fail
// by assertion: a mistake that survives, that crashes, or that does not even compile proves
// nothing, and ends in a complaint. An unmutated control goes through the same steps and must pass.
//
// The same copies are linked with fixture_signature, which prints what every fixture gives. A
// mistake must show on a fixture, and no two may look alike on all of them: otherwise a wrong
// result could not be told to be this mistake and not that. The result is a matrix of mistakes and
// fixtures. The engine has no such program: there a mistake names the test that must notice it.
//
// Below the work folder each mistake leaves NAME/diff, build.log, test.log and signature.txt; the
// matrix is kill-matrix.txt. Exit code 0 if there is no complaint, 1 if there is, 2 for a wrong
// call.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/faults/experiment.h"
#include "tests/faults/kill_matrix.h"
#include "tests/faults/mutations.h"

namespace attest::faults {
namespace {

constexpr const char* usage =
    "usage: fault_experiments SETUP [--table FILE] [--work FOLDER] [--only NAME] [--workers N]\n"
    "                               [--list]\n"
    "SETUP is the file that CMake writes; NAME is one of the mistakes that --list shows.\n";

struct Arguments {
  Setup setup;
  std::string only;
  unsigned workers = std::max(1U, std::thread::hardware_concurrency());
  bool list = false;
};

/// Whether the words make sense; the file of the setup is read on the way.
bool parse(const std::vector<std::string>& words, Arguments& out) {
  if (words.empty() || words[0].starts_with("--")) return false;
  out.setup = read_setup(words[0]);
  for (std::size_t n = 1; n < words.size(); ++n) {
    if (words[n] == "--list") {
      out.list = true;
      continue;
    }
    if (n + 1 == words.size()) return false;
    const std::string& option = words[n];
    const std::string& value = words[++n];
    if (option == "--table")
      out.setup.table = value;
    else if (option == "--work")
      out.setup.work = value;
    else if (option == "--only")
      out.only = value;
    else if (option != "--workers")
      return false;
    else if (std::from_chars(value.data(), value.data() + value.size(), out.workers).ec !=
             std::errc{})
      return false;
  }
  return out.workers > 0;
}

/// Does all experiments, several at a time; what comes out does not depend on how many.
Outcome experiment(const Setup& setup, std::vector<Experiment>& experiments, unsigned workers) {
  std::set<std::string> files;
  for (const Experiment& each : experiments) files.insert(each.mutation.unit);
  Outcome control;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n <= experiments.size(); n = next++) {
      if (n == 0)
        control = try_control(setup, files);
      else
        experiments[n - 1].outcome = try_mutation(setup, experiments[n - 1].mutation);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < workers; ++n) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return control;
}

int report(const Setup& setup, const std::vector<Experiment>& experiments, const Outcome& control) {
  const auto wrong = complaints(experiments, control);
  std::string text = kill_matrix(experiments, control) + "\n";
  for (const std::string& line : wrong) text += line + "\n";
  const auto killed = std::count_if(experiments.begin(), experiments.end(), [](const auto& each) {
    return each.outcome.verdict == Verdict::killed;
  });
  text += std::to_string(killed) + " of " + std::to_string(experiments.size()) +
          " mistakes killed, " + std::to_string(wrong.size()) + " complaints\n";
  std::ofstream(setup.work / "kill-matrix.txt") << text;
  std::fputs(text.c_str(), stdout);
  return wrong.empty() ? 0 : 1;
}

int main_of(const std::vector<std::string>& words) {
  Arguments arguments;
  if (!parse(words, arguments)) {
    std::fputs(usage, stderr);
    return 2;
  }
  Table table = parse_mutations(read_text(arguments.setup.table));
  if (table.mutations.empty() && table.error.empty()) table.error = "there is no mistake in it";
  if (!table.error.empty()) {
    std::fprintf(stderr, "%s: %s\n", arguments.setup.table.c_str(), table.error.c_str());
    return 2;
  }
  std::vector<Experiment> experiments;
  for (Mutation& mutation : table.mutations) {
    if (arguments.list) std::printf("%-32s %s\n", mutation.name.c_str(), mutation.what.c_str());
    const bool wanted = arguments.only.empty() || arguments.only == mutation.name;
    if (wanted) experiments.push_back({std::move(mutation), {}});
  }
  if (arguments.list) return 0;
  if (experiments.empty()) {
    std::fprintf(stderr, "there is no mistake named %s\n", arguments.only.c_str());
    return 2;
  }
  // The laws among the tests draw the same inputs in every run; a smaller counterexample would cost
  // time and change no verdict.
  setenv("RC_PARAMS", "seed=20170612 noshrink=1", 1);
  for (const std::string& set : arguments.setup.environment) {
    const std::size_t equals = set.find('=');
    setenv(set.substr(0, equals).c_str(), set.substr(equals + 1).c_str(), 1);
  }
  std::filesystem::create_directories(arguments.setup.work);
  const Outcome control = experiment(arguments.setup, experiments, arguments.workers);
  return report(arguments.setup, experiments, control);
}

}  // namespace
}  // namespace attest::faults

int main(int argc, char** argv) {
  try {
    return attest::faults::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fault_experiments: %s\n", error.what());
    return 2;
  }
}
