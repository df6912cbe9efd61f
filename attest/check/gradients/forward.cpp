// SPDX-License-Identifier: MIT
#include "attest/check/gradients/forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "attest/check/at_index.h"

namespace attest::check::gradients {
namespace {

double square(double x) { return x * x; }

/// A sum of products, and how far arithmetic that rounds each of n additions to `unit` of the partial sum
/// is from it: partial sums grow as √n, or as n where all terms have one sign.
struct Dot {
  double value = 0;
  double norm = 0;  ///< √Σ (products)²

  [[nodiscard]] double noise(double n, const Noise& of) const {
    return of.unit * std::sqrt(n + 4) * (norm + std::fabs(value)) + 1.5 * of.entry * norm;
  }
};

Dot dot(const double* a, const double* b, std::int64_t n) {
  double value = 0, squares = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const double product = a[k] * b[k];
    value += product;
    squares += product * product;
  }
  return {value, std::sqrt(squares)};
}

class Forward {
 public:
  Forward(const Problem& problem, const Noise& noise, std::int64_t b, std::int64_t h)
      : p_(problem), call_(problem.dump.claim.call), noise_(noise), b_(b), h_(h) {
    const auto [B, H, G, T, S, D, E] = p_.shape;
    const std::int64_t g = p_.group(h);
    query_ = p_.query.data() + (b * H + h) * T * D;
    key_ = p_.key.data() + (b * G + g) * S * D;
    value_ = call_.value.data() + (b * G + g) * S * E;
    d_output_ = p_.dump.d_output.data() + (b * H + h) * T * E;
    out_.b = b;
    out_.h = h;
    out_.rows.resize(at_index(T));
    out_.keys.resize(at_index(S));
    std::iota(out_.rows.begin(), out_.rows.end(), 0);
    std::iota(out_.keys.begin(), out_.keys.end(), 0);
    out_.facts.resize(at_index(T));
    out_.per_key.assign(at_index(S), 0);
    for (auto* table : {&out_.scaled, &out_.biased, &out_.weight, &out_.d_weight,
                        &out_.weight_noise, &out_.d_weight_noise}) {
      table->assign(at_index(T * S), 0);
    }
    out_.hidden.assign(at_index(T * S), 0);
    out_.kept.assign(at_index(T * S), 1);
    score_noise_.resize(at_index(S));
    if (p_.dump.claim.rope) measure_turns();
  }

