// SPDX-License-Identifier: MIT
#include "attest/lab/workbook.h"

#include <cmath>
#include <limits>

#include "attest/base/text.h"
#include "attest/lab/attention.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/softmax.h"
#include "attest/lab/visibility.h"

namespace attest::lab::workbook {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A matrix literal: rows of equal length.
Tensor<double> literal(std::initializer_list<std::initializer_list<double>> rows) {
  const auto height = static_cast<std::int64_t>(rows.size());
  const auto width = static_cast<std::int64_t>(rows.begin()->size());
  Tensor<double> out({height, width});
  std::size_t n = 0;
  for (const auto& row : rows) {
    for (const double number : row) out.elements()[n++] = number;
  }
  return out;
}

Failure bad_matrix(std::string_view name, std::string what) {
  return {ErrorKind::value, "bad-matrix", sentence("[matrix] ", name, ": ", what)};
}

/// A [T, D] matrix as one batch with one head.
Tensor<double> one_head(const Tensor<double>& rows) {
  return Tensor<double>(rows).reshaped({1, 1, rows.extent(0), rows.extent(1)});
}

}  // namespace

Result<void> matrix(const Tensor<double>& value, std::string_view name) {
  const ExactEnvironment environment;
  if (value.rank() != 2)
    return bad_matrix(name, sentence("expected rows of numbers; it has rank ", value.rank()));
  if (value.extent(0) < 1 || value.extent(0) > max_rows) {
    return bad_matrix(name, sentence("expected 1 to ", max_rows, " rows; found ", value.extent(0)));
  }
  if (value.extent(1) < 1 || value.extent(1) > max_columns) {
    return bad_matrix(name,
                      sentence("expected 1 to ", max_columns, " columns; found ", value.extent(1)));
  }
  for (std::int64_t i = 0; i < value.extent(0); ++i) {
    for (std::int64_t j = 0; j < value.extent(1); ++j) {
      const double number = value(i, j);
      if (number >= -max_size && number <= max_size) continue;
      return bad_matrix(name, sentence("expected finite numbers up to 1e6 in size; [", i, ",", j,
                                       "] is ", number));
    }
  }
  return {};
}

Result<Tensor<double>> matmul(const Tensor<double>& left, const Tensor<double>& right) {
  const ExactEnvironment environment;
  if (auto ok = matrix(left, "left"); !ok) return ok.failure();
  if (auto ok = matrix(right, "right"); !ok) return ok.failure();
  if (left.extent(1) != right.extent(0)) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[matmul] left's width must equal right's rows; left has ",
                            left.extent(1), " columns, right has ", right.extent(0), " rows")};
  }
  Tensor<double> product({left.extent(0), right.extent(1)});
  for (std::int64_t i = 0; i < product.extent(0); ++i) {
    for (std::int64_t j = 0; j < product.extent(1); ++j) {
      product(i, j) = exact_dot({&left(i, 0), 1}, {&right(0, j), right.extent(1)}, left.extent(1));
    }
  }
  return product;
}

Result<Tensor<double>> softmax(std::span<const double> scores) {
  const ExactEnvironment environment;
  const auto bad = [](std::string what) {
    return Failure{ErrorKind::value, "bad-scores", "[softmax] " + std::move(what)};
  };
  if (scores.empty()) return bad("expected at least one score");
  bool any_visible = false;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] != scores[j] || scores[j] == infinity) {
      return bad(sentence("expected finite scores or -inf; scores[", j, "] is ", scores[j]));
    }
    any_visible = any_visible || scores[j] != -infinity;
  }
  if (!any_visible) {
    return Failure{ErrorKind::value, "no-visible-key",
                   "[softmax] every score is -inf: no visible key in this row"};
  }
  const SoftmaxRow row = softmax_row(scores);
  return Tensor<double>({static_cast<std::int64_t>(scores.size())}, row.weights);
}

