// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "attest/base/result.h"
#include "frontends/cli/bench_rows.h"

namespace attest::cli {

/// One call after another: warmed up, at least seven samples of at least two milliseconds.
struct Timing {
  double median_ms = 0;
  double best_ms = 0;
  int samples = 0;
};

/// What a peer's program said of a row: its best round.
struct PeerResult {
  std::string peer;
  Timing timing;         ///< it does not tell how many samples it took: 0
  double max_error = 0;  ///< NaN: it did not check
  std::string program{};
};

/// Whether the result that a peer was so fast with is one: its error is not beyond what the row's
/// type explains.
[[nodiscard]] bool is_right(const PeerResult& peer, const BenchRow& row);

/// Runs a peer's program on a row: the lines that it prints for this row, with several ways to
/// compute it several; none if it does not do such rows, or prints anything else. ATTEST_BEST_MS tells it
/// the best time so far: what is much slower need not be sampled often.
[[nodiscard]] std::vector<PeerResult> run_peer(const std::string& program, const BenchRow& row,
                                               int threads, double best_ms);

/// One round of the programs, after one of ours with that median. One that was more than twice as slow
/// as the fastest in the rounds before is not asked again: it could not become the best.
void run_peers(const std::vector<std::string>& programs, const BenchRow& row, int threads,
               double our_ms, std::vector<PeerResult>& peers);

/// The folder bench/peers beside this program, where the build puts peers; empty if there is none.
[[nodiscard]] std::string built_peers();

/// The programs in a folder, sorted by name. Fails: bad-peers, if it cannot be read.
[[nodiscard]] Result<std::vector<std::string>> programs_in(const std::string& folder);

}  // namespace attest::cli
