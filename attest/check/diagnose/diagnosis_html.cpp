// SPDX-License-Identifier: MIT
// A diagnosis as a page of its own: no address leaves it, and it reads without scripts.
#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "attest/base/html.h"
#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/diagnosis_words.h"
#include "attest/check/diagnose/heat_map.h"
#include "attest/check/diagnose/html_parts.h"
#include "attest/check/diagnose/rivals.h"

namespace attest::check {
namespace {

/// A sentence in which what stands between backticks is code.
std::string with_code(std::string_view text) {
  std::string out;
  bool code = false;
  for (std::size_t at = text.find('`'); at != std::string_view::npos; at = text.find('`')) {
    out += html_escaped(text.substr(0, at)) + (code ? "</code>" : "<code>");
    code = !code;
    text.remove_prefix(at + 1);
  }
  return out + html_escaped(text) + (code ? "</code>" : "");
}

std::string paragraphs(std::string_view title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string out = sentence("<h2>", title, "</h2>\n<ul>\n");
  for (const std::string& line : lines) out += sentence("<li>", with_code(line), "</li>\n");
  return out + "</ul>\n";
}

std::string mistakes_of(const Explanation& explanation) {
  std::string out;
  for (const Made& made : explanation.mistakes) {
    out += sentence(out.empty() ? "" : " + ", "<code>", html_escaped(made.label()), "</code>");
  }
  return out.empty() ? std::string("the claim itself") : out;
}

/// What was done and where to look, for the best explanation.
std::string cause(const Diagnosis& diagnosis) {
  if (diagnosis.judgement != Judgement::wrong_named || diagnosis.explanations.empty()) return {};
  const Explanation& best = diagnosis.explanations[0];
  std::string out = "<h2>What explains it</h2>\n";
  for (const Made& made : best.mistakes) {
    if (made.mistake == nullptr) continue;
    out += sentence(
        "<p><code>", html_escaped(made.label()), "</code> ", with_code(made.mistake->what),
        "<br><span class=\"look\">Look for: ", with_code(made.mistake->look_for), "</span></p>\n");
  }
  if (!best.same.empty()) {
    out += "<p>The same numbers on this input:";
    for (const std::string& same : best.same)
      out += sentence(" <code>", html_escaped(same), "</code>");
    out += "</p>\n";
  }
  return out + sentence("<p class=\"look\">How sure: ", html_escaped(confidence_of(diagnosis)),
                        ".</p>\n");
}

/// A table of explanations and how far each is.
std::string explanations(std::string_view title, const std::vector<Explanation>& list,
                         std::size_t first) {
  if (list.size() <= first) return {};
  const auto shown = std::span(list).subspan(first);
  const bool fits =
      std::ranges::any_of(shown, [](const Explanation& each) { return !each.fitted.empty(); });
  std::string out = sentence("<h2>", title,
                             "</h2>\n<table><tr><th>explanation</th><th>leaves, in typical "
                             "roundings</th>",
                             fits ? "<th>fitted</th>" : "", "</tr>\n");
  for (const Explanation& each : shown) {
    std::string fitted;
    for (const std::string& constant : each.fitted) {
      fitted += sentence(fitted.empty() ? "" : "; ", html_escaped(constant));
    }
    out += sentence("<tr><td>", mistakes_of(each), "</td><td>", three_digits(each.distance),
                    "</td>", fits ? sentence("<td>", fitted, "</td>") : "", "</tr>\n");
  }
  return out + "</table>\n";
}

std::string cell_text(const std::optional<Cell>& cell) {
  if (!cell) return {};
  return sentence("<code>", html_escaped(cell->address), "</code> is ", shortest(cell->found),
                  ", should be ", shortest(cell->expected), " &#177; ",
                  three_digits(cell->tolerance));
}

std::string stages_table(const Diagnosis& diagnosis) {
  std::string out =
      "<h2>What was compared</h2>\n<table><tr><th>stage</th><th>tensor</th><th>numbers</th>"
      "<th>beyond tolerance</th><th>largest error</th><th>error / tolerance</th><th>the first "
      "beyond it</th></tr>\n";
  for (const StageJudgement& stage : diagnosis.stages) {
    out += sentence("<tr><td>", html_escaped(stage.stage), "</td><td>", html_escaped(stage.name),
                    "</td><td>", stage.compared, "</td><td>", stage.wrong, "</td><td>",
                    three_digits(stage.worst), "</td><td>", three_digits(stage.used), "</td><td>",
                    cell_text(stage.first_wrong), "</td></tr>\n");
    const bool why = stage.first_wrong && !stage.first_wrong->sentence.empty();
    if (why) {
      out += sentence("<tr><td></td><td colspan=\"6\" class=\"look\">the right number: ",
                      html_escaped(stage.first_wrong->sentence), "</td></tr>\n");
    }
  }
  out += "</table>\n";
  if (!diagnosis.tolerance.empty()) {
    out += sentence("<p class=\"look\">Tolerance: ", html_escaped(diagnosis.tolerance), "</p>\n");
  }
  return out;
}

// ---- heat maps -----------------------------------------------------------------------------------

std::string bytes_of(std::span<const double> numbers) {
  static_assert(std::numeric_limits<double>::is_iec559);
  return base64_of({reinterpret_cast<const std::uint8_t*>(numbers.data()), numbers.size_bytes()});
}

std::string picture(std::span<const std::uint8_t> shades, std::int64_t columns,
                    std::int64_t lines) {
  const std::string png = png_of(shades, static_cast<std::uint32_t>(columns),
                                 static_cast<std::uint32_t>(lines), shade_colours());
  return "data:image/png;base64," +
         base64_of({reinterpret_cast<const std::uint8_t*>(png.data()), png.size()});
}

std::string head_name(const lab::AttentionShape& s, const HeatPanel& panel) {
  std::string out;
  if (s.B > 1) out += sentence("batch ", panel.b);
  if (s.H > 1) out += sentence(out.empty() ? "" : ", ", "head ", panel.h);
  return out.empty() ? std::string("the only head") : out;
}

/// The beginning of an address: "batch1.h0.weights".
std::string address_of(const lab::AttentionShape& s, const HeatMap& map, const HeatPanel& panel) {
  return sentence(s.B > 1 ? sentence("batch", panel.b, ".") : "",
                  s.H > 1 ? sentence("h", panel.h, ".") : "", map.stage);
}

std::string figure(const lab::AttentionShape& s, const HeatMap& map, const HeatPanel& panel) {
  const auto lines = static_cast<std::int64_t>(panel.queries.size());
  const std::int64_t zoom =
      std::max<std::int64_t>(1, std::min<std::int64_t>(12, 224 / std::max(lines, map.columns)));
  std::string queries;
  for (const std::int64_t i : panel.queries) queries += sentence(queries.empty() ? "" : ",", i);
  std::string out = sentence(
      "<figure><figcaption>", head_name(s, panel), "</figcaption>", "<img tabindex=\"0\" width=\"",
      map.columns * zoom, "\" height=\"", lines * zoom, "\" alt=\"errors of ",
      html_escaped(map.stage), ", ", head_name(s, panel), "\" data-address=\"",
      address_of(s, map, panel), "\" data-across=\"", map.across, "\" data-block=\"",
      map.block_of_columns, "\" data-width=\"", map.width, "\" data-queries=\"", queries, "\"");
  if (!panel.found.empty()) {
    out += sentence(" data-found=\"", bytes_of(panel.found), "\" data-expected=\"",
                    bytes_of(panel.expected), "\"");
  }
  return out + sentence(" src=\"", picture(panel.shades, map.columns, lines), "\"></figure>\n");
}

std::string heat_map(const lab::AttentionShape& s, const HeatMap& map) {
  std::string out = sentence(
      "<section><h3>", html_escaped(map.stage), "</h3>\n<p class=\"look\">", "queries downwards",
      map.across.empty() ? "" : sentence(", each ", map.across, " to the right"),
      "; numbers count from 0.");
  if (map.block_of_rows > 1) {
    out += sentence(" Each line stands for ", map.block_of_rows,
                    " queries and shows the one with the largest error.");
  }
  if (map.block_of_columns > 1) {
    out += sentence(" Each pixel stands for ", map.block_of_columns,
                    " numbers and shows the largest error.");
  }
  if (map.left_out > 0) {
    out += sentence(" ", map.left_out, " of ", s.B * s.H,
                    " heads are left out: those with the smallest errors.");
  }
  out += "</p>\n<div class=\"panels\">\n";
  for (const HeatPanel& panel : map.panels) out += figure(s, map, panel);
  return out + "</div>\n</section>\n";
}

std::string legend() {
  std::vector<std::uint8_t> ramp;
  for (std::uint8_t n = 1; n <= 240; ++n) ramp.push_back(n);
  // Where 1 and 1000 stand between 0.001 and 10^6, in 240 shades of which 100 are within the tolerance.
  return sentence(
      "<div class=\"legend\"><p>error / tolerance: blue is within it, yellow to violet beyond</p>\n"
      "<div class=\"scale\"><img alt=\"the scale, from 0.001 to a million\" src=\"",
      picture(ramp, 240, 1),
      "\"><span>0.001</span><span style=\"left:41.6%\">1</span><span "
      "style=\"left:70.8%\">10³</span>"
      "<span style=\"left:100%\">10⁶</span></div>\n<p><b class=\"nan\"></b> NaN or infinity in one "
      "alone <b class=\"none\"></b> not compared: hidden</p></div>\n");
}

std::string colours_for_script() {
  std::string out;
  for (const Colour& colour : shade_colours()) {
    out += sentence(out.empty() ? "" : ",", (colour[0] << 16) | (colour[1] << 8) | colour[2]);
  }
  return out;
}

std::string heat_maps(const Dump& dump, const Diagnosis& diagnosis) {
  const std::vector<HeatMap> maps = heat_maps_of(dump, diagnosis);
  if (maps.empty()) return {};
  std::string out = "<h2>The errors, number by number</h2>\n" + legend();
  out +=
      "<p class=\"reading\"><output aria-live=\"polite\">Point at a pixel, or choose one with "
      "the arrow keys.</output></p>\n";
  for (const HeatMap& map : maps) out += heat_map(dump.claim.shape, map);
  std::string others;
  for (const StageJudgement& stage : diagnosis.stages) {
    const bool drawn =
        std::ranges::any_of(maps, [&](const HeatMap& map) { return map.name == stage.name; });
    if (!drawn && stage.compared > 0) others += (others.empty() ? "" : ", ") + stage.name;
  }
  if (!others.empty()) {
    out += sentence("<p class=\"look\">Without pictures, in the table above alone: ",
                    html_escaped(others), ".</p>\n");
  }
  return out + sentence("<script>\nconst colours=[", colours_for_script(), "];\n", page_script,
                        "</script>\n");
}

std::string_view class_of(Judgement judgement) {
  switch (judgement) {
    case Judgement::right:
    case Judgement::right_by_rounding:
      return "right";
    case Judgement::wrong_named:
    case Judgement::wrong_unexplained:
      return "wrong";
    case Judgement::undecided:
      break;
  }
  return "undecided";
}

std::string shape_text(const Claim& claim) {
  const lab::AttentionShape& s = claim.shape;
  return sentence("B ", s.B, ", H ", s.H, ", G ", s.G, ", T ", s.T, ", S ", s.S, ", D ", s.D,
                  ", E ", s.E, "; computed in ", name_of(claim.precision));
}

/// The page around the heat maps.
std::string page(const std::string& compared, const Diagnosis& diagnosis, const std::string& maps,
                 const std::string& text) {
  const std::string headline = html_escaped(headline_of(diagnosis));
  std::string out = sentence(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
      "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
      headline, "</title>\n<style>\n", page_style,
      "</style>\n</head>\n<body>\n<main>\n<h1 class=\"", class_of(diagnosis.judgement), "\">",
      headline, "</h1>\n<p>Compared: ", html_escaped(compared), "</p>\n");
  if (std::string where = where_of(diagnosis); !where.empty()) {
    where.front() = 'F';  // "First wrong", or "Farther off"
    out += sentence("<p>", html_escaped(where), "</p>\n");
  }
  out += cause(diagnosis);
  out += stages_table(diagnosis);
  out += paragraphs("What would decide", diagnosis.would_decide);
  out += maps;
  const bool told = diagnosis.judgement == Judgement::wrong_named || is_the_claim(diagnosis);
  const std::size_t others = told ? 1 : 0;
  out += explanations("What else was considered", diagnosis.explanations, others);
  out += explanations("What comes nearest, and does not fit", diagnosis.nearest, 0);
  std::vector<std::string> notes = diagnosis.remarks;
  if (is_the_claim(diagnosis) && !diagnosis.explanations.front().same.empty()) {
    notes.push_back("the same numbers would come of " +
                    joined_labels(diagnosis.explanations.front().same, 110));
  }
  out += paragraphs("Notes", notes);
  return out + sentence("<details><summary>The verdict as text</summary>\n<pre>",
                        html_escaped(text), "</pre></details>\n</main>\n</body>\n</html>\n");
}

}  // namespace

std::string to_html(const Dump& dump, const Diagnosis& diagnosis) {
  return page(shape_text(dump.claim), diagnosis, heat_maps(dump, diagnosis),
              to_text(dump, diagnosis));
}

std::string to_html(const std::string& compared, const Diagnosis& diagnosis) {
  return page(compared, diagnosis, "", to_text(compared, diagnosis));
}

}  // namespace attest::check
