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

/// How far a sum of n products is off whose squares sum to that, in arithmetic that rounds each addition
/// to `unit` of the partial sum: partial sums grow as √n, or as n where all terms have one sign.
double dot_noise(double sum, double squares, double n, const Noise& of) {
  const double norm = std::sqrt(squares);
  return of.unit * std::sqrt(n + 4) * (norm + std::fabs(sum)) + 1.5 * of.entry * norm;
}

/// A matrix [rows, columns] the other way round.
std::vector<double> across(const double* from, std::int64_t rows, std::int64_t columns) {
  std::vector<double> out(at_index(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) out[at_index(c * rows + r)] = from[r * columns + c];
  }
  return out;
}

/// A row's products with every row of a table that lies [width, count]: their sums in the order of the
/// width, and the sums of their squares. 16 bytes of sums are moved for four products.
void multiply(std::span<const double> a, const std::vector<double>& table,
              std::vector<double>& sums, std::vector<double>& squares) {
  const std::size_t count = sums.size();
  std::ranges::fill(sums, 0);
  std::ranges::fill(squares, 0);
  double* const sum = sums.data();
  double* const square = squares.data();
  std::size_t d = 0;
  for (; d + 4 <= a.size(); d += 4) {
    const double* const x = table.data() + d * count;
    const double a0 = a[d], a1 = a[d + 1], a2 = a[d + 2], a3 = a[d + 3];
    for (std::size_t j = 0; j < count; ++j) {
      const double p0 = a0 * x[j], p1 = a1 * x[j + count];
      const double p2 = a2 * x[j + 2 * count], p3 = a3 * x[j + 3 * count];
      sum[j] = sum[j] + p0 + p1 + p2 + p3;
      square[j] = square[j] + p0 * p0 + p1 * p1 + p2 * p2 + p3 * p3;
    }
  }
  for (; d < a.size(); ++d) {
    const double* const x = table.data() + d * count;
    for (std::size_t j = 0; j < count; ++j) {
      const double product = a[d] * x[j];
      sum[j] += product;
      square[j] += product * product;
    }
  }
}

}  // namespace

HeadForward::HeadForward(const Problem& problem, const Noise& noise, std::int64_t b, std::int64_t h)
    : p_(problem), noise_(noise), b_(b), h_(h) {
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const std::int64_t g = p_.group(h);
  query_ = p_.query.data() + (b * H + h) * T * D;
  key_ = p_.key.data() + (b * G + g) * S * D;
  value_ = p_.dump.claim.call.value.data() + (b * G + g) * S * E;
  d_output_ = p_.dump.d_output.data() + (b * H + h) * T * E;
  keys_across_ = across(key_, S, D);
  values_across_ = across(value_, S, E);
  for (auto* row : {&dots_, &squares_, &score_noise_, &per_key_}) row->assign(at_index(S), 0);
  output_.assign(at_index(E), 0);
  if (p_.dump.claim.rope) measure_turns();
}

HeadTable HeadForward::run(std::int64_t begin, std::int64_t end) {
  const std::int64_t S = p_.shape.S;
  HeadTable out{.b = b_, .h = h_, .first_place = begin};
  out.rows.resize(at_index(end - begin));
  out.keys.resize(at_index(S));
  std::iota(out.rows.begin(), out.rows.end(), begin);
  std::iota(out.keys.begin(), out.keys.end(), 0);
  out.facts.resize(out.rows.size());
  const std::size_t cells = out.rows.size() * out.keys.size();
  for (auto* table : {&out.scaled, &out.biased, &out.weight, &out.d_weight, &out.weight_noise,
                      &out.d_weight_noise}) {
    table->resize(cells);
  }
  out.hidden.resize(cells);
  out.kept.resize(cells);
  for (std::size_t r = 0; r < out.rows.size(); ++r) {
    scores(out, r);
    softmax(out, r);
    backwards(out, r);
    if (out.rows[r] == 0) rows_term_of_first_ = out.facts[r].rows_term;
  }
  out.per_key = per_key_;
  out.rows_term_of_first = rows_term_of_first_;
  return out;
}

/// What turning query i and key j costs their product, as if its errors came at random.
double HeadForward::turns(std::int64_t i, std::int64_t j) const {
  const auto& [query_norm, query_noise] = turns_[at_index(i)];
  const auto& [key_norm, key_noise] = turns_[at_index(p_.shape.T + j)];
  return (query_noise + key_noise) * query_norm * key_norm /
         std::sqrt(static_cast<double>(p_.shape.D));
}

