// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/lab/workbook.h"
#include "tests/support/matrices.h"

/// Fixtures that tell mistakes apart. The workbook's own cannot: its sizes are all two, its queries
/// are its keys, and its block normalises to ±1 whatever the weights were. Here all sizes differ,
/// nothing is symmetric, and no two halves are alike. tests/golden/fixtures.json has the inputs
/// once more, and every stage's value from 40-digit arithmetic.
namespace attest::test::fixture {

/// [B, H, T, D] from rows in that order.
inline Tensor<double> heads_of(std::int64_t batch, std::int64_t heads, const Rows& rows) {
  Tensor<double> flat = matrix_of(rows);
  Shape shape{batch, heads, flat.extent(0) / (batch * heads), flat.extent(1)};
  return std::move(flat).reshaped(std::move(shape));
}

/// F-asym: T = S = 3, D 2, E 5, so that √2, √3 and √5 differ; a mask that is not its transpose.
inline AttentionCase asym() {
  AttentionCase out;
  out.query = one_head({{1, 2}, {0, -1}, {2, 0.5}});
  out.key = one_head({{0.5, 1}, {1, -1}, {0, 2}});
  out.value = one_head({{1, -2, 3, 0.5, 7}, {4, 5, -6, 1.5, -8}, {-9, 10, 11, -2.5, 12}});
  out.visible = mask_of({"TTT", "TFT", "FTT"});
  return out;
}
inline AttentionCase asym_causal() {
  AttentionCase out = asym();
  out.mask = Mask::causal();
  out.visible = mask_of({"TTT", "TTF", "TTF"});
  return out;
}

/// F-cross: T 2, S 4, D 3, E 2.
inline AttentionCase cross() {
  AttentionCase out;
  out.query = one_head({{1, -0.5, 2}, {0.25, 3, -1}});
  out.key = one_head({{1, 0, 0.5}, {-1, 2, 0}, {0.5, 0.5, 1}, {2, -1, -0.5}});
  out.value = one_head({{1, -10}, {2, 20}, {-3, 30}, {5, -7}});
  return out;
}

/// F-cache: one new query at position 3 of a buffer of six.
inline AttentionCase cache() {
  AttentionCase out;
  out.query = one_head({{1.5, -1, 0.5}});
  out.key = one_head({{1, 0, 2}, {0, -1, 1}, {0.5, 1, 0}, {-1, -2, 0.5}, {3, 1, 1}, {0, 4, -2}});
  out.value = one_head({{1, 2}, {-3, 4}, {5, -6}, {7, 8}, {100, 200}, {-300, 400}});
  out.mask = Mask::causal_at(3);
  return out;
}

/// F-pad: a batch of three with 4, 1 and 2 keys, causal from the bottom right corner.
inline AttentionCase pad() {
  AttentionCase out;
  out.query =
      heads_of(3, 1, {{1, 2, -1}, {0.5, -1, 2}, {2, 0, 1}, {-1, 1, 0.5}, {1, -2, 1.5}, {0, 3, 1}});
  out.key = heads_of(3, 1,
                     {{1, 0, 1},
                      {0, 2, -1},
                      {-1, 1, 0.5},
                      {2, 1, 0},
                      {0.5, 1, 1},
                      {9, 9, 9},
                      {-9, 9, 9},
                      {9, -9, 9},
                      {1, -1, 2},
                      {0, 1, 0.5},
                      {7, 7, -7},
                      {-7, 7, 7}});
  out.value = heads_of(3, 1,
                       {{1, 5},
                        {2, -6},
                        {3, 7},
                        {4, -8},
                        {10, 50},
                        {99, 99},
                        {98, 98},
                        {97, 97},
                        {-1, 0.5},
                        {6, 2.5},
                        {96, 96},
                        {95, 95}});
  out.mask = Mask::causal_bottom_right();
  out.mask.key_lengths = {4, 2, 3};
  return out;
}

/// F-huge: scores of ±10⁴, so that exp without the peak would be infinite or nothing.
inline AttentionCase huge() {
  AttentionCase out;
  out.query = one_head({{100, 0}, {-100, 1}});
  out.key = one_head({{100, 1}, {-100, 2}, {99.9921875, 3}});
  out.value = one_head({{1, 2, 3}, {40, 50, 60}, {700, 800, 900}});
  out.scale = 1;
  return out;
}

/// F-empty: the middle query sees no key.
inline AttentionCase empty() {
  AttentionCase out;
  out.query = one_head({{1, 2}, {3, -1}, {0.5, 1}});
  out.key = one_head({{1, -1}, {0.5, 2}});
  out.value = one_head({{1, 2, 3}, {-4, 5, -6}});
  out.visible = mask_of({"TF", "FF", "TT"});
  out.empty_row = EmptyRow::zero;
  return out;
}

/// F-group: four query heads on two key/value heads, all different.
inline AttentionCase group() {
  AttentionCase out;
  out.query =
      heads_of(1, 4, {{1, 0.5}, {-1, 2}, {2, -1}, {0.5, 0.5}, {-2, 1}, {1, 1.5}, {3, 0}, {0, -3}});
  out.key = heads_of(1, 2, {{1, 2}, {-1, 0.5}, {0.5, -1}, {2, 1}, {0, 1.5}, {-0.5, 2.5}});
  out.value = heads_of(1, 2,
                       {{1, 10, 100, 3},
                        {2, -20, 200, -5},
                        {3, 30, -300, 7},
                        {-4, 40, 400, 11},
                        {5, -50, 500, 13},
                        {6, 60, -600, -17}});
  return out;
}

/// F-options: scale, softcap, bias, ALiBi, window and sink at once, in two heads.
inline AttentionCase options() {
  AttentionCase out;
  out.query =
      heads_of(1, 2, {{1, 2, 0}, {0.5, -1, 1}, {2, 0, -1}, {1, -1, 0.5}, {-2, 1, 1}, {0, 2, 1}});
  out.key = heads_of(1, 1, {{1, 0, 0.5}, {0, 1, -1}, {2, -1, 0}, {0.5, 0.5, 1}});
  out.value = heads_of(1, 1, {{1, 2}, {-3, 4}, {5, -6}, {7, 8}});
  out.bias = one_head({{0.5, -1, 0, 2}, {1, 0, -0.5, 0.25}, {-2, 1.5, 1, 0}});
  out.scale = 0.75;
  out.softcap = 1.5;
  out.alibi_slopes = {0.25, 0.0625};
  out.sink = {0.5, -1};
  out.mask = Mask::causal_at(1);
  out.mask.window.left = 2;
  return out;
}

/// All attention fixtures by the names that the goldens use.
inline std::vector<std::pair<std::string, AttentionCase>> attention_calls() {
  return {{"asym", asym()},      {"asym_causal", asym_causal()},
          {"cross", cross()},    {"cache", cache()},
          {"pad", pad()},        {"huge", huge()},
          {"empty", empty()},    {"group", group()},
          {"options", options()}};
}

/// F-norm: a row whose population and sample variance, and whose ε inside and outside the root, are
/// far apart; and rows that normalising over positions would mix.
inline Tensor<double> norm_rows() {
  return matrix_of({{1, 0, 0, 0}, {3, -1, 0.5, 2}, {5, 5, 5, 5}});
}

struct Block {
  Tensor<double> rows;
  lab::workbook::BlockParameters parameters;
  bool causal = true;
};

/// F-block: five positions, two heads of two features each with distinct projections; every matrix
/// asymmetric, W1 and W2 square so that a transposed one still multiplies.
inline Block block() {
  Block out;
  out.rows = matrix_of({{1, -0.5, 2, 0.25},
                        {-1, 1.5, 0.5, -2},
                        {0.75, 2, -1.25, 1},
                        {-0.5, -1, 1.5, 3},
                        {2.5, 0.5, -0.75, -1.5}});
  out.parameters.P1 = matrix_of({{0.5, -1}, {1, 0.25}, {-0.75, 0.5}, {0.25, 1.5}});
  out.parameters.P2 = matrix_of({{-1, 0.5}, {0.25, 1}, {1.25, -0.5}, {0.5, 0.75}});
  out.parameters.WO = matrix_of(
      {{0.5, 1, -0.25, 0.75}, {-1, 0.5, 1.5, 0.25}, {0.25, -0.75, 1, 0.5}, {1.25, 0.5, -0.5, -1}});
  out.parameters.W1 = matrix_of(
      {{1, -0.5, 0.25, 0.75}, {0.5, 1.5, -1, -0.25}, {-0.75, 0.25, 1, 0.5}, {0.5, -1.25, 0.75, 1}});
  out.parameters.W2 = matrix_of(
      {{0.5, 1, -0.5, 0.25}, {-0.25, 0.75, 1, -1}, {1.5, -0.5, 0.25, 0.5}, {0.5, 0.25, -1, 1.25}});
  out.parameters.epsilon = 0.0625;
  return out;
}

/// F-block with all widths different (heads of two and three features, six in between), not causal.
inline Block wide_block() {
  Block out = block();
  out.parameters.P2 =
      matrix_of({{-1, 0.5, 0.25}, {0.25, 1, -0.5}, {1.25, -0.5, 1}, {0.5, 0.75, -1.5}});
  out.parameters.WO = matrix_of({{0.5, 1, -0.25, 0.75},
                                 {-1, 0.5, 1.5, 0.25},
                                 {0.25, -0.75, 1, 0.5},
                                 {1.25, 0.5, -0.5, -1},
                                 {-0.5, 1, 0.75, 0.25}});
  out.parameters.W1 = matrix_of({{1, -0.5, 0.25, 0.75, 2, -1},
                                 {0.5, 1.5, -1, -0.25, 1, 0.5},
                                 {-0.75, 0.25, 1, 0.5, -1, 2},
                                 {0.5, -1.25, 0.75, 1, 0.25, -0.5}});
  out.parameters.W2 = matrix_of({{0.5, 1, -0.5, 0.25},
                                 {-0.25, 0.75, 1, -1},
                                 {1.5, -0.5, 0.25, 0.5},
                                 {0.5, 0.25, -1, 1.25},
                                 {-1, 0.5, 0.25, 1},
                                 {0.75, -1, 1, 0.5}});
  out.parameters.epsilon = 1e-5;
  out.causal = false;
  return out;
}

}  // namespace attest::test::fixture
