// SPDX-License-Identifier: MIT
#include <array>
#include <vector>

#include "attest/check/mistakes/catalogue_parts.h"
#include "attest/check/mistakes/catalogue_tools.h"

namespace attest::check {
namespace {

template <class F>
bool with_values(Recipe& recipe, const Claim& claim, F&& f) {
  if (!has_sink(claim)) return false;
  const std::vector<double>& claimed = claim.call.sink;
  std::vector<double> values;
  for (std::size_t h = 0; h < claimed.size(); ++h) values.push_back(f(h, claimed));
  if (values == claimed) return false;
  recipe.scoring.sink.values = std::move(values);
  return true;
}

bool used_as(Recipe& recipe, const Claim& claim, SinkUse use) {
  if (!has_sink(claim)) return false;
  recipe.scoring.sink.use = use;
  return true;
}

constexpr std::array mistakes{
    Mistake{.name = "sink.added_to_all_scores",
            .axis = Axis::sink,
            .what = "The sink is added to every score of its head, which changes no weight: as if "
                    "there were none.",
            .look_for = "a sink broadcast over the keys: it is a logit of its own.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::added_to_all); }},
    Mistake{.name = "sink.added_to_first_key",
            .axis = Axis::sink,
            .what = "The sink is added to the score of key 0.",
            .look_for = "a sink taken for a bias of the first token.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::added_to_first); }},
    Mistake{.name = "sink.capped",
            .axis = Axis::sink,
            .what = "The softcap is applied to the sink too.",
            .look_for = "the sink appended to the scores before the softcap.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  recipe.scoring.sink.capped = true;
                  return has_sink(claim) && claim.call.softcap;
                }},
    Mistake{.name = "sink.exp_missing",
            .axis = Axis::sink,
            .what = "The sink itself is added to the denominator, not exp(sink).",
            .look_for = "`sum + sink` where `sum + exp(sink - max)` is meant.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::not_exp); }},
    Mistake{.name = "sink.head0",
            .axis = Axis::sink,
            .what = "Every head has the sink of head 0.",
            .look_for = "a sink read at index 0.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_values(recipe, claim,
                                     [](std::size_t, const auto& all) { return all[0]; });
                }},
    Mistake{.name = "sink.heads_reversed",
            .axis = Axis::sink,
            .what = "The heads' sinks are taken in reverse order.",
            .look_for = "the order of heads in the table of sinks.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_values(recipe, claim, [](std::size_t h, const auto& all) {
                    return all[all.size() - 1 - h];
                  });
                }},
    Mistake{.name = "sink.key_head",
            .axis = Axis::sink,
            .what = "Query heads read the sinks of their key/value heads.",
            .look_for = "a sink indexed by the key/value head.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (claim.shape.G == 0 || claim.shape.G == claim.shape.H) return false;
                  const auto group = static_cast<std::size_t>(claim.shape.H / claim.shape.G);
                  return with_values(recipe, claim, [group](std::size_t h, const auto& all) {
                    return all[h / group];
                  });
                }},
    Mistake{.name = "sink.maximum",
            .axis = Axis::sink,
            .what = "No score is taken to be below the sink.",
            .look_for = "a running maximum that starts at the sink and is used as a score.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::maximum); }},
    Mistake{.name = "sink.missing",
            .axis = Axis::sink,
            .what = "There is no sink.",
            .look_for = "a kernel without the argument, or one that ignores it.",
            .seen_in = "vllm-project/vllm#52156, NVIDIA/TransformerEngine#2541",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  if (!has_sink(claim)) return false;
                  recipe.scoring.sink.values = std::vector<double>{};
                  return true;
                }},
    Mistake{.name = "sink.scaled",
            .axis = Axis::sink,
            .what = "The sink is multiplied by the scale, like a score.",
            .look_for = "the sink appended to the scores before the scale.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  const auto scale = claimed_scale(claim);
                  if (!scale) return false;
                  return with_values(recipe, claim, [&](std::size_t h, const auto& all) {
                    return all[h] * *scale;
                  });
                }},
    Mistake{.name = "sink.sigmoid",
            .axis = Axis::sink,
            .kind = MistakeKind::harmless,
            .what = "The output is multiplied by sigmoid(log_sum_exp − sink) after a softmax "
                    "without sink: the same function.",
            .look_for = "nothing.",
            .seen_in = "pytorch/torchtitan#2211",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::gate); }},
    Mistake{.name = "sink.sign",
            .axis = Axis::sink,
            .what = "The sink has the wrong sign.",
            .look_for = "`exp(-sink)`, or `max - sink`.",
            .make =
                [](Recipe& recipe, const Claim& claim, double) {
                  return with_values(recipe, claim,
                                     [](std::size_t h, const auto& all) { return -all[h]; });
                }},
    Mistake{.name = "sink.twice",
            .axis = Axis::sink,
            .what = "The sink stands in the denominator twice.",
            .look_for = "a sink added in every part of a split softmax, or before and after it.",
            .make = [](Recipe& recipe, const Claim& claim,
                       double) { return used_as(recipe, claim, SinkUse::twice); }},
};

}  // namespace

std::span<const Mistake> sink_mistakes() { return mistakes; }

}  // namespace attest::check
