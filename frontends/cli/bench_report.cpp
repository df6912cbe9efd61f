// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

/// A µ or ≥ is one column wide but two or three bytes long.
std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return columns >= width ? text : std::string(width - columns, ' ') + text;
}

std::string filled(const std::string& text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return columns >= width ? text : text + std::string(width - columns, ' ');
}

/// The floor with one thread, the scaling with more.
Judgement judge_own(const BenchResult& result, Isa isa) {
  return result.threads == 1 ? judge_floor(result, isa) : judge_threads(result);
}

}  // namespace

std::string best_peer_text(const BenchResult& result) {
  const PeerResult* best = result.best_peer();
  if (best == nullptr) return "not compared";
  return fmt::format("{} {} ({:.2f}×)", one_line(best->peer, 40), time_text(best->timing.median_ms),
                     best->timing.median_ms / result.median_ms);
}

std::string bench_heading() {
  return left("row", 44) + right("threads", 8) + right("time", 11) + right("GFLOP/s", 9) +
         right("share", 9) + " " + left("of", 10) + right("asked", 20) + " " + left("", 9) +
         right("error", 9) + "  best peer\n";
}

std::string bench_line(const BenchResult& result, Isa isa) {
  const Judgement own = judge_own(result, isa);
  const Judgement peers = judge_peers(result, isa);
  std::string out =
      left(name_of(result.row), 44) + right(fmt::format("{}", result.threads), 8) +
      padded(time_text(result.median_ms), 11) + right(fmt::format("{:.1f}", result.gflops), 9) +
      right(fmt::format("{:.1f} %", 100 * result.share), 9) + " " +
      left(std::string(limit_of(result.row)), 10) + padded(own.wanted, 20) + " " +
      filled(result.steady ? own.verdict : "unsteady", 9) +
      right(fmt::format("{:.1e}", result.max_error), 9) + "  " + best_peer_text(result);
  if (result.best_peer() != nullptr && !peers.wanted.empty()) {
    out += fmt::format(" {}: {}", peers.wanted, peers.verdict);
  }
  return out + "\n";
}

std::string bench_summary(const BenchReport& report) {
  std::vector<Judgement> floors;
  std::vector<Judgement> peers;
  std::vector<Judgement> threads;
  for (const BenchResult& result : report.results) {
    floors.push_back(judge_floor(result, report.isa));
    peers.push_back(judge_peers(result, report.isa));
    threads.push_back(judge_threads(result));
  }
  return fmt::format("floors: {}\npeers: {}\nthreads: {}\n", count_of(floors), count_of(peers),
                     count_of(threads));
}

}  // namespace attest::cli