Result<AttentionResult> attention(const Tensor<double>& query, const Tensor<double>& key,
                                  const Tensor<double>& value, const AttentionOptions& options) {
  const ExactEnvironment environment;
  if (auto ok = matrix(query, "query"); !ok) return ok.failure();
  if (auto ok = matrix(key, "key"); !ok) return ok.failure();
  if (auto ok = matrix(value, "value"); !ok) return ok.failure();
  const Shape table{query.extent(0), key.extent(0)};
  const Tensor<double> q = one_head(query);
  const Tensor<double> k = one_head(key);
  const Tensor<double> v = one_head(value);

  attest::AttentionOptions<double> general;
  if (options.causal) general.mask = Mask::causal();
  // Shapes are the general call's to judge; the mask is judged after them, as in the workbook.
  const auto shape = check_attention({q.view<4>(), k.view<4>(), v.view<4>()}, general);
  if (!shape) return shape.failure();
  if (options.allow && options.allow->shape() != table) {
    return Failure{ErrorKind::shape, "bad-allow",
                   sentence("[attention] allow must have shape ", to_string(table), "; it has ",
                            to_string(options.allow->shape()))};
  }
  if (options.allow) {
    general.mask.visible = {options.allow->data(), {1, 1, table[0], table[1]}};
  }
  auto result = lab::attention({q.view<4>(), k.view<4>(), v.view<4>()}, general);
  if (!result) return result.failure();
  return AttentionResult{std::move(result->output).reshaped({query.extent(0), value.extent(1)}),
                         std::move(result->weights).reshaped(table)};
}

Normalised normalise(const Tensor<double>& rows, double epsilon) {
  const ExactEnvironment environment;
  const std::int64_t width = rows.extent(1);
  const auto count = static_cast<double>(width);
  Normalised out{Tensor<double>({rows.extent(0)}), Tensor<double>({rows.extent(0)}),
                 Tensor<double>(rows.shape())};
  std::vector<double> squares(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    const std::span<const double> row(&rows(i, 0), static_cast<std::size_t>(width));
    const double mean = exact_sum(row) / count;
    for (std::size_t j = 0; j < row.size(); ++j) squares[j] = (row[j] - mean) * (row[j] - mean);
    const double variance = exact_sum(squares) / count;
    const double deviation = std::sqrt(variance + epsilon);
    for (std::int64_t j = 0; j < width; ++j) {
      out.values(i, j) = (rows(i, j) - mean) / deviation;
    }
    out.mean(i) = mean;
    out.variance(i) = variance;
  }
  return out;
}

Result<Tensor<double>> add(const Tensor<double>& a, const Tensor<double>& b) {
  const ExactEnvironment environment;
  if (a.shape() != b.shape()) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[add] both sides must have the same shape; left has ",
                            to_string(a.shape()), ", right has ", to_string(b.shape()))};
  }
  Tensor<double> sum(a.shape());
  for (std::size_t n = 0; n < sum.size(); ++n)
    sum.elements()[n] = a.elements()[n] + b.elements()[n];
  return sum;
}

BlockParameters::BlockParameters()
    : P1(literal({{1, 0}, {0, 1}, {0, 0}, {0, 0}})),
      P2(literal({{0, 0}, {0, 0}, {1, 0}, {0, 1}})),
      WO(literal({{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}})),
      W1(literal({{1, -1, 0, 0}, {0, 1, -1, 0}, {0, 0, 1, -1}, {-1, 0, 0, 1}})),
      W2(literal({{.5, 0, 0, 0}, {0, .5, 0, 0}, {0, 0, .5, 0}, {0, 0, 0, .5}})) {}

namespace fixture {
Tensor<double> query() { return literal({{1, 0}, {0, 1}}); }
Tensor<double> value() { return literal({{10, 0}, {0, 20}}); }
Tensor<double> rows() { return literal({{1, 0, 1, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}}); }
}  // namespace fixture

}  // namespace attest::lab::workbook
