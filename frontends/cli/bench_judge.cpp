// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attest::cli {
namespace {

constexpr double three_points = 0.03;
constexpr double avx2_share = 0.70;
constexpr double scaling_floor = 0.95;

Judgement judged(const BenchResult& result, std::string wanted, bool reached) {
  if (!result.steady) return {std::move(wanted), "unsteady"};
  return {std::move(wanted), reached ? "reached" : "missed"};
}

/// The share or time that is asked of a row, if any is.
std::optional<double> floor_of(const BenchRow& row, Isa isa) {
  if (!row.floor || isa == Isa::portable) return {};
  switch (row.unit) {
    case BenchUnit::bandwidth_share:
      return row.floor;
    case BenchUnit::bf16_share:
      return isa == Isa::amx ? row.floor : std::nullopt;
    case BenchUnit::milliseconds:
      return row.dtype == DType::bf16 && isa != Isa::amx ? std::nullopt : row.floor;
    case BenchUnit::f32_share:
      break;
  }
  return isa == Isa::avx2 ? std::min(avx2_share, *row.floor) : row.floor;
}

}  // namespace

std::string time_text(double ms) {
  if (ms < 0.1) return fmt::format("{:.2f} µs", ms * 1e3);
  return fmt::format("{:.{}f} ms", ms, ms < 10 ? 3 : 1);
}

Judgement judge_floor(const BenchResult& result, Isa isa) {
  const auto floor = floor_of(result.row, isa);
  if (!floor || result.threads != 1) return {};
  if (result.row.unit == BenchUnit::milliseconds) {
    return judged(result, "≤ " + time_text(*floor), result.median_ms <= *floor);
  }
  return judged(result, fmt::format("≥ {:.0f} %", 100 * *floor),
                result.share >= *floor - three_points);
}

std::optional<double> times_asked(const BenchRow& row, Isa isa) {
  if (!row.times_peer || isa == Isa::portable) return {};
  const bool for_tiles = row.dtype == DType::bf16 && row.unit != BenchUnit::bandwidth_share;
  return for_tiles && isa != Isa::amx ? 1 : row.times_peer;
}

Judgement judge_peers(const BenchResult& result, Isa isa) {
  const auto times = times_asked(result.row, isa);
  if (!times) return {};
  const std::string wanted = *times == 1 ? "ahead" : fmt::format("≥ {:.4g}×", *times);
  const PeerResult* best = result.best_peer();
  if (best == nullptr) return {wanted, "not compared"};
  return judged(result, wanted, best->timing.median_ms >= *times * result.median_ms);
}

Judgement judge_threads(const BenchResult& result) {
  if (!result.beside_one || result.threads == 1) return {};
  switch (result.row.threads) {
    case BenchThreads::scale:
      return judged(result, fmt::format("≥ {}× the limit's", scaling_floor),
                    result.beside_one->scaling >= scaling_floor - three_points);
    case BenchThreads::never_slower:
      return judged(result, "not slower than 1", result.beside_one->speedup >= 1 - three_points);
    case BenchThreads::free:
      break;
  }
  return {};
}

std::string count_of(const std::vector<Judgement>& judgements) {
  std::string out;
  for (const char* verdict : {"reached", "missed", "unsteady", "not compared"}) {
    const auto count = std::count_if(judgements.begin(), judgements.end(),
                                     [&](const Judgement& one) { return one.verdict == verdict; });
    if (count != 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, verdict);
  }
  return out.empty() ? "nothing asked" : out;
}

}  // namespace attest::cli
