// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes between d_output and d_scores: the rows term, softmax, scale, softcap.
namespace attest::test {

inline std::vector<Made> row_term_mistakes() {
  const auto add = [](std::string name, auto f) {
    return Made{"gradient." + name, "delta", [f](Mine& m) {
                  each_delta(m, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
                    return f(m, b, h, i);
                  });
                }};
  };
  using I = std::int64_t;
  return {
      add("rows_term_missing", [](Mine&, I, I, I) { return 0.0F; }),
      add("rows_term_sign", [](Mine& m, I b, I h, I i) { return -m.delta[m.row(b, h, i)]; }),
      add("rows_term_unweighted",
          [](Mine& m, I b, I h, I i) { return row_sum(m, b, h, i, false); }),
      add("rows_term_mean",
          [](Mine& m, I b, I h, I i) {
            float seen = 0;
            for (I j = 0; j < m.S; ++j) seen += m.seen[m.pair(b, h, i, j)] ? 1.0F : 0.0F;
            return row_sum(m, b, h, i, false) / seen;
          }),
      add("rows_term_from_d_output",
          [](Mine& m, I b, I h, I i) { return sum_over(m, m.d_out, nullptr, m.row(b, h, i)); }),
      add("rows_term_from_output",
          [](Mine& m, I b, I h, I i) { return sum_over(m, m.out, nullptr, m.row(b, h, i)); }),
      add("rows_term_output_squared",
          [](Mine& m, I b, I h, I i) { return sum_over(m, m.out, &m.out, m.row(b, h, i)); }),
      {"gradient.rows_term_of_first_head", "delta",
       [](Mine& m) {
         const auto old = m.delta;
         each_delta(m, [&](I b, I, I i) { return old[m.row(b, 0, i)]; });
       }},
      {"gradient.rows_term_of_first_row", "delta",
       [](Mine& m) {
         const auto old = m.delta;
         each_delta(m, [&](I b, I h, I) { return old[m.row(b, h, 0)]; });
       }},
      {"gradient.rows_term_before_dropout", "delta",
       [](Mine& m) {
         each_delta(m, [&](I b, I h, I i) {
           float sum = 0;
           for (I j = 0; j < m.S; ++j) {
             float product = 0;
             for (I e = 0; e < m.E; ++e) {
               product += m.d_out[m.row(b, h, i) * Mine::size(m.E) + Mine::size(e)] *
                          m.v[Mine::size(((b * m.G + h / (m.H / m.G)) * m.S + j) * m.E + e)];
             }
             sum += m.p[m.pair(b, h, i, j)] * product;
           }
           return sum;
         });
       }},
      {"gradient.rows_term_without_dropout_factor", "delta",
       [](Mine& m) {
         each_delta(m, [&](I b, I h, I i) { return m.delta[m.row(b, h, i)] / m.keep; });
       }},
      {"gradient.rows_term_per_key", "d_scores",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j);
           float sum = 0;
           for (I r = 0; r < m.T; ++r) {
             if (!m.empty[m.row(b, h, r)])
               sum += m.p[m.pair(b, h, r, j)] * m.d_p[m.pair(b, h, r, j)];
           }
           m.d_s[n] = m.p[n] * (m.d_p[n] - sum + m.d_lse[m.row(b, h, i)]);
         });
       }},
  };
}

inline std::vector<Made> score_step_mistakes() {
  using I = std::int64_t;
  const auto slopes = [](std::string name, auto f) {
    return Made{"gradient." + name, "d_scores", [f](Mine& m) {
                  if (!m.call.softcap) return;
                  const auto cap = static_cast<float>(*m.call.softcap);
                  for (std::size_t n = 0; n < m.slope.size(); ++n) {
                    m.slope[n] = f(std::tanh(m.scaled[n] / cap), m.scaled[n], cap);
                  }
                }};
  };
  const auto scales = [](std::string name, auto query, auto key) {
    return Made{"gradient." + name, "scale", [query, key](Mine& m) {
                  m.query_scale = query(m.scale);
                  m.key_scale = key(m.scale);
                }};
  };
  const auto one = [](float) { return 1.0F; };
  const auto right = [](float s) { return s; };
  const auto twice = [](float s) { return s * s; };
  const auto flow = [](std::string name, float factor) {
    return Made{"gradient." + name, "weights", [factor](Mine& m) {
                  for (float& x : m.d_lse) x *= factor;
                }};
  };
  return {
      {"gradient.softmax_passed_through", "d_scores",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n) m.d_s[n] = m.p[n] != 0 ? m.d_p[n] : 0;
       }},
      {"gradient.softmax_diagonal", "d_scores",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n) m.d_s[n] = m.p[n] * (1 - m.p[n]) * m.d_p[n];
       }},
      {"gradient.weights_unnormalised", "weights",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j);
           if (m.p[n] != 0) m.p[n] = std::exp(m.biased[n] - m.peak[m.row(b, h, i)]);
         });
       }},
      {"gradient.weights_base2", "weights",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j);
           if (m.p[n] != 0) m.p[n] = std::exp2(m.biased[n] - m.lse[m.row(b, h, i)]);
         });
       }},
      {"gradient.weights_without_sink", "weights",
       [](Mine& m) {
         m.each_pair(
             [&](I b, I h, I i, I j) { m.p[m.pair(b, h, i, j)] /= 1 - m.sink_w[m.row(b, h, i)]; });
       }},
      flow("log_sum_exp_flow_ignored", 0),
      flow("log_sum_exp_flow_sign", -1),
      flow("log_sum_exp_flow_twice", 2),
      flow("log_sum_exp_flow_base2", 0.69314718F),
      scales("scale_missing", one, one),
      scales("scale_missing_in_d_query", one, right),
      scales("scale_missing_in_d_key", right, one),
      scales("scale_twice", twice, twice),
      scales("scale_twice_in_d_query", twice, right),
      scales("scale_twice_in_d_key", right, twice),
      scales(
          "scale_root", [](float s) { return std::sqrt(s); }, [](float s) { return std::sqrt(s); }),
      scales(
          "scale_divided", [](float s) { return 1 / s; }, [](float s) { return 1 / s; }),
      {"gradient.scale_default", "scale",
       [](Mine& m) { m.query_scale = m.key_scale = 1 / std::sqrt(static_cast<float>(m.D)); }},
      slopes("softcap_missing", [](float, float, float) { return 1.0F; }),
      slopes("softcap_of_capped_score", [](float t, float, float c) { return 1 - c * t * c * t; }),
      slopes("softcap_of_scaled_score",
             [](float, float s, float) { return 1 - std::tanh(s) * std::tanh(s); }),
      slopes("softcap_not_squared", [](float t, float, float) { return 1 - t; }),
      slopes("softcap_plus", [](float t, float, float) { return 1 + t * t; }),
      slopes("softcap_twice", [](float t, float, float) { return (1 - t * t) * (1 - t * t); }),
  };
}

}  // namespace attest::test
