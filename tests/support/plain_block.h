// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fixtures.h"
#include "tests/support/running_error.h"

/// The workbook's block as plain loops on numbers that carry their error: each stage's value, and
/// how far a correctly rounded evaluation may be from it.
namespace attest::test {

using BoundedRows = std::vector<std::vector<Bounded>>;
using BoundedStages = std::map<std::string, BoundedRows>;

inline BoundedRows bounded(const Tensor<double>& matrix) {
  BoundedRows out(static_cast<std::size_t>(matrix.extent(0)));
  for (std::size_t n = 0; n < matrix.size(); ++n) {
    out[n / static_cast<std::size_t>(matrix.extent(1))].emplace_back(matrix.elements()[n]);
  }
  return out;
}

inline Bounded dot(const std::vector<Bounded>& a, const std::vector<Bounded>& b) {
  std::vector<Bounded> products;
  for (std::size_t n = 0; n < a.size(); ++n) products.push_back(a[n] * b[n]);
  return exact_sum(products);
}

inline BoundedRows matmul(const BoundedRows& left, const BoundedRows& right) {
  BoundedRows out(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    for (std::size_t j = 0; j < right.front().size(); ++j) {
      std::vector<Bounded> column;
      for (const auto& row : right) column.push_back(row[j]);
      out[i].push_back(dot(left[i], column));
    }
  }
  return out;
}

inline BoundedRows add(BoundedRows a, const BoundedRows& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) a[i][j] = a[i][j] + b[i][j];
  }
  return a;
}

/// Self-attention weights of these rows. The peak's own error cancels between numerator and
/// denominator, so it enters as an exact number; only its subtraction rounds.
inline BoundedRows weights_of(const BoundedRows& rows, bool causal) {
  BoundedRows out(rows.size(), std::vector<Bounded>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t seen = causal ? i + 1 : rows.size();
    std::vector<Bounded> scores;
    long double peak = -1e300L;
    for (std::size_t j = 0; j < seen; ++j) {
      const Bounded root = sqrt(Bounded(static_cast<double>(rows[i].size())));
      scores.push_back(dot(rows[i], rows[j]) / root);
      peak = std::max(peak, scores.back().value);
    }
    for (Bounded& score : scores) score = exp(score - Bounded(peak, 0));
    const Bounded sum = exact_sum(scores);
    for (std::size_t j = 0; j < seen; ++j) out[i][j] = scores[j] / sum;
  }
  return out;
}

inline BoundedRows normalise(const BoundedRows& rows, double epsilon, const std::string& name,
                             BoundedStages& stages) {
  BoundedRows out(rows.size());
  BoundedRows means(1);
  BoundedRows variances(1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Bounded count = static_cast<double>(rows[i].size());
    const Bounded mean = exact_sum(rows[i]) / count;
    std::vector<Bounded> squares;
    for (const Bounded& x : rows[i]) squares.push_back((x - mean) * (x - mean));
    const Bounded variance = exact_sum(squares) / count;
    const Bounded deviation = sqrt(variance + Bounded(epsilon));
    for (const Bounded& x : rows[i]) out[i].push_back((x - mean) / deviation);
    means[0].push_back(mean);
    variances[0].push_back(variance);
  }
  stages[name + ".mean"] = means;
  stages[name + ".variance"] = variances;
  stages[name] = out;
  return out;
}

inline BoundedStages plain_block(const fixture::Block& block) {
  BoundedStages stages;
  const BoundedRows x = bounded(block.rows);
  BoundedRows joined(x.size());
  for (const auto& [head, projection] :
       {std::pair("h0.", &block.parameters.P1), std::pair("h1.", &block.parameters.P2)}) {
    const BoundedRows y = matmul(x, bounded(*projection));
    const BoundedRows weights = weights_of(y, block.causal);
    const BoundedRows output = matmul(weights, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      joined[i].insert(joined[i].end(), output[i].begin(), output[i].end());
    }
    stages[std::string(head) + "projection"] = y;
    stages[std::string(head) + "weights"] = weights;
    stages[std::string(head) + "output"] = output;
  }
  stages["concat"] = joined;
  stages["output_projection"] = matmul(joined, bounded(block.parameters.WO));
  stages["residual1"] = add(x, stages["output_projection"]);
  const BoundedRows hidden =
      normalise(stages["residual1"], block.parameters.epsilon, "norm1", stages);
  stages["ffn.up"] = matmul(hidden, bounded(block.parameters.W1));
  stages["ffn.relu"] = stages["ffn.up"];
  for (auto& row : stages["ffn.relu"]) {
    for (Bounded& value : row) value = relu(value);
  }
  stages["ffn.down"] = matmul(stages["ffn.relu"], bounded(block.parameters.W2));
  stages["residual2"] = add(hidden, stages["ffn.down"]);
  normalise(stages["residual2"], block.parameters.epsilon, "norm2", stages);
  return stages;
}

}  // namespace attest::test
