// SPDX-License-Identifier: MIT
#include "attest/lab/layers.h"

#include <vector>

#include "attest/lab/elementary.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers_check.h"
#include "attest/lab/softmax.h"

namespace attest::lab {
namespace {

using detail::at_index;
using detail::check_given;
using detail::Named;
using detail::shape_mismatch;

Result<void> check_linear(const char* operation, View<const double, 2> x,
                          View<const double, 2> weight) {
  if (auto ok = check_given(operation, Named{"x", x}); !ok) return ok;
  if (auto ok = check_given(operation, Named{"weight", weight}); !ok) return ok;
  if (x.extent(1) == weight.extent(0)) return {};
  return shape_mismatch(operation, "x and weight must agree; x has ", x.extent(1),
                        " features, weight has ", weight.extent(0), " rows");
}

Result<void> check_ids(const char* operation, View<const std::int64_t, 1> ids, std::int64_t rows) {
  if (auto ok = check_given(operation, Named{"ids", ids}); !ok) return ok;
  for (std::int64_t n = 0; n < ids.extent(0); ++n) {
    if (ids(n) >= 0 && ids(n) < rows) continue;
    return Failure{ErrorKind::value, "id-out-of-range",
                   sentence("[", operation, "] id ", ids(n), " at position ", n,
                            " is out of range; the table has ", rows, " rows")};
  }
  return {};
}

bool counts(const Targets& targets, std::int64_t n) {
  return !targets.ignored || targets.ids(n) != *targets.ignored;
}

/// How many positions count, once logits and targets are known to fit.
Result<std::int64_t> check_targets(const char* operation, View<const double, 2> logits,
                                   const Targets& targets) {
  if (auto ok = check_given(operation, Named{"logits", logits}); !ok) return ok.failure();
  if (auto ok = check_given(operation, Named{"targets", targets.ids}); !ok) return ok.failure();
  if (logits.extent(0) != targets.ids.extent(0)) {
    return shape_mismatch(operation, "logits and targets must agree; logits has ", logits.extent(0),
                          " rows, targets has ", targets.ids.extent(0));
  }
  std::int64_t count = 0;
  for (std::int64_t n = 0; n < logits.extent(0); ++n) {
    if (!counts(targets, n)) continue;
    const std::int64_t target = targets.ids(n);
    if (target < 0 || target >= logits.extent(1)) {
      return Failure{ErrorKind::value, "target-out-of-range",
                     sentence("[", operation, "] target ", target, " at position ", n,
                              " is out of range; the vocabulary has V = ", logits.extent(1))};
    }
    ++count;
  }
  return count;
}

SoftmaxRow softmax_of(View<const double, 2> logits, std::int64_t n) {
  std::vector<double> row;
  for (std::int64_t v = 0; v < logits.extent(1); ++v) row.push_back(logits(n, v));
  return softmax_row(row);
}

}  // namespace

Result<Tensor<double>> linear(View<const double, 2> x, View<const double, 2> weight,
                              View<const double, 1> bias) {
  const ExactEnvironment environment;
  if (auto ok = check_linear("linear", x, weight); !ok) return ok.failure();
  const auto [I, O] = weight.extents;
  if (bias && bias.extent(0) != O) {
    return shape_mismatch("linear", "weight and bias must agree; weight has ", O,
                          " columns, bias has ", bias.extent(0), " entries");
  }
  Tensor<double> y({x.extent(0), O});  // [N, O]
  std::vector<double> terms;
  for (std::int64_t n = 0; n < x.extent(0); ++n) {
    for (std::int64_t o = 0; o < O; ++o) {
      terms.clear();
      for (std::int64_t i = 0; i < I; ++i) terms.push_back(x(n, i) * weight(i, o));
      if (bias) terms.push_back(bias(o));
      y(n, o) = exact_sum(terms);
    }
  }
  return y;
}

Result<LinearGradients> linear_backward(View<const double, 2> x, View<const double, 2> weight,
                                        View<const double, 2> d_y) {
  const ExactEnvironment environment;
  const char* const operation = "linear_backward";
  if (auto ok = check_linear(operation, x, weight); !ok) return ok.failure();
  const std::int64_t N = x.extent(0);
  const auto [I, O] = weight.extents;
  const View<const double, 2> y{x.data, {N, O}};
  if (auto ok = detail::check_same(operation, Named{"y", y}, Named{"d_y", d_y}); !ok) {
    return ok.failure();
  }
  LinearGradients out{Tensor<double>({N, I}), Tensor<double>({I, O}), Tensor<double>({O})};

  // y[n,o] = Σ_i x[n,i]·weight[i,o]      d_x[n,i] = Σ_o d_y[n,o]·weight[i,o]
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t i = 0; i < I; ++i) {
      out.d_x(n, i) = exact_dot({d_y.data + n * d_y.strides[0], d_y.strides[1]},
                                {weight.data + i * weight.strides[0], weight.strides[1]}, O);
    }
  }
  //                                      d_weight[i,o] = Σ_n x[n,i]·d_y[n,o]
  for (std::int64_t i = 0; i < I; ++i) {
    for (std::int64_t o = 0; o < O; ++o) {
      out.d_weight(i, o) = exact_dot({x.data + i * x.strides[1], x.strides[0]},
                                     {d_y.data + o * d_y.strides[1], d_y.strides[0]}, N);
    }
  }
  // … + bias[o]                          d_bias[o] = Σ_n d_y[n,o]
  std::vector<double> terms;
  for (std::int64_t o = 0; o < O; ++o) {
    terms.clear();
    for (std::int64_t n = 0; n < N; ++n) terms.push_back(d_y(n, o));
    out.d_bias(o) = exact_sum(terms);
  }
  return out;
}

