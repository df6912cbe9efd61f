// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "attest/base/dropout.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/visibility.h"
#include "tests/attention/engine_cases.h"

/// Attention by the loop that everybody writes first: what the engine must not be much worse than.
namespace attest::test {

/// One row by the loop that everybody writes first, in Acc: all scores, their exponentials, their
/// sum, then the mix. Where products are of bf16 pairs, weights round to bf16 for the mix.
///
/// Order 0 is the order of the indices. Others add up features and keys in another order, scale the
/// product, the query or the key, and divide before the mix or after it: loops that nobody would call
/// better or worse.
template <class Acc>
class PlainLoop {
 public:
  PlainLoop(const lab::AttentionCall& call, bool pairs, std::uint64_t order)
      : call_(call),
        pairs_(pairs),
        order_(order),
        features_(shuffled(call.shape.D, 0)),
        keys_(shuffled(call.shape.S, 1)) {}

  /// [E], before it is stored.
  [[nodiscard]] std::vector<Acc> row(lab::RowPlace at, const lab::AttentionRow& exact) const {
    const auto& options = call_.options;
    const std::int64_t g = at.h / (call_.shape.H / call_.shape.G);
    std::vector<std::int64_t> seen;
    std::vector<Acc> scores;
    for (const std::int64_t j : keys_) {
      if (exact.hidden[static_cast<std::size_t>(j)] != lab::HiddenBy::nothing) continue;
      seen.push_back(j);
      scores.push_back(score(at, g, j, exact));
    }
    Acc peak = *std::ranges::max_element(scores);
    const bool sink = !options.sink.empty();
    const Acc logit = sink ? static_cast<Acc>(options.sink[static_cast<std::size_t>(at.h)]) : Acc{};
    if (sink) peak = std::max(peak, logit);
    Acc sum = sink ? std::exp(logit - peak) : Acc{};
    for (Acc& s : scores) sum += s = std::exp(s - peak);
    if (order_ % 2 == 1) {
      for (Acc& s : scores) s /= sum;
      sum = 1;
    }
    std::vector<Acc> out;
    for (std::int64_t e = 0; e < call_.shape.E; ++e) {
      Acc total{};
      for (std::size_t k = 0; k < seen.size(); ++k) {
        total += narrowed(scores[k] * kept(at, seen[k])) *
                 static_cast<Acc>(call_.in.value(at.b, g, seen[k], e));
      }
      out.push_back(total / sum);
    }
    return out;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t stream) const {
    std::vector<std::int64_t> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), 0);
    if (order_ == 0) return out;
    Random random(order_, stream);
    for (std::size_t n = out.size(); n > 1; --n) {
      const std::int64_t other = random.between(0, static_cast<std::int64_t>(n) - 1);
      std::swap(out[n - 1], out[static_cast<std::size_t>(other)]);
    }
    return out;
  }
  [[nodiscard]] Acc narrowed(Acc x) const {
    return pairs_ ? static_cast<Acc>(rounded_to(static_cast<double>(x), DType::bf16)) : x;
  }
  [[nodiscard]] Acc kept(lab::RowPlace at, std::int64_t j) const {
    const Dropout& dropout = call_.options.dropout;
    const std::uint32_t threshold = dropout_threshold(dropout.rate);
    const WeightPlace place{static_cast<std::uint32_t>(at.b), static_cast<std::uint32_t>(at.h),
                            static_cast<std::uint32_t>(at.i), static_cast<std::uint32_t>(j)};
    if (threshold != 0 && dropped(dropout.seed, threshold, place)) return 0;
    return static_cast<Acc>(1 / (1 - static_cast<long double>(dropout.rate)));
  }
  [[nodiscard]] Acc score(lab::RowPlace at, std::int64_t g, std::int64_t j,
                          const lab::AttentionRow& exact) const {
    const auto& options = call_.options;
    const auto width = static_cast<long double>(call_.shape.D);
    const Acc scale = static_cast<Acc>(options.scale ? *options.scale : 1 / std::sqrt(width));
    const std::uint64_t scaled = pairs_ ? 0 : order_ % 3;
    Acc sum{};
    for (const std::int64_t d : features_) {
      Acc query = static_cast<Acc>(call_.in.query(at.b, at.h, at.i, d));
      Acc key = static_cast<Acc>(call_.in.key(at.b, g, j, d));
      if (scaled == 1) query *= scale;
      if (scaled == 2) key *= scale;
      sum += query * key;
    }
    if (scaled == 0) sum *= scale;
    if (options.softcap) {
      const Acc cap = static_cast<Acc>(*options.softcap);
      sum = cap * std::tanh(sum / cap);
    }
    Acc added = static_cast<Acc>(call_.visibility.bias(at, j));
    const double alibi = exact.alibi[static_cast<std::size_t>(j)];
    if (alibi != 0) {
      const double slope = options.alibi_slopes[static_cast<std::size_t>(at.h)];
      added += static_cast<Acc>(slope) * static_cast<Acc>(std::round(alibi / slope));
    }
    return sum + added;
  }

  const lab::AttentionCall& call_;
  bool pairs_;
  std::uint64_t order_;
  std::vector<std::int64_t> features_;
  std::vector<std::int64_t> keys_;
};

inline bool multiplies_pairs(const EngineCase& c, Isa isa) {
  return c.storage == DType::bf16 && isa >= Isa::avx512bf16;
}

/// [B, H, T, E], in Acc; 0 in rows that see nothing.
template <class Acc>
std::vector<Acc> plain_rows(const EngineCase& c, bool pairs, std::uint64_t order) {
  const auto inputs = c.inputs();
  const auto options = c.options();
  const auto shape = lab::check_attention(inputs, options);
  const lab::AttentionCall call{inputs, options, *shape, lab::Visibility(options, *shape)};
  const PlainLoop<Acc> loop(call, pairs, order);
  std::vector<Acc> out;
  const auto [B, H, G, T, S, D, E] = *shape;
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const lab::RowPlace at{n / (H * T), n / T % H, n % T};
    const auto exact = lab::compute_row(call, at, lab::Record::result);
    const auto row =
        exact.empty ? std::vector<Acc>(static_cast<std::size_t>(E)) : loop.row(at, exact);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

/// The same, stored in the case's type.
inline std::vector<double> plain_output(const EngineCase& c, bool pairs, std::uint64_t order) {
  if (c.storage == DType::f64) return plain_rows<double>(c, pairs, order);
  std::vector<double> out;
  for (const float x : plain_rows<float>(c, pairs, order)) {
    out.push_back(rounded_to(static_cast<double>(x), c.storage));
  }
  return out;
}

}  // namespace attest::test
