// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes in what is hidden, and in queries that see no key.
namespace attest::test {

inline std::vector<Made> mask_mistakes() {
  using I = std::int64_t;
  return {
      {"gradient.mask_not_reused", "mask",
       [](Mine& m) { show(m, [&](I b, I h, I i, I j) { return !bias_hides(m, b, h, i, j); }); }},
      {"gradient.mask_not_reused_in_d_value", "dropout",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j), r = m.row(b, h, i);
           if (m.empty[r] || bias_hides(m, b, h, i, j)) return;
           m.mixed[n] = std::exp(m.biased[n] - m.lse[r]) * m.drop[n];
         });
       }},
      {"gradient.mask_not_reused_rows_term_too", "mask",
       [](Mine& m) {
         show(m, [&](I b, I h, I i, I j) { return !bias_hides(m, b, h, i, j); });
         rows_term_again(m);
       }},
      {"gradient.mask_not_reused_in_d_scores", "dropout",
       [](Mine& m) {
         m.each_pair([&](I b, I h, I i, I j) {
           const std::size_t n = m.pair(b, h, i, j), r = m.row(b, h, i);
           if (m.empty[r] || bias_hides(m, b, h, i, j)) return;
           m.p[n] = std::exp(m.biased[n] - m.lse[r]);
         });
       }},
      {"gradient.unmasked_softmax", "mask",
       [](Mine& m) {
         m.each_row([&](I b, I h, I i) {
           const std::size_t r = m.row(b, h, i);
           if (m.empty[r]) return;
           const bool sink = !m.call.sink.empty();
           double sum = sink ? std::exp(m.call.sink[Mine::size(h)]) : 0;
           for (I j = 0; j < m.S; ++j) {
             m.seen[m.pair(b, h, i, j)] = !bias_hides(m, b, h, i, j);
             if (m.seen[m.pair(b, h, i, j)])
               sum += std::exp(static_cast<double>(m.biased[m.pair(b, h, i, j)]));
           }
           m.lse[r] = static_cast<float>(std::log(sum));
           if (sink) m.sink_w[r] = static_cast<float>(std::exp(m.call.sink[Mine::size(h)]) / sum);
         });
         rows_term_again(m);
       }},
      {"gradient.causal_not_reused", "mask",
       without([](AttentionCase& c) { c.mask.future_hidden = false; })},
      {"gradient.window_not_reused", "mask", without([](AttentionCase& c) { c.mask.window = {}; })},
      {"gradient.lengths_not_reused", "mask",
       without([](AttentionCase& c) { c.mask.key_lengths.clear(); })},
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
      {"gradient.causal_bottom_right", "mask", without([](AttentionCase& c) {
         if (!c.mask.future_hidden) return;
         c.mask.corner = Corner::at_offset;
         c.mask.query_offset = {c.key.extent(2) - c.query.extent(2)};
       })},
      {"gradient.causal_one_future", "mask",
       [](Mine& m) {
         if (!m.call.mask.future_hidden) return;
         without([](AttentionCase& c) { c.mask.future_hidden = false; })(m);
         m.each_pair([&](I b, I h, I i, I j) {
           if (j > i + m.offset(b) + 1) m.seen[m.pair(b, h, i, j)] = 0;
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

}  // namespace attest::test
