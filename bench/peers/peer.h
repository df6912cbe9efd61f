// SPDX-License-Identifier: MIT
#pragma once

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

/// What every peer's program shares: the row on its command line, inputs, timing, a check of the
/// result and the line it prints. A program that does not do a row prints nothing and ends with 0.
namespace peer {

/// PROGRAM SHAPE B H G T S D MASK DTYPE PASS THREADS
struct Row {
  std::string shape;
  std::int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, width = 0;
  std::string mask;   ///< full, causal, window512, documents64
  std::string dtype;  ///< f32, bf16
  std::string pass;   ///< fwd, bwd
  int threads = 1;

  bool causal() const { return mask == "causal"; }
  bool plain_mask() const { return mask == "full" || (causal() && queries == keys); }
  double flops() const {
    const auto t = static_cast<double>(queries);
    const double pairs = causal() ? t * (t + 1) / 2 : t * static_cast<double>(keys);
    const double forward = 4.0 * static_cast<double>(batch * heads * width) * pairs;
    return pass == "fwd" ? forward : 2.5 * forward;
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

/// Milliseconds of each sample, sorted: at least seven of at least two milliseconds each. As
/// `attest bench` does it, so that neither side has a better clock.
inline std::vector<double> time_calls(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::int64_t calls = 1;
  const auto sample = [&] {
    const auto begin = Clock::now();
    for (std::int64_t n = 0; n < calls; ++n) call();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  while (sample() < 0.002) calls *= 2;
  std::vector<double> out;
  double total = 0;
  while (out.size() < 7 || (total < 0.1 && out.size() < 31)) {
    const double seconds = sample();
    total += seconds;
    out.push_back(seconds / static_cast<double>(calls) * 1e3);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// The largest error of sampled rows of an output, whose element (b, h, i, d) `at` gives.
template <class At>
double max_error_at(const Row& row, const Inputs& in, At at) {
  double worst = 0;
  for (std::int64_t n = 0; n < 12; ++n) {
    const std::int64_t b = n % row.batch, h = n * 7 % row.heads, i = n * (row.queries - 1) / 11;
    const std::int64_t g = h / (row.heads / row.kv_heads);
    const std::int64_t seen = row.causal() ? i + 1 : row.keys;
    const float* query =
        &in.query[static_cast<std::size_t>(((b * row.heads + h) * row.queries + i) * row.width)];
    const auto head = static_cast<std::size_t>((b * row.kv_heads + g) * row.keys * row.width);
    std::vector<double> weights(static_cast<std::size_t>(seen));
    double most = -HUGE_VAL, sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < row.width; ++d) {
        dot += static_cast<double>(query[d]) *
               in.key[head + static_cast<std::size_t>(j * row.width + d)];
      }
      weights[static_cast<std::size_t>(j)] = dot / std::sqrt(static_cast<double>(row.width));
      most = std::max(most, weights[static_cast<std::size_t>(j)]);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (std::int64_t d = 0; d < row.width; ++d) {
      double mixed = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        mixed += weights[static_cast<std::size_t>(j)] *
                 in.value[head + static_cast<std::size_t>(j * row.width + d)];
      }
      worst = std::max(worst, std::abs(mixed / sum - static_cast<double>(at(b, h, i, d))));
    }
  }
  return worst;
}

/// The same for an output [B, H, T, D] in one piece.
inline double max_error(const Row& row, const Inputs& in, const float* output) {
  return max_error_at(row, in, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return output[((b * row.heads + h) * row.queries + i) * row.width + d];
  });
}

/// "nan" as the error says that it was not checked.
inline void report(const char* name, const Row& row, const std::vector<double>& sorted_ms,
                   double error) {
  const double median = sorted_ms[sorted_ms.size() / 2];
  std::printf("%s,%s,%s,%s,%s,%d,%.6g,%.6g,%.2f,%.2e\n", name, row.shape.c_str(), row.pass.c_str(),
              row.dtype.c_str(), row.mask.c_str(), row.threads, median, sorted_ms.front(),
              row.flops() / median / 1e6, error);
}

}  // namespace peer
