// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/dropout.h"
#include "attest/base/random.h"
#include "attest/check/gradients/gradients.h"

/// Somebody's backward pass: whole tables, step after step, and a place after each step where it can be
/// made wrong. Written from the formulas; shares no code with what it is judged by.
namespace attest::test {

using check::GradientDump;
using check::GradientOf;
using check::ObservedGradient;

template <class Real>
class Program {
 public:
  using Table = std::vector<Real>;
  using Step = std::function<void(Program&)>;

  explicit Program(const GradientDump& dump) : in(dump), call(dump.claim.call) {
    B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
    D = call.query.extent(3), G = call.key.extent(1), S = call.key.extent(2);
    E = call.value.extent(3);
    const auto narrow = [](const Tensor<double>& from) {
      Table numbers;
      for (const double x : from.elements()) numbers.push_back(static_cast<Real>(x));
      return numbers;
    };
    q = narrow(call.query), k = narrow(call.key), v = narrow(call.value),
    d_out = narrow(dump.d_output);
    d_lse.assign(size(B * H * T), 0);
    if (dump.d_log_sum_exp) d_lse = narrow(*dump.d_log_sum_exp);
    scale = static_cast<Real>(call.scale.value_or(1 / std::sqrt(static_cast<double>(D))));
    keep = static_cast<Real>(1 / (1 - call.dropout.rate));
  }

  /// Mistakes, by the step after which they are made.
  std::multimap<std::string, Step> mistakes;

