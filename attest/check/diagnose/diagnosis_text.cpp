// SPDX-License-Identifier: MIT
// A diagnosis on one screen.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"

namespace attest::check {
namespace {

constexpr std::size_t line_width = 92;
constexpr std::size_t most_remarks = 4;

/// A paragraph whose lines after the first stand under its text.
void add_paragraph(std::string& out, std::string_view head, std::string_view text) {
  constexpr std::size_t margin = 12;
  std::string line(head);
  line.resize(std::max(line.size() + 1, margin), ' ');
  bool first = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!first && line.size() + 1 + word.size() > line_width) {
      out += line + "\n";
      line = std::string(margin, ' ');
      first = true;
    }
    line += (first ? "" : " ") + std::string(word);
    first = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += line + "\n";
}

std::string joined(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += between;
    out += part;
  }
  return out;
}

std::string times(double margin) {
  if (std::isinf(margin)) return "apart in where NaN stands";
  return sentence(three_digits(margin), " times what is left");
}

std::string label_of(const Explanation& explanation) {
  std::vector<std::string> labels;
  for (const Made& made : explanation.mistakes) labels.push_back(made.label());
  if (labels.empty() && !explanation.fitted.empty()) return explanation.fitted.front();
  return labels.empty() ? "as claimed" : joined(labels, " + ");
}

std::string headline(const Diagnosis& diagnosis) {
  switch (diagnosis.judgement) {
    case Judgement::right:
      return "RIGHT: every number is what the claim computes, within typical rounding";
    case Judgement::right_by_rounding:
      return diagnosis.explanations.empty()
                 ? "RIGHT WITHIN ROUNDING: farther off than usual, but no farther than rounding "
                   "can be"
                 : "RIGHT WITHIN ROUNDING: " + label_of(diagnosis.explanations.front()) +
                       " gives these numbers, and the number type allows it";
    case Judgement::wrong_named:
      return "WRONG: " + label_of(diagnosis.explanations.front()) + " gives these numbers";
    case Judgement::wrong_unexplained:
      return "WRONG: and no known mistake gives these numbers";
    case Judgement::undecided:
      return diagnosis.explanations.empty()
                 ? "CANNOT TELL from this input"
                 : "WRONG: but this input cannot tell which of several mistakes it is";
  }
  return "";
}

void add_stage(std::string& out, const StageJudgement& stage) {
  if (stage.compared == 0) {
    add_paragraph(out, stage.name, "given; nothing to compare it with");
    return;
  }
  std::string text = sentence(stage.compared, " numbers compared, ");
  if (stage.wrong == 0) {
    text += sentence("none beyond its tolerance; at most ", three_digits(stage.used), " of it");
  } else {
    text += sentence(
        stage.wrong, " beyond their tolerance, at most by ",
        std::isinf(stage.used) ? "a NaN or an infinity" : three_digits(stage.used) + " times");
    if (stage.nan_apart > 0) text += sentence("; NaN or infinity in one alone: ", stage.nan_apart);
  }
  if (!stage.link.empty()) text += "; " + stage.link;
  add_paragraph(out, stage.name, text);
}

void add_cell(std::string& out, std::string_view head, const Cell& cell) {
  add_paragraph(out, head,
                sentence(cell.address, " is ", cell.found, ", should be ", cell.expected,
                         " (tolerance ", three_digits(cell.tolerance), ")"));
  add_paragraph(out, "", cell.sentence);
}

void add_cells(std::string& out, const Diagnosis& diagnosis) {
  for (const StageJudgement& stage : diagnosis.stages) {
    const bool first = stage.name == diagnosis.first_wrong_stage;
    if (!first || !stage.first_wrong) continue;
    add_cell(out, "first", *stage.first_wrong);
    if (stage.worst_cell && stage.worst_cell->address != stage.first_wrong->address) {
      add_paragraph(out, "farthest",
                    sentence(stage.worst_cell->address, " is ", stage.worst_cell->found,
                             ", should be ", stage.worst_cell->expected));
    }
  }
}

void add_cause(std::string& out, const Explanation& cause) {
  for (const Made& made : cause.mistakes) {
    add_paragraph(out, "cause", sentence(made.label(), ": ", made.mistake->what));
    if (!made.mistake->look_for.empty()) {
      add_paragraph(out, "look for", made.mistake->look_for);
    }
  }
  if (!cause.fitted.empty()) add_paragraph(out, "fitted", joined(cause.fitted, "; "));
  if (!cause.same.empty()) {
    std::vector<std::string> shown = cause.same;
    if (shown.size() > 8) shown.resize(8);
    add_paragraph(out, "or", "the same numbers on this input: " + joined(shown, ", "));
  }
}

void add_confidence(std::string& out, const Diagnosis& diagnosis) {
  if (diagnosis.explanations.empty()) return;
  std::string text =
      sentence("what is left of these numbers is ",
               three_digits(diagnosis.explanations.front().distance), " of typical rounding");
  if (diagnosis.explanations.size() > 1) {
    text += sentence("; the next explanation, ", label_of(diagnosis.explanations[1]), ", is ",
                     times(diagnosis.margin), " away");
  }
  add_paragraph(out, "sure", text);
  std::vector<std::string> others;
  for (std::size_t n = 2; n < diagnosis.explanations.size(); ++n) {
    others.push_back(label_of(diagnosis.explanations[n]));
  }
  const std::string also = others.empty() ? "" : ": " + joined(others, ", ") + " …";
  add_paragraph(out, "considered", sentence(diagnosis.tried, " recipes", also));
}

std::string shape_sentence(const Dump& dump) {
  const lab::AttentionShape& s = dump.claim.shape;
  std::vector<std::string> stages;
  for (const Observed& table : dump.stages) {
    stages.push_back(sentence(table.name.empty() ? name_of(table.stage) : table.name, " (",
                              name_of(table.dtype), ")"));
  }
  return sentence(joined(stages, ", "), " against the claim: B ", s.B, ", H ", s.H, ", G ", s.G,
                  ", T ", s.T, ", S ", s.S, ", D ", s.D, ", E ", s.E, ", ",
                  name_of(dump.claim.precision));
}

}  // namespace

std::string to_text(const Dump& dump, const Diagnosis& diagnosis) {
  return to_text(shape_sentence(dump), diagnosis);
}

std::string to_text(const std::string& compared, const Diagnosis& diagnosis) {
  std::string out = headline(diagnosis) + "\n\n";
  add_paragraph(out, "compared", compared);
  add_paragraph(out, "tolerance", diagnosis.tolerance);
  for (const StageJudgement& stage : diagnosis.stages) add_stage(out, stage);
  if (!diagnosis.where.empty()) {
    add_paragraph(out, "where",
                  sentence("first wrong: ", diagnosis.first_wrong_stage, ", ",
                           joined(diagnosis.where, "; ")));
  }
  add_cells(out, diagnosis);
  if (!diagnosis.explanations.empty()) add_cause(out, diagnosis.explanations.front());
  add_confidence(out, diagnosis);
  for (const Explanation& near : diagnosis.nearest) {
    add_paragraph(out, "nearest",
                  sentence(label_of(near), ", which leaves ", three_digits(near.distance),
                           " times typical rounding"));
  }
  for (const std::string& what : diagnosis.would_decide) add_paragraph(out, "would tell", what);
  const std::size_t remarks = std::min(most_remarks, diagnosis.remarks.size());
  for (std::size_t n = 0; n < remarks; ++n) {
    add_paragraph(out, "note", diagnosis.remarks[n]);
  }
  return out;
}

}  // namespace attest::check
