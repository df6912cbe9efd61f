// SPDX-License-Identifier: MIT
#include <array>
#include <vector>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

bool with_distance(Recipe& recipe, const Claim& claim, AlibiDistance distance) {
  if (!has_alibi(claim)) return false;
  recipe.scoring.alibi.distance = distance;
  return true;
}

template <class F>
bool with_slopes(Recipe& recipe, const Claim& claim, F&& slope_of) {
  if (!has_alibi(claim)) return false;
  const std::vector<double>& claimed = claim.call.alibi_slopes;
  std::vector<double> slopes;
  for (std::size_t h = 0; h < claimed.size(); ++h) slopes.push_back(slope_of(h, claimed));
  if (slopes == claimed) return false;
  recipe.scoring.alibi.slopes = std::move(slopes);
  return true;
}

/// 2^(−8·power/n).
double geometric(double power, std::size_t heads) {
  return std::exp2(-8 * power / static_cast<double>(heads));
}

/// The published slopes: those of the next lower power of two, then every other one of the next
/// higher. Another program's order interleaves or sorts them.
double published(std::size_t h, std::size_t heads) {
  std::size_t lower = 1;
  while (lower * 2 <= heads) lower *= 2;
  if (h < lower) return geometric(static_cast<double>(h + 1), lower);
  return geometric(static_cast<double>(2 * (h - lower) + 1), 2 * lower);
}

