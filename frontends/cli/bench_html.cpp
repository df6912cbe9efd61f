// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "frontends/cli/bench_report.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

constexpr const char* style = R"(
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th.t, td.t { text-align: left; }
.missed { color: #a40000; font-weight: 600; } .reached { color: #1d6b2f; }
.unsteady { color: #7a5b00; } svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #16181b; }
  th, td { border-color: #3a3d42; } .missed { color: #ff8f8f; } .reached { color: #7fd694; }
  .unsteady { color: #e3c565; } }
)";

/// Text from outside (the processor's name, a peer's) as HTML text.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// A bar for each result: its share of the limit, and a mark where the floor is.
std::string bars(const BenchReport& report) {
  constexpr int line = 22;
  constexpr int first = 360;  // where bars begin
  constexpr int whole = 560;  // the length of 100 %
  constexpr int width = 1000;
  const int height = line * static_cast<int>(report.results.size()) + 30;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Share of the machine's limit, by "
      "row\">\n",
      width, height);
  for (int percent = 0; percent <= 100; percent += 25) {
    const int x = first + whole * percent / 100;
    out += fmt::format("<line x1=\"{0}\" x2=\"{0}\" y1=\"0\" y2=\"{1}\" stroke=\"#8888\"/>", x,
                       height - 18);
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{} %</text>\n", x,
                       height - 4, percent);
  }
  int y = 2;
  for (const BenchResult& result : report.results) {
    const double share = std::clamp(result.share, 0.0, 1.1);
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}, {} thr</text>", first - 8,
                       y + 13, escaped(name_of(result.row)), result.threads);
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{:.1f} %</title>"
        "</rect>",
        first, y, share * whole, line - 6, result.threads == 1 ? "#3b73b9" : "#86aee0",
        100 * result.share);
    if (result.row.unit != BenchUnit::milliseconds && !floor_text(result, report.isa).empty()) {
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#c0392b\" "
          "stroke-width=\"2\"/>",
          first + *result.row.floor * whole, y - 2, y + line - 4);
    }
    out += "\n";
    y += line;
  }
  return out + "</svg>\n";
}

std::string row_html(const BenchResult& result, Isa isa) {
  const std::string said = result.steady ? verdict(result, isa) : "unsteady";
  std::string peers;
  for (const PeerResult& peer : result.peers) {
    peers += fmt::format("{}{} {:.4g} ms ({:.2f}×)", peers.empty() ? "" : "; ",
                         escaped(one_line(peer.peer, 60)), peer.timing.median_ms,
                         peer.timing.median_ms / result.median_ms);
  }
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{:.4g}</td><td>{:.1f}</td><td>{:.1f} %</td><td>{}</td>"
      "<td class=\"{}\">{}</td><td>{:.1e}</td><td class=\"t\">{}</td></tr>\n",
      escaped(name_of(result.row)), result.threads, result.median_ms, result.gflops,
      100 * result.share, floor_text(result, isa), said, said, result.max_error,
      peers.empty() ? "not compared" : peers);
}

}  // namespace

std::string bench_html(const BenchReport& report) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>attest bench</title><style>";
  out += style;
  out += "</style></head><body>\n<h1>attest bench</h1>\n";
  out += fmt::format("<p>{} · instruction set {}</p>\n", escaped(report.processor),
                     name_of(report.isa));
  out +=
      "<p>Bars are shares of the limit that was measured beside each row: f32 multiply-adds, "
      "bfloat16 products, or reading a buffer of the same size. Red marks are floors. Operations "
      "are counted on visible pairs alone. A row whose measured limits before and after it differ "
      "by more than 10 % in every round is unsteady and claims nothing.</p>\n";
  out += bars(report);
  out +=
      "<table><tr><th>row</th><th>threads</th><th>ms</th><th>GFLOP/s</th><th>share</th>"
      "<th>floor</th><th></th><th>error</th><th class=\"t\">peers</th></tr>\n";
  for (const BenchResult& result : report.results) out += row_html(result, report.isa);
  return out + "</table>\n</body></html>\n";
}

}  // namespace attest::cli
