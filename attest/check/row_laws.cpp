// SPDX-License-Identifier: MIT
#include "attest/check/row_laws.h"

#include <algorithm>
#include <vector>

#include "attest/base/text.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"

namespace attest::check {
namespace {

constexpr double u = 0x1p-53;

double size_of(double x) { return x < 0 ? -x : x; }

/// The tables of one head that the laws speak of, and what hides its keys.
struct HeadTables {
  const lab::Trace& trace;
  std::string prefix;
  const Tensor<double>& shares;   // [rows, S], of the softmax: the weights, but for dropout
  const Tensor<double>& weights;  // [rows, S]
  const Tensor<double>& value;    // [S, E]
  const Tensor<double>& output;   // [rows, E]
  bool sink;
  bool dropout;

  [[nodiscard]] bool visible(std::int64_t row, std::int64_t j) const {
    return trace.hidden_by(prefix, trace.first_row() + row, j) == lab::HiddenBy::nothing;
  }
};

void check_hull(const HeadTables& head, std::int64_t row, RowLaws& laws) {
  for (std::int64_t e = 0; e < head.output.extent(1); ++e) {
    std::vector<double> seen;
    if (head.sink) seen.push_back(0);
    for (std::int64_t j = 0; j < head.value.extent(0); ++j) {
      if (head.visible(row, j)) seen.push_back(head.value(j, e));
    }
    const auto [low, high] = std::ranges::minmax(seen);
    const double slack = 4 * u * std::max(size_of(low), size_of(high));
    const double found = head.output(row, e);
    if (!(found >= low - slack && found <= high + slack)) laws.in_hull = false;
  }
}

void check_row(const HeadTables& head, std::int64_t row, RowLaws& laws) {
  const std::int64_t keys = head.weights.extent(1);
  const std::span<const double> weights(&head.weights(row, 0), static_cast<std::size_t>(keys));
  bool any_visible = false;
  bool any_nan = false;
  for (std::int64_t j = 0; j < keys; ++j) {
    any_visible = any_visible || head.visible(row, j);
    any_nan =
        any_nan || weights[static_cast<std::size_t>(j)] != weights[static_cast<std::size_t>(j)];
  }
  for (std::int64_t e = 0; e < head.output.extent(1); ++e) {
    any_nan = any_nan || head.output(row, e) - head.output(row, e) != 0;  // NaN or infinite
  }
  if (!any_visible || any_nan) {
    ++laws.skipped;
    return;
  }
  ++laws.rows;
  const std::span<const double> shares(&head.shares(row, 0), static_cast<std::size_t>(keys));
  const double sum = lab::exact_sum(shares);
  if (sum > 1 + 3 * u + u || (!head.sink && sum < 1 - 3 * u)) laws.row_sums = false;
  for (std::int64_t j = 0; j < keys; ++j) {
    const double weight = weights[static_cast<std::size_t>(j)];
    if (weight < 0) laws.non_negative = false;
    if (!head.visible(row, j) && weight != 0) laws.hidden_zero = false;
  }
  if (!head.dropout) check_hull(head, row, laws);
}

}  // namespace

RowLaws row_laws(const lab::Trace& trace, std::string_view prefix) {
  const lab::ExactEnvironment environment;
  RowLaws laws;
  const std::string p(prefix);
  const lab::Stage* softmax = trace.find(p + "softmax");
  const lab::Stage* weights = trace.find(p + "weights");
  const lab::Stage* value = trace.find(p + "value");
  const lab::Stage* output = trace.find(p + "output");
  if (weights == nullptr || value == nullptr || output == nullptr) return laws;
  if (weights->values.extent(1) == 0) {
    laws.skipped = weights->values.extent(0);
    return laws;
  }
  laws.dropout = softmax != nullptr;
  const lab::Stage& shares = laws.dropout ? *softmax : *weights;
  const HeadTables head{.trace = trace,
                        .prefix = p,
                        .shares = shares.values,
                        .weights = weights->values,
                        .value = value->values,
                        .output = output->values,
                        .sink = trace.find(p + "sink") != nullptr,
                        .dropout = laws.dropout};
  for (std::int64_t row = 0; row < head.weights.extent(0); ++row) check_row(head, row, laws);
  return laws;
}

std::string to_text(const RowLaws& laws) {
  const auto verdict = [](bool holds) { return holds ? "ok" : "VIOLATED"; };
  std::string out = sentence(laws.dropout ? "softmax-sums " : "row-sums ", verdict(laws.row_sums),
                             "   weights>=0 ", verdict(laws.non_negative), "   hidden==0 ",
                             verdict(laws.hidden_zero));
  if (!laws.dropout) out += sentence("   output-in-hull ", verdict(laws.in_hull));
  if (laws.skipped > 0)
    out += sentence("   (", laws.skipped, " rows without a distribution left out)");
  return out;
}

}  // namespace attest::check