Result<Tensor<double>> embedding(View<const double, 2> table, View<const std::int64_t, 1> ids) {
  const ExactEnvironment environment;
  if (auto ok = check_given("embedding", Named{"table", table}); !ok) return ok.failure();
  if (auto ok = check_ids("embedding", ids, table.extent(0)); !ok) return ok.failure();
  const std::int64_t C = table.extent(1);
  Tensor<double> y({ids.extent(0), C});  // [N, C]
  for (std::int64_t n = 0; n < ids.extent(0); ++n) {
    for (std::int64_t c = 0; c < C; ++c) y(n, c) = table(ids(n), c);
  }
  return y;
}

Result<Tensor<double>> embedding_backward(std::int64_t rows, View<const std::int64_t, 1> ids,
                                          View<const double, 2> d_y) {
  const ExactEnvironment environment;
  const char* const operation = "embedding_backward";
  if (rows < 0) return shape_mismatch(operation, "a table has no ", rows, " rows");
  if (auto ok = check_ids(operation, ids, rows); !ok) return ok.failure();
  if (auto ok = check_given(operation, Named{"d_y", d_y}); !ok) return ok.failure();
  if (d_y.extent(0) != ids.extent(0)) {
    return shape_mismatch(operation, "ids and d_y must agree; ids has ", ids.extent(0),
                          " entries, d_y has ", d_y.extent(0), " rows");
  }
  std::vector<std::vector<std::int64_t>> positions(at_index(rows));
  for (std::int64_t n = 0; n < ids.extent(0); ++n) positions[at_index(ids(n))].push_back(n);

  // y[n,c] = table[ids[n],c]      d_table[v,c] = Σ d_y[n,c] over the positions n of v
  const std::int64_t C = d_y.extent(1);
  Tensor<double> d_table({rows, C});  // [V, C]
  std::vector<double> terms;
  for (std::int64_t v = 0; v < rows; ++v) {
    for (std::int64_t c = 0; c < C; ++c) {
      terms.clear();
      for (const std::int64_t n : positions[at_index(v)]) terms.push_back(d_y(n, c));
      d_table(v, c) = exact_sum(terms);
    }
  }
  return d_table;
}

Result<CrossEntropyResult> cross_entropy(View<const double, 2> logits, const Targets& targets) {
  const ExactEnvironment environment;
  const auto count = check_targets("cross_entropy", logits, targets);
  if (!count) return count.failure();
  CrossEntropyResult out{0, *count, Tensor<double>({logits.extent(0)})};
  for (std::int64_t n = 0; n < logits.extent(0); ++n) {
    if (!counts(targets, n)) continue;
    const SoftmaxRow soft = softmax_of(logits, n);
    const double terms[] = {soft.peak, log(soft.sum), -logits(n, targets.ids(n))};
    out.losses(n) = exact_sum(terms);
  }
  if (*count > 0) out.loss = exact_sum(out.losses.elements()) / static_cast<double>(*count);
  return out;
}

Result<Tensor<double>> cross_entropy_backward(View<const double, 2> logits, const Targets& targets,
                                              double d_loss) {
  const ExactEnvironment environment;
  const auto count = check_targets("cross_entropy_backward", logits, targets);
  if (!count) return count.failure();
  const auto [N, V] = logits.extents;
  Tensor<double> d_logits({N, V});
  // loss = Σ_n losses[n] / count                d_losses[n] = d_loss / count
  // losses[n] = log_sum_exp − logits[n,target]  d_logits[v] = (weights[v] − [v = target])·d_losses
  for (std::int64_t n = 0; n < N; ++n) {
    if (!counts(targets, n)) continue;
    const SoftmaxRow soft = softmax_of(logits, n);
    for (std::int64_t v = 0; v < V; ++v) {
      const double right = v == targets.ids(n) ? 1 : 0;
      const double surplus = soft.weights[at_index(v)] - right;
      d_logits(n, v) = surplus * d_loss / static_cast<double>(*count);
    }
  }
  return d_logits;
}

}  // namespace attest::lab
