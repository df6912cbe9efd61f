// SPDX-License-Identifier: MIT
#include <cmath>

#include "attest/base/text.h"
#include "attest/lab/environment.h"
#include "attest/lab/workbook.h"

namespace attest::lab::workbook {
namespace {

/// [a b]: the heads' features side by side, row by row.
Tensor<double> concatenate(const Tensor<double>& a, const Tensor<double>& b) {
  Tensor<double> out({a.extent(0), a.extent(1) + b.extent(1)});
  for (std::int64_t i = 0; i < a.extent(0); ++i) {
    for (std::int64_t j = 0; j < a.extent(1); ++j) out(i, j) = a(i, j);
    for (std::int64_t j = 0; j < b.extent(1); ++j) out(i, a.extent(1) + j) = b(i, j);
  }
  return out;
}

Tensor<double> relu(Tensor<double> rows) {
  for (double& x : rows.elements()) x = x > 0 ? x : 0;
  return rows;
}

/// Keeps every step under its name and hands it on. After a failure the steps still run, on a
/// placeholder that nobody sees: only the first failure is reported, at the end.
class Steps {
 public:
  explicit Steps(std::vector<Stage>& stages) : stages_(stages) {}

  Tensor<double> keep(std::string name, Result<Tensor<double>> values) {
    if (!values) fail(values.failure());
    if (failure_) return Tensor<double>({1, 1});
    stages_.push_back({std::move(name), *values});
    return *std::move(values);
  }
  Tensor<double> keep_normalised(const std::string& name, const Tensor<double>& rows,
                                 double epsilon) {
    Normalised norm = normalise(rows, epsilon);
    keep(name + ".mean", std::move(norm.mean));
    keep(name + ".variance", std::move(norm.variance));
    return keep(name, std::move(norm.values));
  }
  void fail(const Failure& failure) {
    if (!failure_) failure_ = failure;
  }
  [[nodiscard]] const std::optional<Failure>& failure() const { return failure_; }

 private:
  std::vector<Stage>& stages_;
  std::optional<Failure> failure_;
};

}  // namespace

Result<BlockResult> transformer_block(const Tensor<double>& rows, const BlockParameters& p,
                                      const BlockOptions& options) {
  const ExactEnvironment environment;
  if (auto ok = matrix(rows, "block input"); !ok) return ok.failure();
  if (rows.extent(1) != 4) {
    return Failure{ErrorKind::shape, "block-width",
                   sentence("[block] this fixed block expects four features; block input has ",
                            rows.extent(1))};
  }
  BlockResult out;
  Steps steps(out.stages);
  std::vector<Tensor<double>> heads;
  for (const auto& [name, projection] : {std::pair("h0.", &p.P1), std::pair("h1.", &p.P2)}) {
    const std::string head(name);
    const auto projected = steps.keep(head + "projection", matmul(rows, *projection));
    auto result = attention(projected, projected, projected, {.causal = options.causal});
    if (!result) {
      steps.fail(result.failure());
      result = AttentionResult{Tensor<double>({1, 1}), Tensor<double>({1, 1})};
    }
    out.maps.push_back(steps.keep(head + "weights", std::move(result->weights)));
    heads.push_back(steps.keep(head + "output", std::move(result->output)));
  }
  // 1. Attention moves information between positions; its result joins the input and is normalised.
  const auto joined = steps.keep("concat", concatenate(heads[0], heads[1]));
  const auto mixed = steps.keep("output_projection", matmul(joined, p.WO));
  const auto residual1 = steps.keep("residual1", add(rows, mixed));
  const auto hidden = steps.keep_normalised("norm1", residual1, p.epsilon);
  // 2. The feed-forward part changes each position by itself, and joins likewise.
  const auto expanded = steps.keep("ffn.up", matmul(hidden, p.W1));
  const auto activated = steps.keep("ffn.relu", relu(expanded));
  const auto feed_forward = steps.keep("ffn.down", matmul(activated, p.W2));
  const auto residual2 = steps.keep("residual2", add(hidden, feed_forward));
  out.output = steps.keep_normalised("norm2", residual2, p.epsilon);
  if (steps.failure()) return *steps.failure();
  return out;
}

}  // namespace attest::lab::workbook