void HeadForward::measure_turns() {
  const std::int64_t T = p_.shape.T, S = p_.shape.S, D = p_.shape.D;
  for (std::int64_t n = 0; n < T + S; ++n) {
    const bool query = n < T;
    const double* row = query ? query_ + n * D : key_ + (n - T) * D;
    turns_.emplace_back(std::sqrt(std::inner_product(row, row + D, row, 0.0)),
                        p_.turn_noise(query, b_, query ? n : n - T, noise_.unit));
  }
}

/// Up to biased, hidden keys as well: a program that forgets the mask reads them.
void HeadForward::scores(HeadTable& table, std::size_t r) {
  const AttentionCase& call = p_.dump.claim.call;
  const std::int64_t i = table.rows[r], D = p_.shape.D;
  const double width = static_cast<double>(D);
  multiply({query_ + i * D, at_index(D)}, keys_across_, dots_, squares_);
  for (std::size_t k = 0; k < table.keys.size(); ++k) {
    const std::size_t n = table.at(r, k);
    const std::int64_t j = table.keys[k];
    table.hidden[n] = static_cast<std::uint8_t>(p_.hidden(b_, h_, i, j));
    table.kept[n] = p_.kept(b_, h_, i, j) ? 1 : 0;
    const double scaled = dots_[k] * p_.scale;
    double score = scaled;
    double noise = dot_noise(dots_[k], squares_[k], width, noise_) * std::fabs(p_.scale) +
                   (2 * noise_.unit + noise_.table) * std::fabs(scaled);
    if (!turns_.empty()) noise += turns(i, j) * std::fabs(p_.scale);
    if (call.softcap) {
      const double t = std::tanh(scaled / *call.softcap);
      score = *call.softcap * t;
      noise = noise * (1 - t * t) + (4 * noise_.unit + noise_.table) * std::fabs(score);
    }
    const double bias = p_.bias(b_, h_, i, j);
    double alibi = 0;
    if (!call.alibi_slopes.empty()) {
      const std::int64_t ahead = p_.key_position(i, j) - p_.query_position(b_, i);
      alibi = -call.alibi_slopes[at_index(h_)] * std::fabs(static_cast<double>(ahead));
    }
    if (call.bias || alibi != 0) {
      score += bias + alibi;
      noise += noise_.unit * (std::fabs(bias) + 2 * std::fabs(alibi) + std::fabs(score));
      noise += noise_.table * std::fabs(score);
    }
    table.scaled[n] = scaled;
    table.biased[n] = score;
    const bool never = std::isinf(score) && score < 0;  // a bias of −∞
    score_noise_[k] = never ? 0 : noise;
  }
}

void HeadForward::softmax(HeadTable& table, std::size_t r) {
  const auto& sinks = p_.dump.claim.call.sink;
  RowFacts& row = table.facts[r];
  const std::size_t first = table.at(r, 0), S = table.keys.size();
  const double* const biased = table.biased.data() + first;
  const std::uint8_t* const hidden = table.hidden.data() + first;
  const double lowest = -std::numeric_limits<double>::infinity();
  const bool has_sink = !sinks.empty();
  const double sink = has_sink ? sinks[at_index(h_)] : lowest;
  double peak = lowest, open_peak = lowest;
  std::size_t visible = 0;
  for (std::size_t k = 0; k < S; ++k) {
    open_peak = std::max(open_peak, biased[k]);
    if (hidden[k] != 0) continue;
    ++visible;
    peak = std::max(peak, biased[k]);
  }
  row.empty = visible == 0;
  peak = std::max(peak, sink);
  open_peak = std::max(open_peak, sink);
  double sum = has_sink ? std::exp(sink - peak) : 0;
  double open_sum = has_sink ? std::exp(sink - open_peak) : 0;
  const bool open = visible == S;  // then both are one sum
  for (std::size_t k = 0; k < S; ++k) {
    if (!open) open_sum += std::exp(biased[k] - open_peak);
    if (hidden[k] == 0) sum += std::exp(biased[k] - peak);
  }
  row.peak = peak;
  row.log_sum_exp = peak + std::log(sum);
  row.unmasked_log_sum_exp = open ? row.log_sum_exp : open_peak + std::log(open_sum);
  if (row.empty) row.log_sum_exp = 0;
  row.sink_weight = has_sink && !row.empty ? std::exp(sink - row.log_sum_exp) : 0;
  double squares = 0;
  for (std::size_t k = 0; k < S; ++k) {
    const double weight = std::exp(biased[k] - row.log_sum_exp);
    const double error = score_noise_[k];
    table.weight[first + k] = weight;
    if (weight == 0) continue;
    table.weight_noise[first + k] =
        error + noise_.unit * (std::fabs(biased[k] - peak) + 4) + noise_.table;
    if (hidden[k] != 0) continue;
    squares += square(weight * error);
  }
  row.common =
      std::sqrt(squares) +
      noise_.unit * (4 + std::fabs(row.log_sum_exp) + std::sqrt(static_cast<double>(visible))) +
      noise_.unit * (has_sink ? std::fabs(row.sink_weight * sink) : 0);
}

