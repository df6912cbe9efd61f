// SPDX-License-Identifier: MIT
// A diagnosis on one screen.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/diagnosis_words.h"
#include "attest/check/diagnose/rivals.h"

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

/// How far another explanation is, measured by what the first leaves.
std::string apart_by(double margin) {
  if (std::isinf(margin)) return "has NaN or infinity in other places";
  return sentence("is ", three_digits(margin), " times as far off");
}

std::string label_of(const Explanation& explanation) {
  std::vector<std::string> labels;
  for (const Made& made : explanation.mistakes) labels.push_back(made.label());
  if (labels.empty() && !explanation.fitted.empty()) return explanation.fitted.front();
  return labels.empty() ? "as claimed" : joined(labels, " + ");
}

}  // namespace

std::string headline_of(const Diagnosis& diagnosis) {
  switch (diagnosis.judgement) {
    case Judgement::right:
      if (!diagnosis.unsaid.empty()) return "RIGHT, if it is meant so: " + diagnosis.unsaid;
      return "RIGHT: every number is what the claim computes, within typical rounding";
    case Judgement::right_by_rounding:
      return diagnosis.explanations.empty()
                 ? "RIGHT WITHIN ROUNDING: farther off than usual, but no farther than rounding "
                   "can be"
                 : "RIGHT WITHIN ROUNDING: the program rounds on the way, as its number type may "
                   "(" +
                       label_of(diagnosis.explanations.front()) + ")";
    case Judgement::wrong_named:
      return "WRONG: " + label_of(diagnosis.explanations.front()) + " gives these numbers";
    case Judgement::wrong_unexplained:
      return "WRONG: no known mistake gives these numbers";
    case Judgement::undecided:
      if (!diagnosis.unsaid.empty()) return "CANNOT TELL: " + diagnosis.unsaid;
      return diagnosis.explanations.empty()
                 ? "CANNOT TELL from this input"
                 : "WRONG, but this input cannot tell which of several mistakes it is";
  }
  return "";
}

std::string where_of(const Diagnosis& diagnosis) {
  if (diagnosis.where.empty()) return {};
  const bool possible = diagnosis.judgement == Judgement::right_by_rounding;
  const std::string places = joined(diagnosis.where, "; ");
  // Gradients say the table before each place.
  const bool named = places.starts_with(diagnosis.first_wrong_stage + ":");
  return sentence(possible ? "farther off than usual: " : "first wrong: ",
                  named ? "" : diagnosis.first_wrong_stage + ", ", places);
}

bool is_the_claim(const Diagnosis& diagnosis) {
  if (diagnosis.judgement != Judgement::right || diagnosis.explanations.empty()) return false;
  const Explanation& first = diagnosis.explanations.front();
  return first.mistakes.empty() && first.fitted.empty();
}

std::string confidence_of(const Diagnosis& diagnosis) {
  if (diagnosis.explanations.empty()) return {};
  const double left = diagnosis.explanations.front().distance;
  std::string out =
      left == 0 ? std::string("explained to the last bit")
                : sentence("explained but for ", three_digits(left), " of typical rounding");
  if (diagnosis.explanations.size() > 1) {
    out += sentence("; the next explanation, ", label_of(diagnosis.explanations[1]), ", ",
                    apart_by(diagnosis.margin));
  }
  return out;
}

