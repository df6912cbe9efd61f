// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attest/base/html.h"
#include "frontends/cli/bench_report.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

constexpr int line = 19;   // pixels a row
constexpr int first = 74;  // where rows begin
constexpr int width = 1180;
constexpr int labels = 302;  // where their names end

/// Shares: 0 to 100 %.
struct Shares {
  static constexpr int left = 312;
  static constexpr int length = 300;
  static double x(double share) { return left + length * std::clamp(share, 0.0, 1.05); }
};

/// Speed as a multiple of ours, in powers of two: from a 64th to 4.
struct Speeds {
  static constexpr int left = 660;
  static constexpr int octave = 62;
  static constexpr int slowest = -6;
  static constexpr int fastest = 2;
  static double x(double speed) {
    const double octaves =
        std::clamp(std::log2(speed), static_cast<double>(slowest), static_cast<double>(fastest));
    return left + octave * (octaves - slowest);
  }
};

constexpr const char* style = R"(<style>
.bench text { font: 12px system-ui, sans-serif; fill: #1b1b1b; }
.bench .title { font-weight: 600; }
.bench .faint { fill: #666c75; }
.bench .back { fill: #ffffff; }
.bench .grid { stroke: #d5d8dc; }
.bench .even { stroke: #1b1b1b; stroke-width: 1.5; }
.bench .asked { stroke: #c0392b; stroke-width: 2; }
.bench .ours { fill: #3b82d6; }
@media (prefers-color-scheme: dark) {
  .bench text { fill: #e8e8e8; }
  .bench .faint { fill: #a2a8b1; }
  .bench .back { fill: #16181b; }
  .bench .grid { stroke: #3a3d42; }
  .bench .even { stroke: #e8e8e8; }
  .bench .asked { stroke: #ff7b6b; }
}
</style>
)";

/// Colours that stand off from light and dark, and shapes for those who do not see colours.
struct Mark {
  const char* colour;
  const char* path;  ///< around 0 0
};
constexpr std::array<Mark, 8> marks{{
    {"#e07b39", "M-4,0A4,4 0 1,1 4,0A4,4 0 1,1 -4,0Z"},
    {"#2a9d6f", "M-4,-4H4V4H-4Z"},
    {"#a05cc8", "M0,-5L5,4H-5Z"},
    {"#d94f5c", "M0,-5L5,0L0,5L-5,0Z"},
    {"#b8960c", "M0,5L5,-4H-5Z"},
    {"#7bbf3f", "M-5,-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z"},
    {"#8a8f98", "M-4,-4L4,4M-4,4L4,-4M-5,-4L-4,-5L5,4L4,5ZM-5,4L-4,5L5,-4L4,-5Z"},
    {"#4fb3bf", "M-5,-2H5V2H-5Z"},
}};

/// "onnxruntime" of "onnxruntime_GQA": ways of one library share a mark.
std::string family_of(const std::string& peer) {
  return one_line(peer.substr(0, peer.find('_')), 24);
}

/// The results with the first number of threads.
std::vector<const BenchResult*> shown(const BenchReport& report) {
  std::vector<const BenchResult*> out;
  for (const BenchResult& result : report.results) {
    if (result.threads == report.results.front().threads) out.push_back(&result);
  }
  return out;
}

std::vector<std::string> families_of(const std::vector<const BenchResult*>& results) {
  std::vector<std::string> out;
  for (const BenchResult* result : results) {
    for (const PeerResult& peer : result->peers) {
      const std::string family = family_of(peer.peer);
      if (std::find(out.begin(), out.end(), family) == out.end()) out.push_back(family);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string mark_at(double x, double y, std::size_t family, const std::string& title) {
  const Mark& mark = marks[family % marks.size()];
  return fmt::format(
      "<path transform=\"translate({:.1f} {:.1f})\" d=\"{}\" fill=\"{}\"><title>{}</title></path>",
      x, y, mark.path, mark.colour, html_escaped(title));
}

std::string vertical(double x, double from, double to, const char* kind) {
  return fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" class=\"{3}\"/>", x, from,
      to, kind);
}

std::string label(double x, double y, const char* anchor, const char* kind,
                  const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x,
                     y, anchor, kind, html_escaped(words));
}

std::string axes(int bottom) {
  std::string out = label(Shares::left, 20, "start", "title", "share of the limit (red: asked)");
  out += label(Speeds::left, 20, "start", "title",
               "speed of peers, Attest = 1; red: where they may be at most");
  for (int percent = 0; percent <= 100; percent += 25) {
    const double x = Shares::x(percent / 100.0);
    out += vertical(x, first - 6, bottom, "grid");
    out += label(x, first - 12, "middle", "faint", fmt::format("{} %", percent));
  }
  for (int octave = Speeds::slowest; octave <= Speeds::fastest; ++octave) {
    const double x = Speeds::x(std::exp2(octave));
    out += vertical(x, first - 6, bottom, octave == 0 ? "even" : "grid");
    out += label(x, first - 12, "middle", "faint",
                 octave < 0 ? fmt::format("1/{}", 1 << -octave) : fmt::format("{}", 1 << octave));
  }
  return out + "\n";
}

std::string legend(const std::vector<std::string>& families) {
  std::string out;
  double x = Speeds::left + 5;
  for (std::size_t n = 0; n < families.size(); ++n) {
    out += mark_at(x, 38, n, families[n]);
    out += label(x + 9, 42, "start", "", families[n]);
    x += 24 + 6.6 * static_cast<double>(families[n].size());
  }
  return out + "\n";
}

std::string share_bar(const BenchResult& result, Isa isa, int y) {
  std::string out = fmt::format(
      "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" class=\"ours\"{}><title>{:.1f} % of "
      "the "
      "{}{}</title></rect>",
      Shares::left, y + 2, Shares::x(result.share) - Shares::left, line - 6,
      result.steady ? "" : " opacity=\"0.4\"", 100 * result.share, limit_of(result.row),
      result.steady ? "" : ", unsteady");
  const Judgement floor = judge_floor(result, isa);
  if (!floor.wanted.empty() && result.row.unit != BenchUnit::milliseconds) {
    out += vertical(Shares::x(*result.row.floor), y, y + line - 2, "asked");
  }
  return out;
}

std::string peer_marks(const BenchResult& result, Isa isa, const std::vector<std::string>& families,
                       int y) {
  if (result.peers.empty()) {
    return label(Speeds::x(1) - 8, y + 13, "end", "faint", "not compared");
  }
  std::string out;
  if (const auto times = times_asked(result.row, isa); times && *times != 1) {
    out += vertical(Speeds::x(1 / *times), y, y + line - 2, "asked");
  }
  for (std::size_t n = 0; n < families.size(); ++n) {
    const PeerResult* best = nullptr;
    for (const PeerResult& peer : result.peers) {
      if (family_of(peer.peer) != families[n] || !is_right(peer, result.row)) continue;
      if (best == nullptr || peer.timing.median_ms < best->timing.median_ms) best = &peer;
    }
    if (best == nullptr) continue;
    const double speed = result.median_ms / best->timing.median_ms;
    out += mark_at(Speeds::x(speed), y + line / 2.0, n,
                   fmt::format("{} {}: {:.2f} times our speed", one_line(best->peer, 40),
                               time_text(best->timing.median_ms), speed));
  }
  return out;
}

}  // namespace

std::string bench_svg(const BenchReport& report) {
  if (report.results.empty()) return "";
  const auto results = shown(report);
  const auto families = families_of(results);
  const int bottom = first + line * static_cast<int>(results.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bench\" viewBox=\"0 0 {0} {1}\" "
      "role=\"img\" aria-label=\"Shares of the machine's limits and speeds of peers, by row\">\n{2}"
      "<rect class=\"back\" width=\"{0}\" height=\"{1}\"/>\n",
      width, bottom + 12, style);
  const int threads = results.front()->threads;
  out +=
      label(10, 20, "start", "title",
            fmt::format("{} thread{}, {}", threads, threads == 1 ? "" : "s", name_of(report.isa)));
  out += axes(bottom) + legend(families);
  int y = first;
  for (const BenchResult* result : results) {
    out += label(labels, y + 13, "end", "", name_of(result->row));
    out += share_bar(*result, report.isa, y) + peer_marks(*result, report.isa, families, y) + "\n";
    y += line;
  }
  return out + "</svg>\n";
}

}  // namespace attest::cli
