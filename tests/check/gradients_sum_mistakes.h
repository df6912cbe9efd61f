// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes in sums over heads, over blocks of queries and keys, and along the wrong axis.
namespace attest::test {

inline std::vector<Made> head_mistakes() {
  const auto share = [](std::string name, bool key, bool value, auto f) {
    return Made{"gradient." + name, "heads", [key, value, f](Mine& m) {
                  const auto each = m.H / m.G;
                  const auto by = [&](std::int64_t n) { return f(n, each); };
                  if (key) share_heads(m, m.dk_heads, m.D, by);
                  if (value) share_heads(m, m.dv_heads, m.E, by);
                }};
  };
  const auto last = [](std::int64_t n, std::int64_t each) { return n == each - 1 ? 1.0F : 0.0F; };
  const auto first = [](std::int64_t n, std::int64_t) { return n == 0 ? 1.0F : 0.0F; };
  const auto mean = [](std::int64_t, std::int64_t each) { return 1 / static_cast<float>(each); };
  return {
      share("heads_last_only", true, true, last),
      share("heads_first_only", true, true, first),
      share("heads_averaged", true, true, mean),
      share("heads_last_only_in_d_key", true, false, last),
      share("heads_last_only_in_d_value", false, true, last),
      {"gradient.heads_not_summed", "results",
       [](Mine& m) { m.dk = m.dk_heads, m.dv = m.dv_heads, m.key_heads = m.H; }},
      {"gradient.heads_tiled", "results",
       [](Mine& m) {
         std::fill(m.dk.begin(), m.dk.end(), 0.0F);
         std::fill(m.dv.begin(), m.dv.end(), 0.0F);
         for (std::int64_t n = 0; n < m.B * m.H; ++n) {
           const std::int64_t to = n / m.H * m.G + n % m.H % m.G;
           for (std::int64_t x = 0; x < m.S * m.D; ++x)
             m.dk[Mine::size(to * m.S * m.D + x)] += m.dk_heads[Mine::size(n * m.S * m.D + x)];
           for (std::int64_t x = 0; x < m.S * m.E; ++x)
             m.dv[Mine::size(to * m.S * m.E + x)] += m.dv_heads[Mine::size(n * m.S * m.E + x)];
         }
       }},
  };
}

inline std::vector<Made> block_mistakes() {
  using I = std::int64_t;
  const auto drop = [](auto lost) {
    return [lost](Mine& m) {
      m.each_pair([&](I b, I h, I i, I j) {
        if (lost(m, i, j))
          m.d_dot[m.pair(b, h, i, j)] = m.d_bias_all[m.pair(b, h, i, j)] =
              m.mixed[m.pair(b, h, i, j)] = 0;
      });
    };
  };
  return {
      {"gradient.last_keys_lost", "d_dot",
       drop([](const Mine& m, I, I j) { return j >= (m.S - 1) / 4 * 4; })},
      {"gradient.first_keys_lost", "d_dot", drop([](const Mine&, I, I j) { return j < 4; })},
      {"gradient.last_queries_lost", "d_dot",
       drop([](const Mine& m, I i, I) { return i >= (m.T - 1) / 2 * 2; })},
      {"gradient.first_queries_lost", "d_dot", drop([](const Mine&, I i, I) { return i < 2; })},
      {"gradient.d_key_last_query_block", "results",
       [](Mine& m) {
         const I begin = (m.T - 1) / 2 * 2;
         Mine other(m.in);
         other.mistakes.emplace("d_dot", [begin](Mine& o) {
           o.each_pair([&](I b, I h, I i, I j) {
             if (i < begin) o.d_dot[o.pair(b, h, i, j)] = o.mixed[o.pair(b, h, i, j)] = 0;
           });
         });
         other.turn_back_key = false;
         other.run();
         m.dk = other.dk, m.dv = other.dv;
       }},
      {"gradient.d_key_first_query_block", "heads",
       [](Mine& m) {
         std::fill(m.dk_heads.begin(), m.dk_heads.end(), 0.0F);
         std::fill(m.dv_heads.begin(), m.dv_heads.end(), 0.0F);
         m.each_pair([&](I b, I h, I i, I j) {
           if (i >= 2) return;
           const std::size_t n = m.pair(b, h, i, j), r = m.row(b, h, i);
           const I to = (b * m.H + h) * m.S + j;
           for (I d = 0; d < m.D; ++d) {
             m.dk_heads[Mine::size(to * m.D + d)] +=
                 m.d_dot[n] * m.key_scale * m.q[r * Mine::size(m.D) + Mine::size(d)];
           }
           for (I e = 0; e < m.E; ++e) {
             m.dv_heads[Mine::size(to * m.E + e)] +=
                 m.mixed[n] * m.d_out[r * Mine::size(m.E) + Mine::size(e)];
           }
         });
       }},
      {"gradient.d_query_first_key_block", "heads",
       [](Mine& m) {
         std::fill(m.dq.begin(), m.dq.end(), 0.0F);
         m.each_pair([&](I b, I h, I i, I j) {
           for (I d = 0; d < m.D && j < 4; ++d) {
             m.dq[Mine::size(((b * m.H + h) * m.T + i) * m.D + d)] +=
                 m.d_dot[m.pair(b, h, i, j)] * m.query_scale *
                 m.k[Mine::size(((b * m.G + h / (m.H / m.G)) * m.S + j) * m.D + d)];
           }
         });
       }},
      {"gradient.d_query_last_key_block", "results",
       [](Mine& m) {
         const I begin = (m.S - 1) / 4 * 4;
         Mine other(m.in);
         other.mistakes.emplace("d_dot", [begin](Mine& o) {
           o.each_pair([&](I b, I h, I i, I j) {
             if (j < begin) o.d_dot[o.pair(b, h, i, j)] = 0;
           });
         });
         other.turn_back_query = false;
         other.run();
         m.dq = other.dq;
       }},
  };
}

/// Sums that run over the other axis of the table; T is S.
inline std::vector<Made> transposed_mistakes() {
  using I = std::int64_t;
  return {
      {"gradient.d_query_transposed", "heads",
       [](Mine& m) {
         std::fill(m.dq.begin(), m.dq.end(), 0.0F);
         m.each_pair([&](I b, I h, I i, I j) {
           for (I d = 0; d < m.D; ++d) {
             m.dq[Mine::size(((b * m.H + h) * m.T + j) * m.D + d)] +=
                 m.d_dot[m.pair(b, h, i, j)] * m.query_scale *
                 m.k[Mine::size(((b * m.G + h / (m.H / m.G)) * m.S + i) * m.D + d)];
           }
         });
       }},
      {"gradient.d_key_transposed", "heads",
       [](Mine& m) {
         std::fill(m.dk_heads.begin(), m.dk_heads.end(), 0.0F);
         m.each_pair([&](I b, I h, I i, I j) {
           for (I d = 0; d < m.D; ++d) {
             m.dk_heads[Mine::size(((b * m.H + h) * m.S + i) * m.D + d)] +=
                 m.d_dot[m.pair(b, h, i, j)] * m.key_scale *
                 m.q[Mine::size(((b * m.H + h) * m.T + j) * m.D + d)];
           }
         });
       }},
  };
}

}  // namespace attest::test
