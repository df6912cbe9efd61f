// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/result.h"
#include "attest/lab/visibility.h"

namespace attest::lab {

/// Every stage of one query's row: what a trace shows. Up to `biased`, entries of hidden keys hold
/// what the stage would be; from `masked` on, what hiding makes of it (−∞, then 0).
struct AttentionRow {
  std::vector<double> products;    // [S, D], query[d]·key[j,d]
  std::vector<double> dot;         // [S]
  std::vector<double> scaled;      // [S]
  std::vector<double> capped;      // [S]
  std::vector<double> alibi;       // [S], −slope·distance; 0 without slopes
  std::vector<double> biased;      // [S]
  std::vector<HiddenBy> hidden;    // [S]
  std::vector<double> masked;      // [S]
  double peak = 0;                 // the largest visible score, or the sink
  std::vector<double> minus_peak;  // [S]
  std::vector<double> exp;         // [S]
  double sink_exp = 0;             // exp(sink − peak), 0 without a sink
  double sum = 0;                  // of exp and sink_exp
  std::vector<double> softmax;     // [S], the weights before dropout
  std::vector<bool> dropped;       // [S], visible keys whose weight is left out
  std::vector<double> weights;     // [S], what multiplies value: after dropout
  std::vector<double> mix;         // [S, E], weights[j]·value[j,e]
  std::vector<double> output;      // [E]
  double log_sum_exp = 0;
  bool empty = false;  // no key is visible
};

/// One row of `attention`, by the same code, with all its stages: any row of a large call can be
/// looked at without computing the others. An empty row follows options.empty_row, `error` being
/// shown as `zero` with `empty` set.
///
/// Fails         as `attention` does, but for no-visible-key; and no-such-row.
[[nodiscard]] Result<AttentionRow> attention_row(const AttentionInputs<double>& inputs,
                                                 const AttentionOptions<double>& options,
                                                 RowPlace at);

/// One call, checked: the tensors, what was chosen, and who may see whom.
struct AttentionCall {
  const AttentionInputs<double>& in;
  const AttentionOptions<double>& options;
  AttentionShape shape;
  Visibility visibility;
};

/// Whether a row also shows the scores that hiding takes away.
enum class Record { result, stages };

/// The arithmetic of one row, for calls that have been checked: all but `products` and `mix`.
[[nodiscard]] AttentionRow compute_row(const AttentionCall& call, RowPlace at, Record record);

/// What EmptyRow::error says of the first row that sees nothing.
[[nodiscard]] Failure no_visible_key(RowPlace at);

}  // namespace attest::lab
