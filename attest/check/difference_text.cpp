// SPDX-License-Identifier: MIT
// How a difference report reads: text for people, JSON for programs.
#include "attest/base/text.h"
#include "attest/check/difference.h"
#include "attest/io/json.h"

namespace attest::check {
namespace {

std::string counts_of_nan(const StageDifference& stage) {
  std::string out;
  if (stage.nan_in_both > 0) out += sentence(", NaN in both ", stage.nan_in_both);
  if (stage.nan_in_first > 0) out += sentence(", NaN only in the first ", stage.nan_in_first);
  if (stage.nan_in_second > 0) out += sentence(", NaN only in the second ", stage.nan_in_second);
  return out;
}

void append_number(std::string& out, std::string_view name, double value) {
  out += sentence(",\"", name, "\":");
  io::append_json_number(out, value);
}

void append_element(std::string& out, const std::optional<ElementDifference>& at) {
  if (!at) {
    out += "null";
    return;
  }
  out += "{\"address\":";
  io::append_json_string(out, at->address);
  out += sentence(",\"kind\":\"", name_of(at->kind), "\"");
  append_number(out, "first", at->first);
  append_number(out, "second", at->second);
  append_number(out, "absolute", at->absolute);
  append_number(out, "relative", at->relative);
  out += sentence(",\"ulp\":", at->ulp, "}");
}

void append_stage(std::string& out, const StageDifference& stage) {
  out += "{\"name\":";
  io::append_json_string(out, stage.name);
  out += sentence(",\"verdict\":\"", name_of(stage.verdict), "\",\"structure\":\"",
                  name_of(stage.structure), "\",\"note\":");
  io::append_json_string(out, stage.note);
  out += sentence(",\"ulp_of\":\"", attest::name_of(stage.coarser),
                  "\",\"compared\":", stage.compared, ",\"differing\":", stage.differing,
                  ",\"nan_in_both\":", stage.nan_in_both, ",\"nan_in_first\":", stage.nan_in_first,
                  ",\"nan_in_second\":", stage.nan_in_second);
  append_number(out, "max_absolute", stage.max_absolute);
  append_number(out, "max_relative", stage.max_relative);
  out += sentence(",\"max_ulp\":", stage.max_ulp, ",\"first\":");
  append_element(out, stage.first);
  out += ",\"worst\":";
  append_element(out, stage.worst);
  out += "}";
}

}  // namespace

std::string_view name_of(DifferenceKind kind) noexcept {
  switch (kind) {
    case DifferenceKind::none:
      return "none";
    case DifferenceKind::number:
      return "number";
    case DifferenceKind::infinity:
      return "infinity";
    case DifferenceKind::nan:
      return "nan";
    case DifferenceKind::shape:
      return "shape";
    case DifferenceKind::missing:
      return "missing";
  }
  return "none";
}

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::match:
      return "match";
    case Verdict::differs:
      return "differs";
    case Verdict::undecided:
      return "undecided";
  }
  return "undecided";
}

std::string to_text(const DifferenceReport& report) {
  std::string out;
  for (const StageDifference& stage : report.stages) {
    out += sentence(stage.name, ": ", name_of(stage.verdict));
    if (stage.structure != DifferenceKind::none) {
      out += sentence(" (", name_of(stage.structure), ": ", stage.note, ")\n");
      continue;
    }
    out += sentence(", ", stage.compared, " compared, ", stage.differing, " differ",
                    counts_of_nan(stage), "; at most ", stage.max_absolute, " absolute, ",
                    stage.max_relative, " relative, ", stage.max_ulp, " ulp (",
                    attest::name_of(stage.coarser), ")\n");
  }
  if (report.first) {
    const ElementDifference& at = *report.first;
    out += sentence("first difference: ", at.address, " (", name_of(at.kind), ")");
    if (at.kind != DifferenceKind::missing && at.kind != DifferenceKind::shape) {
      out += sentence(": ", at.first, " against ", at.second);
    }
    if (at.kind == DifferenceKind::number) {
      out += sentence(", ", at.absolute, " absolute, ", at.relative, " relative, ", at.ulp, " ulp");
    }
    out += "\n";
  }
  out += sentence(name_of(report.verdict), ": ", report.compared, " elements compared, ",
                  report.differing, " differ\n");
  return out;
}

std::string to_json(const DifferenceReport& report) {
  std::string out =
      sentence("{\"verdict\":\"", name_of(report.verdict), "\",\"compared\":", report.compared,
               ",\"differing\":", report.differing, ",\"first\":");
  append_element(out, report.first);
  out += ",\"stages\":[";
  for (std::size_t n = 0; n < report.stages.size(); ++n) {
    if (n > 0) out += ",";
    append_stage(out, report.stages[n]);
  }
  out += "]}";
  return out;
}

}  // namespace attest::check
