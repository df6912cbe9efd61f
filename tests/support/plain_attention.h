// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attest/base/attention_call.h"

/// Attention as a plain loop in long double, with its own reading of the masks, and beside every
/// number how far an evaluation with correctly rounded binary64 steps may be from it.
///
/// Derivation, u = 2⁻⁵³, first order in u; A = Σ_d |query·key| · scale:
///
///   dot      rounded products and one rounded sum                         2u A
///   scaled   the root and the quotient, or one product                    + 2u A      → 4u A
///   capped   argument u|scaled|, tanh u, product u; c·tanh(·/c) is flat   + 3u A      → 7u A
///   biased   slope·distance u, the sum u(|capped| + |bias| + |alibi|)     → 9u M,
///            with M = max over the row of A + |bias| + |alibi| and |sink|
///   exp      of biased − peak; the peak cancels, its subtraction rounds   relative 11u M + u
///   weights  numerator, sum and quotient                                  relative ρ = (22M + 4) u
///   output   rounded products, one rounded sum                            (ρ + 2u) Σ_j w|value|
///   lse      a weighted mean of the scores' errors, exp, sum, log, sum    11u M + 2u + u|log sum|
///                                                                         + u|lse|
///
/// The reference itself has 64-bit significands and sums n = S + D + E terms: n·2⁻¹¹ of a u at
/// most, which `slack` adds. Underflow adds a few 2⁻¹⁰⁷⁴, which `floor` covers.
namespace attest::test {

inline constexpr long double u = 0x1p-53L;

struct PlainCall {
  const AttentionInputs<double>& in;
  const AttentionOptions<double>& options;

  [[nodiscard]] std::int64_t B() const { return in.query.extent(0); }
  [[nodiscard]] std::int64_t H() const { return in.query.extent(1); }
  [[nodiscard]] std::int64_t T() const { return in.query.extent(2); }
  [[nodiscard]] std::int64_t S() const { return in.key.extent(2); }
  [[nodiscard]] std::int64_t D() const { return in.query.extent(3); }
  [[nodiscard]] std::int64_t E() const { return in.value.extent(3); }
  [[nodiscard]] std::int64_t G() const { return in.key.extent(1); }
  [[nodiscard]] std::int64_t group(std::int64_t h) const { return h * G() / H(); }

  [[nodiscard]] std::int64_t keys_of(std::int64_t b) const {
    const auto& lengths = options.mask.key_lengths;
    if (lengths.empty()) return S();
    return lengths.size() == 1 ? lengths.front() : lengths.at(static_cast<std::size_t>(b));
  }
  [[nodiscard]] std::int64_t position(std::int64_t b, std::int64_t i) const {
    const Mask& mask = options.mask;
    if (mask.corner == Corner::bottom_right) return i + keys_of(b) - T();
    if (mask.corner != Corner::at_offset) return i;
    const auto& offsets = mask.query_offset;
    return i + (offsets.size() == 1 ? offsets.front() : offsets.at(static_cast<std::size_t>(b)));
  }
  template <class X>
  static X at(const View<const X, 4>& part, std::int64_t b, std::int64_t h, std::int64_t i,
              std::int64_t j) {
    return part(part.extent(0) == 1 ? 0 : b, part.extent(1) == 1 ? 0 : h,
                part.extent(2) == 1 ? 0 : i, part.extent(3) == 1 ? 0 : j);
  }
  [[nodiscard]] bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Mask& mask = options.mask;
    const std::int64_t ahead = j - position(b, i);
    bool seen = j < keys_of(b);
    seen = seen && !(mask.future_hidden && ahead > 0);
    seen = seen && !(mask.window.left && -ahead > *mask.window.left);
    seen = seen && !(mask.window.right && ahead > *mask.window.right);
    if (seen && mask.visible) seen = at(mask.visible, b, h, i, j);
    if (seen && options.bias) seen = !(std::isinf(bias(b, h, i, j)) && bias(b, h, i, j) < 0);
    return seen;
  }
  [[nodiscard]] double bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return options.bias ? at(options.bias, b, h, i, j) : 0;
  }
  /// What the dot product is multiplied by.
  [[nodiscard]] long double factor() const {
    if (options.scale) return *options.scale;
    return 1 / std::sqrt(static_cast<long double>(D()));
  }
};

