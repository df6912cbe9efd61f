// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/lab/bound_estimate.h"
#include "attest/lab/visibility.h"

/// One row of attention with the error of every number. Internal to bound*.cpp and their tests.
namespace attest::lab::detail {

/// An attention call whose inputs may be in error themselves, as those of a block are.
struct EstimatedCall {
  const AttentionInputs<double>& values;
  AttentionInputs<double> errors;  ///< absent views: the inputs are exact
  const AttentionOptions<double>& options;
  AttentionShape shape;
  Visibility visibility;

  [[nodiscard]] Estimate query(RowPlace at, std::int64_t d) const {
    return element(values.query, errors.query, at, d);
  }
  [[nodiscard]] Estimate key(RowPlace at, std::int64_t d) const {
    return element(values.key, errors.key, at, d);
  }
  [[nodiscard]] Estimate value(RowPlace at, std::int64_t e) const {
    return element(values.value, errors.value, at, e);
  }
  [[nodiscard]] std::int64_t group_of(std::int64_t h) const { return h / (shape.H / shape.G); }
  [[nodiscard]] Estimate root_of_width() const;

  /// 1 − rate, rounded: what dropout divides by.
  [[nodiscard]] Estimate kept_share() const;
  [[nodiscard]] bool drops() const { return options.dropout.rate != 0; }

 private:
  static Estimate element(const View<const double, 4>& values, const View<const double, 4>& errors,
                          RowPlace at, std::int64_t column) {
    return {values(at.b, at.h, at.i, column), errors ? errors(at.b, at.h, at.i, column) : 0};
  }
};

/// What attention_row holds, for the visible keys alone.
struct EstimatedRow {
  std::vector<std::int64_t> keys;   // the visible ones; none: the row is empty
  std::vector<Estimate> capped_at;  // scaled / c; zeros without softcap
  std::vector<Estimate> scores;     // scaled, capped and biased
  std::vector<Estimate> softmax;    // the weights before dropout
  std::vector<bool> dropped;
  std::vector<Estimate> weights;  // 0 where dropped
  Estimate sink_weight;           // 0 without a sink
  std::vector<Estimate> output;   // [E]
  Estimate log_sum_exp;
};

[[nodiscard]] EstimatedRow estimate_row(const EstimatedCall& call, RowPlace at);

}  // namespace attest::lab::detail
