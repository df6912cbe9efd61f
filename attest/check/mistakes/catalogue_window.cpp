// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

constexpr std::array usual_widths{128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0};

/// Another left side, the right one as claimed.
bool with_left(Recipe& recipe, const Claim& claim, std::int64_t left) {
  if (!claim.call.mask.window.left || left < 0) return false;
  recipe.scoring.sight.window = Sides{left, claim.call.mask.window.right};
  return true;
}
bool with_right(Recipe& recipe, const Claim& claim, std::int64_t right) {
  if (!claim.call.mask.window.right || right < 0) return false;
  recipe.scoring.sight.window = Sides{claim.call.mask.window.left, right};
  return true;
}
bool with_form(Recipe& recipe, const Claim& claim, WindowForm form) {
  if (!claim.call.mask.window.left) return false;
  recipe.scoring.sight.window_form = form;
  return true;
}
std::int64_t left_of(const Claim& claim) { return claim.call.mask.window.left.value_or(0); }
std::int64_t right_of(const Claim& claim) { return claim.call.mask.window.right.value_or(0); }

/// Both sides the same, and no causal mask.
bool on_both_sides(Recipe& recipe, const Claim& claim, std::int64_t side) {
  if (!claim.call.mask.window.left) return false;
  recipe.scoring.sight.window = Sides{side, side};
  recipe.scoring.sight.causal = false;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "window.2W",
            .axis = Axis::window,
            .what = "The window is twice as wide.",
            .look_for = "a window counted to both sides, or in blocks of two.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_left(recipe, claim, 2 * (left_of(claim) + 1) - 1); }},
    Mistake{.name = "window.W+1_keys",
            .axis = Axis::window,
            .what = "A query sees one key more on its left: the window does not count the query's "
                    "own.",
            .look_for = "`j >= i - W` where `j > i - W` is meant.",
            .seen_in = "microsoft/onnxruntime#25927, huggingface/transformers#39408, "
                       "NVIDIA-NeMo/Megatron-Bridge#2656, zml/zml#763",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_left(recipe, claim, left_of(claim) + 1); }},
    Mistake{.name = "window.W-1_keys",
            .axis = Axis::window,
            .what = "A query sees one key less on its left.",
            .look_for = "`j > i - (W - 1)`: the own key counted twice.",
            .seen_in = "huggingface/transformers#39408, lightseekorg/tokenspeed#578",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_left(recipe, claim, left_of(claim) - 1); }},
    Mistake{
        .name = "window.added",
        .axis = Axis::window,
        .what = "Only this many keys up to the query's own are seen, which the claim does not "
                "say.",
        .look_for = "a sliding window from the model's configuration, on layers that have none.",
        .values = usual_widths,
        .make =
            [](Recipe& recipe, const Claim& claim, double value) {
              if (has_window(claim) || whole(value) >= claim.shape.S) return false;
              recipe.scoring.sight.window = Sides{whole(value) - 1, std::nullopt};
              return true;
            }},
    Mistake{.name = "window.chunked",
            .axis = Axis::window,
            .what = "A query sees the keys of its own chunk of W positions alone.",
            .look_for = "blocks of W keys in place of a window that slides.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_form(recipe, claim, WindowForm::chunked); }},
    Mistake{.name = "window.first_token_kept",
            .axis = Axis::window,
            .what = "The first key is seen by every query, as an attention sink.",
            .look_for = "a cache that keeps its first entries when it slides.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.always_visible_keys = 1;
                  return claim.call.mask.window.left.has_value();
                }},
    Mistake{.name = "window.future_side",
            .axis = Axis::window,
            .what = "The window lies ahead of the query, and later keys are seen.",
            .look_for = "the sign of i − j.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.causal = false;
                  return with_form(recipe, claim, WindowForm::ahead);
                }},
    Mistake{.name = "window.half",
            .axis = Axis::window,
            .what = "The window is half as wide.",
            .look_for = "a width split between left and right, as for a window on both sides.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (left_of(claim) < 3) return false;
                  return with_left(recipe, claim, (left_of(claim) + 1) / 2);
                }},
    Mistake{.name = "window.missing",
            .axis = Axis::window,
            .what = "There is no window: a query sees all keys that the other rules allow.",
            .look_for = "a window that is not passed on, or turned off by another option.",
            .seen_in = "onnxruntime/mobius#371, huggingface/transformers#39408",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_window(claim)) return false;
                  recipe.scoring.sight.window = Sides{};
                  return true;
                }},
    Mistake{.name = "window.only_no_causal",
            .axis = Axis::window,
            .what = "The window limits the left side, and nothing hides later keys.",
            .look_for = "a window that replaces the causal mask instead of joining it.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sight.causal = false;
                  return has_window(claim) && is_causal(claim);
                }},
    Mistake{.name = "window.right_one_less",
            .axis = Axis::window,
            .what = "A query sees one key less on its right.",
            .look_for = "`j < i + right` where `j <= i + right` is meant.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (is_causal(claim)) return false;
                  return with_right(recipe, claim, right_of(claim) - 1);
                }},
    Mistake{.name = "window.right_one_more",
            .axis = Axis::window,
            .what = "A query sees one key more on its right.",
            .look_for = "a width that does not count the query's own key on one side.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (is_causal(claim)) return false;
                  return with_right(recipe, claim, right_of(claim) + 1);
                }},
    Mistake{.name = "window.sides_swapped",
            .axis = Axis::window,
            .what = "The left and the right side of the window are exchanged.",
            .look_for = "the order of the two numbers, or the sign of i − j.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const Window& window = claim.call.mask.window;
                  if (window.left == window.right || !has_window(claim)) return false;
                  recipe.scoring.sight.window = Sides{window.right, window.left};
                  return true;
                }},
    Mistake{
        .name = "window.symmetric",
        .axis = Axis::window,
        .what = "The window reaches as far ahead as back, |i − j| < W, and later keys are seen.",
        .look_for = "`abs(i - j)` in a causal call.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return on_both_sides(recipe, claim, left_of(claim)); }},
    Mistake{
        .name = "window.symmetric_W",
        .axis = Axis::window,
        .what = "The window reaches as far ahead as back, |i − j| ≤ W, and later keys are seen.",
        .look_for = "`abs(i - j) <= W` in a causal call.",
        .seen_in = "huggingface/transformers#39408",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return on_both_sides(recipe, claim, left_of(claim) + 1); }},
    Mistake{.name = "window.top_left_origin",
            .axis = Axis::window,
            .what = "The window counts from the query's index: cached keys are forgotten.",
            .look_for = "positions without the cache's length in the window's rule.",
            .seen_in = "onnx/onnx#8108",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_window(claim) || !stands_elsewhere(claim, 0)) return false;
                  recipe.scoring.sight.window_at_index = true;
                  return true;
                }},
};

}  // namespace

std::span<const Mistake> window_mistakes() { return mistakes; }

}  // namespace attest::check
