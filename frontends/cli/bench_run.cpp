// SPDX-License-Identifier: MIT
#include "frontends/cli/bench_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

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
  switch (row.unit) {
    case BenchUnit::bf16_share:
      return calibration.bf16;
    case BenchUnit::bandwidth_share:
      return calibration.bandwidth;
    case BenchUnit::f32_share:
    case BenchUnit::milliseconds:
      break;
  }
  return calibration.f32;
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

void keep_better(std::vector<PeerResult>& peers, const PeerResult& found) {
  for (PeerResult& known : peers) {
    if (known.peer != found.peer) continue;
    if (found.timing.median_ms < known.timing.median_ms) known = found;
    return;
  }
  peers.push_back(found);
}

std::string quoted_for_shell(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// What a command prints, 64 KiB at most.
std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char part[4096];
  while (const std::size_t count = std::fread(part, 1, sizeof part, pipe)) {
    if (out.size() < 65536) out.append(part, count);
  }
  pclose(pipe);
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out{""};
  for (const char c : text) {
    if (c == separator) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::optional<double> number_in(const std::string& word) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0') return {};
  return number;
}

const char* short_name_of(BenchPass pass) { return pass == BenchPass::forward ? "fwd" : "bwd"; }

}  // namespace

const PeerResult* BenchResult::best_peer() const {
  const auto best =
      std::min_element(peers.begin(), peers.end(), [](const PeerResult& a, const PeerResult& b) {
        return a.timing.median_ms < b.timing.median_ms;
      });
  return best == peers.end() ? nullptr : &*best;
}

Timing time_calls(const std::function<void()>& call) {
  call();  // the first touches memory and wakes threads
  std::int64_t calls = 1;
  const auto sample = [&] {
    return seconds_of([&] {
      for (std::int64_t n = 0; n < calls; ++n) call();
    });
  };
  while (sample() < shortest_sample) calls *= 2;
  std::vector<double> each;
  double total = 0;
  while (each.size() < fewest_samples || (total < enough_seconds && each.size() < most_samples)) {
    const double seconds = sample();
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
  const auto call = make_call(row, plan.isa, threads);
  const auto error = call->max_error();
  if (!error) return error.failure();
  out.max_error = *error;
  for (int round = 0; round < plan.rounds; ++round) {
    const auto done = run_round(row, threads, plan.isa, *call);
    if (!done) return done.failure();
    out.rounds.push_back(*done);
    for (const std::string& program : plan.peers) {
      for (const PeerResult& found : run_peer(program, row, threads)) keep_better(out.peers, found);
    }
  }
  summarise(out);
  return out;
} catch (const Error& error) {
  return Failure{error.kind(), error.id(), error.what()};
}

std::vector<PeerResult> run_peer(const std::string& program, const BenchRow& row, int threads) {
  std::vector<PeerResult> out;
  const std::string command =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} 2>/dev/null", quoted_for_shell(program),
                  row.shape, row.batch, row.heads, row.kv_heads, row.queries, row.keys, row.width,
                  name_of(row.mask), name_of(row.dtype), short_name_of(row.pass), threads);
  for (const std::string& line : split(output_of(command), '\n')) {
    const auto fields = split(line, ',');
    // peer,shape,pass,dtype,mask,threads,median_ms,best_ms,gflops,maxerr
    if (fields.size() != 10 || fields[1] != row.shape || fields[2] != short_name_of(row.pass) ||
        fields[3] != name_of(row.dtype) || fields[4] != name_of(row.mask) ||
        fields[5] != std::to_string(threads)) {
      continue;
    }
    const auto median = number_in(fields[6]);
    const auto best = number_in(fields[7]);
    const auto error = number_in(fields[9]);
    if (!median || !best || !error || !(*median > 0)) continue;
    out.push_back({fields[0], {*median, *best, 0}, *error});
  }
  return out;
}

Result<std::vector<std::string>> programs_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> out;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end;
       entry.increment(code)) {
    const std::string path = entry->path().string();
    if (fs::is_regular_file(path, code) && access(path.c_str(), X_OK) == 0) out.push_back(path);
  }
  if (code) {
    return Failure{ErrorKind::file, "bad-peers",
                   fmt::format("[bench] {}: {}", folder, code.message())};
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace attest::cli
