// SPDX-License-Identifier: MIT
// The entry points: a whole call, and one row of it with all its stages. The arithmetic of a row is
// in attention.cpp.
#include <algorithm>

#include "attest/base/text.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/environment.h"

namespace attest::lab {

Failure no_visible_key(RowPlace at) {
  return {ErrorKind::value, "no-visible-key",
          sentence("[attention] query ", at.i, " of batch ", at.b, ", head ", at.h,
                   " sees no key: nothing is left to make a distribution of")};
}

Result<AttentionResult> attention(const AttentionInputs<double>& inputs,
                                  const AttentionOptions<double>& options, Weights weights,
                                  const RowProgress& progress) {
  const ExactEnvironment environment;
  const auto shape = check_attention(inputs, options);
  if (!shape) return shape.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  const AttentionCall call{inputs, options, *shape, Visibility(options, *shape)};
  const bool keep = weights == Weights::keep;

  AttentionResult out{Tensor<double>({B, H, T, E}),
                      keep ? Tensor<double>({B, H, T, S}) : Tensor<double>(),
                      Tensor<double>({B, H, T})};
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const RowPlace at{n / (H * T), n / T % H, n % T};
    const AttentionRow row = compute_row(call, at, Record::result);
    if (row.empty && options.empty_row == EmptyRow::error) {
      return no_visible_key(at);
    }
    std::copy(row.output.begin(), row.output.end(), out.output.data() + n * E);
    if (keep) std::copy(row.weights.begin(), row.weights.end(), out.weights.data() + n * S);
    out.log_sum_exp.data()[n] = row.log_sum_exp;
    if (progress) progress(n + 1, B * H * T);
  }
  return out;
}

Result<AttentionRow> attention_row(const AttentionInputs<double>& inputs,
                                   const AttentionOptions<double>& options, RowPlace at) {
  const ExactEnvironment environment;
  const auto shape = check_attention(inputs, options);
  if (!shape) return shape.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  if (at.b < 0 || at.b >= B || at.h < 0 || at.h >= H || at.i < 0 || at.i >= T) {
    return Failure{ErrorKind::value, "no-such-row",
                   sentence("[attention] there is no query ", at.i, " of batch ", at.b, ", head ",
                            at.h, "; B = ", B, ", H = ", H, ", T = ", T)};
  }
  const AttentionCall call{inputs, options, *shape, Visibility(options, *shape)};
  AttentionRow row = compute_row(call, at, Record::stages);

  const std::int64_t g = at.h / (H / G);
  for (std::int64_t j = 0; j < S; ++j) {
    for (std::int64_t d = 0; d < D; ++d) {
      row.products.push_back(inputs.query(at.b, at.h, at.i, d) * inputs.key(at.b, g, j, d));
    }
    const auto place = static_cast<std::size_t>(j);
    for (std::int64_t e = 0; e < E; ++e) {
      const bool visible = row.hidden[place] == HiddenBy::nothing;
      const bool read = visible && !row.dropped[place];
      row.mix.push_back(read ? row.weights[place] * inputs.value(at.b, g, j, e) : 0);
    }
  }
  return row;
}

}  // namespace attest::lab
