// SPDX-License-Identifier: MIT
#include "attest/check/verify.h"

#include <memory>
#include <optional>

#include "frontends/cli/command.h"
#include "frontends/cli/options.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

struct Options {
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> cases;
  bool json = false;
};

int verify(const Options& o) {
  std::optional<Progress> progress("verify");
  check::VerifyOptions options;
  if (o.seed) options.seed = *o.seed;
  if (o.cases) options.cases = *o.cases;
  options.progress = [&](std::string_view, std::int64_t done, std::int64_t sections) {
    progress->show(done, sections);
  };
  const auto report = check::verify(options);
  progress.reset();
  const int written = write_out(o.json ? to_json(report) + "\n" : to_text(report));
  if (written != Exit::done) return written;
  return report.passed() ? Exit::done : Exit::differs;
}

constexpr const char* footer = R"(
The workbook's release verification and what the library adds to it: hand-calculated facts,
invariants with the stage each belongs to, random cases and gradients against the 50-digit oracle,
the future-change experiment, permutation, constant values, elementary functions, errors.
Exit 0 if everything held, 1 on any failure.

Examples:
  attest verify
  attest verify --seed 7 --cases 1000
  attest verify --json > report.json)";

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  auto* command =
      app.add_subcommand("verify", "Verify the exact tier against the oracle and its laws");
  command->footer(footer);
  add_unsigned(*command, "--seed", o->seed, "Of the random cases");
  add_integer(*command, "--cases", o->cases, "Random cases of each family (default and least 120)",
              {.least = check::release_cases, .most = 1000000});
  command->add_flag("--json", o->json, "The report as JSON");
  command->callback([&action, o] { action = [o] { return verify(*o); }; });
}

}  // namespace attest::cli
