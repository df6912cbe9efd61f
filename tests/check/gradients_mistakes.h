// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_program.h"

/// Mistakes as people make them, in the tests' own program.
namespace attest::test {

using Mine = Program<float>;

struct Made {
  std::string name;   ///< the table's name of what it does
  std::string after;  ///< the step after which it is made
  Mine::Step step;
};

inline double round_to(double x, DType type) {
  return type == DType::bf16 ? to_double(to_bfloat16(x)) : to_double(to_half(x));
}

/// Sum of p·d_p over the keys of a row, as a program has them at this moment.
inline float row_sum(const Mine& m, std::int64_t b, std::int64_t h, std::int64_t i, bool weighted) {
  float sum = 0;
  for (std::int64_t j = 0; j < m.S; ++j) {
    const std::size_t n = m.pair(b, h, i, j);
    if (m.seen[n]) sum += (weighted ? m.p[n] : 1) * m.d_p[n];
  }
  return sum;
}

inline void each_delta(Mine& m,
                       const std::function<float(std::int64_t, std::int64_t, std::int64_t)>& f) {
  m.each_row([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    if (!m.empty[m.row(b, h, i)]) m.delta[m.row(b, h, i)] = f(b, h, i);
  });
}

inline void show(
    Mine& m, const std::function<bool(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& f) {
  m.each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    m.seen[m.pair(b, h, i, j)] = f(b, h, i, j);
  });
}

/// Leaves one kind of rule out of the claim's mask.
inline Mine::Step without(const std::function<void(AttentionCase&)>& forget) {
  return [forget](Mine& m) {
    GradientDump other = m.in;
    forget(other.claim.call);
    Mine again(other);
    again.run();
    for (std::size_t n = 0; n < m.seen.size(); ++n) m.seen[n] = again.seen[n];
  };
}

inline void all_results(Mine& m, float factor) {
  for (auto* t : {&m.dq, &m.dk, &m.dv, &m.d_bias, &m.d_sink}) {
    for (float& x : *t) x *= factor;
  }
}

inline float sum_over(const Mine& m, const Mine::Table& a, const Mine::Table* b, std::size_t r) {
  float sum = 0;
  for (std::int64_t e = 0; e < m.E; ++e) {
    const std::size_t n = r * Mine::size(m.E) + Mine::size(e);
    sum += a[n] * (b != nullptr ? (*b)[n] : 1);
  }
  return sum;
}

/// Keeps or shares out the heads of each group before they are summed.
inline void share_heads(const Mine& m, Mine::Table& heads, std::int64_t width,
                        const std::function<float(std::int64_t)>& share) {
  for (std::int64_t head = 0; head < m.B * m.H; ++head) {
    for (std::int64_t n = 0; n < m.S * width; ++n) {
      heads[Mine::size(head * m.S * width + n)] *= share(head % (m.H / m.G));
    }
  }
}

inline void keep_bias(Mine& m, std::size_t axis, const std::function<float(std::int64_t)>& share) {
  m.each_pair([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t index[] = {b, h, i};
    m.d_bias_all[m.pair(b, h, i, j)] *= share(index[axis]);
  });
}

inline void reverse_heads(Mine::Table& t, std::int64_t B, std::int64_t heads) {
  const std::int64_t each = static_cast<std::int64_t>(t.size()) / (B * heads);
  const Mine::Table old = t;
  for (std::int64_t n = 0; n < B * heads; ++n) {
    const std::int64_t from = n / heads * heads + heads - 1 - n % heads;
    std::copy_n(old.begin() + from * each, each, t.begin() + n * each);
  }
}

inline void heads_last(Mine::Table& t, std::int64_t B, std::int64_t heads, std::int64_t rows) {
  const std::int64_t width = static_cast<std::int64_t>(t.size()) / (B * heads * rows);
  const Mine::Table old = t;
  std::size_t to = 0;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < width; ++d)
          t[to++] = old[Mine::size(((b * heads + h) * rows + i) * width + d)];
}

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