constexpr std::array mistakes{
    Mistake{.name = "alibi.before_scale",
            .axis = Axis::alibi,
            .what = "The distances are added before the scale, and scaled with the scores.",
            .look_for = "where the ALiBi bias is added: after the division by √D.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_alibi(claim)) return false;
                  recipe.scoring.alibi.before_scale = true;
                  return true;
                }},
    Mistake{.name = "alibi.exponent_off_by_one",
            .axis = Axis::alibi,
            .what = "The slopes are 2^(−8h/n) with h from 0: the first head has slope 1.",
            .look_for = "h in place of h + 1 in the exponent.",
            .seen_in = "paiml/aprender#2143",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_slopes(recipe, claim, [](std::size_t h, const auto& all) {
                    return geometric(static_cast<double>(h), all.size());
                  });
                }},
    Mistake{.name = "alibi.future_rewarded",
            .axis = Axis::alibi,
            .what = "The distance keeps its sign: keys after the query are rewarded.",
            .look_for = "`i − j` where |i − j| is meant, without a causal mask.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (is_causal(claim)) return false;
                  return with_distance(recipe, claim, AlibiDistance::difference);
                }},
    Mistake{.name = "alibi.future_unpunished",
            .axis = Axis::alibi,
            .what = "Keys after the query have distance 0.",
            .look_for = "a distance cut at 0, written for causal models.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (is_causal(claim)) return false;
                  return with_distance(recipe, claim, AlibiDistance::future_free);
                }},
    Mistake{
        .name = "alibi.geometric_non_pow2",
        .axis = Axis::alibi,
        .what = "The slopes are 2^(−8(h+1)/n), although the number of heads is no power of two.",
        .look_for = "the rule for other head counts: slopes of the next lower power of two, then "
                    "every other one of the next higher.",
        .seen_in = "ml-explore/mlx#3071, ml-explore/mlx#343, baichuan-inc/Baichuan2#225",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              return with_slopes(recipe, claim, [](std::size_t h, const auto& all) {
                return geometric(static_cast<double>(h + 1), all.size());
              });
            }},
    Mistake{.name = "alibi.heads_reversed",
            .axis = Axis::alibi,
            .what = "The heads' slopes are taken in reverse order.",
            .look_for = "the order in which the slopes are made.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_slopes(recipe, claim, [](std::size_t h, const auto& all) {
                    return all[all.size() - 1 - h];
                  });
                }},
    Mistake{.name = "alibi.key_head",
            .axis = Axis::alibi,
            .what = "Query heads have the slopes of their key/value heads' numbers.",
            .look_for = "a slope indexed by the key/value head.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.G == 0 || claim.shape.G == claim.shape.H) return false;
                  const auto group = static_cast<std::size_t>(claim.shape.H / claim.shape.G);
                  return with_slopes(recipe, claim, [group](std::size_t h, const auto& all) {
                    return all[h / group];
                  });
                }},
    Mistake{.name = "alibi.key_index_only",
            .axis = Axis::alibi,
            .kind = MistakeKind::harmless,
            .what =
                "The bias is +slope·j instead of −slope·(i − j): each row differs by a constant, "
                "so that only scores and log_sum_exp do.",
            .look_for = "a bias of one row of key positions for all queries.",
            .seen_in = "Dao-AILab/flash-attention#1585",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return is_causal(claim) && with_distance(recipe, claim, AlibiDistance::key);
                }},
    Mistake{
        .name = "alibi.key_index_punished",
        .axis = Axis::alibi,
        .what = "The bias is −slope·j: it depends on the key alone, and punishes the near ones.",
        .look_for = "the position of the key taken for its distance.",
        .make = [](Recipe& recipe, const Claim& claim,
                   double) { return with_distance(recipe, claim, AlibiDistance::key_minus); }},
    Mistake{
        .name = "alibi.key_index_uncausal",
        .axis = Axis::alibi,
        .what = "The bias is +slope·j without a causal mask: keys after the query are rewarded.",
        .look_for = "a bias of one row of key positions, which is right for causal calls alone.",
        .seen_in = "Dao-AILab/flash-attention#1585",
        .make =
            [](Recipe& recipe, const Claim& claim, double) {
              return !is_causal(claim) && with_distance(recipe, claim, AlibiDistance::key);
            }},
    Mistake{.name = "alibi.missing",
            .axis = Axis::alibi,
            .what = "There is no ALiBi bias.",
            .look_for = "a fast path that drops the bias.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_alibi(claim)) return false;
                  recipe.scoring.alibi.slopes = std::vector<double>{};
                  return true;
                }},
    Mistake{.name = "alibi.no_causal_abs",
            .axis = Axis::alibi,
            .what = "ALiBi with |i − j| and no causal mask: later keys are seen, with a distance.",
            .look_for = "a bias meant to replace the causal mask: it does not hide anything.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_alibi(claim) || !is_causal(claim)) return false;
                  recipe.scoring.sight.causal = false;
                  return true;
                }},
    Mistake{.name = "alibi.offset_forgotten",
            .axis = Axis::alibi,
            .what = "Distances count from the query's index: cached keys are forgotten.",
            .look_for = "query positions that start at 0 in every step of decoding.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_alibi(claim) || !stands_elsewhere(claim, 0)) return false;
                  recipe.scoring.alibi.at_index = true;
                  return true;
                }},
    Mistake{.name = "alibi.one_slope_all_heads",
            .axis = Axis::alibi,
            .what = "Every head has the slope of head 0.",
            .look_for = "a table of slopes that is broadcast, or read at index 0.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_slopes(recipe, claim,
                                     [](std::size_t, const auto& all) { return all[0]; });
                }},
    Mistake{.name = "alibi.position_off_by_one",
            .axis = Axis::alibi,
            .kind = MistakeKind::harmless,
            .what = "The distance to the query's own key is 1 instead of 0: each row differs by a "
                    "constant.",
            .look_for = "positions that count from 1 on one side.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_alibi(claim)) return false;
                  recipe.scoring.alibi.shift = 1;
                  return true;
                }},
    Mistake{.name = "alibi.published_slopes",
            .axis = Axis::alibi,
            .what = "The slopes are the published ones for that many heads, not those given.",
            .look_for = "slopes computed inside the kernel although they are an argument.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_slopes(recipe, claim, [](std::size_t h, const auto& all) {
                    return published(h, all.size());
                  });
                }},
    Mistake{.name = "alibi.sign",
            .axis = Axis::alibi,
            .what = "The distance is rewarded instead of punished.",
            .look_for = "the sign of the slope.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_slopes(recipe, claim,
                                     [](std::size_t h, const auto& all) { return -all[h]; });
                }},
    Mistake{.name = "alibi.squared_distance",
            .axis = Axis::alibi,
            .what = "The slope multiplies the square of the distance.",
            .look_for = "the distance's power.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return with_distance(recipe, claim, AlibiDistance::square); }},
};

}  // namespace

std::span<const Mistake> alibi_mistakes() { return mistakes; }

}  // namespace attest::check
