// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "frontends/cli/bench_run.h"

namespace attest::cli {

/// What is asked of a result, and whether it was reached.
struct Judgement {
  std::string
      wanted;  ///< in words, "≥ 77 %", "≤ 1.80 µs", "≥ 3×", "ahead"; empty: nothing is asked
  std::string
      verdict;  ///< "reached", "missed", "unsteady" (it claims nothing), "not compared"; empty
};

/// "412.3 ms", "1.80 µs".
[[nodiscard]] std::string time_text(double ms);

/// The floor of a row, with one thread alone. Shares within three points of it count as reached.
/// A bfloat16 share is set for matrix tiles, so for `amx` alone; with avx2 an f32 share of 70 % will
/// do; of the portable kernels nothing is asked.
[[nodiscard]] Judgement judge_floor(const BenchResult& result, Isa isa);

/// How many times as fast as the best peer a row has to be, 1 for "ahead". The multiples of bfloat16
/// rows are set for matrix tiles: elsewhere it is enough to be ahead, but for decoding, which is counted
/// in bytes. Of the portable kernels, and of matrix products, nothing is asked.
[[nodiscard]] std::optional<double> times_asked(const BenchRow& row, Isa isa);

/// Against the best peer whose result was right, with any number of threads.
[[nodiscard]] Judgement judge_peers(const BenchResult& result, Isa isa);

/// More threads than one: that large shapes scale as the limit does (0.95, less three points), or
/// that a call of microseconds is not slower than with one (three points). Empty if the row was not
/// run with one thread too.
[[nodiscard]] Judgement judge_threads(const BenchResult& result);

/// How often each verdict was given, "31 reached, 2 missed"; "nothing asked" if none was.
[[nodiscard]] std::string count_of(const std::vector<Judgement>& judgements);

}  // namespace attest::cli