inline std::vector<Made> shared_mistakes() {
  using I = std::int64_t;
  const auto sinks = [](std::string name, std::string after, auto f) {
    return Made{"gradient." + name, after, f};
  };
  std::vector<Made> out{
      {"gradient.scale_on_d_bias", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n)
           m.d_bias_all[n] = m.d_s[n] * m.slope[n] * m.scale;
       }},
      {"gradient.d_bias_after_softcap", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n) m.d_bias_all[n] = m.d_s[n] * m.slope[n];
       }},
      {"gradient.d_bias_before_softmax", "bias",
       [](Mine& m) {
         for (std::size_t n = 0; n < m.d_s.size(); ++n)
           m.d_bias_all[n] = m.seen[n] != 0 ? m.d_p[n] : 0;
       }},
      {"gradient.d_bias_sign", "results",
       [](Mine& m) {
         for (float& x : m.d_bias) x = -x;
       }},
      {"gradient.d_bias_not_summed", "results", [](Mine& m) { m.d_bias = m.d_bias_all; }},
      sinks("sink_zero", "results", [](Mine& m) { m.d_sink.assign(m.d_sink.size(), 0); }),
      sinks("sink_sign", "results",
            [](Mine& m) {
              for (float& x : m.d_sink) x = -x;
            }),
      sinks("sink_unweighted", "bias",
            [](Mine& m) {
              m.each_row([&](I b, I h, I i) {
                m.sink_w[m.row(b, h, i)] = m.empty[m.row(b, h, i)] ? 0 : 1;
              });
            }),
      sinks("sink_without_flow", "bias", [](Mine& m) { m.d_lse.assign(m.d_lse.size(), 0); }),
      sinks("sink_last_batch", "bias",
            [](Mine& m) {
              m.each_row([&](I b, I h, I i) {
                if (b != m.B - 1) m.sink_w[m.row(b, h, i)] = 0;
              });
            }),
      sinks("sink_batch_mean", "results",
            [](Mine& m) {
              for (float& x : m.d_sink) x /= static_cast<float>(m.B);
            }),
  };
  const char* axes[] = {"batch", "head", "query"};
  const char* many[] = {"batch", "heads", "queries"};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto extent = [axis](const Mine& m) { return axis == 0 ? m.B : axis == 1 ? m.H : m.T; };
    const auto keep = [axis, extent](auto share) {
      return [axis, extent, share](Mine& m) {
        if (!m.call.bias || m.call.bias->extent(axis) != 1) return;
        keep_bias(m, axis, [&](I n) { return share(n, extent(m)); });
      };
    };
    out.push_back({std::string("gradient.d_bias_last_") + axes[axis], "bias",
                   keep([](I n, I of) { return n == of - 1 ? 1.0F : 0.0F; })});
    out.push_back({std::string("gradient.d_bias_first_") + axes[axis], "bias",
                   keep([](I n, I) { return n == 0 ? 1.0F : 0.0F; })});
    out.push_back({std::string("gradient.d_bias_") + many[axis] + "_averaged", "bias",
                   keep([](I, I of) { return 1 / static_cast<float>(of); })});
  }
  return out;
}

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

