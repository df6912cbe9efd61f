// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attest/base/dropout.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/visibility.h"
#include "tests/attention/engine_cases.h"

/// Attention by the loop that everybody writes first: what the engine must not be much worse than.
namespace attest::test {

/// One row by the loop that everybody writes first, in Acc: all scores, their exponentials, their
/// sum, then the mix. Where the type itself forces it (products of bf16 pairs), query and weight
/// round to bf16.
template <class Acc>
class PlainLoop {
 public:
  PlainLoop(const lab::AttentionCall& call, bool pairs) : call_(call), pairs_(pairs) {}

  /// [E], before it is stored.
  [[nodiscard]] std::vector<double> row(lab::RowPlace at, const lab::AttentionRow& exact) const {
    const auto& options = call_.options;
    const std::int64_t g = at.h / (call_.shape.H / call_.shape.G);
    std::vector<std::int64_t> seen;
    std::vector<Acc> scores;
    for (std::int64_t j = 0; j < call_.shape.S; ++j) {
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
    std::vector<double> out;
    for (std::int64_t e = 0; e < call_.shape.E; ++e) {
      Acc total{};
      for (std::size_t k = 0; k < seen.size(); ++k) {
        total += narrowed(scores[k] * kept(at, seen[k])) *
                 static_cast<Acc>(call_.in.value(at.b, g, seen[k], e));
      }
      out.push_back(static_cast<double>(total / sum));
    }
    return out;
  }

 private:
  [[nodiscard]] Acc narrowed(Acc x) const {
    return pairs_ ? static_cast<Acc>(rounded_to(static_cast<double>(x), DType::bf16)) : x;
  }
  [[nodiscard]] Acc kept(lab::RowPlace at, std::int64_t j) const {
    const Dropout& dropout = call_.options.dropout;
    const std::uint32_t threshold = dropout_threshold(dropout.rate);
    const WeightPlace place{static_cast<std::uint32_t>(at.b), static_cast<std::uint32_t>(at.h),
                            static_cast<std::uint32_t>(at.i), static_cast<std::uint32_t>(j)};
    if (threshold != 0 && dropped(dropout.seed, threshold, place)) return 0;
    return static_cast<Acc>(1 / (1 - dropout.rate));
  }
  [[nodiscard]] Acc score(lab::RowPlace at, std::int64_t g, std::int64_t j,
                          const lab::AttentionRow& exact) const {
    const auto& options = call_.options;
    const Acc scale =
        static_cast<Acc>(options.scale.value_or(1 / std::sqrt(static_cast<double>(call_.shape.D))));
    Acc sum{};
    for (std::int64_t d = 0; d < call_.shape.D; ++d) {
      const Acc query = static_cast<Acc>(call_.in.query(at.b, at.h, at.i, d));
      const Acc key = static_cast<Acc>(call_.in.key(at.b, g, j, d));
      sum += (pairs_ ? narrowed(query * scale) : query) * key;
    }
    if (!pairs_) sum *= scale;
    if (options.softcap) {
      const Acc cap = static_cast<Acc>(*options.softcap);
      sum = cap * std::tanh(sum / cap);
    }
    const Acc bias = static_cast<Acc>(call_.visibility.bias(at, j));
    return sum + (bias + static_cast<Acc>(exact.alibi[static_cast<std::size_t>(j)]));
  }

  const lab::AttentionCall& call_;
  bool pairs_;
};

inline bool multiplies_pairs(const EngineCase& c, Isa isa) {
  return c.storage == DType::bf16 && isa >= Isa::avx512bf16;
}

struct PlainOutput {
  Tensor<double> output{};   // [B, H, T, E], stored in the case's type; 0 in rows that see nothing
  double largest_score = 0;  // of the visible ones, before the softcap or after
};

inline PlainOutput plain_output(const EngineCase& c, bool pairs) {
  const auto inputs = c.inputs();
  const auto options = c.options();
  const auto shape = lab::check_attention(inputs, options);
  const lab::AttentionCall call{inputs, options, *shape, lab::Visibility(options, *shape)};
  PlainOutput out{Tensor<double>(c.output_shape())};
  const auto [B, H, G, T, S, D, E] = *shape;
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const lab::RowPlace at{n / (H * T), n / T % H, n % T};
    const auto exact = lab::compute_row(call, at, lab::Record::result);
    if (exact.empty) continue;
    for (std::size_t j = 0; j < exact.hidden.size(); ++j) {
      if (exact.hidden[j] != lab::HiddenBy::nothing) continue;
      out.largest_score =
          std::max({out.largest_score, std::fabs(exact.biased[j]), std::fabs(exact.scaled[j])});
    }
    const auto row = c.storage == DType::f64 ? PlainLoop<double>(call, pairs).row(at, exact)
                                             : PlainLoop<float>(call, pairs).row(at, exact);
    for (std::int64_t e = 0; e < E; ++e) {
      out.output(at.b, at.h, at.i, e) = rounded_to(row[static_cast<std::size_t>(e)], c.storage);
    }
  }
  return out;
}

}  // namespace attest::test