  const GradientDump& in;
  const AttentionCase& call;
  std::int64_t B = 0, H = 0, G = 0, T = 0, S = 0, D = 0, E = 0;
  Real scale = 1, keep = 1;
  Table q, k, v, d_out, d_lse;                                        // inputs, q and k rotated
  std::vector<char> seen, kept;                                       // [B, H, T, S]
  Table scaled, biased, p, drop, d_p, d_s, d_bias_all, slope, d_dot;  // [B, H, T, S]
  Table mixed;                     // [B, H, T, S], what multiplies d_out
  Table peak, lse, sink_w, delta;  // [B, H, T]
  Table out;                       // [B, H, T, E]
  Table dq, dk_heads, dv_heads, dk, dv, d_bias, d_sink;
  Real query_scale = 1, key_scale = 1;
  bool turn_back_query = true, turn_back_key = true;
  std::int64_t key_heads = 0;  // of dk and dv as they are given

  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  [[nodiscard]] std::size_t row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return size((b * H + h) * T + i);
  }
  [[nodiscard]] std::size_t pair(std::int64_t b, std::int64_t h, std::int64_t i,
                                 std::int64_t j) const {
    return size(((b * H + h) * T + i) * S + j);
  }
  template <class F>
  void each_row(F f) const {
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < H; ++h)
        for (std::int64_t i = 0; i < T; ++i) f(b, h, i);
  }
  template <class F>
  void each_pair(F f) const {
    each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      for (std::int64_t j = 0; j < S; ++j) f(b, h, i, j);
    });
  }
  [[nodiscard]] std::int64_t offset(std::int64_t b) const {
    const Mask& mask = call.mask;
    if (mask.corner == Corner::at_offset)
      return mask.query_offset[mask.query_offset.size() == 1 ? 0 : size(b)];
    if (mask.corner != Corner::bottom_right) return 0;
    return length(b) - T;
  }
  [[nodiscard]] std::int64_t length(std::int64_t b) const {
    const auto& lengths = call.mask.key_lengths;
    return lengths.empty() ? S : lengths[lengths.size() == 1 ? 0 : size(b)];
  }
  [[nodiscard]] double bias_at(std::int64_t b, std::int64_t h, std::int64_t i,
                               std::int64_t j) const {
    const auto& t = *call.bias;
    return t(t.extent(0) == 1 ? 0 : b, t.extent(1) == 1 ? 0 : h, t.extent(2) == 1 ? 0 : i,
             t.extent(3) == 1 ? 0 : j);
  }

  void run() {
    rotate(q, H, T, true, 1);
    rotate(k, G, S, false, 1);
    forward();
    backward();
    step("end");
  }

  [[nodiscard]] Tensor<double> tensor(const Table& table, Shape shape) const {
    Tensor<double> wide(std::move(shape));
    for (std::size_t n = 0; n < table.size(); ++n)
      wide.elements()[n] = static_cast<double>(table[n]);
    return wide;
  }
  /// All gradients that there are.
  [[nodiscard]] std::vector<ObservedGradient> gradients(DType type = DType::f32) const {
    std::vector<ObservedGradient> all;
    all.push_back({GradientOf::query, tensor(dq, {B, H, T, D}), type, "dQ"});
    all.push_back({GradientOf::key, tensor(dk, {B, key_heads, S, D}), type, "dK"});
    all.push_back({GradientOf::value, tensor(dv, {B, key_heads, S, E}), type, "dV"});
    if (call.bias) {
      const bool whole = d_bias.size() != call.bias->size();
      all.push_back({GradientOf::bias,
                     tensor(d_bias, whole ? Shape{B, H, T, S} : call.bias->shape()), type, "dB"});
    }
    if (!call.sink.empty()) all.push_back({GradientOf::sink, tensor(d_sink, {H}), type, "dSink"});
    return all;
  }

  /// Turns rows of width D by their positions; sign −1 turns back.
  void rotate(Table& rows, std::int64_t heads, std::int64_t length_of, bool query, int sign) const {
    if (!in.claim.rope) return;
    const auto& rope = *in.claim.rope;
    const auto& list = query ? rope.query_positions : rope.key_positions;
    const std::int64_t R = rope.config.rotary_dim == 0 ? D : rope.config.rotary_dim;
    for (std::int64_t n = 0; n < B * heads * length_of; ++n) {
      const std::int64_t b = n / (heads * length_of), i = n % length_of;
      const auto position = static_cast<double>(
          list.size() == size(length_of) ? list[size(i)] : list[size(b * length_of + i)]);
      for (std::int64_t m = 0; m < R / 2; ++m) {
        const double angle = position / std::pow(rope.config.base, 2.0 * static_cast<double>(m) /
                                                                       static_cast<double>(R));
        const Real c = static_cast<Real>(std::cos(angle)),
                   s = static_cast<Real>(sign * std::sin(angle));
        const bool half = rope.config.pairing == RopePairing::half;
        Real& x = rows[size(n * D + (half ? m : 2 * m))];
        Real& y = rows[size(n * D + (half ? m + R / 2 : 2 * m + 1))];
        const Real first = x * c - y * s;
        y = y * c + x * s;
        x = first;
      }
    }
  }

 private:
  void step(const std::string& name) {
    const auto [from, to] = mistakes.equal_range(name);
    for (auto at = from; at != to; ++at) at->second(*this);
  }

  [[nodiscard]] bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Mask& mask = call.mask;
    std::int64_t ahead = j - i - offset(b);
    if (!mask.packing.query_starts.empty()) {
      const auto& qs = mask.packing.query_starts;
      const auto& ks = mask.packing.key_starts;
      std::size_t n = 0;
      while (i >= qs[n + 1]) ++n;
      if (j < ks[n] || j >= ks[n + 1]) return false;
      std::int64_t at = i - qs[n];
      if (mask.corner == Corner::bottom_right) at += (ks[n + 1] - ks[n]) - (qs[n + 1] - qs[n]);
      ahead = j - ks[n] - at;
    }
    const auto& names = mask.documents;
    if (!names.query.empty() && names.query[size(i)] != names.key[size(j)]) return false;
    if (mask.future_hidden && ahead > 0) return false;
    if (mask.window.left && -ahead > *mask.window.left) return false;
    if (mask.window.right && ahead > *mask.window.right) return false;
    if (j >= length(b)) return false;
    if (call.bias && std::isinf(bias_at(b, h, i, j))) return false;
    if (!call.visible) return true;
    const auto& t = *call.visible;
    return t(t.extent(0) == 1 ? 0 : b, t.extent(1) == 1 ? 0 : h, t.extent(2) == 1 ? 0 : i,
             t.extent(3) == 1 ? 0 : j);
  }

  void forward() {
    const std::size_t pairs = size(B * H * T * S), rows = size(B * H * T);
    seen.assign(pairs, 0), kept.assign(pairs, 1);
    for (auto* t : {&scaled, &biased, &p, &drop, &d_p, &d_s, &slope, &d_dot, &mixed})
      t->assign(pairs, 0);
    for (auto* t : {&peak, &lse, &sink_w, &delta}) t->assign(rows, 0);
    out.assign(rows * size(E), 0);
    const auto threshold = dropout_threshold(call.dropout.rate);
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      const std::size_t n = pair(b, h, i, j);
      seen[n] = visible(b, h, i, j) ? 1 : 0;
      kept[n] = !dropped(call.dropout.seed, threshold,
                         {static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(h),
                          static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j)});
      Real sum = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        sum += q[size(((b * H + h) * T + i) * D + d)] *
               k[size(((b * G + h / (H / G)) * S + j) * D + d)];
      }
      scaled[n] = sum * scale;
      biased[n] = scaled[n];
      slope[n] = 1;
      if (call.softcap) {
        const Real cap = static_cast<Real>(*call.softcap);
        const Real t = std::tanh(scaled[n] / cap);
        biased[n] = cap * t;
        slope[n] = 1 - t * t;
      }
      if (call.bias) biased[n] += static_cast<Real>(bias_at(b, h, i, j));
      if (!call.alibi_slopes.empty()) {
        biased[n] -= static_cast<Real>(call.alibi_slopes[size(h)]) *
                     std::fabs(static_cast<Real>(j - i - offset(b)));
      }
    });
    each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) { softmax_row(b, h, i); });
  }

  void softmax_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::size_t r = row(b, h, i);
    Real most = -std::numeric_limits<Real>::infinity();
    for (std::int64_t j = 0; j < S; ++j) {
      if (seen[pair(b, h, i, j)]) most = std::max(most, biased[pair(b, h, i, j)]);
    }
    empty.resize(size(B * H * T));
    empty[r] = std::isinf(most);
    const bool sink = !call.sink.empty();
    const Real own = sink ? static_cast<Real>(call.sink[size(h)]) : 0;
    if (sink) most = std::max(most, own);
    Real sum = sink ? std::exp(own - most) : 0;
    for (std::int64_t j = 0; j < S; ++j) {
      if (seen[pair(b, h, i, j)]) sum += std::exp(biased[pair(b, h, i, j)] - most);
    }
    peak[r] = most;
    lse[r] = most + std::log(sum);
    sink_w[r] = sink && !empty[r] ? std::exp(own - lse[r]) : 0;
    for (std::int64_t j = 0; j < S; ++j) {
      const std::size_t n = pair(b, h, i, j);
      if (!seen[n] || !kept[n]) continue;
      const Real w = std::exp(biased[n] - lse[r]) * keep;
      for (std::int64_t e = 0; e < E; ++e) {
        out[r * size(E) + size(e)] += w * v[size(((b * G + h / (H / G)) * S + j) * E + e)];
      }
    }
  }

 public:
  std::vector<char> empty;  // [B, H, T]

 private:
  void backward() {
    step("mask");
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      const std::size_t n = pair(b, h, i, j), r = row(b, h, i);
      p[n] = seen[n] && !empty[r] ? std::exp(biased[n] - lse[r]) : 0;
      drop[n] = kept[n] ? keep : 0;
      Real sum = 0;
      for (std::int64_t e = 0; e < E; ++e) {
        sum += d_out[r * size(E) + size(e)] * v[size(((b * G + h / (H / G)) * S + j) * E + e)];
      }
      d_p[n] = sum;
    });
    step("weights");
    for (std::size_t n = 0; n < p.size(); ++n) {
      mixed[n] = drop[n] == 0 ? 0 : p[n] * drop[n];
      d_p[n] = drop[n] == 0 ? 0 : d_p[n] * drop[n];
    }
    step("dropout");
    each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const std::size_t r = row(b, h, i);
      delta[r] = 0;
      for (std::int64_t e = 0; e < E; ++e)
        delta[r] += d_out[r * size(E) + size(e)] * out[r * size(E) + size(e)];
    });
    step("delta");
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      const std::size_t n = pair(b, h, i, j), r = row(b, h, i);
      d_s[n] = p[n] == 0 ? 0 : p[n] * ((d_p[n] - delta[r]) + d_lse[r]);
    });
    step("d_scores");
    d_bias_all = d_s;
    for (std::size_t n = 0; n < d_s.size(); ++n) d_dot[n] = d_s[n] * slope[n];
    step("d_dot");
    sums();
  }

  void sums() {
    dq.assign(q.size(), 0);
    dk_heads.assign(size(B * H * S * D), 0);
    dv_heads.assign(size(B * H * S * E), 0);
    query_scale = key_scale = scale;
    step("scale");
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      const std::size_t n = pair(b, h, i, j);
      for (std::int64_t d = 0; d < D; ++d) {
        const std::size_t to = size(((b * H + h) * T + i) * D + d);
        dq[to] += d_dot[n] * query_scale * k[size(((b * G + h / (H / G)) * S + j) * D + d)];
        dk_heads[size(((b * H + h) * S + j) * D + d)] += d_dot[n] * key_scale * q[to];
      }
      for (std::int64_t e = 0; e < E; ++e) {
        dv_heads[size(((b * H + h) * S + j) * E + e)] +=
            mixed[n] * d_out[row(b, h, i) * size(E) + size(e)];
      }
    });
    step("heads");
    key_heads = G;
    dk.assign(size(B * G * S * D), 0);
    dv.assign(size(B * G * S * E), 0);
    for (std::int64_t head = 0; head < B * H; ++head) {
      const std::int64_t to = head / H * G + head % H / (H / G);
      for (std::int64_t n = 0; n < S * D; ++n)
        dk[size(to * S * D + n)] += dk_heads[size(head * S * D + n)];
      for (std::int64_t n = 0; n < S * E; ++n)
        dv[size(to * S * E + n)] += dv_heads[size(head * S * E + n)];
    }
    step("bias");
    d_bias.assign(call.bias ? call.bias->size() : 0, 0);
    d_sink.assign(call.sink.size(), 0);
    each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      if (call.bias) d_bias[bias_place(b, h, i, j)] += d_bias_all[pair(b, h, i, j)];
    });
    each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
      const std::size_t r = row(b, h, i);
      if (!call.sink.empty()) d_sink[size(h)] += sink_w[r] * (d_lse[r] - delta[r]);
    });
    step("results");
    if (turn_back_query) rotate(dq, H, T, true, -1);
    if (turn_back_key) rotate(dk, key_heads, S, false, -1);
  }

 public:
  [[nodiscard]] std::size_t bias_place(std::int64_t b, std::int64_t h, std::int64_t i,
                                       std::int64_t j) const {
    const auto& t = *call.bias;
    return size(
        (((t.extent(0) == 1 ? 0 : b) * t.extent(1) + (t.extent(1) == 1 ? 0 : h)) * t.extent(2) +
         (t.extent(2) == 1 ? 0 : i)) *
            t.extent(3) +
        (t.extent(3) == 1 ? 0 : j));
  }
};

}  // namespace attest::test
