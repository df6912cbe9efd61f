// SPDX-License-Identifier: MIT
// attest diff --stages: where two implementations part, and what the second did there.
#include "frontends/cli/diff_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "attest/base/text.h"
#include "attest/check/diagnose/compare_dumps.h"
#include "attest/check/diagnose/storage.h"
#include "attest/io/json.h"
#include "frontends/cli/check_dump.h"
#include "frontends/cli/check_readings.h"
#include "frontends/cli/check_verdict.h"
#include "frontends/cli/command.h"
#include "frontends/cli/diff_inputs.h"

namespace attest::cli {
namespace {

using Differences = std::vector<check::TableDifference>;

Result<LoadedDump> load(const std::string& path, const StagesOptions& options) {
  DumpOptions of_file = options.dump;
  of_file.inputs.file = path;
  auto loaded = load_dump(of_file);
  if (!loaded) return loaded.failure();
  const bool open = !loaded->precision_said;
  if (open && loaded->dump.claim.precision == check::Precision::f64) {
    if (auto narrower = check::narrower_storage(loaded->dump)) {
      loaded->dump = std::move(narrower->dump);
      loaded->remarks.push_back(std::move(narrower->remark));
    }
  }
  for (const std::string& remark : loaded->remarks) note(sentence(path, ": ", remark));
  if (loaded->gradients) {
    for (const auto& [flag, name] : options.dump.inputs.names) {
      if (!flag.starts_with("d-")) continue;
      return Failure{
          ErrorKind::value, "not-used",
          sentence("[diff] --", flag, ": gradients are no stages; attest check has them")};
    }
    note(sentence(path, ": gradients are not compared: attest check judges them"));
  }
  return loaded;
}

/// The first's claim; where nobody makes one, the usual reading that gives its numbers.
Result<void> settle_claim(LoadedDump& first, const std::string& path) {
  if (first.claimed) return {};
  CheckProgress progress("diff");
  const auto readings = compare_usual_readings(first, progress.function());
  if (!readings) return readings.failure();
  const auto found = std::ranges::find(*readings, true, &Reading::reproduces);
  note(found == readings->end()
           ? sentence(path, ": no usual reading gives its numbers; taking plain attention")
           : sentence(path, ": taken as ", found->flags));
  return {};
}

std::string text_of(const InputDifferences& inputs, const Differences& stages) {
  std::string out = fmt::format("{}  {}  {}  {}  {}  first that differs\n", left("stage", 11),
                                right("numbers", 9), right("differ", 9), right("largest", 9),
                                right("/rounding", 9));
  out += rows_of(inputs);
  for (const check::TableDifference& each : stages) {
    out += row_of(check::name_of(each.stage), each);
  }
  return out + said_of_missing(inputs);
}

std::string json_of(const InputDifferences& inputs, const Differences& stages,
                    const check::Dump* judged, const check::Diagnosis* diagnosis) {
  std::string out =
      "{\"attest-diff-stages\":1,\"inputs\":" + json_list_of(inputs) + ",\"stages\":[";
  for (const check::TableDifference& each : stages) {
    if (out.back() != '[') out += ',';
    out += "{\"stage\":";
    io::append_json_string(out, check::name_of(each.stage));
    out += fmt::format(",\"compared\":{},\"different\":{},\"nan_both\":{}", each.compared,
                       each.different, each.nan_both);
    append_size_and_place(out, each);
    out += '}';
  }
  out += "],\"first_different\":";
  const auto differs = std::ranges::find_if(
      stages, [](const check::TableDifference& each) { return each.different > 0; });
  if (const check::InputDifference* input = first_different(inputs)) {
    io::append_json_string(out, input->name);
  } else if (differs == stages.end()) {
    out += "null";
  } else {
    io::append_json_string(out, check::name_of(differs->stage));
  }
  if (diagnosis != nullptr) out += ",\"diagnosis\":" + check::to_json(*judged, *diagnosis);
  return out + "}\n";
}

}  // namespace

CLI::Option* add_stages_options(CLI::App& command, StagesOptions& o) {
  auto* stages = command.add_flag("--stages", o.chosen,
                                  "Compare two dumps of attention stage by stage, beyond rounding, "
                                  "and say what explains the first that differs");
  const std::vector<CLI::Option*> before = command.get_options();
  add_dump_options(command, o.dump);
  command.remove_option(command.get_option("FILE"));
  for (CLI::Option* option : command.get_options()) {
    if (std::ranges::find(before, option) != before.end()) continue;
    option->needs(stages)->group("With --stages, as attest check has them");
  }
  return stages;
}

/// No stage differs: whether that is a match.
int tell_match(const InputDifferences& inputs, const Differences& stages, bool json) {
  std::int64_t unknown = 0;
  for (const check::TableDifference& each : stages) unknown += each.nan_both;
  const std::string end = unknown == 0
                              ? std::string("match: no stage differs beyond rounding\n")
                              : sentence("cannot tell: ", unknown, " numbers are NaN in both\n");
  const int written =
      write_out(json ? json_of(inputs, stages, nullptr, nullptr) : text_of(inputs, stages) + end);
  if (written != Exit::done) return written;
  return unknown == 0 ? Exit::done : Exit::cannot_tell;
}

int diff_stages(const std::string& first_path, const std::string& second_path,
                const StagesOptions& options, bool json) {
  auto first = load(first_path, options);
  if (!first) return fail(in_words_of_options(first.failure()));
  auto second = load(second_path, options);
  if (!second) return fail(in_words_of_options(second.failure()));
  if (auto ok = settle_claim(*first, first_path); !ok) {
    return fail(in_words_of_options(ok.failure()));
  }
  const auto stages = check::compare_stages(first->dump, second->dump);
  if (!stages) return fail(stages.failure());
  const auto inputs = check::compare_inputs(first->dump.claim, second->dump.claim);
  if (!inputs) return fail(inputs.failure());
  if (const check::InputDifference* input = first_different(*inputs)) {
    const int written = write_out(
        json ? json_of(*inputs, *stages, nullptr, nullptr)
             : text_of(*inputs, *stages) +
                   fmt::format("the inputs differ, {} first: nothing is said of the stages until "
                               "both are given the same\n",
                               input->name));
    return written == Exit::done ? Exit::differs : written;
  }
  const auto differs = std::ranges::find_if(
      *stages, [](const check::TableDifference& each) { return each.different > 0; });
  if (differs == stages->end()) return tell_match(*inputs, *stages, json);
  const check::Dump judged = check::dump_at_stage(first->dump, second->dump, differs->stage);
  const auto diagnosis = diagnosed(*first, judged, 3);
  if (!diagnosis) {  // that they differ is known all the same
    note(in_words_of_options(diagnosis.failure()).message);
    const int told =
        write_out(json ? json_of(*inputs, *stages, nullptr, nullptr) : text_of(*inputs, *stages));
    return told == Exit::done ? Exit::differs : told;
  }
  const std::string text = json ? json_of(*inputs, *stages, &judged, &*diagnosis)
                                : text_of(*inputs, *stages) +
                                      fmt::format(
                                          "first stage that differs: {}\n\nthe second, from the "
                                          "first's tensors before that stage:\n",
                                          check::name_of(differs->stage)) +
                                      check::to_text(judged, *diagnosis);
  const int written = write_out(text);
  return written == Exit::done ? Exit::differs : written;
}

}  // namespace attest::cli
