// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/check/gradients_mistake_tools.h"

/// Mistakes in dropout, and in the weights that d_value has.
namespace attest::test {

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
         rows_term_again(m);
       }},
      {"gradient.dropout_factor_missing_rows_term_too", "weights",
       [](Mine& m) {
         for (float& x : m.drop) x = x != 0 ? 1 : 0;
         rows_term_again(m);
       }},
      {"gradient.dropout_not_reused_in_d_scores", "weights",
       [](Mine& m) { m.mistakes.emplace("dropout", [raw = m.d_p](Mine& o) { o.d_p = raw; }); }},
      {"gradient.dropout_not_reused_in_d_weights", "weights",
       [](Mine& m) {
         m.mistakes.emplace("dropout", [raw = m.d_p](Mine& o) { o.d_p = raw; });
         rows_term_again(m);
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

}  // namespace attest::test
