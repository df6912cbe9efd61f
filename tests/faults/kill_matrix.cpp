// SPDX-License-Identifier: MIT
#include "tests/faults/kill_matrix.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace attest::faults {
namespace {

/// The columns in which a mistake shows. A signature that broke off shows from there on.
std::vector<bool> shows(const Signature& signature, const Signature& control) {
  std::vector<bool> out;
  for (std::size_t n = 0; n < control.size(); ++n) {
    out.push_back(n >= signature.size() || signature[n] != control[n]);
  }
  return out;
}

bool any(const std::vector<bool>& columns) {
  return std::find(columns.begin(), columns.end(), true) != columns.end();
}

bool tested(const Outcome& outcome) {
  return outcome.verdict == Verdict::killed || outcome.verdict == Verdict::survived;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

/// The names of the columns, written downwards.
std::string header(const Signature& control, std::size_t width) {
  std::size_t height = 1;
  for (const auto& [name, result] : control) height = std::max(height, name.size());
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    std::string row(width, ' ');
    for (const auto& [name, result] : control) {
      const std::size_t above = height - name.size();  // names end at the table
      row += ' ';
      row += line < above ? ' ' : name[line - above];
    }
    out += row + (line + 1 == height ? "  tests\n" : "\n");
  }
  return out;
}

std::string row_of(const Experiment& experiment, const Signature& control, std::size_t width) {
  std::string row = padded(experiment.mutation.name, width);
  if (!tested(experiment.outcome)) return row + " " + name_of(experiment.outcome.verdict) + "\n";
  for (const bool x : shows(experiment.outcome.signature, control)) row += x ? " x" : " .";
  const std::string tests = std::to_string(experiment.outcome.killers.size());
  row += std::string(7 - std::min<std::size_t>(tests.size(), 7), ' ') + tests;
  const std::string& detail = experiment.outcome.detail;
  return row + (detail.empty() ? "\n" : "  " + detail + "\n");
}

/// Whether neither of the workbook's fixtures shows the mistake: its columns are named wb-….
bool missed_by_listing(const Experiment& experiment, const Signature& control) {
  const auto columns = shows(experiment.outcome.signature, control);
  for (std::size_t n = 0; n < control.size(); ++n) {
    if (control[n].first.starts_with("wb-") && columns[n]) return false;
  }
  return true;
}

/// The workbook's twelve tests, as tests/lab/workbook_test.cpp has them.
constexpr std::array workbook_tests{
    "Workbook.HandCalculatedWeightsAndValues", "Workbook.CausalDirectionAndDiagonal",
    "Workbook.MaskRenormalisesVisibleKeys",    "Workbook.NoVisibleKeyIsAnError",
    "Workbook.SoftmaxShiftAndLargeScores",     "Workbook.ShapeContracts",
    "Workbook.InvalidNumbersAndMasks",         "Workbook.JointKeyValuePermutation",
    "Workbook.ConstantValuesRemainConstant",   "Workbook.MatrixMultiplication",
    "Workbook.BlockShapeAndNormalisation",     "Workbook.FutureChangeCannotChangeBlockPrefix"};

/// Whether one of the twelve fails, or does not live to judge.
bool noticed_by_workbook_tests(const Outcome& outcome) {
  return std::any_of(workbook_tests.begin(), workbook_tests.end(), [&](const char* test) {
    return outcome.killers.contains(test) || !outcome.ran.contains(test);
  });
}

std::string counted(const std::vector<std::string>& names) {
  std::string out = std::to_string(names.size()) + "\n";
  for (const std::string& name : names) out += "    " + name + "\n";
  return out;
}

/// What someone who has the workbook alone would not find.
std::string missed(const std::vector<Experiment>& experiments, const Signature& control) {
  int all = 0;
  std::vector<std::string> by_tests;
  std::vector<std::string> by_both;
  for (const auto& experiment : experiments) {
    const auto& [mutation, outcome] = experiment;
    if (!tested(outcome) || !mutation.section.starts_with("What the workbook computes")) continue;
    ++all;
    if (noticed_by_workbook_tests(outcome)) continue;
    const bool shown = !missed_by_listing(experiment, control);
    (shown ? by_tests : by_both).push_back(mutation.name);
  }
  return "Of " + std::to_string(all) +
         " mistakes in what the workbook computes, its twelve tests " +
         "miss\n  and its listing, six decimals of wb-pair and wb-block, misses too: " +
         counted(by_both) + "  but its listing shows: " + counted(by_tests);
}

}  // namespace

std::string kill_matrix(const std::vector<Experiment>& experiments, const Outcome& control) {
  std::size_t width = 0;
  for (const Experiment& experiment : experiments) {
    width = std::max(width, experiment.mutation.name.size());
  }
  std::string out = header(control.signature, width);
  std::string section;
  for (const Experiment& experiment : experiments) {
    if (experiment.mutation.section != section) {
      section = experiment.mutation.section;
      out += "-- " + section + "\n";
    }
    out += row_of(experiment, control.signature, width);
  }
  return control.signature.empty() ? out : out + "\n" + missed(experiments, control.signature);
}

std::vector<std::string> complaints(const std::vector<Experiment>& experiments,
                                    const Outcome& control) {
  std::vector<std::string> out;
  if (control.verdict != Verdict::survived) {
    out.push_back("the unmutated control does not pass: " + name_of(control.verdict) + " " +
                  control.detail);
    for (const std::string& test : control.killers) out.push_back("  it fails " + test);
  }
  for (const char* test : workbook_tests) {
    if (!control.signature.empty() && !control.ran.contains(test))
      out.push_back(std::string("there is no test ") + test);
  }
  std::map<Signature, std::string> seen;
  for (const auto& [mutation, outcome] : experiments) {
    if (outcome.verdict != Verdict::killed) {
      out.push_back(mutation.name + ": " + name_of(outcome.verdict) +
                    (outcome.detail.empty() ? "" : ", " + outcome.detail));
    }
    if (!tested(outcome)) continue;
    if (outcome.verdict == Verdict::killed && !mutation.killer.empty() &&
        !outcome.killers.contains(mutation.killer)) {
      out.push_back(mutation.name + ": " + mutation.killer + " does not notice");
    }
    if (control.signature.empty()) continue;
    if (!any(shows(outcome.signature, control.signature))) {
      out.push_back(mutation.name + ": no fixture shows it");
      continue;
    }
    const auto [before, is_new] = seen.emplace(outcome.signature, mutation.name);
    if (!is_new)
      out.push_back(mutation.name + ": looks like " + before->second + " on all fixtures");
  }
  return out;
}

}  // namespace attest::faults
