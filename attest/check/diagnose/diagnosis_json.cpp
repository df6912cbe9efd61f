// SPDX-License-Identifier: MIT
// A diagnosis for programs.
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/io/json.h"

namespace attest::check {
namespace {

void append_name(std::string& out, std::string_view name) {
  if (out.back() != '{') out += ",";
  io::append_json_string(out, name);
  out += ":";
}

void append_text(std::string& out, std::string_view name, std::string_view text) {
  append_name(out, name);
  io::append_json_string(out, text);
}

void append_number(std::string& out, std::string_view name, double value) {
  append_name(out, name);
  io::append_json_number(out, value);
}

void append_count(std::string& out, std::string_view name, std::int64_t value) {
  append_name(out, name);
  out += sentence(value);
}

void append_texts(std::string& out, std::string_view name, const std::vector<std::string>& texts) {
  append_name(out, name);
  out += "[";
  for (std::size_t n = 0; n < texts.size(); ++n) {
    if (n > 0) out += ",";
    io::append_json_string(out, texts[n]);
  }
  out += "]";
}

void append_cell(std::string& out, std::string_view name, const std::optional<Cell>& cell) {
  append_name(out, name);
  if (!cell) {
    out += "null";
    return;
  }
  out += "{";
  append_text(out, "address", cell->address);
  append_number(out, "found", cell->found);
  append_number(out, "expected", cell->expected);
  append_number(out, "tolerance", cell->tolerance);
  append_text(out, "sentence", cell->sentence);
  out += "}";
}

void append_stage(std::string& out, const StageJudgement& stage) {
  out += "{";
  append_text(out, "name", stage.name);
  append_text(out, "stage", stage.stage);
  append_count(out, "compared", stage.compared);
  append_count(out, "wrong", stage.wrong);
  append_count(out, "nan_apart", stage.nan_apart);
  append_number(out, "worst", stage.worst);
  append_number(out, "used", stage.used);
  append_text(out, "link", stage.link);
  append_cell(out, "first_wrong", stage.first_wrong);
  append_cell(out, "worst_cell", stage.worst_cell);
  out += "}";
}

void append_explanations(std::string& out, std::string_view name,
                         const std::vector<Explanation>& explanations) {
  append_name(out, name);
  out += "[";
  for (std::size_t n = 0; n < explanations.size(); ++n) {
    const Explanation& one = explanations[n];
    out += n > 0 ? ",{" : "{";
    append_name(out, "mistakes");
    out += "[";
    for (std::size_t m = 0; m < one.mistakes.size(); ++m) {
      const Made& made = one.mistakes[m];
      out += m > 0 ? ",{" : "{";
      append_text(out, "name", made.mistake->name);
      append_text(out, "label", made.label());
      append_text(out, "what", made.mistake->what);
      append_text(out, "look_for", made.mistake->look_for);
      append_text(out, "seen_in", made.mistake->seen_in);
      out += "}";
    }
    out += "]";
    append_texts(out, "fitted", one.fitted);
    append_number(out, "distance", one.distance);
    append_number(out, "apart", one.apart);
    append_texts(out, "same", one.same);
    out += "}";
  }
  out += "]";
}

void append_findings(std::string& out, const Diagnosis& diagnosis) {
  append_text(out, "tolerance", diagnosis.tolerance);
  append_name(out, "stages");
  out += "[";
  for (std::size_t n = 0; n < diagnosis.stages.size(); ++n) {
    if (n > 0) out += ",";
    append_stage(out, diagnosis.stages[n]);
  }
  out += "]";
  append_text(out, "first_wrong_stage", diagnosis.first_wrong_stage);
  append_texts(out, "where", diagnosis.where);
  append_text(out, "unsaid", diagnosis.unsaid);
  append_explanations(out, "explanations", diagnosis.explanations);
  append_explanations(out, "nearest", diagnosis.nearest);
  append_number(out, "margin", diagnosis.margin);
  append_texts(out, "would_decide", diagnosis.would_decide);
  append_texts(out, "remarks", diagnosis.remarks);
  append_count(out, "tried", diagnosis.tried);
  append_name(out, "sampled");
  out += diagnosis.sampled ? "true}" : "false}";
}

}  // namespace

std::string to_json(const Dump& dump, const Diagnosis& diagnosis) {
  const lab::AttentionShape& shape = dump.claim.shape;
  std::string out = "{";
  append_text(out, "verdict", name_of(diagnosis.judgement));
  append_text(out, "precision", name_of(dump.claim.precision));
  append_name(out, "shape");
  out += sentence("{\"B\":", shape.B, ",\"H\":", shape.H, ",\"G\":", shape.G, ",\"T\":", shape.T,
                  ",\"S\":", shape.S, ",\"D\":", shape.D, ",\"E\":", shape.E, "}");
  append_findings(out, diagnosis);
  return out;
}

std::string to_json(const std::string& compared, const Diagnosis& diagnosis) {
  std::string out = "{";
  append_text(out, "verdict", name_of(diagnosis.judgement));
  append_text(out, "compared", compared);
  append_findings(out, diagnosis);
  return out;
}

}  // namespace attest::check
