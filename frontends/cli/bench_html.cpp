// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>

#include "attest/base/html.h"
#include "frontends/cli/bench_report.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

constexpr const char* style = R"(
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, th.t, td.t { text-align: left; }
.missed { color: #a40000; font-weight: 600; } .reached { color: #1d6b2f; }
.unsteady { color: #7a5b00; } svg { display: block; width: 100%; height: auto; }
details { color: inherit; } summary { cursor: pointer; } pre { white-space: pre-wrap; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #16181b; }
  th, td { border-color: #3a3d42; } .missed { color: #ff8f8f; } .reached { color: #7fd694; }
  .unsteady { color: #e3c565; } }
)";

constexpr const char* explanation =
    "<p>Bars are shares of the limit that was measured beside each row: f32 multiply-adds, "
    "bfloat16 "
    "products, or reading a buffer of the same size. Red marks are floors. Operations are counted "
    "on "
    "visible pairs alone. A row whose measured limits differ by more than 10 % around each of its "
    "rounds is unsteady and claims nothing. Peers are programs of their own that took turns with "
    "ours; the best of those with a right result counts. Floors are for one thread; with more, "
    "large "
    "shapes are to scale as the limit does.</p>\n";

/// "≥ 77 % reached" in a cell of its verdict's colour.
std::string cell(const Judgement& judgement) {
  if (judgement.wanted.empty()) return "<td></td>";
  const bool dull = judgement.verdict == "not compared";
  return fmt::format("<td class=\"{}\">{} {}</td>", dull ? "" : judgement.verdict,
                     html_escaped(judgement.wanted), judgement.verdict);
}

/// The best peer, and the others behind a click.
std::string peers_cell(const BenchResult& result) {
  if (result.peers.empty()) return "<td class=\"t\">not compared</td>";
  std::vector<PeerResult> peers = result.peers;
  std::sort(peers.begin(), peers.end(), [](const PeerResult& a, const PeerResult& b) {
    return a.timing.median_ms < b.timing.median_ms;
  });
  std::string out =
      "<td class=\"t\"><details><summary>" + html_escaped(best_peer_text(result)) + "</summary>";
  for (const PeerResult& peer : peers) {
    out += fmt::format("{} {} ({:.2f}×), error {:.1e}{}<br>", html_escaped(one_line(peer.peer, 60)),
                       time_text(peer.timing.median_ms), peer.timing.median_ms / result.median_ms,
                       peer.max_error, is_right(peer, result.row) ? "" : ": wrong, does not count");
  }
  return out + "</details></td>";
}

std::string row_html(const BenchResult& result, Isa isa) {
  const Judgement own = result.threads == 1 ? judge_floor(result, isa) : judge_threads(result);
  return fmt::format(
      "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td><td>{:.1f} % of {}{}</td>{}"
      "<td>{:.1e}</td>{}{}</tr>\n",
      html_escaped(name_of(result.row)), result.threads, time_text(result.median_ms), result.gflops,
      100 * result.share, limit_of(result.row),
      result.steady ? "" : " <span class=\"unsteady\">unsteady</span>", cell(own), result.max_error,
      cell(judge_peers(result, isa)), peers_cell(result));
}

}  // namespace

std::string bench_html(const BenchReport& report) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>attest bench</title><style>";
  out += style;
  out += "</style></head><body>\n<h1>attest bench</h1>\n";
  out += fmt::format("<p>{} · instruction set {}</p>\n<p>{}</p>\n<pre>{}</pre>\n",
                     html_escaped(report.processor), name_of(report.isa),
                     html_escaped(build_text(report.build)), html_escaped(bench_summary(report)));
  out += explanation;
  out += bench_svg(report);
  out +=
      "<table><tr><th>row</th><th>threads</th><th>time</th><th>GFLOP/s</th><th>share</th>"
      "<th>asked</th><th>error</th><th>peers</th><th class=\"t\">best peer (times as fast)</th>"
      "</tr>\n";
  for (const BenchResult& result : report.results) out += row_html(result, report.isa);
  return out + "</table>\n</body></html>\n";
}

}  // namespace attest::cli
