// SPDX-License-Identifier: MIT
#include <array>
#include <string>
#include <vector>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

bool shows(Recipe& recipe, Stage name, Stage is, bool exchanged) {
  recipe.scoring.label.named = name;
  recipe.scoring.label.is = is;
  recipe.scoring.label.exchanged = exchanged;
  return true;
}
bool sums(Recipe& recipe, LseForm form) {
  recipe.scoring.label.log_sum_exp = form;
  return true;
}
bool weighs(Recipe& recipe, WeightsShown weights) {
  recipe.scoring.label.weights = weights;
  return true;
}

/// Whether a claim has anything that makes the two tables differ.
bool differ(const Claim& claim, Stage a, Stage b) {
  const Stage first = std::min(a, b);
  const Stage last = std::max(a, b);
  const auto scale = claimed_scale(claim);
  const auto between = [&](Stage step) { return first < step && step <= last; };
  if (between(Stage::scaled) && (!scale || *scale != 1)) return true;
  if (between(Stage::capped) && claim.call.softcap) return true;
  if (between(Stage::biased) && (claim.call.bias || has_alibi(claim))) return true;
  if (between(Stage::masked) && hides_anything(claim)) return true;
  return between(Stage::weights);
}

template <Stage name, Stage is>
bool make_pair(Recipe& recipe, const Claim& claim, double) {
  return differ(claim, name, is) && shows(recipe, name, is, false);
}

/// One table under the name of another: all pairs of tables of numbers for query and key.
class Pairs {
 public:
  Pairs() {
    names_.reserve(all.size() * all.size());
    texts_.reserve(all.size() * all.size());
    add_all(std::make_index_sequence<all.size()>{});
  }
  void append_to(std::vector<Mistake>& out) const {
    out.insert(out.end(), mistakes_.begin(), mistakes_.end());
  }

 private:
  static constexpr std::array all{Stage::dot,    Stage::scaled, Stage::capped,
                                  Stage::biased, Stage::masked, Stage::weights};

  template <std::size_t... n>
  void add_all(std::index_sequence<n...>) {
    (add_row<n>(std::make_index_sequence<all.size()>{}), ...);
  }
  template <std::size_t name, std::size_t... is>
  void add_row(std::index_sequence<is...>) {
    (add<name, is>(), ...);
  }
  template <std::size_t name, std::size_t is>
  void add() {
    if constexpr (name != is) {
      const std::string called(name_of(all[name]));
      const std::string holds(name_of(all[is]));
      names_.push_back("label." + called + "_is_" + holds);
      texts_.push_back("The table called " + called + " holds " + holds + ".");
      mistakes_.push_back({.name = names_.back(),
                           .axis = Axis::label,
                           .what = texts_.back(),
                           .look_for = "the line at which the table is dumped.",
                           .make = make_pair<all[name], all[is]>});
    }
  }

  std::vector<std::string> names_, texts_;
  std::vector<Mistake> mistakes_;
};

constexpr std::array others{
    Mistake{
        .name = "label.lse_base2",
        .axis = Axis::label,
        .what = "log_sum_exp is a logarithm to base 2: 1.4427 times the natural one.",
        .look_for = "the base that the kernel returns, and the one that a merge expects.",
        .seen_in = "flashinfer-ai/flashinfer#2113, sgl-project/sglang#40903, "
                   "Dao-AILab/flash-attention#404",
        .make = [](Recipe& recipe, const Claim&, double) { return sums(recipe, LseForm::base2); }},
    Mistake{
        .name = "label.lse_infinite_if_empty",
        .axis = Axis::label,
        .what = "log_sum_exp of a query that sees no key is +∞ instead of −∞.",
        .look_for = "the convention of FlashAttention 2: a merge then takes the empty part alone.",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              return hides_anything(claim) && sums(recipe, LseForm::infinite_if_empty);
            }},
    Mistake{.name = "label.lse_is_maximum",
            .axis = Axis::label,
            .what = "log_sum_exp holds the row's largest score.",
            .look_for = "which of the two running numbers of the softmax is written.",
            .make = [](Recipe& recipe, const Claim&,
                       double) { return sums(recipe, LseForm::maximum); }},
    Mistake{
        .name = "label.lse_is_sum",
        .axis = Axis::label,
        .what = "log_sum_exp holds the sum of the shifted exponentials, without a logarithm.",
        .look_for = "the logarithm, and the maximum that is added to it.",
        .make = [](Recipe& recipe, const Claim&, double) { return sums(recipe, LseForm::sum); }},
    Mistake{.name = "label.lse_without_max",
            .axis = Axis::label,
            .what = "log_sum_exp lacks the maximum that was taken off the scores.",
            .look_for = "`log(sum)` where `max + log(sum)` is meant.",
            .make = [](Recipe& recipe, const Claim&,
                       double) { return sums(recipe, LseForm::without_max); }},
    Mistake{.name = "label.lse_without_sink",
            .axis = Axis::label,
            .what = "log_sum_exp lacks the sink.",
            .look_for = "the sink applied after the sum was written.",
            .seen_in = "Dao-AILab/flash-attention#2752",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return has_sink(claim) && sums(recipe, LseForm::without_sink); }},
    Mistake{.name = "label.qk_modes_swapped",
            .axis = Axis::label,
            .what =
                "Scores after the softcap and scores after bias and mask are exchanged, as modes "
                "1 and 2 of ONNX Attention's qk_matmul_output were until May 2026.",
            .look_for = "the version of the ONNX text that qk_matmul_output_mode follows.",
            .seen_in = "onnx/onnx#7913",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const bool hides =
                      has_position_rule(claim) || has_mask(claim) || has_documents(claim);
                  const Stage last = hides ? Stage::masked : Stage::biased;
                  return shows(recipe, Stage::capped, last, true);
                }},
    Mistake{.name = "label.weights_before_dropout",
            .axis = Axis::label,
            .what = "The table of weights is that before dropout.",
            .look_for = "where the weights are returned.",
            .seen_in = "pytorch/pytorch#42929",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return claim.call.dropout.rate > 0 &&
                         weighs(recipe, WeightsShown::before_dropout);
                }},
    Mistake{
        .name = "label.weights_head_mean",
        .axis = Axis::label,
        .what = "The table of weights holds the mean over the heads.",
        .look_for = "average_attn_weights of PyTorch's MultiheadAttention, which is on by default.",
        .seen_in = "pytorch/pytorch#47583",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              return claim.shape.H > 1 && weighs(recipe, WeightsShown::head_mean);
            }},
    Mistake{
        .name = "label.weights_head_sum",
        .axis = Axis::label,
        .what = "The table of weights holds the sum over the heads.",
        .look_for = "a reduction over heads without the division.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return claim.shape.H > 1 && weighs(recipe, WeightsShown::head_sum); }},
};

}  // namespace

std::span<const Mistake> label_mistakes() {
  static const Pairs pairs;
  static const std::vector<Mistake> mistakes = [] {
    std::vector<Mistake> out(others.begin(), others.end());
    pairs.append_to(out);
    return out;
  }();
  return mistakes;
}

}  // namespace attest::check