  HeadTable all() {
    for (std::int64_t i = 0; i < p_.shape.T; ++i) {
      scores(i);
      softmax(i);
      backwards(i);
    }
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::size_t place(std::int64_t i, std::int64_t j) const {
    return at_index(i * p_.shape.S + j);
  }

  /// What turning query i and key j costs their product, as if its errors came at random.
  [[nodiscard]] double turns(std::int64_t i, std::int64_t j) const {
    const auto& [query_norm, query_noise] = turns_[at_index(i)];
    const auto& [key_norm, key_noise] = turns_[at_index(p_.shape.T + j)];
    return (query_noise + key_noise) * query_norm * key_norm /
           std::sqrt(static_cast<double>(p_.shape.D));
  }
  void measure_turns() {
    const std::int64_t T = p_.shape.T, S = p_.shape.S, D = p_.shape.D;
    for (std::int64_t n = 0; n < T + S; ++n) {
      const bool query = n < T;
      const double* row = query ? query_ + n * D : key_ + (n - T) * D;
      turns_.emplace_back(std::sqrt(std::inner_product(row, row + D, row, 0.0)),
                          p_.turn_noise(query, b_, query ? n : n - T, noise_.unit));
    }
  }

  /// Up to biased, hidden keys as well: a program that forgets the mask reads them.
  void scores(std::int64_t i) {
    const std::int64_t S = p_.shape.S, D = p_.shape.D;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = place(i, j);
      out_.hidden[n] = static_cast<std::uint8_t>(p_.hidden(b_, h_, i, j));
      out_.kept[n] = p_.kept(b_, h_, i, j) ? 1 : 0;
      const Dot product = dot(query_ + i * D, key_ + j * D, D);
      const double scaled = product.value * p_.scale;
      double score = scaled;
      double noise = product.noise(static_cast<double>(D), noise_) * std::fabs(p_.scale) +
                     (2 * noise_.unit + noise_.table) * std::fabs(scaled);
      if (!turns_.empty()) noise += turns(i, j) * std::fabs(p_.scale);
      if (call_.softcap) {
        const double t = std::tanh(scaled / *call_.softcap);
        score = *call_.softcap * t;
        noise = noise * (1 - t * t) + (4 * noise_.unit + noise_.table) * std::fabs(score);
      }
      const double bias = p_.bias(b_, h_, i, j);
      double alibi = 0;
      if (!call_.alibi_slopes.empty()) {
        const std::int64_t ahead = p_.key_position(i, j) - p_.query_position(b_, i);
        alibi = -call_.alibi_slopes[at_index(h_)] * std::fabs(static_cast<double>(ahead));
      }
      if (call_.bias || alibi != 0) {
        score += bias + alibi;
        noise += noise_.unit * (std::fabs(bias) + 2 * std::fabs(alibi) + std::fabs(score));
        noise += noise_.table * std::fabs(score);
      }
      out_.scaled[n] = scaled;
      out_.biased[n] = score;
      const bool never = std::isinf(score) && score < 0;  // a bias of −∞
      score_noise_[at_index(j)] = never ? 0 : noise;
    }
  }

