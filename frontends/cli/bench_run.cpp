// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "attest/linalg/machine.h"

namespace attest::cli {
namespace {

constexpr double shortest_sample = 0.002;  // seconds
constexpr int fewest_samples = 7;
constexpr int most_samples = 31;
constexpr double enough_seconds = 0.1;  // beyond the fewest samples
constexpr double agreement = 0.10;

double seconds_of(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The limit that the row is a share of.
double limit_of(const BenchRow& row, const Calibration& calibration) {
  if (row.unit == BenchUnit::bandwidth_share) return calibration.bandwidth;
  return row.dtype == DType::bf16 ? calibration.bf16 : calibration.f32;
}

Result<Calibration> calibrate(const BenchRow& row, int threads, Isa isa) {
  const Sampling sampling{.threads = threads};
  Calibration out;
  const auto f32 = measure_f32_peak(isa, sampling);
  if (!f32) return f32.failure();
  out.f32 = f32->median;
  if (row.dtype == DType::bf16) {
    const auto bf16 = measure_bf16_peak(isa, sampling);
    if (!bf16) return bf16.failure();
    out.bf16 = bf16->median;
  }
  if (row.unit == BenchUnit::bandwidth_share) {
    const auto bandwidth = measure_read_bandwidth(cache_bytes(row), sampling);
    if (!bandwidth) return bandwidth.failure();
    out.bandwidth = bandwidth->median;
  }
  return out;
}

bool agree(double a, double b) { return std::abs(a - b) <= agreement * std::max(a, b); }

Result<BenchRound> run_round(const BenchRow& row, int threads, Isa isa, BenchCall& call) {
  BenchRound out;
  const auto before = calibrate(row, threads, isa);
  if (!before) return before.failure();
  out.timing = time_calls([&] { call.run(); });
  const auto after = calibrate(row, threads, isa);
  if (!after) return after.failure();
  out.before = *before;
  out.after = *after;
  return out;
}

/// Before and after agreeing is not enough: both are low when somebody else works all the time, and a
/// row that happened to be spared would seem faster than the machine.
void mark_steady(const BenchRow& row, std::vector<BenchRound>& rounds) {
  double best = 0;
  for (const BenchRound& round : rounds) {
    best = std::max({best, limit_of(row, round.before), limit_of(row, round.after)});
  }
  for (BenchRound& round : rounds) {
    round.steady =
        agree(limit_of(row, round.before), best) && agree(limit_of(row, round.after), best);
  }
}

/// The best steady round, or the best one; there is at least one.
const BenchRound& best_round(const std::vector<BenchRound>& rounds) {
  return *std::min_element(rounds.begin(), rounds.end(),
                           [](const BenchRound& a, const BenchRound& b) {
                             if (a.steady != b.steady) return a.steady;
                             return a.timing.median_ms < b.timing.median_ms;
                           });
}

}  // namespace

const PeerResult* BenchResult::best_peer() const {
  const PeerResult* best = nullptr;
  for (const PeerResult& peer : peers) {
    if (!is_right(peer, row)) continue;
    if (best == nullptr || peer.timing.median_ms < best->timing.median_ms) best = &peer;
  }
  return best;
}

void summarise(BenchResult& result) {
  const BenchRow& row = result.row;
  mark_steady(row, result.rounds);
  const BenchRound& best = best_round(result.rounds);
  const double seconds = best.timing.median_ms / 1e3;
  result.steady = best.steady;
  result.median_ms = best.timing.median_ms;
  result.gflops = flops_of(row) / seconds / 1e9;
  result.calibration = {std::max(best.before.f32, best.after.f32),
                        std::max(best.before.bf16, best.after.bf16),
                        std::max(best.before.bandwidth, best.after.bandwidth)};
  const double work = row.unit == BenchUnit::bandwidth_share ? static_cast<double>(cache_bytes(row))
                                                             : flops_of(row);
  result.share = work / seconds / limit_of(row, result.calibration);
}

void set_beside_one(std::vector<BenchResult>& results) {
  for (BenchResult& result : results) {
    const auto one = std::find_if(results.begin(), results.end(), [&](const BenchResult& other) {
      return other.threads == 1 && name_of(other.row) == name_of(result.row);
    });
    if (one == results.end() || result.threads == 1) continue;
    const double speedup = one->median_ms / result.median_ms;
    const double limits =
        limit_of(result.row, result.calibration) / limit_of(result.row, one->calibration);
    result.beside_one = {speedup, speedup / limits};
  }
}

Timing time_calls(const std::function<void()>& call) {
  call();  // the first touches memory and wakes threads
  std::int64_t calls = 1;
  const auto sample = [&] {
    return seconds_of([&] {
      for (std::int64_t n = 0; n < calls; ++n) call();
    });
  };
  double seconds = sample();
  while (seconds < shortest_sample) {
    calls *= 2;
    seconds = sample();
  }
  // The sample that was long enough is the first.
  std::vector<double> each{seconds / static_cast<double>(calls) * 1e3};
  double total = seconds;
  while (each.size() < fewest_samples || (total < enough_seconds && each.size() < most_samples)) {
    seconds = sample();
    total += seconds;
    each.push_back(seconds / static_cast<double>(calls) * 1e3);
  }
  std::sort(each.begin(), each.end());
  const std::size_t half = each.size() / 2;
  const double middle = each.size() % 2 == 1 ? each[half] : (each[half - 1] + each[half]) / 2;
  return {middle, each.front(), static_cast<int>(each.size())};
}

Result<BenchResult> run_row(const BenchRow& row, int threads, const BenchPlan& plan) try {
  BenchResult out;
  out.row = row;
  out.threads = threads;
  const auto call = row.pass == BenchPass::product ? make_product(row, plan.isa, threads)
                                                   : make_call(row, plan.isa, threads);
  const auto error = call->max_error();
  if (!error) return error.failure();
  out.max_error = *error;
  for (int round = 0; round < plan.rounds; ++round) {
    const auto done = run_round(row, threads, plan.isa, *call);
    if (!done) return done.failure();
    out.rounds.push_back(*done);
    run_peers(plan.peers, row, threads, done->timing.median_ms, out.peers);
  }
  summarise(out);
  return out;
} catch (const Error& error) {
  return Failure{error.kind(), error.id(), error.what()};
}

}  // namespace attest::cli
