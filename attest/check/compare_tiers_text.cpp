// SPDX-License-Identifier: MIT
// How a comparison of tiers reads: text for people, JSON for programs.
#include <algorithm>
#include <array>
#include <string_view>

#include "attest/base/text.h"
#include "attest/check/compare_tiers.h"
#include "attest/io/json.h"

namespace attest::check {
namespace {

using Cells = std::vector<std::string>;

std::string verdict_of(const TierFit& fit) {
  if (fit.broken > 0) return sentence("BROKEN by ", fit.broken, " of ", fit.numbers);
  if (fit.numbers == 0) return "no numbers";
  if (fit.unpromised == 0) return "within";
  std::string apart;
  if (fit.nan_apart > 0) apart = sentence(", ", fit.nan_apart, " NaN in one tier alone");
  if (fit.unpromised == fit.numbers) return "nothing promised" + apart;
  return sentence("within, ", fit.unpromised, " not promised", apart);
}

void add_rows(std::vector<Cells>& rows, const TierRun& run) {
  if (!run.skipped.empty()) {
    rows.push_back({run.name, run.against, "", "", "", "", "", "", "", "not run: " + run.skipped});
    return;
  }
  for (const TierFit& fit : run.fits) {
    const bool first = &fit == &run.fits.front();
    const std::string bits = !run.same_bits
                                 ? run.judged && run.against == "exact" ? "not compared" : ""
                             : *run.same_bits ? "same bits"
                                              : "BITS DIFFER";
    rows.push_back({first ? run.name : "", first ? run.against : "", fit.stage,
                    sentence(fit.numbers), three_digits(fit.largest_error),
                    fit.error_at.empty() ? "" : three_digits(fit.bound_there),
                    three_digits(fit.used), fit.used_at, first ? bits : "",
                    run.judged ? verdict_of(fit) : "promises nothing"});
  }
}

/// Columns aligned: names to the left, numbers to the right.
std::string aligned(const std::vector<Cells>& rows) {
  constexpr std::array<bool, 10> to_the_right{false, false, false, true,  true,
                                              true,  true,  false, false, false};
  std::array<std::size_t, 10> widths{};
  for (const Cells& row : rows) {
    for (std::size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t n = 0; n < row.size(); ++n) {
      const std::string gap(widths[n] - row[n].size(), ' ');
      line += (to_the_right[n] ? gap + row[n] : row[n] + gap) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string sizes(const lab::AttentionShape& s) {
  return sentence("B ", s.B, "  H ", s.H, "  G ", s.G, "  T ", s.T, "  S ", s.S, "  D ", s.D,
                  "  E ", s.E);
}

std::string_view last_line(const TierComparison& c) {
  const auto was_judged = [](const TierRun& run) { return run.judged && run.skipped.empty(); };
  switch (c.verdict()) {
    case Verdict::match:
      if (std::ranges::none_of(c.runs,
                               [](const TierRun& run) { return run.same_bits.has_value(); })) {
        return "match: every number that has a bound keeps it; numbers of threads were not "
               "compared\n";
      }
      return "match: every number that has a bound keeps it, and threads change no bit\n";
    case Verdict::differs:
      return "differs: a bound is broken, or threads change bits\n";
    case Verdict::undecided:
      if (std::ranges::none_of(c.runs, was_judged)) {
        return "undecided: no tier that promises anything was run\n";
      }
      return "undecided: a tier promises nothing of any number of this call\n";
  }
  return "";
}

void append_text(std::string& out, std::string_view name, const std::string& text) {
  out += sentence(",\"", name, "\":");
  io::append_json_string(out, text);
}

void append_number(std::string& out, std::string_view name, double value) {
  out += sentence(",\"", name, "\":");
  io::append_json_number(out, value);
}

void append_fit(std::string& out, const TierFit& fit) {
  out += "{\"stage\":";
  io::append_json_string(out, fit.stage);
  out += sentence(",\"numbers\":", fit.numbers, ",\"unpromised\":", fit.unpromised,
                  ",\"nan_apart\":", fit.nan_apart, ",\"broken\":", fit.broken);
  append_number(out, "largest_error", fit.largest_error);
  append_text(out, "error_at", fit.error_at);
  append_number(out, "bound_there", fit.bound_there);
  append_number(out, "used", fit.used);
  append_text(out, "used_at", fit.used_at);
  out += "}";
}

void append_run(std::string& out, const TierRun& run) {
  out += "{\"tier\":";
  io::append_json_string(out, run.name);
  append_text(out, "against", run.against);
  append_text(out, "skipped", run.skipped);
  out += sentence(",\"judged\":", run.judged ? "true" : "false");
  out += ",\"same_bits\":";
  out += !run.same_bits ? "null" : *run.same_bits ? "true" : "false";
  out += ",\"stages\":[";
  for (std::size_t n = 0; n < run.fits.size(); ++n) {
    if (n > 0) out += ",";
    append_fit(out, run.fits[n]);
  }
  out += "]}";
}

}  // namespace

std::string to_text(const TierComparison& c) {
  // error: the largest; bound: its own; used: the largest fraction of a bound, and where that is.
  std::string out = sentence("compare: ", sizes(c.shape), "  in ", attest::name_of(c.storage), "; ",
                             c.rows_compared == c.rows ? "all" : sentence(c.rows_compared, " of"),
                             " ", c.rows, " rows against the exact tier\n");
  std::vector<Cells> rows{
      {"tier", "against", "stage", "numbers", "error", "bound", "used", "used at",
       c.threads == 1 ? "1 thread" : sentence("1, ", c.threads, " threads"), "verdict"}};
  for (const TierRun& run : c.runs) add_rows(rows, run);
  return out + aligned(rows) + std::string(last_line(c));
}

std::string to_json(const TierComparison& c) {
  const lab::AttentionShape& s = c.shape;
  std::string out =
      sentence("{\"verdict\":\"", name_of(c.verdict()), "\",\"shape\":{\"B\":", s.B, ",\"H\":", s.H,
               ",\"G\":", s.G, ",\"T\":", s.T, ",\"S\":", s.S, ",\"D\":", s.D, ",\"E\":", s.E,
               "},\"dtype\":\"", attest::name_of(c.storage), "\",\"threads\":[1",
               c.threads == 1 ? "" : sentence(",", c.threads), "],\"rows\":", c.rows,
               ",\"rows_compared\":", c.rows_compared, ",\"tiers\":[");
  for (std::size_t n = 0; n < c.runs.size(); ++n) {
    if (n > 0) out += ",";
    append_run(out, c.runs[n]);
  }
  return out + "]}";
}

}  // namespace attest::check
