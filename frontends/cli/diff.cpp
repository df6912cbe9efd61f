// SPDX-License-Identifier: MIT
#include <memory>
#include <optional>

#include "attest/check/difference.h"
#include "frontends/cli/command.h"
#include "frontends/cli/print.h"
#include "frontends/cli/read_stages.h"

namespace attest::cli {
namespace {

struct DiffOptions {
  std::string first;
  std::string second;
  check::DifferenceOptions tolerance;
  bool nan_matches = false;
  bool json = false;
};

int diff(DiffOptions o) {
  if (o.first == "-" && o.second == "-") {
    return fail({ErrorKind::value, "usage", "[diff] standard input can be one of the two only"});
  }
  if (o.nan_matches) o.tolerance.shared_nan = check::SharedNaN::matches;
  std::optional<Progress> progress("diff");
  const auto first = read_stages(o.first);
  if (!first) return fail(first.failure());
  const auto second = read_stages(o.second);
  if (!second) return fail(second.failure());
  const auto report = check::compare(*first, *second, o.tolerance);
  progress.reset();
  const int written = write_out(o.json ? to_json(report) + "\n" : to_text(report));
  if (written != Exit::done) return written;
  switch (report.verdict) {
    case check::Verdict::match:
      return Exit::done;
    case check::Verdict::differs:
      return Exit::differs;
    case check::Verdict::undecided:
      return Exit::cannot_tell;
  }
  return Exit::cannot_tell;
}

constexpr const char* footer = R"(
A and B are traces written by `attest trace --json`, or tensor files of any format; A is the
reference. Without a tolerance only equal numbers match; with several, one that holds is enough.
NaN patterns are compared before numbers, and a NaN in both decides nothing unless --nan-matches.
Exit 0 match, 1 differs, 2 bad input, 3 cannot be told (nothing was compared, or NaN in both).

Examples:
  attest trace --json > a.jsonl
  attest trace --scale 1 --json > b.jsonl
  attest diff a.jsonl b.jsonl
  attest diff mine.safetensors theirs.npz --ulp 2)";

}  // namespace

void add_diff(CLI::App& app, Action& action) {
  auto o = std::make_shared<DiffOptions>();
  auto* command =
      app.add_subcommand("diff", "Compare two dumps and name the first number that differs");
  command->footer(footer);
  command->add_option("A", o->first, "The reference")->required();
  command->add_option("B", o->second, "What is compared with it")->required();
  command->add_option("--ulp", o->tolerance.ulp, "Accept this many units in the last place");
  command->add_option("--abs", o->tolerance.absolute, "Accept this absolute difference")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rel", o->tolerance.relative, "Accept this relative difference")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--nan-matches", o->nan_matches, "NaN in both counts as equal");
  command->add_flag("--json", o->json, "The report as JSON");
  command->callback([&action, o] { action = [o] { return diff(*o); }; });
}

}  // namespace attest::cli
