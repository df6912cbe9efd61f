// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>

#include "attest/base/dropout.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/elementary.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/softmax.h"

namespace attest::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::size_t at_index(std::int64_t place) { return static_cast<std::size_t>(place); }

/// 1. How well does the query match key j?  dot, scale, softcap, bias — in this order.
void score(const AttentionCall& call, RowPlace at, std::int64_t j, AttentionRow& row) {
  const auto& [in, options, shape, visibility] = call;
  const std::int64_t g = at.h / (shape.H / shape.G);
  const double dot = exact_dot({&in.query(at.b, at.h, at.i, 0), in.query.strides[3]},
                               {&in.key(at.b, g, j, 0), in.key.strides[3]}, shape.D);

  const double root = std::sqrt(static_cast<double>(shape.D));
  const double scaled = options.scale ? dot * *options.scale : dot / root;
  const double cap = options.softcap.value_or(infinity);
  const double capped = options.softcap ? cap * tanh(scaled / cap) : scaled;

  double biased = capped;
  if (options.bias || !options.alibi_slopes.empty()) {
    const std::int64_t ahead = visibility.position_of(at) - j;
    const auto distance = static_cast<double>(ahead < 0 ? -ahead : ahead);
    const double slope = options.alibi_slopes.empty() ? 0 : options.alibi_slopes[at_index(at.h)];
    row.alibi[at_index(j)] = -slope * distance;
    const double terms[] = {capped, visibility.bias(at, j), row.alibi[at_index(j)]};
    biased = exact_sum(terms);
  }
  row.dot[at_index(j)] = dot;
  row.scaled[at_index(j)] = scaled;
  row.capped[at_index(j)] = capped;
  row.biased[at_index(j)] = biased;
}

/// 2. What share does each visible key get?  Hidden keys get exactly none, also beside a NaN.
void share(const AttentionCall& call, RowPlace at, AttentionRow& row) {
  std::optional<double> sink;
  if (!call.options.sink.empty()) sink = call.options.sink[at_index(at.h)];
  SoftmaxRow soft = softmax_row(row.masked, sink);
  for (std::size_t j = 0; j < row.hidden.size(); ++j) {
    if (row.hidden[j] != HiddenBy::nothing) soft.exp[j] = soft.weights[j] = 0;
  }
  row.peak = soft.peak;
  row.minus_peak = std::move(soft.minus_peak);
  row.exp = std::move(soft.exp);
  row.sink_exp = soft.sink_exp;
  row.sum = soft.sum;
  row.weights = std::move(soft.weights);
  row.log_sum_exp = soft.log_sum_exp;
}

/// 2b. Which weights are left out?  Those are exactly 0, the others divided by 1 − rate.
void drop(const AttentionCall& call, RowPlace at, AttentionRow& row) {
  const Dropout& dropout = call.options.dropout;
  row.softmax = row.weights;
  if (dropout.rate == 0) return;
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  const double kept_share = 1 - dropout.rate;
  for (std::size_t j = 0; j < row.hidden.size(); ++j) {
    if (row.hidden[j] != HiddenBy::nothing) continue;  // 0 already
    const auto place32 = [](auto place) { return static_cast<std::uint32_t>(place); };
    row.dropped[j] =
        dropped(dropout.seed, threshold, {place32(at.b), place32(at.h), place32(at.i), place32(j)});
    row.weights[j] = row.dropped[j] ? 0 : row.softmax[j] / kept_share;
  }
}

/// 3. The output is the weighted sum of the visible values; hidden and dropped ones are not read.
void mix(const AttentionCall& call, RowPlace at, AttentionRow& row) {
  const std::int64_t g = at.h / (call.shape.H / call.shape.G);
  std::vector<double> terms;
  for (std::int64_t e = 0; e < call.shape.E; ++e) {
    terms.clear();
    for (std::int64_t j = 0; j < call.shape.S; ++j) {
      if (row.hidden[at_index(j)] != HiddenBy::nothing) continue;
      if (row.dropped[at_index(j)]) continue;
      terms.push_back(row.weights[at_index(j)] * call.in.value(at.b, g, j, e));
    }
    row.output.push_back(exact_sum(terms));
  }
}

/// A query that sees nothing: there is no distribution, so the policy says what stands there.
void leave_empty(const AttentionCall& call, AttentionRow& row) {
  const double filler = call.options.empty_row == EmptyRow::nan ? not_a_number : 0;
  row.empty = true;
  row.exp.assign(at_index(call.shape.S), 0);
  row.minus_peak.assign(at_index(call.shape.S), -infinity);
  row.softmax.assign(at_index(call.shape.S), filler);
  row.weights.assign(at_index(call.shape.S), filler);
  row.output.assign(at_index(call.shape.E), filler);
  row.log_sum_exp = -infinity;
}

}  // namespace

AttentionRow compute_row(const AttentionCall& call, RowPlace at, Record record) {
  const std::size_t keys = at_index(call.shape.S);
  AttentionRow row;
  for (auto* stage : {&row.dot, &row.scaled, &row.capped, &row.alibi, &row.biased}) {
    stage->assign(keys, 0);
  }
  row.hidden.resize(keys);
  row.dropped.resize(keys);
  row.masked.assign(keys, -infinity);
  row.empty = true;
  for (std::size_t j = 0; j < keys; ++j) {
    const auto key = static_cast<std::int64_t>(j);
    row.hidden[j] = call.visibility.rule(at, key);
    const bool visible = row.hidden[j] == HiddenBy::nothing;
    if (visible || record == Record::stages) score(call, at, key, row);
    if (visible) row.masked[j] = row.biased[j];
    if (visible) row.empty = false;
  }
  if (row.empty) {
    leave_empty(call, row);
  } else {
    share(call, at, row);
    drop(call, at, row);
    mix(call, at, row);
  }
  return row;
}

}  // namespace attest::lab
