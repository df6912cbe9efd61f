// SPDX-License-Identifier: MIT
// The bound of the workbook's block: its steps, in its order, in running error analysis.
#include <vector>

#include "attest/lab/bound.h"
#include "attest/lab/bound_row.h"
#include "attest/lab/environment.h"

namespace attest::lab {
namespace detail {
namespace {

/// A matrix and the error of each of its numbers.
struct EstimatedMatrix {
  Tensor<double> values;
  Tensor<double> errors;

  explicit EstimatedMatrix(Shape shape) : values(shape), errors(shape) {}
  [[nodiscard]] static EstimatedMatrix exactly(const Tensor<double>& values) {
    EstimatedMatrix out(values.shape());
    out.values = values;
    return out;
  }

  [[nodiscard]] std::int64_t rows() const { return values.extent(0); }
  [[nodiscard]] std::int64_t columns() const { return values.extent(1); }
  [[nodiscard]] Estimate at(std::int64_t i, std::int64_t j) const {
    return {values(i, j), errors(i, j)};
  }
  void set(std::int64_t i, std::int64_t j, Estimate x) {
    values(i, j) = x.value;
    errors(i, j) = x.error;
  }
  [[nodiscard]] Tensor<double> bound() const {
    Tensor<double> out(values.shape());
    for (std::int64_t i = 0; i < rows(); ++i) {
      for (std::int64_t j = 0; j < columns(); ++j) out(i, j) = published(at(i, j));
    }
    return out;
  }
};

EstimatedMatrix matmul(const EstimatedMatrix& left, const Tensor<double>& right) {
  EstimatedMatrix out({left.rows(), right.extent(1)});
  for (std::int64_t i = 0; i < out.rows(); ++i) {
    for (std::int64_t j = 0; j < out.columns(); ++j) {
      std::vector<Estimate> terms;
      for (std::int64_t n = 0; n < left.columns(); ++n) {
        terms.push_back(product(left.at(i, n), {right(n, j), 0}));
      }
      out.set(i, j, sum(terms));
    }
  }
  return out;
}

EstimatedMatrix add(const EstimatedMatrix& a, const EstimatedMatrix& b) {
  EstimatedMatrix out(a.values.shape());
  for (std::int64_t i = 0; i < a.rows(); ++i) {
    for (std::int64_t j = 0; j < a.columns(); ++j) {
      const Estimate parts[] = {a.at(i, j), b.at(i, j)};
      out.set(i, j, sum(parts));
    }
  }
  return out;
}

/// max(0, x) moves no further than x does.
EstimatedMatrix relu(EstimatedMatrix x) {
  for (double& value : x.values.elements()) value = value > 0 ? value : 0;
  return x;
}

/// (x − mean) / √(variance + ε), with the errors of mean and variance.
EstimatedMatrix normalise(const EstimatedMatrix& x, double epsilon) {
  EstimatedMatrix out(x.values.shape());
  const Estimate count{static_cast<double>(x.columns()), 0};
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    std::vector<Estimate> row;
    for (std::int64_t j = 0; j < x.columns(); ++j) row.push_back(x.at(i, j));
    const Estimate mean = quotient(sum(row), count);
    std::vector<Estimate> squares;
    for (Estimate& number : row) {
      number = difference(number, mean);
      squares.push_back(product(number, number));
    }
    const Estimate parts[] = {quotient(sum(squares), count), {epsilon, 0}};
    const Estimate deviation = root(sum(parts));
    for (std::int64_t j = 0; j < x.columns(); ++j) {
      out.set(i, j, quotient(row[static_cast<std::size_t>(j)], deviation));
    }
  }
  return out;
}

View<const double, 4> one_head(const Tensor<double>& rows) {
  return {rows.data(), {1, 1, rows.extent(0), rows.extent(1)}};
}

/// One head: query, key and value are all the projection. Its output goes to columns of `joined`.
Tensor<double> attend(const EstimatedMatrix& projected, const AttentionOptions<double>& options,
                      EstimatedMatrix& joined, std::int64_t first_column) {
  const auto values = one_head(projected.values);
  const auto errors = one_head(projected.errors);
  const AttentionInputs<double> inputs{values, values, values};
  const std::int64_t L = projected.rows();
  const AttentionShape shape{1, 1, 1, L, L, projected.columns(), projected.columns()};
  const EstimatedCall call{
      inputs, {errors, errors, errors}, options, shape, Visibility(options, shape)};
  Tensor<double> map({L, L});
  for (std::int64_t i = 0; i < L; ++i) {
    const EstimatedRow row = estimate_row(call, {0, 0, i});
    for (std::size_t k = 0; k < row.keys.size(); ++k)
      map(i, row.keys[k]) = published(row.weights[k]);
    for (std::size_t e = 0; e < row.output.size(); ++e) {
      joined.set(i, first_column + static_cast<std::int64_t>(e), row.output[e]);
    }
  }
  return map;
}

}  // namespace
}  // namespace detail

Result<BlockBound> bound_block(const Tensor<double>& rows, const workbook::BlockParameters& p,
                               const workbook::AttentionOptions& chosen) {
  using detail::EstimatedMatrix;
  const ExactEnvironment environment;
  // The block itself says what is wrong with its arguments.
  if (auto ok = workbook::transformer_block(rows, p, {.causal = chosen.causal}); !ok)
    return ok.failure();
  AttentionOptions<double> options;
  if (chosen.causal) options.mask = Mask::causal();
  const EstimatedMatrix x = EstimatedMatrix::exactly(rows);
  const std::int64_t width = p.P1.extent(1);
  EstimatedMatrix joined({rows.extent(0), width + p.P2.extent(1)});
  BlockBound out;
  out.maps.push_back(detail::attend(detail::matmul(x, p.P1), options, joined, 0));
  out.maps.push_back(detail::attend(detail::matmul(x, p.P2), options, joined, width));

  const EstimatedMatrix hidden =
      detail::normalise(detail::add(x, detail::matmul(joined, p.WO)), p.epsilon);
  const EstimatedMatrix activated = detail::relu(detail::matmul(hidden, p.W1));
  const EstimatedMatrix feed_forward = detail::matmul(activated, p.W2);
  out.output = detail::normalise(detail::add(hidden, feed_forward), p.epsilon).bound();
  return out;
}

}  // namespace attest::lab
