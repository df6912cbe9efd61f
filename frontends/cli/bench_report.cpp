// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "attest/io/json.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

/// "412.3 ms", "1.80 µs".
std::string time_text(double ms) {
  if (ms < 0.1) return fmt::format("{:.2f} µs", ms * 1e3);
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 3 : 1);
}

std::string share_text(const BenchResult& result) {
  return fmt::format("{:.1f} %", 100 * result.share);
}

std::string limit_text(BenchUnit unit) {
  if (unit == BenchUnit::bf16_share) return "bf16 peak";
  return unit == BenchUnit::bandwidth_share ? "read rate" : "f32 peak";
}

std::string peer_text(const BenchResult& result) {
  const PeerResult* best = result.best_peer();
  if (best == nullptr) return "not compared";
  const std::string wanted =
      result.row.times_peer ? fmt::format(" (≥ {:.4g}x)", *result.row.times_peer) : "";
  return fmt::format("{:.2f}x{} {}", best->timing.median_ms / result.median_ms, wanted,
                     one_line(best->peer, 40));
}

bool floor_applies(const BenchResult& result, Isa isa) {
  if (!result.row.floor || result.threads != 1) return false;
  if (result.row.unit == BenchUnit::bandwidth_share) return true;
  return result.row.dtype != DType::bf16 || isa == Isa::amx;
}

/// A µ or ≥ is one column wide but two or three bytes long.
std::string padded(const std::string& text, std::size_t width) {
  const auto columns = static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
  return columns >= width ? text : std::string(width - columns, ' ') + text;
}

void number(std::string& out, const char* name, double value) {
  io::append_json_string(out, name);
  out += ": ";
  io::append_json_number(out, value);
}

void text(std::string& out, const char* name, std::string_view value) {
  io::append_json_string(out, name);
  out += ": ";
  io::append_json_string(out, value);
}

void calibration_json(std::string& out, const char* name, const Calibration& calibration) {
  io::append_json_string(out, name);
  out += ": {";
  number(out, "f32_flops", calibration.f32);
  out += ", ";
  number(out, "bf16_flops", calibration.bf16);
  out += ", ";
  number(out, "bytes", calibration.bandwidth);
  out += "}";
}

void rounds_json(std::string& out, const std::vector<BenchRound>& rounds) {
  out += "\"rounds\": [";
  for (const BenchRound& round : rounds) {
    if (&round != &rounds.front()) out += ", ";
    out += "{";
    number(out, "median_ms", round.timing.median_ms);
    out += ", ";
    number(out, "best_ms", round.timing.best_ms);
    out += fmt::format(", \"samples\": {}, \"steady\": {}, ", round.timing.samples, round.steady);
    calibration_json(out, "before", round.before);
    out += ", ";
    calibration_json(out, "after", round.after);
    out += "}";
  }
  out += "]";
}

void peers_json(std::string& out, const std::vector<PeerResult>& peers) {
  out += "\"peers\": [";
  for (const PeerResult& peer : peers) {
    if (&peer != &peers.front()) out += ", ";
    out += "{";
    text(out, "peer", peer.peer);
    out += ", ";
    number(out, "median_ms", peer.timing.median_ms);
    out += ", ";
    number(out, "best_ms", peer.timing.best_ms);
    out += ", ";
    number(out, "max_error", peer.max_error);
    out += "}";
  }
  out += "]";
}

void result_json(std::string& out, const BenchResult& result, Isa isa) {
  const BenchRow& row = result.row;
  out += "    {";
  text(out, "shape", row.shape);
  out += ", ";
  text(out, "mask", name_of(row.mask));
  out += ", ";
  text(out, "dtype", name_of(row.dtype));
  out += ", ";
  text(out, "pass", name_of(row.pass));
  out += fmt::format(", \"threads\": {}, ", result.threads);
  number(out, "median_ms", result.median_ms);
  out += ", ";
  number(out, "gflops", result.gflops);
  out += ", ";
  number(out, "share", result.share);
  out += ", ";
  text(out, "share_of", limit_text(row.unit));
  out += ", ";
  text(out, "floor", floor_text(result, isa));
  out += ", ";
  text(out, "verdict", verdict(result, isa));
  out += fmt::format(", \"steady\": {}, ", result.steady);
  if (row.times_peer) {
    number(out, "times_peer_wanted", *row.times_peer);
    out += ", ";
  }
  number(out, "max_error", result.max_error);
  out += ",\n     ";
  calibration_json(out, "limits", result.calibration);
  out += ",\n     ";
  rounds_json(out, result.rounds);
  out += ",\n     ";
  peers_json(out, result.peers);
  out += "}";
}

}  // namespace

std::string floor_text(const BenchResult& result, Isa isa) {
  if (!floor_applies(result, isa)) return "";
  if (result.row.unit == BenchUnit::milliseconds) return "≤ " + time_text(*result.row.floor);
  return fmt::format("≥ {:.0f} %", 100 * *result.row.floor);
}

std::string verdict(const BenchResult& result, Isa isa) {
  if (!floor_applies(result, isa)) return "";
  if (!result.steady) return "unsteady";
  const bool timed = result.row.unit == BenchUnit::milliseconds;
  return reaches_floor(result.row, timed ? result.median_ms : result.share) ? "reached" : "missed";
}

std::string bench_heading() {
  return left("row", 44) + right("threads", 8) + right("time", 11) + right("GFLOP/s", 9) +
         right("share", 9) + " " + left("of", 10) + right("floor", 10) + " " + left("", 9) +
         right("error", 9) + "  best peer\n";
}

std::string bench_line(const BenchResult& result, Isa isa) {
  return left(name_of(result.row), 44) + right(fmt::format("{}", result.threads), 8) +
         padded(time_text(result.median_ms), 11) + right(fmt::format("{:.1f}", result.gflops), 9) +
         right(share_text(result), 9) + " " + left(limit_text(result.row.unit), 10) +
         padded(floor_text(result, isa), 10) + " " +
         left(result.steady ? verdict(result, isa) : "unsteady", 9) +
         right(fmt::format("{:.1e}", result.max_error), 9) + "  " + peer_text(result) + "\n";
}

std::string bench_json(const BenchReport& report) {
  std::string out = "{\n  ";
  text(out, "processor", report.processor);
  out += ",\n  ";
  text(out, "isa", name_of(report.isa));
  out += ",\n  \"peers_asked\": [";
  for (const std::string& peer : report.peers) {
    if (&peer != &report.peers.front()) out += ", ";
    io::append_json_string(out, peer);
  }
  out += "],\n  \"results\": [\n";
  for (const BenchResult& result : report.results) {
    if (&result != &report.results.front()) out += ",\n";
    result_json(out, result, report.isa);
  }
  return out + "\n  ]\n}\n";
}

}  // namespace attest::cli
