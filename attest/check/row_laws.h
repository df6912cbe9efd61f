// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "attest/lab/trace.h"

namespace attest::check {

/// Whether the laws of the attention stage hold in one head's traced rows.
///
///     row_sums       Σ_j weights = 1 within 3u (two roundings a weight, one of the sum); with a sink
///                    at most that, since the sink's share has no weight
///     non_negative   weights ≥ 0
///     hidden_zero    weights = 0 exactly where a key is hidden
///     in_hull        the output lies between the smallest and the largest visible value of its
///                    feature, within 4u of the larger size; with a sink, 0 belongs to the hull
///
/// With dropout, row_sums is said of the softmax's shares, before some are left out, and in_hull is
/// no law.
///
/// They belong to this stage alone: a projection or a residual need not keep any of them. Rows that
/// see nothing, and rows with a NaN, are left out; `skipped` counts them.
struct RowLaws {
  bool row_sums = true;
  bool non_negative = true;
  bool hidden_zero = true;
  bool in_hull = true;
  bool dropout = false;  ///< whether the trace has it
  std::int64_t rows = 0;
  std::int64_t skipped = 0;
};
[[nodiscard]] RowLaws row_laws(const lab::Trace& trace, std::string_view prefix);

/// "row-sums ok   weights>=0 ok   hidden==0 ok   output-in-hull ok"; with dropout "softmax-sums", and
/// nothing of the hull.
[[nodiscard]] std::string to_text(const RowLaws& laws);

}  // namespace attest::check