namespace {

void add_stage(std::string& out, const StageJudgement& stage, bool possible) {
  if (stage.compared == 0) {
    add_paragraph(out, stage.name, "given; nothing to compare it with");
    return;
  }
  std::string text = sentence(stage.compared, " numbers compared, ");
  if (stage.wrong == 0) {
    text += sentence("none beyond its tolerance; at most ", three_digits(stage.used), " of it");
  } else {
    text += sentence(
        stage.wrong,
        possible ? " beyond what is usual, at most by " : " beyond their tolerance, at most by ",
        std::isinf(stage.used) ? "a NaN or an infinity" : three_digits(stage.used) + " times");
    if (stage.nan_apart > 0) text += sentence("; NaN or infinity in one alone: ", stage.nan_apart);
  }
  if (!stage.link.empty()) text += "; " + stage.link;
  add_paragraph(out, stage.name, text);
}

void add_cell(std::string& out, std::string_view head, const Cell& cell, bool possible) {
  add_paragraph(
      out, head,
      sentence(cell.address, " is ", cell.found, possible ? ", without rounding " : ", should be ",
               cell.expected, possible ? " (usual: " : " (tolerance ", three_digits(cell.tolerance),
               ")"));
  add_paragraph(out, "", (possible ? "the exact number: " : "the right number: ") + cell.sentence);
}

void add_cells(std::string& out, const Diagnosis& diagnosis) {
  const bool possible = diagnosis.judgement == Judgement::right_by_rounding;
  for (const StageJudgement& stage : diagnosis.stages) {
    const bool first = stage.name == diagnosis.first_wrong_stage;
    if (!first || !stage.first_wrong) continue;
    add_cell(out, "first", *stage.first_wrong, possible);
    if (stage.worst_cell && stage.worst_cell->address != stage.first_wrong->address) {
      add_paragraph(
          out, "farthest",
          sentence(stage.worst_cell->address, " is ", stage.worst_cell->found,
                   possible ? ", without rounding " : ", should be ", stage.worst_cell->expected));
    }
  }
}

/// A constant that was found, and that no mistake of the catalogue has.
struct ConstantWords {
  std::string_view begins{}, cause{}, look_for{};
};
constexpr ConstantWords constants[] = {
    {"scale", "The scores are multiplied by a constant of its own.",
     "where the scale is computed or given: once, from the width of one head"},
    {"softcap", "The scores are capped at another number.",
     "the cap that the configuration says, and whether the scores reach it scaled"},
    {"factor of the exponent",
     "The scores are multiplied by a factor before the exponential: as if a scale were missing, "
     "applied twice, or a temperature or another base were in it.",
     "everything that multiplies the scores between the table given and the softmax"},
    {"factor of the weights",
     "The weights are multiplied by a factor after the softmax, so that rows do not sum to 1.",
     "dropout's 1/(1 - rate) in inference, a second normalisation, an averaging over heads"},
    {"more keys of score 0",
     "The denominator of the softmax counts keys that are not there, each with score 0.",
     "padding of keys to a block: it must be -inf before the softmax"},
    {"factor of the ALiBi slopes", "The ALiBi slopes are multiplied by a factor.",
     "the slopes' formula, and whether the scale is applied to the bias too"},
    {"base of the rotary positions", "The rotary angles have another base.",
     "rope_theta of the configuration, and a scaling of positions or base"},
    {"window:", "The window has another width than is claimed.",
     "how the window is counted: with or without the query's own key"},
    {"queries stand", "The queries stand at other key positions than is claimed.",
     "the offset of the first query: the cache's length, and the corner of the causal mask"},
};

void add_constant(std::string& out, const std::string& constant) {
  const auto* words = std::ranges::find_if(
      constants, [&](const ConstantWords& each) { return constant.starts_with(each.begins); });
  const bool known = words != std::end(constants);
  add_paragraph(out, "cause", known ? sentence(constant, ": ", words->cause) : constant);
  if (known) add_paragraph(out, "look for", sentence(words->look_for, "."));
}

void add_cause(std::string& out, const Explanation& cause) {
  for (const Made& made : cause.mistakes) {
    add_paragraph(out, "cause", sentence(made.label(), ": ", made.mistake->what));
    if (!made.mistake->look_for.empty()) {
      add_paragraph(out, "look for", made.mistake->look_for);
    }
  }
  if (cause.mistakes.empty()) {
    for (const std::string& constant : cause.fitted) add_constant(out, constant);
  } else if (!cause.fitted.empty()) {
    add_paragraph(out, "fitted", joined(cause.fitted, "; "));
  }
  if (!cause.same.empty()) {
    add_paragraph(out, "or", "the same numbers on this input: " + joined_labels(cause.same, 110));
  }
}

void add_confidence(std::string& out, const Diagnosis& diagnosis) {
  if (diagnosis.explanations.empty()) return;
  add_paragraph(out, "sure", confidence_of(diagnosis));
  std::vector<std::string> others;
  for (std::size_t n = 2; n < diagnosis.explanations.size(); ++n) {
    others.push_back(label_of(diagnosis.explanations[n]));
  }
  const std::string also = others.empty() ? "" : ": " + joined(others, ", ") + " …";
  add_paragraph(out, "considered", sentence(diagnosis.tried, " recipes", also));
}

std::string shape_sentence(const Dump& dump, const Diagnosis& diagnosis) {
  const lab::AttentionShape& s = dump.claim.shape;
  std::vector<std::string> stages;
  for (const Observed& table : dump.stages) {
    stages.push_back(sentence(table.name.empty() ? name_of(table.stage) : table.name, " (",
                              name_of(table.dtype), ")"));
  }
  // Gradients are judged beside a dump's tables.
  for (const StageJudgement& judged : diagnosis.stages) {
    const bool table = std::ranges::any_of(dump.stages, [&](const Observed& each) {
      return judged.name == (each.name.empty() ? name_of(each.stage) : each.name);
    });
    if (!table) stages.push_back(judged.name);
  }
  return sentence(joined(stages, ", "), " against the claim: B ", s.B, ", H ", s.H, ", G ", s.G,
                  ", T ", s.T, ", S ", s.S, ", D ", s.D, ", E ", s.E, ", ",
                  name_of(dump.claim.precision));
}

}  // namespace

std::string to_text(const Dump& dump, const Diagnosis& diagnosis) {
  return to_text(shape_sentence(dump, diagnosis), diagnosis);
}

std::string to_text(const std::string& compared, const Diagnosis& diagnosis) {
  std::string out = headline_of(diagnosis) + "\n\n";
  add_paragraph(out, "compared", compared);
  add_paragraph(out, "tolerance", diagnosis.tolerance);
  const bool possible = diagnosis.judgement == Judgement::right_by_rounding;
  for (const StageJudgement& stage : diagnosis.stages) add_stage(out, stage, possible);
  if (!diagnosis.where.empty()) add_paragraph(out, "where", where_of(diagnosis));
  add_cells(out, diagnosis);
  if (is_the_claim(diagnosis)) {
    const std::vector<std::string>& same = diagnosis.explanations.front().same;
    if (!same.empty()) {
      add_paragraph(out, "note", "the same numbers would come of " + joined_labels(same, 110));
    }
  } else {
    if (!diagnosis.explanations.empty()) add_cause(out, diagnosis.explanations.front());
    add_confidence(out, diagnosis);
  }
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
