// SPDX-License-Identifier: MIT
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/check/difference.h"
#include "frontends/cli/command.h"
#include "frontends/cli/diff_stages.h"
#include "frontends/cli/options.h"
#include "frontends/cli/print.h"
#include "frontends/cli/read_stages.h"

namespace attest::cli {
namespace {

struct DiffOptions {
  std::string first;
  std::string second;
  check::DifferenceOptions tolerance;
  std::optional<std::int64_t> ulp;
  std::vector<std::string> only;
  bool nan_matches = false;
  bool json = false;
  StagesOptions stages;
};

bool holds(const check::NamedStages& stages, const std::string& name) {
  return std::ranges::any_of(stages, [&](const auto& stage) { return stage.first == name; });
}

/// The stages that --only names, in their order; all of them if it names none.
check::NamedStages chosen(const check::NamedStages& stages, const std::vector<std::string>& only) {
  if (only.empty()) return stages;
  check::NamedStages out;
  for (const auto& stage : stages) {
    if (std::ranges::find(only, stage.first) != only.end()) out.push_back(stage);
  }
  return out;
}

int diff(DiffOptions o) {
  if (o.first == "-" && o.second == "-") {
    return fail({ErrorKind::value, "usage", "[diff] standard input can be one of the two only"});
  }
  if (o.stages.chosen) return diff_stages(o.first, o.second, o.stages, o.json);
  if (o.ulp) o.tolerance.ulp = static_cast<std::uint64_t>(*o.ulp);
  if (o.nan_matches) o.tolerance.shared_nan = check::SharedNaN::matches;
  std::optional<Progress> progress("diff");
  const auto first = read_stages(o.first);
  if (!first) return fail(first.failure());
  const auto second = read_stages(o.second);
  if (!second) return fail(second.failure());
  for (const std::string& name : o.only) {
    if (holds(*first, name) || holds(*second, name)) continue;
    return fail({ErrorKind::value, "no-such-tensor",
                 "[diff] --only " + name + ": neither file holds a tensor of that name"});
  }
  const auto report = check::compare(chosen(*first, o.only), chosen(*second, o.only), o.tolerance);
  progress.reset();
  const int written = write_out(o.json ? to_json(report) + "\n" : to_text(report));
  if (written != Exit::done) return written;
  return exit_of(report.verdict);
}

constexpr const char* footer = R"(
A and B are traces written by `attest trace --json`, or tensor files of any format; A is the
reference. Without a tolerance only equal numbers match; with several, one that holds is enough.
Outputs near zero have few right digits: judge them by --abs, at the scale of the values.
NaN patterns are compared before numbers, and a NaN in both decides nothing unless --nan-matches.
A tensor that only one of them holds is a difference; --only NAME leaves the others out. Files
without names (.npy, a JSON array) are compared with each other whatever they are called.
Exit 0 match, 1 differs, 2 bad input, 3 cannot be told (no number was compared, or NaN in both).

--stages takes two dumps of attention as `attest check` reads them, and finds the first stage
(dot, scaled, ... weights, output) at which they differ beyond the rounding of their number types.
What the second did there is then judged from the first's tensors before that stage.

Examples:
  attest trace --json > a.jsonl
  attest trace --scale 1 --json > b.jsonl
  attest diff a.jsonl b.jsonl
  attest diff mine.safetensors theirs.npz --only output --abs 1e-6
  attest diff --stages mine.safetensors theirs.npz --causal)";

}  // namespace

void add_diff(CLI::App& app, Action& action) {
  auto o = std::make_shared<DiffOptions>();
  auto* command =
      app.add_subcommand("diff", "Compare two dumps and name the first number that differs");
  command->footer(footer);
  command->add_option("A", o->first, "The reference")->required();
  command->add_option("B", o->second, "What is compared with it")->required();
  auto* stages = add_stages_options(*command, o->stages);
  add_integer(*command, "--ulp", o->ulp, "Accept this many units in the last place", {.least = 0});
  add_number(*command, "--abs", o->tolerance.absolute, "Accept this absolute difference",
             NumberRange::not_negative);
  add_number(*command, "--rel", o->tolerance.relative, "Accept this relative difference",
             NumberRange::not_negative);
  command->add_option("--only", o->only, "Compare this tensor or stage alone; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--nan-matches", o->nan_matches, "NaN in both counts as equal");
  command->add_flag("--json", o->json, "The report as JSON");
  for (const char* plain : {"--ulp", "--abs", "--rel", "--only", "--nan-matches"}) {
    stages->excludes(command->get_option(plain));
  }
  command->callback([&action, o] { action = [o] { return diff(*o); }; });
}

}  // namespace attest::cli
