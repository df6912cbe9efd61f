// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/real.h"
#include "attest/lab/oracle/visibility.h"

namespace attest::lab::oracle {

/// Which softmax is evaluated; both are the same function.
enum class SoftmaxPath {
  automatic,  ///< unshifted where every number of the row is below 10⁷ in size, else shifted
  unshifted,  ///< exp(s_j) / Σ exp(s_k)
  shifted,    ///< exp(s_j − max) / Σ exp(s_k − max)
};

/// What may be chosen about a call, apart from the arrays that have gradients.
struct AttentionRules {
  Mask mask{};
  std::optional<double> scale{};
  std::optional<double> softcap{};
  std::vector<Real> alibi_slopes{};  // [H]; empty: none
  Dropout dropout{};
  EmptyRow empty_row = EmptyRow::error;
  SoftmaxPath path = SoftmaxPath::automatic;
};

template <class Scalar>
struct AttentionArrays {
  Array<Scalar> query;  // [B, H, T, D]
  Array<Scalar> key;    // [B, G, S, D]
  Array<Scalar> value;  // [B, G, S, E]
  Array<Scalar> bias;   // broadcasts to [B, H, T, S]; absent: none
  Array<Scalar> sink;   // [H]; absent: none

  [[nodiscard]] Extents extents() const {
    return {query.extent(0), query.extent(1), key.extent(1),  query.extent(2),
            key.extent(2),   query.extent(3), value.extent(3)};
  }
};

template <class Scalar>
struct AttentionValues {
  Array<Scalar> output;       // [B, H, T, E]
  Array<Scalar> weights;      // [B, H, T, S]; as they multiply value; 0 where hidden or dropped
  Array<Scalar> scores;       // [B, H, T, S]; scaled, capped and biased; −∞ where hidden
  Array<Scalar> log_sum_exp;  // [B, H, T]; natural, with the sink
};

/// As the mask says, and a bias of −∞ hides too. A hidden key's bias is not looked at.
template <class Scalar>
[[nodiscard]] bool sees(const AttentionArrays<Scalar>& in, const Mask& mask, const Pair& p) {
  if (!mask_lets_see(mask, in.extents(), p)) return false;
  if (!in.bias.present()) return true;
  return value_of(broadcast_at(in.bias, {p.b, p.h, p.i, p.j})) != -infinity();
}

namespace formula {

/// The key/value head of query head h: h div (H/G).
inline std::int64_t group_of(std::int64_t h, const Extents& n) { return h / (n.H / n.G); }

/// score = cap(Σ_d query[i,d] · key[j,d] / √D) + bias[i,j] − slope · |position of i − j|
template <class Scalar>
[[nodiscard]] Scalar score(const AttentionArrays<Scalar>& in, const AttentionRules& rules,
                           const Pair& p) {
  const Extents n = in.extents();
  const std::int64_t g = group_of(p.h, n);
  const Scalar product = sum_of_products(
      n.D, Scalar(Real(0)), [&](auto d) -> const Scalar& { return in.query(p.b, p.h, p.i, d); },
      [&](auto d) -> const Scalar& { return in.key(p.b, g, p.j, d); });
  Scalar s = rules.scale ? product * Real(*rules.scale) : product / Real(sqrt(Real(n.D)));
  if (rules.softcap) {
    const Scalar cap = Real(*rules.softcap);
    s = cap * tanh(Scalar(s / cap));
  }
  if (in.bias.present()) s = s + broadcast_at(in.bias, {p.b, p.h, p.i, p.j});
  if (!rules.alibi_slopes.empty()) {
    const Real distance = abs(Real(steps_back(rules.mask, n, p)));
    s = s - Scalar(rules.alibi_slopes[static_cast<std::size_t>(p.h)] * distance);
  }
  return s;
}

template <class Scalar>
struct SoftmaxRow {
  std::vector<Scalar> weights;  // as many as scores
  Scalar log_sum_exp;
};

/// weights_j = exp(s_j) / Z with Z = Σ_k exp(s_k) + exp(sink);  log_sum_exp = log Z.
///
/// Any constant c may be subtracted from all exponents: it cancels in the weights, and is added to
/// log Z again. Here c = 0 wherever that can be, unlike in the tiers that this one judges.
template <class Scalar>
[[nodiscard]] SoftmaxRow<Scalar> softmax_row(const std::vector<Scalar>& scores,
                                             const std::optional<Scalar>& sink, SoftmaxPath path) {
  std::vector<Scalar> exponents = scores;
  if (sink) exponents.push_back(*sink);
  Real peak = value_of(exponents.front());
  Real size = 0;
  for (const Scalar& s : exponents) {
    if (value_of(s) > peak) peak = value_of(s);
    if (abs(value_of(s)) > size) size = abs(value_of(s));
  }
  const bool shifted =
      path == SoftmaxPath::shifted || (path == SoftmaxPath::automatic && size >= 10000000);
  const Scalar c = shifted ? peak : Real(0);

  SoftmaxRow<Scalar> row;
  Scalar total = Real(0);
  for (const Scalar& s : exponents) {
    row.weights.push_back(exp(Scalar(s - c)));
    total = total + row.weights.back();
  }
  row.weights.resize(scores.size());  // the sink takes its share and gives nothing
  for (Scalar& w : row.weights) w = w / total;
  row.log_sum_exp = c + log(total);
  return row;
}

/// One query: its scores, weights and output from the keys that it sees, and from no other.
template <class Scalar>
void attend_row(const AttentionArrays<Scalar>& in, const AttentionRules& rules, Pair p,
                AttentionValues<Scalar>& out) {
  const Extents n = in.extents();
  std::vector<std::int64_t> seen;
  std::vector<Scalar> scores;
  for (p.j = 0; p.j < n.S; ++p.j) {
    if (!sees(in, rules.mask, p)) continue;
    seen.push_back(p.j);
    scores.push_back(score(in, rules, p));
    out.scores(p.b, p.h, p.i, p.j) = scores.back();
  }
  if (seen.empty()) {  // EmptyRow::error is for the caller to find first
    const Real filling = rules.empty_row == EmptyRow::zero ? Real(0) : not_a_number();
    for (std::int64_t j = 0; j < n.S; ++j) out.weights(p.b, p.h, p.i, j) = filling;
    for (std::int64_t e = 0; e < n.E; ++e) out.output(p.b, p.h, p.i, e) = filling;
    out.log_sum_exp(p.b, p.h, p.i) = Real(-infinity());
    return;
  }
  std::optional<Scalar> sink;
  if (in.sink.present()) sink = in.sink(p.h);
  const SoftmaxRow<Scalar> row = softmax_row(scores, sink, rules.path);
  out.log_sum_exp(p.b, p.h, p.i) = row.log_sum_exp;
  // weights = softmax / (1 − rate) where dropout leaves them in; the other values are not looked at
  std::vector<std::int64_t> mixed;
  std::vector<Scalar> weights;
  for (std::size_t k = 0; k < seen.size(); ++k) {
    if (!stays(rules.dropout, {p.b, p.h, p.i, seen[k]})) continue;
    mixed.push_back(seen[k]);
    weights.push_back(rules.dropout.rate == 0
                          ? row.weights[k]
                          : Scalar(row.weights[k] / Real(1 - Real(rules.dropout.rate))));
    out.weights(p.b, p.h, p.i, seen[k]) = weights.back();
  }
  // output[i,e] = Σ_j weights[i,j] · value[j,e]
  const std::int64_t g = group_of(p.h, n);
  for (std::int64_t e = 0; e < n.E; ++e) {
    out.output(p.b, p.h, p.i, e) = sum_of_products(
        static_cast<std::int64_t>(mixed.size()), Scalar(Real(0)),
        [&](auto k) -> const Scalar& { return weights[static_cast<std::size_t>(k)]; },
        [&](auto k) -> const Scalar& {
          return in.value(p.b, g, mixed[static_cast<std::size_t>(k)], e);
        });
  }
}

/// output = dropout(softmax(score)) · value, row by row. Shapes and options must fit, visible numbers be
/// finite and, with EmptyRow::error, every query see a key: see oracle::attention.
template <class Scalar>
[[nodiscard]] AttentionValues<Scalar> attention(const AttentionArrays<Scalar>& in,
                                                const AttentionRules& rules) {
  const Extents n = in.extents();
  AttentionValues<Scalar> out;
  out.output = Array<Scalar>({n.B, n.H, n.T, n.E});
  out.weights = Array<Scalar>({n.B, n.H, n.T, n.S});
  out.scores = Array<Scalar>({n.B, n.H, n.T, n.S});
  out.log_sum_exp = Array<Scalar>({n.B, n.H, n.T});
  for (Scalar& s : out.scores.values) s = Real(-infinity());
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.T; ++i) attend_row(in, rules, {b, h, i, 0}, out);
    }
  }
  return out;
}

/// The published slopes: 2^(−8(h+1)/H) if H is a power of two; otherwise those of the next lower
/// power c, and after them every other one of 2c.
inline std::vector<Real> alibi_slopes(std::int64_t heads) {
  std::int64_t c = 1;
  while (2 * c <= heads) c *= 2;
  std::vector<Real> slopes;
  for (std::int64_t h = 0; h < c; ++h) slopes.push_back(pow(Real(2), Real(-8 * (h + 1)) / c));
  for (std::int64_t h = 0; h < heads - c; ++h) {
    slopes.push_back(pow(Real(2), Real(-8 * (2 * h + 1)) / (2 * c)));
  }
  return slopes;
}

}  // namespace formula
}  // namespace attest::lab::oracle
