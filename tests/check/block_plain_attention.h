// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/check/block_plain_layers.h"

namespace attest::test {

/// Heads turned, scored, softened, mixed and merged.
struct PlainAttention : PlainLayers {
  /// Rotary positions on [T, n·D]
  BlockRows turn(BlockRows x, std::size_t n, int offset) const {
    const std::size_t heads = has("rope.across_heads") ? 1 : n;
    const std::size_t D = x[0].size() / heads;
    std::size_t R = c.rope->rotary_dim == 0 ? D : static_cast<std::size_t>(c.rope->rotary_dim);
    if (has("rope.all_features") || has("rope.across_heads")) R = D;
    if (has("rope.half_of_features")) R /= 2;
    const double base = value("rope.base", c.rope->base);
    bool half = c.rope->pairing == RopePairing::half;
    if (has("rope.interleaved_for_half")) half = false;
    if (has("rope.half_for_interleaved")) half = true;
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        float* row = x[t].data() + h * D + (has("rope.last_features") ? D - R : 0);
        for (std::size_t i = 0; i < R / 2; ++i) {
          std::size_t which = i;
          if (has("rope.mixed_layout_tables")) which = half ? i / 2 : (2 * i) % (R / 2);
          double exponent = 2.0 * static_cast<double>(which) / static_cast<double>(R);
          if (has("rope.exponent_by_pair")) exponent /= 2;
          if (has("rope.frequencies_by_head_dim")) {
            exponent = 2.0 * static_cast<double>(which) / static_cast<double>(D);
          }
          auto angle =
              static_cast<float>((static_cast<double>(t) + offset) * std::pow(base, -exponent));
          if (has("rope.applied_twice")) angle *= 2;
          if (has("rope.backwards")) angle = -angle;
          float& a = row[half ? i : 2 * i];
          float& b = row[half ? i + R / 2 : 2 * i + 1];
          const float first = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = first;
        }
      }
    }
    return x;
  }

  [[nodiscard]] bool sees(std::size_t i, std::size_t j) const {
    if (has("causal.missing")) return true;
    if (has("causal.strict")) return j < i;
    if (has("causal.one_future")) return j <= i + 1;
    if (has("causal.reversed")) return j >= i;
    return !(c.causal || has("causal.added")) || j <= i;
  }

  [[nodiscard]] float scale() const {
    const auto D = static_cast<double>(c.head_dim);
    const auto H = static_cast<double>(c.heads);
    double s = c.scale.value_or(1 / std::sqrt(D));
    if (has("scale.none")) s = 1;
    if (has("scale.sqrt_model_dim")) s = 1 / std::sqrt(static_cast<double>(c.model_dim));
    if (has("scale.sqrt_all_heads")) s = 1 / std::sqrt(D * H);
    if (has("scale.twice")) s = 1 / D;
    if (has("scale.half")) s = std::pow(D, -0.25);
    if (has("scale.multiplied")) s = std::sqrt(D);
    if (has("scale.sqrt_heads")) s = 1 / std::sqrt(H);
    if (has("scale.sqrt_value_dim")) s = 1 / std::sqrt(static_cast<double>(c.value_dim));
    if (has("scale.default")) s = 1 / std::sqrt(D);
    if (has("scale.sign_flipped")) s = -s;
    return static_cast<float>(s);
  }

  [[nodiscard]] double slope(std::size_t h) const {
    if (!c.alibi || has("alibi.missing")) return 0;
    const auto H = static_cast<std::size_t>(c.heads);
    std::size_t n = 1;
    while (2 * n <= H) n *= 2;
    const auto power = [](double a, double b) { return std::pow(2.0, -8 * a / b); };
    double s = h < n ? power(static_cast<double>(h + 1), static_cast<double>(n))
                     : power(static_cast<double>(2 * (h - n) + 1), static_cast<double>(2 * n));
    if (has("alibi.geometric_non_pow2")) {
      s = power(static_cast<double>(h + 1), static_cast<double>(H));
    }
    return has("alibi.sign") ? -s : s;
  }

  std::vector<BlockRows> weights(const std::vector<BlockRows>& q, const std::vector<BlockRows>& k,
                                 const std::vector<std::size_t>& group) const {
    const std::size_t H = q.size(), T = q[0].size();
    std::vector<BlockRows> p(H, BlockRows(T, std::vector<float>(T)));
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t j = 0; j < T; ++j) {
          float s = 0;
          for (std::size_t d = 0; d < q[h][i].size(); ++d) s += q[h][i][d] * k[group[h]][j][d];
          s *= scale();
          if (c.softcap && !has("softcap.missing")) {
            const auto cap = static_cast<float>(*c.softcap);
            s = cap * std::tanh(s / cap);
          }
          s -= static_cast<float>(slope(h)) *
               std::fabs(static_cast<float>(i) - static_cast<float>(j));
          const bool hidden = !sees(i, j) && !has("causal.after_softmax");
          p[h][i][j] = hidden ? -INFINITY : s;
        }
      }
    }
    const auto once = [](std::vector<float*>& numbers, float more) {
      float peak = more == 0 ? -INFINITY : 0, sum = 0;
      for (const float* x : numbers) peak = std::max(peak, *x);
      for (float* x : numbers) {
        *x = peak == -INFINITY ? 0 : std::exp(*x - peak);
        sum += *x;
      }
      if (more != 0) sum += more * std::exp(-peak);
      for (float* x : numbers) *x = sum == 0 ? 0 : *x / sum;
    };
    const auto line = [&](std::vector<float*> numbers) {
      float peak = -INFINITY;
      for (const float* x : numbers) peak = std::max(peak, *x);
      for (float* x : numbers) {
        if (has("softmax.base2")) *x *= 0.6931471805599453F;
        if (has("softmax.exp_with_log2e")) *x *= 1.4426950408889634F;
        if (has("softmax.sigmoid")) *x = 1 / (1 + std::exp(-*x));
        if (has("softmax.unnormalised")) *x = peak == -INFINITY ? 0 : std::exp(*x - peak);
      }
      if (has("softmax.sigmoid") || has("softmax.unnormalised")) return;
      once(numbers, has("softmax.plus_one") ? 1.0F : 0.0F);
      if (has("softmax.twice") && peak != -INFINITY) once(numbers, 0);
    };
    const bool over_heads = has("softmax.over_heads"), over_queries = has("softmax.over_queries");
    for (std::size_t a = 0; a < (over_heads ? T : H); ++a) {
      for (std::size_t b = 0; b < T; ++b) {
        std::vector<float*> numbers;
        for (std::size_t n = 0; n < (over_heads ? H : T); ++n) {
          numbers.push_back(over_heads ? &p[n][a][b] : over_queries ? &p[a][n][b] : &p[a][b][n]);
        }
        if (!has("softmax.missing")) line(numbers);
      }
    }
    const auto kept = static_cast<float>(1 / (1 - value("attention.dropout_scale", 0)));
    for (auto& head : p) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t j = 0; j < T; ++j) {
          if (head[i][j] == -INFINITY) head[i][j] = 0;
          if (has("causal.after_softmax") && !sees(i, j)) head[i][j] = 0;
          head[i][j] *= kept;
        }
      }
    }
    return p;
  }

  static BlockRows stacked(const std::vector<BlockRows>& heads) {
    BlockRows out;
    for (const BlockRows& head : heads) out.insert(out.end(), head.begin(), head.end());
    return out;
  }

  void repack(BlockRows& q, BlockRows& k, BlockRows& v) const {
    const auto H = static_cast<std::size_t>(c.heads), D = static_cast<std::size_t>(c.head_dim);
    for (std::size_t t = 0; t < q.size(); ++t) {
      const std::vector<float>* const parts[] = {&q[t], &k[t], &v[t]};
      std::vector<float> memory(3 * H * D);
      for (std::size_t p = 0; p < 3; ++p) {
        for (std::size_t n = 0; n < H * D; ++n) {
          std::size_t at = p * H * D + n;
          if (has("qkv.by_head_read_blocked")) at = n / D * 3 * D + p * D + n % D;
          if (has("qkv.interleaved_read_blocked")) at = n * 3 + p;
          memory[at] = (*parts[p])[n];
        }
      }
      std::vector<float> out[3];
      for (std::size_t p = 0; p < 3; ++p) {
        for (std::size_t n = 0; n < H * D; ++n) {
          std::size_t at = p * H * D + n;
          if (has("qkv.blocked_read_by_head")) at = n / D * 3 * D + p * D + n % D;
          if (has("qkv.blocked_read_interleaved")) at = n * 3 + p;
          out[p].push_back(memory[at]);
        }
      }
      q[t] = out[0], k[t] = out[1], v[t] = out[2];
    }
  }

  BlockRows attention(const BlockRows& in) {
    std::string names[] = {"projection.query", "projection.key", "projection.value"};
    if (has("roles.query_key_swapped")) std::swap(names[0], names[1]);
    if (has("roles.key_value_swapped")) std::swap(names[1], names[2]);
    if (has("roles.query_value_swapped")) std::swap(names[0], names[2]);
    BlockRows q = linear(names[0], in), k = linear(names[1], in), v = linear(names[2], in);
    repack_if_wanted(q, k, v);
    const auto H = static_cast<std::size_t>(c.heads), G = static_cast<std::size_t>(c.kv_heads);
    if (c.rope && has("rope.value_too")) v = turn(v, G, 0);
    tables["projection.query"] = q, tables["projection.key"] = k, tables["projection.value"] = v;
    if (c.rope && !has("rope.none")) {
      const int both = has("rope.positions_from_one") ? 1 : 0;
      if (!has("rope.key_only")) q = turn(q, H, both + (has("rope.query_offset") ? 1 : 0));
      if (!has("rope.query_only")) k = turn(k, G, both);
    }
    if (c.rope) tables["rope.query"] = q, tables["rope.key"] = k;
    const bool both = has("heads.split_and_merged_by_reshape");
    const bool reshaped = has("heads.split_by_reshape") || both;
    const bool by_feature = has("heads.split_by_feature");
    std::vector<std::size_t> group;
    for (std::size_t h = 0; h < H; ++h) {
      group.push_back(has("heads.all_use_kv0") ? 0 : has("heads.tiled") ? h % G : h / (H / G));
    }
    const auto values = split(v, G, reshaped, by_feature);
    const auto p =
        weights(split(q, H, reshaped, by_feature), split(k, G, reshaped, by_feature), group);
    tables["weights"] = stacked(p);
    const std::size_t T = in.size(), E = values[0][0].size();
    std::vector<BlockRows> heads(H, BlockRows(T, std::vector<float>(E)));
    BlockRows merged(T, std::vector<float>(H * E));
    for (std::size_t h = 0; h < H; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        for (std::size_t e = 0; e < E; ++e) {
          float sum = 0;
          for (std::size_t j = 0; j < T; ++j) sum += p[h][i][j] * values[group[h]][j][e];
          heads[h][i][e] = sum;
          const std::size_t place = (h * T + i) * E + e;
          if (has("heads.merged_by_reshape") || both) {
            merged[place / (H * E)][place % (H * E)] = sum;
          } else {
            merged[i][has("heads.merged_by_feature") ? e * H + h : h * E + e] = sum;
          }
        }
      }
    }
    tables["heads"] = stacked(heads), tables["concat"] = merged;
    return tables["output_projection"] = linear("projection.output", merged);
  }

  void repack_if_wanted(BlockRows& q, BlockRows& k, BlockRows& v) const {
    for (const auto& [name, number] : mistakes) {
      if (name.starts_with("qkv.")) repack(q, k, v);
    }
  }
};

}  // namespace attest::test