/// One query's row.
struct PlainRow {
  std::vector<std::int64_t> seen;
  std::vector<long double> score;        // of the seen keys, with softcap, bias and ALiBi
  std::vector<long double> scaled;       // before the softcap
  std::vector<long double> weights;      // of the seen keys
  std::vector<long double> output;       // [E]
  std::vector<long double> output_size;  // Σ w|value|
  long double sink_weight = 0;
  long double log_sum_exp = -std::numeric_limits<long double>::infinity();
  long double log_sum = 0;
  long double size = 0;  // M
  long double slack = 1;

  [[nodiscard]] long double rho() const { return (22 * size + 4) * u * slack; }
  [[nodiscard]] long double weight_bound(std::size_t n) const {
    return rho() * weights[n] + 0x1p-1073L;
  }
  [[nodiscard]] long double output_bound(std::size_t e, long double floor) const {
    return (rho() + 2 * u * slack) * output_size[e] + floor;
  }
  [[nodiscard]] long double lse_bound() const {
    return (11 * size + 2 + std::fabs(log_sum) + std::fabs(log_sum_exp)) * u * slack;
  }
};

inline void plain_score(const PlainCall& call, PlainRow& row, std::int64_t b, std::int64_t h,
                        std::int64_t i, std::int64_t j) {
  long double dot = 0;
  long double dot_size = 0;
  for (std::int64_t d = 0; d < call.D(); ++d) {
    const long double product =
        static_cast<long double>(call.in.query(b, h, i, d)) * call.in.key(b, call.group(h), j, d);
    dot += product;
    dot_size += std::fabs(product);
  }
  const long double scaled = dot * call.factor();
  long double score = scaled;
  if (call.options.softcap) {
    const long double cap = *call.options.softcap;
    score = cap * std::tanh(scaled / cap);
  }
  const long double bias = call.bias(b, h, i, j);
  long double alibi = 0;
  if (!call.options.alibi_slopes.empty()) {
    alibi = -static_cast<long double>(call.options.alibi_slopes[static_cast<std::size_t>(h)]) *
            static_cast<long double>(std::abs(call.position(b, i) - j));
  }
  row.seen.push_back(j);
  row.scaled.push_back(scaled);
  row.score.push_back(score + bias + alibi);
  const long double size = dot_size * std::fabs(call.factor()) + std::fabs(bias) + std::fabs(alibi);
  row.size = std::max(row.size, size);
}

inline PlainRow plain_row(const PlainCall& call, std::int64_t b, std::int64_t h, std::int64_t i) {
  PlainRow row;
  row.slack = 1 + static_cast<long double>(call.S() + call.D() + call.E()) * 0x1p-10L;
  row.output.assign(static_cast<std::size_t>(call.E()), 0);
  row.output_size = row.output;
  for (std::int64_t j = 0; j < call.S(); ++j) {
    if (call.sees(b, h, i, j)) plain_score(call, row, b, h, i, j);
  }
  const bool sink = !call.options.sink.empty();
  const long double sink_score = sink ? call.options.sink[static_cast<std::size_t>(h)] : 0;
  if (row.seen.empty()) return row;
  long double peak = *std::max_element(row.score.begin(), row.score.end());
  if (sink) {
    peak = std::max(peak, sink_score);
    row.size = std::max(row.size, std::fabs(sink_score));
  }
  long double total = sink ? std::exp(sink_score - peak) : 0;
  for (const long double s : row.score) total += std::exp(s - peak);
  for (const long double s : row.score) row.weights.push_back(std::exp(s - peak) / total);
  if (sink) row.sink_weight = std::exp(sink_score - peak) / total;
  row.log_sum = std::log(total);
  row.log_sum_exp = peak + row.log_sum;
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    for (std::int64_t e = 0; e < call.E(); ++e) {
      const long double value = call.in.value(b, call.group(h), row.seen[n], e);
      row.output[static_cast<std::size_t>(e)] += row.weights[n] * value;
      row.output_size[static_cast<std::size_t>(e)] += row.weights[n] * std::fabs(value);
    }
  }
  return row;
}

/// What underflow may add to an output: a subnormal's rounding for each product and each weight.
inline long double output_floor(const PlainCall& call) {
  long double largest = 1;
  for (std::int64_t b = 0; b < call.B(); ++b) {
    for (std::int64_t g = 0; g < call.G(); ++g) {
      for (std::int64_t j = 0; j < call.S(); ++j) {
        for (std::int64_t e = 0; e < call.E(); ++e) {
          const long double size = std::fabs(call.in.value(b, g, j, e));
          if (size > largest && std::isfinite(size)) largest = size;
        }
      }
    }
  }
  return static_cast<long double>(call.S()) * 0x1p-1072L * largest;
}

}  // namespace attest::test
