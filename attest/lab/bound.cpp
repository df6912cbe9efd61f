// SPDX-License-Identifier: MIT
#include "attest/lab/bound.h"

#include <cmath>

#include "attest/base/dropout.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/bound_fraction.h"
#include "attest/lab/bound_row.h"
#include "attest/lab/environment.h"

namespace attest::lab {
namespace detail {
namespace {

/// dot, scale, softcap, bias: as attention.cpp has them.
Estimate estimate_score(const EstimatedCall& call, RowPlace at, std::int64_t j, EstimatedRow& row) {
  const std::int64_t g = call.group_of(at.h);
  std::vector<Estimate> terms;
  for (std::int64_t d = 0; d < call.shape.D; ++d) {
    terms.push_back(product(call.query(at, d), call.key({at.b, g, j}, d)));
  }
  const Estimate dot = sum(terms);
  const Estimate scaled = call.options.scale ? product(dot, {*call.options.scale, 0})
                                             : quotient(dot, call.root_of_width());
  Estimate capped = scaled;
  row.capped_at.emplace_back();
  if (call.options.softcap) {
    const Estimate cap{*call.options.softcap, 0};
    row.capped_at.back() = quotient(scaled, cap);
    capped = product(cap, tanh_of(row.capped_at.back()));
  }
  if (!call.options.bias && call.options.alibi_slopes.empty()) return capped;
  Estimate alibi;
  if (!call.options.alibi_slopes.empty()) {
    const std::int64_t ahead = call.visibility.position_of(at) - j;
    const auto distance = static_cast<double>(ahead < 0 ? -ahead : ahead);
    const double slope = call.options.alibi_slopes[static_cast<std::size_t>(at.h)];
    const double far = distance > 0x1p53 ? unit * distance : 0;
    alibi = product({-slope, 0}, {distance, far});
  }
  const Estimate parts[] = {capped, {call.visibility.bias(at, j), 0}, alibi};
  return sum(parts);
}

/// softmax / (1 − rate), or 0: as attention.cpp has it.
void estimate_dropout(const EstimatedCall& call, RowPlace at, EstimatedRow& row) {
  const Dropout& dropout = call.options.dropout;
  row.weights = row.softmax;
  row.dropped.assign(row.keys.size(), false);
  if (!call.drops()) return;
  for (std::size_t k = 0; k < row.keys.size(); ++k) {
    row.dropped[k] =
        dropped(dropout.seed, dropout_threshold(dropout.rate),
                {static_cast<std::uint32_t>(at.b), static_cast<std::uint32_t>(at.h),
                 static_cast<std::uint32_t>(at.i), static_cast<std::uint32_t>(row.keys[k])});
    row.weights[k] = row.dropped[k] ? Estimate{} : quotient(row.softmax[k], call.kept_share());
  }
}

/// Σ weights·value over the visible keys. What dropout leaves is no mean, and errs as a plain sum.
Estimate estimate_mix(const EstimatedCall& call, RowPlace at, std::int64_t e,
                      const EstimatedRow& row) {
  const std::int64_t g = call.group_of(at.h);
  if (!call.drops()) {
    std::vector<Estimate> values;
    for (const std::int64_t j : row.keys) values.push_back(call.value({at.b, g, j}, e));
    return mean_of(row.weights, values, call.options.sink.empty() ? Sink::absent : Sink::present);
  }
  std::vector<Estimate> terms;
  for (std::size_t k = 0; k < row.keys.size(); ++k) {
    if (row.dropped[k]) continue;
    terms.push_back(product(row.weights[k], call.value({at.b, g, row.keys[k]}, e)));
  }
  return sum(terms);
}

}  // namespace

Estimate EstimatedCall::kept_share() const {
  const double share = 1 - options.dropout.rate;
  const bool exact =
      options.dropout.rate >= 0.5;  // Sterbenz: so is a rate of 0, divided by nowhere
  return {share, exact ? 0 : rounding(share)};
}

Estimate EstimatedCall::root_of_width() const {
  const double width = static_cast<double>(shape.D);
  const Estimate deviation = root({width, 0});
  const bool square = deviation.value * deviation.value == width && shape.D < (1 << 26);
  return square ? Estimate{deviation.value, 0} : deviation;  // √4 is exactly 2
}

EstimatedRow estimate_row(const EstimatedCall& call, RowPlace at) {
  EstimatedRow row;
  std::vector<Estimate> exponents;
  for (std::int64_t j = 0; j < call.shape.S; ++j) {
    if (!call.visibility.visible(at, j)) continue;
    row.keys.push_back(j);
    exponents.push_back(estimate_score(call, at, j, row));
  }
  if (row.keys.empty()) return row;
  row.scores = exponents;
  const Sink sink = call.options.sink.empty() ? Sink::absent : Sink::present;
  if (sink == Sink::present) {
    exponents.push_back({call.options.sink[static_cast<std::size_t>(at.h)], 0});
  }
  Shares shared = shares(exponents);
  row.log_sum_exp = shared.log_sum_exp;
  if (sink == Sink::present) {
    row.sink_weight = shared.weights.back();
    shared.weights.pop_back();
  }
  row.softmax = std::move(shared.weights);
  estimate_dropout(call, at, row);
  for (std::int64_t e = 0; e < call.shape.E; ++e) {
    row.output.push_back(estimate_mix(call, at, e, row));
  }
  return row;
}

}  // namespace detail

Result<AttentionBound> bound_attention(const AttentionInputs<double>& inputs,
                                       const AttentionOptions<double>& options) {
  const ExactEnvironment environment;
  const auto shape = check_attention(inputs, options);
  if (!shape) return shape.failure();
  const detail::EstimatedCall call{inputs, {}, options, *shape, Visibility(options, *shape)};
  const auto [B, H, G, T, S, D, E] = *shape;
  AttentionBound out{Tensor<double>({B, H, T, E}), Tensor<double>({B, H, T, S}),
                     Tensor<double>({B, H, T, S}), Tensor<double>({B, H, T})};
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const RowPlace at{n / (H * T), n / T % H, n % T};
    const detail::EstimatedRow row = detail::estimate_row(call, at);
    if (row.keys.empty()) continue;
    for (std::size_t k = 0; k < row.keys.size(); ++k) {
      out.scores(at.b, at.h, at.i, row.keys[k]) = published(row.scores[k]);
      out.weights(at.b, at.h, at.i, row.keys[k]) = published(row.weights[k]);
    }
    for (std::int64_t e = 0; e < E; ++e) {
      out.output(at.b, at.h, at.i, e) = published(row.output[static_cast<std::size_t>(e)]);
    }
    out.log_sum_exp(at.b, at.h, at.i) = published(row.log_sum_exp);
  }
  return out;
}

double used_fraction(double found, const oracle::Real& expected, double bound) {
  const ExactEnvironment environment;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (found != found || expected != expected) return infinity;
  if (std::isinf(found) || !oracle::is_finite(expected)) {
    return oracle::Real(found) == expected ? 0 : infinity;
  }
  const oracle::Real distance = abs(oracle::Real(found) - expected);
  if (distance == 0) return 0;
  if (!(bound > 0)) return infinity;
  if (std::isinf(bound)) return 0;
  return oracle::nearest_double(distance / bound);
}

}  // namespace attest::lab
