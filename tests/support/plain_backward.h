// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "attest/base/tensor.h"
#include "tests/support/plain_attention.h"

/// The gradients of attention as plain loops in long double, and beside every number how far an
/// evaluation with correctly rounded binary64 steps may be from it.
///
/// Derivation, u = 2⁻⁵³, first order; ρ, A and M as in plain_attention.h, P = max_j Σ_e
/// |d_output·value| of the row, l = |d_log_sum_exp|, and R_j = w_j (2P + l):
///
///   d_weights  rounded products, one rounded sum                                    2u P
///   delta      Σ w·d_weights: its factors' errors, products, sum                    (ρ + 4u) P
///   d_biased   w·(d_weights − delta + d_lse): errors of the bracket, of w, and two roundings
///              w (2P + l)(2ρ + 8u)                                                  (2ρ + 8u) R
///   d_scaled   times sech²(x), x = scaled/cap: x is off by 5u A/cap, |(log sech²)'| ≤ 2
///                                                                                   + (10A/cap +
///                                                                                   2) u R
///   d_dot      times the scale, or by the root                                      + 2u R
///   products with queries and keys, one rounded sum                                 + 2u R
///
/// so κ = 2ρ + (14 + 10A/cap) u for d_query and d_key, each over Σ R |scale| |key or query|;
/// d_value: (ρ + 2u) Σ w |d_output|; d_bias: (2ρ + 9u) Σ R; d_sink: (2ρ + 9u) Σ w_sink (2P + l).
namespace attest::test {

/// A number and the scale of its error.
struct Judged {
  std::vector<long double> value;
  std::vector<long double> bound;
  explicit Judged(std::size_t size = 0) : value(size, 0), bound(size, 0x1p-1000L) {}
  void add(std::int64_t place, long double part, long double error) {
    value[static_cast<std::size_t>(place)] += part;
    bound[static_cast<std::size_t>(place)] += error;
  }
};

struct PlainGradients {
  Judged d_query, d_key, d_value, d_bias, d_sink;
};

/// Adds one row's share to all gradients.
class PlainBackward {
 public:
  PlainBackward(const PlainCall& call, const Tensor<double>& d_output,
                const Tensor<double>* d_log_sum_exp)
      : call_(call), d_output_(d_output), d_lse_(d_log_sum_exp) {
    const auto count = [](auto... extents) { return static_cast<std::size_t>((extents * ...)); };
    out_.d_query = Judged(count(call.B(), call.H(), call.T(), call.D()));
    out_.d_key = Judged(count(call.B(), call.G(), call.S(), call.D()));
    out_.d_value = Judged(count(call.B(), call.G(), call.S(), call.E()));
    if (const auto& bias = call.options.bias) {
      out_.d_bias = Judged(count(bias.extent(0), bias.extent(1), bias.extent(2), bias.extent(3)));
    }
    out_.d_sink = Judged(call.options.sink.size());
    for (std::int64_t n = 0; n < call.B() * call.H() * call.T(); ++n) {
      add_row(n / (call.H() * call.T()), n / call.T() % call.H(), n % call.T());
    }
  }
  [[nodiscard]] const PlainGradients& gradients() const { return out_; }

 private:
  void add_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const PlainRow row = plain_row(call_, b, h, i);
    const std::size_t keys = row.seen.size();
    const std::int64_t g = call_.group(h);
    std::vector<long double> d_weights(keys, 0);
    long double largest = 0;
    long double delta = 0;
    for (std::size_t k = 0; k < keys; ++k) {
      long double size = 0;
      for (std::int64_t e = 0; e < call_.E(); ++e) {
        const long double product =
            static_cast<long double>(d_output_(b, h, i, e)) * call_.in.value(b, g, row.seen[k], e);
        d_weights[k] += product;
        size += std::fabs(product);
      }
      largest = std::max(largest, size);
      delta += row.weights[k] * d_weights[k];
    }
    const long double d_lse = d_lse_ != nullptr ? (*d_lse_)(b, h, i) : 0;
    const long double reach = 2 * largest + std::fabs(d_lse);
    const long double step = u * row.slack;
    for (std::size_t k = 0; k < keys; ++k) {
      const long double d_biased = row.weights[k] * (d_weights[k] - delta + d_lse);
      const long double size = row.weights[k] * reach;
      add_bias(b, h, i, row.seen[k], d_biased, (2 * row.rho() + 9 * step) * size);
      add_value(b, h, i, row, k);
      add_dot(b, h, i, row, k, d_biased, size);
    }
    if (!call_.options.sink.empty() && keys > 0) {
      out_.d_sink.add(h, row.sink_weight * (d_lse - delta),
                      (2 * row.rho() + 9 * step) * row.sink_weight * reach);
    }
  }

  void add_bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, long double value,
                long double error) {
    const auto& bias = call_.options.bias;
    if (!bias) return;
    const auto along = [&](std::size_t axis, std::int64_t n) {
      return bias.extent(axis) == 1 ? 0 : n;
    };
    const std::int64_t place =
        ((along(0, b) * bias.extent(1) + along(1, h)) * bias.extent(2) + along(2, i)) *
            bias.extent(3) +
        along(3, j);
    out_.d_bias.add(place, value, error);
  }

  void add_value(std::int64_t b, std::int64_t h, std::int64_t i, const PlainRow& row,
                 std::size_t k) {
    for (std::int64_t e = 0; e < call_.E(); ++e) {
      const std::int64_t place =
          ((b * call_.G() + call_.group(h)) * call_.S() + row.seen[k]) * call_.E() + e;
      const long double part = row.weights[k] * d_output_(b, h, i, e);
      out_.d_value.add(place, part, (row.rho() + 2 * u * row.slack) * std::fabs(part));
    }
  }

  void add_dot(std::int64_t b, std::int64_t h, std::int64_t i, const PlainRow& row, std::size_t k,
               long double d_biased, long double size) {
    long double slope = 1;
    long double steepness = 0;
    if (call_.options.softcap) {
      const long double cap = *call_.options.softcap;
      const long double cosh = std::cosh(row.scaled[k] / cap);
      slope = 1 / (cosh * cosh);
      steepness = 10 * row.size / cap;
    }
    const long double d_dot = d_biased * slope * call_.factor();
    const long double error =
        (2 * row.rho() + (14 + steepness) * u * row.slack) * size * std::fabs(call_.factor());
    const std::int64_t g = call_.group(h);
    for (std::int64_t d = 0; d < call_.D(); ++d) {
      const long double key = call_.in.key(b, g, row.seen[k], d);
      const long double query = call_.in.query(b, h, i, d);
      out_.d_query.add(((b * call_.H() + h) * call_.T() + i) * call_.D() + d, d_dot * key,
                       error * std::fabs(key));
      out_.d_key.add(((b * call_.G() + g) * call_.S() + row.seen[k]) * call_.D() + d, d_dot * query,
                     error * std::fabs(query));
    }
  }

  const PlainCall& call_;
  const Tensor<double>& d_output_;
  const Tensor<double>* d_lse_;
  PlainGradients out_;
};

}  // namespace attest::test
