// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes in what becomes of finished gradients: factors, order, rotation, rounding.
namespace attest::test {

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
  const auto in_between = [](const std::string& name, DType type, bool weights, bool scores) {
    return Made{"gradient." + name, "weights", [=](Mine& m) {
                  const auto round_all = [type](Mine::Table& t) {
                    for (float& x : t) x = static_cast<float>(round_to(x, type));
                  };
                  if (scores) m.mistakes.emplace("d_scores", [=](Mine& o) { round_all(o.d_s); });
                  if (!weights) return;
                  // What multiplies d_output is rounded once, behind dropout.
                  m.mistakes.emplace("dropout", [=, whole = m.p](Mine& o) {
                    for (std::size_t n = 0; n < whole.size(); ++n)
                      o.mixed[n] = whole[n] * o.drop[n];
                    round_all(o.mixed);
                  });
                  round_all(m.p);
                }};
  };
  return {
      times("sign_flipped", [](const Mine&) { return -1.0F; }),
      times("doubled", [](const Mine&) { return 2.0F; }),
      times("halved", [](const Mine&) { return 0.5F; }),
      times("batch_mean", [](const Mine& m) { return 1 / static_cast<float>(m.B); }),
      times("query_mean", [](const Mine& m) { return 1 / static_cast<float>(m.B * m.T); }),
      times("mean_loss",
            [](const Mine& m) { return 1 / static_cast<float>(m.B * m.H * m.T * m.E); }),
      times("other_factor", [](const Mine&) { return 0.3712F; }),
      times("zero", [](const Mine&) { return 0.0F; }),
      stored("stored_as_bf16", DType::bf16),
      stored("stored_as_f16", DType::f16),
      in_between("weights_as_bf16", DType::bf16, true, false),
      in_between("weights_as_f16", DType::f16, true, false),
      in_between("d_scores_as_bf16", DType::bf16, false, true),
      in_between("d_scores_as_f16", DType::f16, false, true),
      in_between("weights_and_d_scores_as_bf16", DType::bf16, true, true),
      in_between("weights_and_d_scores_as_f16", DType::f16, true, true),
      {"gradient.d_query_d_value_swapped", "end", [](Mine& m) { std::swap(m.dq, m.dv); }},
      {"gradient.heads_reversed", "end",
       [](Mine& m) {
         reverse_heads(m.dq, m.B, m.H);
         reverse_heads(m.dk, m.B, m.G), reverse_heads(m.dv, m.B, m.G);
       }},
      {"gradient.layout_bthd", "end",
       [](Mine& m) {
         heads_last(m.dq, m.B, m.H, m.T);
         heads_last(m.dk, m.B, m.G, m.S), heads_last(m.dv, m.B, m.G, m.S);
       }},
      {"gradient.rope_turned_forward", "results",
       [](Mine& m) {
         m.turn_back_query = m.turn_back_key = false;
         m.rotate(m.dq, m.H, m.T, true, 1), m.rotate(m.dk, m.G, m.S, false, 1);
       }},
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
}

}  // namespace attest::test