  void softmax(std::int64_t i) {
    const std::int64_t S = p_.shape.S;
    RowFacts& row = out_.facts[at_index(i)];
    const double lowest = -std::numeric_limits<double>::infinity();
    const bool has_sink = !call_.sink.empty();
    const double sink = has_sink ? call_.sink[at_index(h_)] : lowest;
    double peak = lowest, open_peak = lowest;
    row.empty = true;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = place(i, j);
      open_peak = std::max(open_peak, out_.biased[n]);
      if (out_.hidden[n] != 0) continue;
      row.empty = false;
      peak = std::max(peak, out_.biased[n]);
    }
    peak = std::max(peak, sink);
    double sum = has_sink ? std::exp(sink - peak) : 0, open_sum = 0;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = place(i, j);
      open_sum += std::exp(out_.biased[n] - open_peak);
      if (out_.hidden[n] == 0) sum += std::exp(out_.biased[n] - peak);
    }
    row.peak = peak;
    row.log_sum_exp = peak + std::log(sum);
    row.unmasked_log_sum_exp = open_peak + std::log(open_sum);
    if (row.empty) row.log_sum_exp = 0;
    row.sink_weight = has_sink && !row.empty ? std::exp(sink - row.log_sum_exp) : 0;
    double squares = 0, visible = 0;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = place(i, j);
      const double weight = std::exp(out_.biased[n] - row.log_sum_exp);
      const double error = score_noise_[at_index(j)];
      out_.weight[n] = weight;
      if (out_.hidden[n] == 0) visible += 1;
      if (weight == 0) continue;
      out_.weight_noise[n] =
          error + noise_.unit * (std::fabs(out_.biased[n] - peak) + 4) + noise_.table;
      if (out_.hidden[n] != 0) continue;
      squares += square(weight * error);
    }
    row.common = std::sqrt(squares) +
                 noise_.unit * (4 + std::fabs(row.log_sum_exp) + std::sqrt(visible)) +
                 noise_.unit * (has_sink ? std::fabs(row.sink_weight * sink) : 0);
  }

  void backwards(std::int64_t i) {
    const std::int64_t S = p_.shape.S, E = p_.shape.E;
    RowFacts& row = out_.facts[at_index(i)];
    const double* d_output = d_output_ + i * E;
    std::vector<double> output(at_index(E), 0);
    double squares = 0, dropout_free = 0, visible = 0, terms = 0;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = place(i, j);
      const Dot product = dot(d_output, value_ + j * E, E);
      out_.d_weight[n] = product.value;
      out_.d_weight_noise[n] =
          product.noise(static_cast<double>(E), noise_) + noise_.table * std::fabs(product.value);
      if (out_.hidden[n] != 0 || row.empty) continue;
      visible += 1;
      const double weight = out_.weight[n], kept = out_.kept[n] * p_.keep_factor;
      const double d_softmax = out_.kept[n] != 0 ? kept * product.value : 0;
      row.unweighted += d_softmax;
      dropout_free += weight * product.value;
      if (out_.kept[n] != 0) {
        row.rows_term += weight * d_softmax;
        row.without_factor += weight * product.value;
        for (std::int64_t e = 0; e < E; ++e) {
          output[at_index(e)] += weight * kept * value_[j * E + e];
        }
      }
      const double noise = out_.weight_noise[n] + noise_.cast + noise_.entry;
      squares +=
          square(weight * noise * d_softmax) + square(weight * kept * out_.d_weight_noise[n]);
      terms += square(weight * d_softmax);
      out_.per_key[at_index(j)] += weight * d_softmax;
    }
    row.before_dropout = dropout_free;
    row.mean = visible > 0 ? row.unweighted / visible : 0;
    double norm = 0;
    for (std::int64_t e = 0; e < E; ++e) {
      const double x = output[at_index(e)];
      row.sum_output += x;
      row.output_squared += x * x;
      row.sum_d_output += d_output[e];
      norm += square(d_output[e] * x);
    }
    norm = std::sqrt(norm);
    row.flow = p_.dump.d_log_sum_exp ? (*p_.dump.d_log_sum_exp)(b_, h_, i) : 0;
    const double whole = std::fabs(row.rows_term);
    const double summed = noise_.unit * std::sqrt(static_cast<double>(E) + visible) *
                          (norm + std::sqrt(terms) + whole);
    row.rows_term_noise = std::sqrt(squares + square(summed) + square(noise_.store * norm)) +
                          row.common * whole + noise_.table * whole;
  }

  const Problem& p_;
  const AttentionCase& call_;
  const Noise& noise_;
  std::int64_t b_, h_;
  const double *query_, *key_, *value_, *d_output_;
  HeadTable out_;
  std::vector<double> score_noise_;                 // [S]
  std::vector<std::pair<double, double>> turns_{};  // [T + S], norms and relative noise
};

}  // namespace

HeadTable forward(const Problem& problem, const Noise& noise, std::int64_t b, std::int64_t h) {
  return Forward(problem, noise, b, h).all();
}

HeadTable part_of(const HeadTable& table, std::span<const std::int64_t> rows,
                  std::span<const std::int64_t> keys) {
  HeadTable out{.b = table.b, .h = table.h};
  for (const std::int64_t r : rows) {
    out.rows.push_back(table.rows[at_index(r)]);
    out.facts.push_back(table.facts[at_index(r)]);
  }
  for (const std::int64_t k : keys) {
    out.keys.push_back(table.keys[at_index(k)]);
    out.per_key.push_back(table.per_key[at_index(k)]);
  }
  const auto take = [&](const auto& from, auto& into) {
    into.reserve(rows.size() * keys.size());
    for (const std::int64_t r : rows) {
      for (const std::int64_t k : keys) into.push_back(from[table.at(at_index(r), at_index(k))]);
    }
  };
  take(table.scaled, out.scaled);
  take(table.biased, out.biased);
  take(table.weight, out.weight);
  take(table.d_weight, out.d_weight);
  take(table.weight_noise, out.weight_noise);
  take(table.d_weight_noise, out.d_weight_noise);
  take(table.hidden, out.hidden);
  take(table.kept, out.kept);
  return out;
}

}  // namespace attest::check::gradients
