// SPDX-License-Identifier: MIT
// Whether a peer's result is right: sampled rows of it, in double.
#pragma once

#include "peer.h"

namespace peer {

/// One query of a head and what it sees, in double.
class Exact {
 public:
  Exact(const Row& row, const Inputs& in, std::int64_t b, std::int64_t h, std::int64_t i)
      : width_(row.width), seen_(row.seen(i)) {
    const std::int64_t head = (b * row.kv_heads + h / row.group()) * row.keys + seen_.begin;
    query_ = &in.query[index(((b * row.heads + h) * row.queries + i) * width_)];
    key_ = &in.key[index(head * width_)];
    value_ = &in.value[index(head * width_)];
    const double scale = 1 / std::sqrt(static_cast<double>(width_));
    double most = -HUGE_VAL, sum = 0;
    for (std::int64_t j = 0; j < count(); ++j) {
      weights_.push_back(dot(query_, key_ + j * width_) * scale);
      most = std::max(most, weights_.back());
    }
    for (double& weight : weights_) sum += weight = std::exp(weight - most);
    for (double& weight : weights_) weight /= sum;
  }

  std::vector<double> output() const { return mixed(weights_, value_); }

  /// d_query, of d_output's row.
  std::vector<double> d_query(const float* d_output) const {
    std::vector<double> d_scores;
    double delta = 0;
    for (std::int64_t j = 0; j < count(); ++j) {
      d_scores.push_back(dot(d_output, value_ + j * width_));
      delta += weights_[index(j)] * d_scores.back();
    }
    const double scale = 1 / std::sqrt(static_cast<double>(width_));
    for (std::size_t j = 0; j < d_scores.size(); ++j) {
      d_scores[j] = scale * weights_[j] * (d_scores[j] - delta);
    }
    return mixed(d_scores, key_);
  }

 private:
  static std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }
  std::int64_t count() const { return seen_.end - seen_.begin; }
  double dot(const float* a, const float* b) const {
    double out = 0;
    for (std::int64_t d = 0; d < width_; ++d) out += static_cast<double>(a[d]) * b[d];
    return out;
  }
  std::vector<double> mixed(const std::vector<double>& by, const float* rows) const {
    std::vector<double> out(index(width_));
    for (std::size_t j = 0; j < by.size(); ++j) {
      for (std::int64_t d = 0; d < width_; ++d) out[index(d)] += by[j] * *rows++;
    }
    return out;
  }

  std::int64_t width_;
  Range seen_;
  const float *query_, *key_, *value_;
  std::vector<double> weights_;
};

/// The largest error of sampled rows of an output, or of d_query, whose element (b, h, i, d) `at`
/// gives.
template <class At>
double max_error_at(const Row& row, const Inputs& in, At at, const float* d_output = nullptr) {
  double worst = 0;
  for (std::int64_t n = 0; n < 12; ++n) {
    const std::int64_t b = n % row.batch, h = n * 7 % row.heads, i = n * (row.queries - 1) / 11;
    const Exact exact(row, in, b, h, i);
    const std::int64_t first = ((b * row.heads + h) * row.queries + i) * row.width;
    const auto right = d_output == nullptr ? exact.output() : exact.d_query(d_output + first);
    for (std::int64_t d = 0; d < row.width; ++d) {
      const double error =
          std::abs(right[static_cast<std::size_t>(d)] - static_cast<double>(at(b, h, i, d)));
      if (!(error <= worst)) worst = error;  // a NaN stays
    }
  }
  return worst;
}

/// The same for an output, or d_query, [B, H, T, D] in one piece.
inline double max_error(const Row& row, const Inputs& in, const float* output,
                        const float* d_output = nullptr) {
  const auto at = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d) {
    return output[((b * row.heads + h) * row.queries + i) * row.width + d];
  };
  return max_error_at(row, in, at, d_output);
}

/// A [T, D] and B [D, S] of a matrix product.
struct Factors {
  std::vector<float> a, b;
  explicit Factors(const Row& row)
      : a(numbers(row.queries * row.width, 1)), b(numbers(row.width * row.keys, 2)) {}
};

/// The largest error of sampled elements of C [T, S], over √D: as if C's variance were 1.
inline double max_error(const Row& row, const Factors& in, const float* c) {
  double worst = 0;
  for (std::int64_t n = 0; n < 64; ++n) {
    const std::int64_t i = n * (row.queries - 1) / 63, j = n * 29 % row.keys;
    double right = 0;
    for (std::int64_t d = 0; d < row.width; ++d) {
      right += static_cast<double>(in.a[static_cast<std::size_t>(i * row.width + d)]) *
               in.b[static_cast<std::size_t>(d * row.keys + j)];
    }
    const double error = std::abs(right - static_cast<double>(c[i * row.keys + j])) /
                         std::sqrt(static_cast<double>(row.width));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

}  // namespace peer