inline std::vector<Made> value_mistakes() {
  using I = std::int64_t;
  return {
      {"gradient.d_value_unnormalised", "dropout",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j), r = m.row(b, h, i);
           if (m.mixed[n] != 0) m.mixed[n] = std::exp(m.biased[n] - m.peak[r]) * m.drop[n];
         });
       }},
      {"gradient.d_value_transposed", "d_scores",
       [](Mine& m) {
         const auto old = m.mixed;
         m.each_pair(
             [&](I b, I h, I i, I j) { m.mixed[m.pair(b, h, i, j)] = old[m.pair(b, h, j, i)]; });
       }},
      {"gradient.dropout_not_reused", "weights",
       [](Mine& m) { std::fill(m.drop.begin(), m.drop.end(), 1.0F); }},
      {"gradient.dropout_not_reused_rows_term_too", "weights",
       [](Mine& m) {
         std::fill(m.drop.begin(), m.drop.end(), 1.0F);
         m.mistakes.emplace("delta", [](Mine& o) {
           each_delta(o, [&](I b, I h, I i) { return row_sum(o, b, h, i, true); });
         });
       }},
      {"gradient.dropout_not_reused_in_d_value", "dropout", [](Mine& m) { m.mixed = m.p; }},
      {"gradient.dropout_factor_missing", "weights",
       [](Mine& m) {
         for (float& x : m.drop) x = x != 0 ? 1 : 0;
       }},
      {"gradient.dropout_factor_missing_in_d_value", "dropout",
       [](Mine& m) {
         for (float& x : m.mixed) x /= m.keep;
       }},
      {"gradient.dropout_factor_missing_in_d_scores", "dropout",
       [](Mine& m) {
         for (float& x : m.d_p) x /= m.keep;
       }},
      {"gradient.dropout_factor_twice", "weights",
       [](Mine& m) {
         for (float& x : m.drop) x *= m.keep;
       }},
      {"gradient.dropout_factor_twice_in_d_value", "dropout",
       [](Mine& m) {
         for (float& x : m.mixed) x *= m.keep;
       }},
  };
}

inline std::vector<Made> mask_mistakes() {
  using I = std::int64_t;
  const auto bias_hides = [](const Mine& m, I b, I h, I i, I j) {
    return m.call.bias && std::isinf(m.bias_at(b, h, i, j));
  };
  return {
      {"gradient.mask_not_reused", "mask",
       [=](Mine& m) { show(m, [&](I b, I h, I i, I j) { return !bias_hides(m, b, h, i, j); }); }},
      {"gradient.mask_not_reused_in_d_value", "dropout",
       [=](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j), r = m.row(b, h, i);
           if (m.empty[r] || bias_hides(m, b, h, i, j)) return;
           m.mixed[n] = std::exp(m.biased[n] - m.lse[r]) * m.drop[n];
         });
       }},
      {"gradient.causal_not_reused", "mask",
       without([](AttentionCase& c) { c.mask.future_hidden = false; })},
      {"gradient.window_not_reused", "mask", without([](AttentionCase& c) { c.mask.window = {}; })},
      {"gradient.allow_mask_not_reused", "mask",
       without([](AttentionCase& c) { c.visible.reset(); })},
      {"gradient.documents_not_reused", "mask",
       without([](AttentionCase& c) { c.mask.documents = {}; })},
      {"gradient.causal_top_left", "mask",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           if (j > i) m.seen[m.pair(b, h, i, j)] = 0;
         });
       }},
      {"gradient.causal_strict", "mask",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           if (j >= i + m.offset(b)) m.seen[m.pair(b, h, i, j)] = 0;
         });
       }},
      {"gradient.empty_rows_nan_in_d_query", "end",
       [](Mine& m) {
         m.each_row([&](I b, I h, I i) {
           const std::size_t r = m.row(b, h, i);
           if (m.empty[r]) std::fill_n(m.dq.begin() + static_cast<I>(r) * m.D, m.D, NAN);
         });
       }},
      {"gradient.empty_rows_nan", "d_scores",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           if (m.empty[m.row(b, h, i)])
             m.d_s[m.pair(b, h, i, j)] = m.mixed[m.pair(b, h, i, j)] = NAN;
         });
       }},
      {"gradient.empty_rows_uniform", "weights",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           if (m.empty[m.row(b, h, i)]) m.p[m.pair(b, h, i, j)] = 1 / static_cast<float>(m.S);
         });
         m.mistakes.emplace("delta", [](Mine& o) {
           o.each_row([&](I b, I h, I i) {
             if (!o.empty[o.row(b, h, i)]) return;
             for (I j = 0; j < o.S; ++j) {
               o.delta[o.row(b, h, i)] += o.p[o.pair(b, h, i, j)] * o.d_p[o.pair(b, h, i, j)];
             }
           });
         });
       }},
      {"gradient.empty_rows_uniform_in_d_value", "dropout",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j);
           if (m.empty[m.row(b, h, i)]) m.mixed[n] = m.drop[n] / static_cast<float>(m.S);
         });
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

