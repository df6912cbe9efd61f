// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/linalg/isa.h"
#include "frontends/cli/bench_peers.h"
#include "frontends/cli/bench_rows.h"

namespace attest::cli {

/// The machine's limits, as a row needs them: operations or bytes a second.
struct Calibration {
  double f32 = 0;
  double bf16 = 0;
  double bandwidth = 0;  ///< only for rows that are a share of it
};

/// One round of a row: the machine's limits before and after the samples.
struct BenchRound {
  Calibration before;
  Timing timing;
  Calibration after;
  bool steady = false;  ///< the two agree within 10 %, and with the best of the row's rounds
};

/// Beside the same row with one thread.
struct BesideOne {
  double speedup = 0;  ///< its time over this
  double scaling = 0;  ///< speedup, over how many times the limit is with so many threads
};

/// A row with one number of threads.
struct BenchResult {
  BenchRow row;
  int threads = 1;
  std::vector<BenchRound> rounds;
  double median_ms = 0;     ///< of the best steady round; of the best round if none was steady
  double gflops = 0;        ///< on visible pairs
  Calibration calibration;  ///< of that round: the larger of before and after
  double share =
      0;  ///< of the limit that the row's unit names (of its type's peak for milliseconds)
  bool steady = false;   ///< there was a steady round; otherwise the row claims nothing
  double max_error = 0;  ///< of sampled rows, against the exact tier
  std::vector<PeerResult> peers;
  std::optional<BesideOne> beside_one{};  ///< if the row was run with one thread too, before
  /// The fastest of those whose result was right.
  [[nodiscard]] const PeerResult* best_peer() const;
};

struct BenchPlan {
  Isa isa = Isa::portable;
  std::vector<int> threads{1, 2};
  int rounds = 3;
  std::vector<std::string> peers;  ///< programs
};

/// A row's tensors, its calls, and the same calls by the exact tier on a few rows.
class BenchCall {
 public:
  virtual ~BenchCall() = default;
  /// Computes; throws attest::Error.
  virtual void run() = 0;
  /// The largest difference from the exact tier on sampled rows of the output, or of d_query.
  [[nodiscard]] virtual Result<double> max_error() = 0;
};

/// `threads` workers for this call alone. A matrix product is made by the second.
[[nodiscard]] std::unique_ptr<BenchCall> make_call(const BenchRow& row, Isa isa, int threads);

[[nodiscard]] std::unique_ptr<BenchCall> make_product(const BenchRow& row, Isa isa, int threads);

[[nodiscard]] Timing time_calls(const std::function<void()>& call);

/// Runs one row in as many rounds as the plan says, each followed by one round of peers.
[[nodiscard]] Result<BenchResult> run_row(const BenchRow& row, int threads, const BenchPlan& plan);

/// From a result's rounds: its medians, share and steadiness.
void summarise(BenchResult& result);

/// Where a row was run with one thread too: how its other results compare with that.
void set_beside_one(std::vector<BenchResult>& results);

}  // namespace attest::cli
