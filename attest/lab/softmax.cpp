// SPDX-License-Identifier: MIT
#include "attest/lab/softmax.h"

#include <limits>

#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"

namespace attest::lab {

SoftmaxRow softmax_row(std::span<const double> scores, std::optional<double> sink) {
  const ExactEnvironment environment;
  SoftmaxRow row;
  row.peak = sink.value_or(-std::numeric_limits<double>::infinity());
  for (const double score : scores) {
    if (!(score <= row.peak)) row.peak = score;  // a NaN becomes the peak,
    if (row.peak != row.peak) break;             // and stays it
  }
  for (const double score : scores) {
    row.minus_peak.push_back(score - row.peak);
    row.exp.push_back(exp(row.minus_peak.back()));
  }
  std::vector<double> terms = row.exp;
  if (sink) {
    row.sink_exp = exp(*sink - row.peak);
    terms.push_back(row.sink_exp);
  }
  row.sum = exact_sum(terms);
  for (const double value : row.exp) row.weights.push_back(value / row.sum);
  row.log_sum_exp = row.peak + log(row.sum);
  return row;
}

}  // namespace attest::lab
