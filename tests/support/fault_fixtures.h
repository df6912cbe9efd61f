// SPDX-License-Identifier: MIT
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attest/base/attention_case.h"
#include "tests/support/fixtures.h"

/// Calls for the mistakes that fixtures.h cannot show: those in rules and options that it does not
/// use, or uses only beside another rule that hides the same keys.
namespace attest::test::fixture {

/// D = E, so that keys and values can be exchanged unnoticed.
inline AttentionCase square() {
  AttentionCase out;
  out.query = one_head({{1, -0.5}, {0.25, 2}, {-1, 1.5}});
  out.key = one_head({{0.5, 1}, {-1, 0.25}, {2, -0.5}, {1, 1.5}});
  out.value = one_head({{3, -1}, {0.5, 4}, {-2, 1}, {1.5, 2.5}});
  return out;
}

/// Two batches whose keys end at different places; nothing but the length hides them.
inline AttentionCase lengths() {
  AttentionCase out;
  out.query = heads_of(2, 1, {{1, 2}, {-1, 0.5}, {0.5, -1}, {2, 1}});
  out.key =
      heads_of(2, 1, {{1, 0}, {0.5, 1}, {-1, 2}, {2, -2}, {0, 1}, {1, 1}, {-2, 0.5}, {1, -1}});
  out.value = heads_of(2, 1,
                       {{1, 2, 3},
                        {-4, 5, 6},
                        {7, -8, 9},
                        {10, 11, -12},
                        {2, 1, 0},
                        {0, -3, 1},
                        {4, 4, -5},
                        {6, 0, 7}});
  out.mask.key_lengths = {2, 3};
  return out;
}

/// Two batches at different positions of their caches, with ALiBi and keys ahead of the query.
inline AttentionCase offsets() {
  AttentionCase out = lengths();
  out.mask = Mask::causal_at(0);
  out.mask.query_offset = {1, 2};
  out.alibi_slopes = {0.5};
  return out;
}

/// A window to both sides and no causal rule: keys ahead of the query count.
inline AttentionCase window() {
  AttentionCase out;
  out.query = heads_of(1, 2,
                       {{1, 0.5},
                        {-1, 2},
                        {0.5, 1},
                        {2, -1},
                        {0.25, -0.5},
                        {0.5, -2},
                        {1, 1},
                        {-0.5, 1.5},
                        {1.5, 0},
                        {-1, -1}});
  out.key = heads_of(1, 1, {{0.5, 1}, {1, -1}, {2, 0.5}, {-1, 1}, {0, 2}});
  out.value = heads_of(1, 1, {{1, 2, -3}, {4, -5, 6}, {-7, 8, 9}, {10, 11, 12}, {0.5, -1, 2}});
  out.mask.window.left = 1;
  out.mask.window.right = 2;
  out.alibi_slopes = {0.5, 0.125};
  return out;
}

/// NaN and infinity where nobody may look: at hidden keys and values.
inline AttentionCase hidden() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  AttentionCase out;
  out.query = one_head({{1, 2}, {0.5, -1}});
  out.key = one_head({{1, 0}, {nan, 1}, {0.5, 0.5}, {infinity, -infinity}});
  out.value = one_head({{1, 2, 3}, {nan, infinity, nan}, {4, -5, 6}, {-infinity, nan, 1}});
  out.visible = mask_of({"TFTF", "TFTF"});
  return out;
}

/// A bias for each key, shared by batches, heads and queries, one of them −∞ with a NaN in the value
/// behind it; and sinks.
inline AttentionCase bias() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  AttentionCase out;
  out.query =
      heads_of(2, 2, {{1, 2}, {-1, 0.5}, {0.5, -1}, {2, 1}, {0, 1}, {1, 1}, {-2, 0.5}, {1, -1}});
  out.key = heads_of(2, 1, {{1, 0}, {0.5, 1}, {-1, 2}, {0, 1}, {2, 1}, {-2, 0.5}});
  out.value =
      heads_of(2, 1, {{1, 2, 3}, {nan, 5, 6}, {7, -8, 9}, {2, 1, 0}, {0, -3, 1}, {4, 4, -5}});
  out.bias = one_head({{0.75, -std::numeric_limits<double>::infinity(), -0.5}});
  out.sink = {0.25, -0.75};
  return out;
}

/// Visible scores far below −10⁴ beside a hidden key.
inline AttentionCase low() {
  AttentionCase out;
  out.query = one_head({{200, 1}});
  out.key = one_head({{-100, 0.5}, {1, 0}, {-100, 1}});
  out.value = one_head({{1, 2, 3}, {40, 50, 60}, {7, -8, 9}});
  out.visible = mask_of({"TFT"});
  out.scale = 1;
  return out;
}

inline std::vector<std::pair<std::string, AttentionCase>> fault_calls() {
  return {{"square", square()}, {"lengths", lengths()}, {"offsets", offsets()},
          {"window", window()}, {"hidden", hidden()},   {"bias", bias()},
          {"low", low()}};
}

}  // namespace attest::test::fixture
