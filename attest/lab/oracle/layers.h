// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/base/config.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/attention.h"
#include "attest/lab/oracle/real.h"

/// The formulas of the layers, for any scalar. Shapes must fit; oracle.cpp sees to that.
namespace attest::lab::oracle::formula {

/// output[n,m] = b[m] + Σ_k x[n,k] · W[k,m], b absent: 0.
template <class Scalar>
[[nodiscard]] Array<Scalar> linear(const Array<Scalar>& x,       // [..., K]
                                   const Array<Scalar>& weight,  // [K, M]
                                   const Array<Scalar>& bias) {  // [M], or absent
  Shape shape = x.shape;
  shape.back() = weight.extent(1);
  Array<Scalar> out(shape);  // [..., M]
  for (std::int64_t n = 0; n < out.rows(); ++n) {
    for (std::int64_t m = 0; m < out.last_extent(); ++m) {
      const Scalar start = bias.present() ? bias(m) : Scalar(Real(0));
      out.in_row(n, m) = sum_of_products(
          weight.extent(0), start, [&](auto k) -> const Scalar& { return x.in_row(n, k); },
          [&](auto k) -> const Scalar& { return weight(k, m); });
    }
  }
  return out;
}

/// output[n,m] = Σ_k left[n,k] · right[k,m].
template <class Scalar>
[[nodiscard]] Array<Scalar> matmul(const Array<Scalar>& left,     // [N, K]
                                   const Array<Scalar>& right) {  // [K, M]
  return linear(left, right, Array<Scalar>{});
}

template <class Scalar>
[[nodiscard]] Array<Scalar> add(const Array<Scalar>& a, const Array<Scalar>& b) {
  Array<Scalar> out = a;
  for (std::size_t k = 0; k < out.values.size(); ++k) out.values[k] = a.values[k] + b.values[k];
  return out;
}

template <class Scalar>
[[nodiscard]] std::vector<Scalar> row_of(const Array<Scalar>& x, std::int64_t row) {
  std::vector<Scalar> out;
  for (std::int64_t c = 0; c < x.last_extent(); ++c) out.push_back(x.in_row(row, c));
  return out;
}

/// Softmax over the last axis.
template <class Scalar>
[[nodiscard]] Array<Scalar> softmax(const Array<Scalar>& x,  // [..., C]
                                    SoftmaxPath path = SoftmaxPath::automatic) {
  Array<Scalar> out = x;
  for (std::int64_t n = 0; n < x.rows(); ++n) {
    const SoftmaxRow<Scalar> row = softmax_row(row_of(x, n), std::optional<Scalar>{}, path);
    for (std::int64_t c = 0; c < x.last_extent(); ++c) {
      out.in_row(n, c) = row.weights[static_cast<std::size_t>(c)];
    }
  }
  return out;
}

/// (x − mean) / √(variance + ε) over the last axis; population variance.
template <class Scalar>
[[nodiscard]] Array<Scalar> normalise(const Array<Scalar>& x, const Real& epsilon) {
  Array<Scalar> out = x;  // [..., C]
  const Real width = x.last_extent();
  for (std::int64_t n = 0; n < x.rows(); ++n) {
    Scalar mean = Real(0);
    for (const Scalar& number : row_of(x, n)) mean = mean + number / width;
    Scalar variance = Real(0);
    for (const Scalar& number : row_of(x, n)) {
      const Scalar deviation = number - mean;
      variance = variance + deviation * deviation / width;
    }
    const Scalar root = sqrt(Scalar(variance + epsilon));
    for (std::int64_t c = 0; c < x.last_extent(); ++c) {
      out.in_row(n, c) = (x.in_row(n, c) - mean) / root;
    }
  }
  return out;
}

/// x / √(mean of squares + ε) over the last axis.
template <class Scalar>
[[nodiscard]] Array<Scalar> divide_by_rms(const Array<Scalar>& x, const Real& epsilon) {
  Array<Scalar> out = x;  // [..., C]
  for (std::int64_t n = 0; n < x.rows(); ++n) {
    Scalar mean_square = Real(0);
    for (const Scalar& number : row_of(x, n)) {
      mean_square = mean_square + number * number / Real(x.last_extent());
    }
    const Scalar root = sqrt(Scalar(mean_square + epsilon));
    for (std::int64_t c = 0; c < x.last_extent(); ++c) out.in_row(n, c) = x.in_row(n, c) / root;
  }
  return out;
}

/// y ⊙ gain + bias; an absent gain is 1, an absent bias 0.
template <class Scalar>
[[nodiscard]] Array<Scalar> gain_and_bias(Array<Scalar> y,              // [..., C]
                                          const Array<Scalar>& gain,    // [C]
                                          const Array<Scalar>& bias) {  // [C]
  for (std::int64_t n = 0; n < y.rows(); ++n) {
    for (std::int64_t c = 0; c < y.last_extent(); ++c) {
      if (gain.present()) y.in_row(n, c) = y.in_row(n, c) * gain(c);
      if (bias.present()) y.in_row(n, c) = y.in_row(n, c) + bias(c);
    }
  }
  return y;
}

template <class Scalar>
[[nodiscard]] Array<Scalar> layer_norm(const Array<Scalar>& x, const Array<Scalar>& gain,
                                       const Array<Scalar>& bias, const Real& epsilon) {
  return gain_and_bias(normalise(x, epsilon), gain, bias);
}

template <class Scalar>
[[nodiscard]] Array<Scalar> rms_norm(const Array<Scalar>& x, const Array<Scalar>& gain,
                                     const Array<Scalar>& bias, const Real& epsilon) {
  return gain_and_bias(divide_by_rms(x, epsilon), gain, bias);
}

/// Pair i of the row at position p turns by p · base^(−2i/R); row t stands at offset + t.
///
///     (a, b) -> (a cos − b sin, b cos + a sin)    half: (x_i, x_{i+R/2}), interleaved: (x_2i,
///     x_2i+1)
template <class Scalar>
[[nodiscard]] Array<Scalar> rope(const Array<Scalar>& x,  // [..., T, D]
                                 const RopeConfig& config, std::int64_t offset) {
  Array<Scalar> out = x;
  const std::int64_t length = x.shape[x.shape.size() - 2];
  const std::int64_t turned = config.rotary_dim == 0 ? x.last_extent() : config.rotary_dim;
  const bool half = config.pairing == RopePairing::half;
  for (std::int64_t n = 0; n < x.rows(); ++n) {
    const Real position = Real(offset) + n % length;
    for (std::int64_t i = 0; i < turned / 2; ++i) {
      const Real angle = position * pow(Real(config.base), Real(-2 * i) / turned);
      const Scalar cosine = Real(cos(angle));
      const Scalar sine = Real(sin(angle));
      const std::int64_t first = half ? i : 2 * i;
      const std::int64_t second = half ? i + turned / 2 : 2 * i + 1;
      const Scalar a = x.in_row(n, first);
      const Scalar b = x.in_row(n, second);
      out.in_row(n, first) = a * cosine - b * sine;
      out.in_row(n, second) = b * cosine + a * sine;
    }
  }
  return out;
}

/// output[n] = table[ids[n]].
template <class Scalar>
[[nodiscard]] Array<Scalar> embedding(const Array<Scalar>& table,         // [V, C]
                                      const Tensor<std::int64_t>& ids) {  // [...]
  Shape shape = ids.shape();
  shape.push_back(table.extent(1));
  Array<Scalar> out;
  out.shape = shape;  // [..., C]
  for (const std::int64_t id : ids.elements()) {
    for (const Scalar& number : row_of(table, id)) out.values.push_back(number);
  }
  return out;
}

/// −log softmax(z)[t] = log Σ_j exp(z_j − z_t) = log(1 + Σ_{j≠t} exp(z_j − z_t)): a loss near 0
/// keeps its digits.
template <class Scalar>
[[nodiscard]] Scalar loss_of_row(const std::vector<Scalar>& logits, std::size_t target) {
  std::vector<Scalar> differences;
  bool large = false;
  for (const Scalar& z : logits) {
    differences.push_back(z - logits[target]);
    large = large || value_of(differences.back()) >= 10000000;
  }
  if (large) {
    return softmax_row(differences, std::optional<Scalar>{}, SoftmaxPath::shifted).log_sum_exp;
  }
  Scalar others = Real(0);
  for (std::size_t j = 0; j < differences.size(); ++j) {
    if (j != target) others = others + exp(differences[j]);
  }
  return log1p(others);
}

/// The sum of the losses over the targets that are not the ignored value.
template <class Scalar>
[[nodiscard]] Scalar cross_entropy_sum(const Array<Scalar>& logits,          // [N, V]
                                       const Tensor<std::int64_t>& targets,  // [N]
                                       std::optional<std::int64_t> ignored) {
  Scalar sum = Real(0);
  for (std::int64_t n = 0; n < logits.extent(0); ++n) {
    if (targets(n) == ignored) continue;
    sum = sum + loss_of_row(row_of(logits, n), static_cast<std::size_t>(targets(n)));
  }
  return sum;
}

}  // namespace attest::lab::oracle::formula
