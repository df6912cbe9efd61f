// SPDX-License-Identifier: MIT
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

/// What every peer's program shares: the row on its command line, inputs, timing, a check of the
/// result and the line it prints. A program that does not do a row prints nothing and ends with 0.
namespace peer {

/// From `begin` to before `end`.
struct Range {
  std::int64_t begin = 0, end = 0;
};

/// Where 64 documents begin, and the end: as frontends/cli/bench_rows.cpp has them.
inline std::vector<std::int64_t> document_starts(std::int64_t tokens) {
  std::vector<std::int64_t> starts{0};
  for (std::int64_t n = 0; n < 63; ++n) {
    starts.push_back(std::min(starts.back() + 130 + n * 37 % 64 * 4, tokens));
  }
  starts.push_back(tokens);
  return starts;
}

/// PROGRAM SHAPE B H G T S D MASK DTYPE PASS THREADS. PASS gemm is C [T, S] = A [T, D] · B [D, S].
struct Row {
  std::string shape;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, width = 0;
  std::string mask;   ///< full, causal, window512, documents64
  std::string dtype;  ///< f32, bf16
  std::string pass;   ///< fwd, bwd, gemm
  int threads = 1;
  std::vector<std::int64_t> starts{};  ///< of documents

  bool gemm() const { return pass == "gemm"; }
  bool forward() const { return pass == "fwd"; }
  bool causal() const { return mask == "causal"; }
  bool window() const { return mask == "window512"; }
  bool documents() const { return mask == "documents64"; }
  bool square() const { return queries == keys; }
  /// Full or causal: what every library can say.
  bool plain_mask() const { return mask == "full" || (causal() && square()); }
  /// Or one of the two that are written by hand with most of them.
  bool known_mask() const { return plain_mask() || ((window() || documents()) && square()); }
  std::int64_t group() const { return heads / kv_heads; }

  /// The keys that query i sees.
  Range seen(std::int64_t i) const {
    if (causal()) return {0, i + 1};
    if (window()) return {std::max<std::int64_t>(0, i - 512), i + 1};
    if (documents()) {
      const auto after = std::upper_bound(starts.begin(), starts.end(), i);
      return {*(after - 1), *after};
    }
    return {0, keys};
  }
  double flops() const {
    if (gemm()) return 2.0 * static_cast<double>(queries * keys * width);
    double pairs = 0;
    for (std::int64_t i = 0; i < queries; ++i) {
      pairs += static_cast<double>(seen(i).end - seen(i).begin);
    }
    const double forward_flops = 4.0 * static_cast<double>(batch * heads * width) * pairs;
    return forward() ? forward_flops : 2.5 * forward_flops;
  }
};

inline Row row_of(int count, char** words) {
  if (count != 12) {
    std::fprintf(stderr, "usage: %s SHAPE B H G T S D MASK DTYPE PASS THREADS\n", words[0]);
    std::exit(2);
  }
  Row row;
  row.shape = words[1];
  std::int64_t* const numbers[] = {&row.batch,   &row.heads, &row.kv_heads,
                                   &row.queries, &row.keys,  &row.width};
  for (int n = 0; n < 6; ++n) {
    *numbers[n] = std::strtoll(words[2 + n], nullptr, 10);
    if (*numbers[n] < 1) std::exit(2);
  }
  row.mask = words[8];
  row.dtype = words[9];
  row.pass = words[10];
  row.threads = std::max(1, std::atoi(words[11]));
  if (row.documents()) row.starts = document_starts(row.keys);
  return row;
}

/// Mean 0 and variance 1, the same for every peer.
inline std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 0x9E3779B97F4A7C15U + 0x1234567U;
  for (float& x : out) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    x = static_cast<float>((static_cast<double>(state >> 11U) * 0x1p-53 - 0.5) * 3.4641016);
  }
  return out;
}

/// query [B, H, T, D], key and value [B, G, S, D], one after another.
struct Inputs {
  std::vector<float> query, key, value;
  explicit Inputs(const Row& row)
      : query(numbers(row.batch * row.heads * row.queries * row.width, 1)),
        key(numbers(row.batch * row.kv_heads * row.keys * row.width, 2)),
        value(numbers(row.batch * row.kv_heads * row.keys * row.width, 3)) {}
};

/// A library that asks the system for its large buffers anew at every call pays for their pages
/// each time. Its users tell the allocator to keep them, and so does whoever wants to be fair.
inline void keep_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);         // everything from the heap
  mallopt(M_TRIM_THRESHOLD, -1);  // which is never given back
#endif
}

/// To be called first. OpenBLAS before 0.3.26 takes its SSE3 kernels on processors that it does not
/// know, several times slower, and asks the environment once, when it is loaded: so the program starts
/// itself anew with what suits this processor, or with what ATTEST_PEER_OPENBLAS_CORE says.
inline void choose_openblas_core(char** words) {
  const char* const chosen = std::getenv("ATTEST_PEER_OPENBLAS_CORE");
#if defined(__AVX512F__)
  const char* const best = "SkylakeX";
#elif defined(__AVX2__)
  const char* const best = "Haswell";
#else
  const char* const best = nullptr;
#endif
  const char* const core = chosen != nullptr ? chosen : best;
  const char* const now = std::getenv("OPENBLAS_CORETYPE");
  if (core == nullptr || (now != nullptr && std::strcmp(now, core) == 0)) return;
  setenv("OPENBLAS_CORETYPE", core, 1);
  execv("/proc/self/exe", words);
}

/// Milliseconds of each sample, sorted: at least seven of at least two milliseconds each. As
/// `attest bench` does it, so that neither side has a better clock. What was three times as slow as
/// the best of the row so far, which the bench tells in ATTEST_BEST_MS, in each of three samples, takes
/// no more. (Not in one: libtorch's second call can be five times as slow as its tenth.)
inline std::vector<double> time_calls(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::int64_t calls = 1;
  const auto sample = [&] {
    const auto begin = Clock::now();
    for (std::int64_t n = 0; n < calls; ++n) call();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double seconds = sample();
  while (seconds < 0.002) {
    calls *= 2;
    seconds = sample();
  }
  // The sample that was long enough is the first.
  std::vector<double> out{seconds / static_cast<double>(calls) * 1e3};
  const char* const told = std::getenv("ATTEST_BEST_MS");
  const double slow = told == nullptr ? HUGE_VAL : 3 * std::atof(told);
  double total = seconds;
  while (out.size() < 7 || (total < 0.1 && out.size() < 31)) {
    if (out.size() >= 3 && *std::min_element(out.begin(), out.end()) > slow) break;
    seconds = sample();
    total += seconds;
    out.push_back(seconds / static_cast<double>(calls) * 1e3);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// A line of results. An error of "nan" would say that it was not checked.
inline void report(const char* name, const Row& row, const std::vector<double>& sorted_ms,
                   double error) {
  const double median = sorted_ms[sorted_ms.size() / 2];
  std::printf("%s,%s,%s,%s,%s,%d,%.6g,%.6g,%.2f,%.2e\n", name, row.shape.c_str(), row.pass.c_str(),
              row.dtype.c_str(), row.mask.c_str(), row.threads, median, sorted_ms.front(),
              row.flops() / median / 1e6, error);
}

}  // namespace peer