inline std::vector<Made> result_mistakes() {
  const auto times = [](std::string name, auto f) {
    return Made{"gradient." + name, "end", [f](Mine& m) { all_results(m, f(m)); }};
  };
  const auto stored = [](std::string name, DType type) {
    return Made{"gradient." + name, "end", [type](Mine& m) {
                  for (auto* t : {&m.dq, &m.dk, &m.dv, &m.d_bias, &m.d_sink}) {
                    for (float& x : *t) x = static_cast<float>(round_to(x, type));
                  }
                }};
  };
  const auto rounded = [](std::string name, DType type) {
    return Made{"gradient." + name, "weights", [type](Mine& m) {
                  for (float& x : m.p) x = static_cast<float>(round_to(x, type));
                }};
  };
  std::vector<Made> out{
      times("sign_flipped", [](const Mine&) { return -1.0F; }),
      times("doubled", [](const Mine&) { return 2.0F; }),
      times("halved", [](const Mine&) { return 0.5F; }),
      times("batch_mean", [](const Mine& m) { return 1 / static_cast<float>(m.B); }),
      times("query_mean", [](const Mine& m) { return 1 / static_cast<float>(m.B * m.T); }),
      times("mean_loss",
            [](const Mine& m) { return 1 / static_cast<float>(m.B * m.H * m.T * m.E); }),
      times("other_factor", [](const Mine&) { return 0.3712F; }),
      stored("stored_as_bf16", DType::bf16),
      stored("stored_as_f16", DType::f16),
      {"gradient.d_query_d_key_swapped", "end", [](Mine& m) { std::swap(m.dq, m.dk); }},
      {"gradient.d_key_d_value_swapped", "end", [](Mine& m) { std::swap(m.dk, m.dv); }},
      {"gradient.heads_reversed_in_d_query", "end", [](Mine& m) { reverse_heads(m.dq, m.B, m.H); }},
      {"gradient.heads_reversed_in_d_key", "end",
       [](Mine& m) { reverse_heads(m.dk, m.B, m.G), reverse_heads(m.dv, m.B, m.G); }},
      {"gradient.layout_bthd_in_d_query", "end", [](Mine& m) { heads_last(m.dq, m.B, m.H, m.T); }},
      {"gradient.layout_bthd_in_d_key", "end",
       [](Mine& m) { heads_last(m.dk, m.B, m.G, m.S), heads_last(m.dv, m.B, m.G, m.S); }},
      {"gradient.batches_pile_up", "end",
       [](Mine& m) {
         for (auto* t : {&m.dq, &m.dk, &m.dv}) {
           const std::size_t each = t->size() / Mine::size(m.B);
           for (std::size_t n = each; n < t->size(); ++n) (*t)[n] += (*t)[n - each];
         }
       }},
      {"gradient.rope_not_turned_back", "results",
       [](Mine& m) { m.turn_back_query = m.turn_back_key = false; }},
      {"gradient.rope_not_turned_back_in_d_query", "results",
       [](Mine& m) { m.turn_back_query = false; }},
      {"gradient.rope_not_turned_back_in_d_key", "results",
       [](Mine& m) { m.turn_back_key = false; }},
      {"gradient.rope_turned_forward_in_d_key", "results",
       [](Mine& m) { m.turn_back_key = false, m.rotate(m.dk, m.G, m.S, false, 1); }},
      {"gradient.rope_turned_forward_in_d_query", "results",
       [](Mine& m) { m.turn_back_query = false, m.rotate(m.dq, m.H, m.T, true, 1); }},
  };
  (void)rounded;
  return out;
}

inline std::vector<Made> all_made() {
  std::vector<Made> out;
  for (auto part : {row_term_mistakes(), score_step_mistakes(), shared_mistakes(), head_mistakes(),
                    value_mistakes(), mask_mistakes(), block_mistakes(), result_mistakes()}) {
    for (Made& made : part) out.push_back(std::move(made));
  }
  return out;
}

}  // namespace attest::test