void HeadForward::backwards(HeadTable& table, std::size_t r) {
  const std::int64_t i = table.rows[r], E = p_.shape.E;
  const double width = static_cast<double>(E);
  RowFacts& row = table.facts[r];
  const double* d_output = d_output_ + i * E;
  std::ranges::fill(output_, 0);
  double squares = 0, dropout_free = 0, visible = 0, terms = 0;
  multiply({d_output, at_index(E)}, values_across_, dots_, squares_);
  for (std::size_t k = 0; k < table.keys.size(); ++k) {
    const std::size_t n = table.at(r, k);
    const double product = dots_[k];
    table.d_weight[n] = product;
    table.d_weight_noise[n] =
        dot_noise(product, squares_[k], width, noise_) + noise_.table * std::fabs(product);
    if (table.hidden[n] != 0 || row.empty) continue;
    visible += 1;
    const double weight = table.weight[n], kept = table.kept[n] * p_.keep_factor;
    const double d_softmax = table.kept[n] != 0 ? kept * product : 0;
    row.unweighted += d_softmax;
    dropout_free += weight * product;
    if (table.kept[n] != 0) {
      row.rows_term += weight * d_softmax;
      row.without_factor += weight * product;
      const double* value = value_ + table.keys[k] * E;
      for (std::int64_t e = 0; e < E; ++e) output_[at_index(e)] += weight * kept * value[e];
    }
    const double noise = table.weight_noise[n] + noise_.cast + noise_.entry;
    squares += square(weight * noise * d_softmax) + square(weight * kept * table.d_weight_noise[n]);
    terms += square(weight * d_softmax);
    per_key_[k] += weight * d_softmax;
  }
  row.before_dropout = dropout_free;
  row.mean = visible > 0 ? row.unweighted / visible : 0;
  double norm = 0;
  for (std::int64_t e = 0; e < E; ++e) {
    const double x = output_[at_index(e)];
    row.sum_output += x;
    row.output_squared += x * x;
    row.sum_d_output += d_output[e];
    norm += square(d_output[e] * x);
  }
  norm = std::sqrt(norm);
  row.flow = p_.dump.d_log_sum_exp ? (*p_.dump.d_log_sum_exp)(b_, h_, i) : 0;
  const double whole = std::fabs(row.rows_term);
  const double summed =
      noise_.unit * std::sqrt(width + visible) * (norm + std::sqrt(terms) + whole);
  row.rows_term_noise = std::sqrt(squares + square(summed) + square(noise_.store * norm)) +
                        row.common * whole + noise_.table * whole;
}

void HeadTable::append(HeadTable part) {
  const auto take = [](auto& own, const auto& from) {
    own.insert(own.end(), from.begin(), from.end());
  };
  take(rows, part.rows);
  take(facts, part.facts);
  take(scaled, part.scaled);
  take(biased, part.biased);
  take(weight, part.weight);
  take(d_weight, part.d_weight);
  take(weight_noise, part.weight_noise);
  take(d_weight_noise, part.d_weight_noise);
  take(hidden, part.hidden);
  take(kept, part.kept);
  b = part.b;
  h = part.h;
  keys = std::move(part.keys);
  per_key = std::move(part.per_key);
  rows_term_of_first = part.rows_term_of_first;
}

HeadTable part_of(const HeadTable& table, std::span<const std::int64_t> rows,
                  std::span<const std::int64_t> keys) {
  HeadTable out{.b = table.b, .h = table.h, .rows_term_of_first = table.rows_term_of_first};
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
