// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>

#include "attest/check/gradients/gradient_mistakes.h"

namespace attest::check::gradients {
namespace {

using Recipe = GradientRecipe;

bool has_scale(const Claim& claim) {
  const double scale =
      claim.call.scale.value_or(1 / std::sqrt(static_cast<double>(claim.call.query.extent(3))));
  return scale != 1 && scale != 0;
}
bool has_dropout(const Claim& claim) { return claim.call.dropout.rate > 0; }
bool has_sink(const Claim& claim) { return !claim.call.sink.empty(); }

bool set_scale(Recipe& r, const Claim& claim, double query, double key) {
  r.results[0].scale_power = query;
  r.results[1].scale_power = key;
  return has_scale(claim);
}

const GradientMistake table[] = {
    {{.name = "gradient.rows_term_missing",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "d_scores are weights * d_weights alone: the row's sum of weights * d_weights is not "
              "subtracted from d_weights first, so the softmax's pull of each weight on the others "
              "is lost",
      .look_for = "d_scores = P * (dP - delta): delta = rowsum(dO * O) must be subtracted",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::missing;
       return true;
     }},
    {{.name = "gradient.rows_term_sign",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "adds the rows term where it must be taken away",
      .look_for = "dP - delta, not dP + delta",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::sign;
       return true;
     }},
    {{.name = "gradient.rows_term_before_dropout",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "makes the rows term from weights and d_weights before dropout",
      .look_for = "delta = rowsum(dO * O) with the O that dropout has gone through, or rowsum of "
                  "P * dP after the mask",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.rows = RowsTerm::before_dropout;
       return has_dropout(claim);
     }},
    {{.name = "gradient.rows_term_without_dropout_factor",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "makes the rows term from the kept weights without 1/(1 - rate)",
      .look_for = "the same 1/(1 - rate) in delta as in dP",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.rows = RowsTerm::without_dropout_factor;
       return has_dropout(claim);
     }},
    {{.name = "gradient.rows_term_unweighted",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the sum of d_weights, not of weights times d_weights",
      .look_for = "delta = sum(P * dP), not sum(dP)",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::unweighted;
       return true;
     }},
    {{.name = "gradient.rows_term_mean",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the mean of d_weights",
      .look_for = "delta = sum(P * dP), not mean(dP)",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::mean;
       return true;
     }},
    {{.name = "gradient.rows_term_from_d_output",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the sum of d_output",
      .look_for = "delta = rowsum(dO * O): O has been left out",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::from_d_output;
       return true;
     }},
    {{.name = "gradient.rows_term_from_output",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the sum of output",
      .look_for = "delta = rowsum(dO * O): dO has been left out",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::from_output;
       return true;
     }},
    {{.name = "gradient.rows_term_output_squared",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the sum of output times output",
      .look_for = "delta = rowsum(dO * O), not rowsum(O * O)",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.rows = RowsTerm::output_squared;
       return true;
     }},
    {{.name = "gradient.rows_term_per_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "sums weights times d_weights over the queries of each key, not over the keys "
              "of each query",
      .look_for = "the axis of the sum in the backward pass of softmax: the last, keys",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.rows = RowsTerm::per_key;
       return claim.call.query.extent(2) > 1 || claim.call.key.extent(2) > 1;
     }},
    {{.name = "gradient.rows_term_of_first_head",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the rows term of head 0 for every head",
      .look_for = "the stride by which delta is read: [B, H, T]",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.rows = RowsTerm::first_head;
       return claim.call.query.extent(1) > 1;
     }},
    {{.name = "gradient.rows_term_of_first_row",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the rows term of query 0 for every query",
      .look_for = "the index by which delta is read: one for each query",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.rows = RowsTerm::first_row;
       return claim.call.query.extent(2) > 1;
     }},
    {{.name = "gradient.softmax_passed_through",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "passes d_weights to the scores as they are, as if there were no softmax",
      .look_for = "the softmax has a backward pass: P * (dP - delta)",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.softmax = SoftmaxBack::passed_through;
       return true;
     }},
    {{.name = "gradient.softmax_diagonal",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes the derivative of the softmax for P(1 - P), as of a sigmoid",
      .look_for = "the Jacobian of softmax is diag(P) - P P^T, not its diagonal alone",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.softmax = SoftmaxBack::diagonal;
       return true;
     }},
    {{.name = "gradient.weights_unnormalised",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the weights again as exp(score - peak), not divided by their sum",
      .look_for = "the backward pass needs log_sum_exp, not the peak of the row",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.score_weights = r.value_weights = WeightsBack::unnormalised;
       return true;
     }},
    {{.name = "gradient.weights_base2",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the weights again with exp2 from scores that are not multiplied by "
              "log2(e)",
      .look_for = "exp2(x * log2(e)) for exp(x), the same in both passes",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.score_weights = r.value_weights = WeightsBack::base2;
       return true;
     }},
    {{.name = "gradient.weights_without_sink",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the weights again without the sink in their sum",
      .look_for = "the log_sum_exp that the forward pass stores must include the sink",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.score_weights = r.value_weights = WeightsBack::without_sink;
       return has_sink(claim);
     }},
    {{.name = "gradient.log_sum_exp_flow_ignored",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "ignores what flows back into log_sum_exp",
      .look_for = "delta - d_log_sum_exp: the gradient of log_sum_exp joins the rows term",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.flow = 0;
       return true;
     }},
    {{.name = "gradient.log_sum_exp_flow_sign",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes away what flows back into log_sum_exp where it must be added",
      .look_for = "dP - delta + d_log_sum_exp",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.flow = -1;
       return true;
     }},
    {{.name = "gradient.log_sum_exp_flow_twice",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "adds what flows back into log_sum_exp twice",
      .look_for = "d_log_sum_exp in delta and again in d_scores",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.flow = 2;
       return true;
     }},
    {{.name = "gradient.log_sum_exp_flow_base2",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "takes what flows back into log_sum_exp for that of a base-2 logarithm",
      .look_for = "d_log_sum_exp of the natural logarithm is not multiplied by ln 2",
      .seen_in = ""},
     [](Recipe& r, const Claim&, double) {
       r.flow = 0.69314718055994531;
       return true;
     }},
    {{.name = "gradient.scale_missing",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not multiply d_query and d_key by the scale",
      .look_for = "dQ = scale * dS K and dK = scale * dS^T Q",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, -1, -1); }},
    {{.name = "gradient.scale_missing_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not multiply d_query by the scale",
      .look_for = "dQ = scale * dS K",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, -1, 0); }},
    {{.name = "gradient.scale_missing_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not multiply d_key by the scale",
      .look_for = "dK = scale * dS^T Q: a kernel that scales Q beforehand has it, one that does "
                  "not must",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, 0, -1); }},
    {{.name = "gradient.scale_twice",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_query and d_key by the scale twice",
      .look_for = "dS is scaled, and dQ and dK again",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, 1, 1); }},
    {{.name = "gradient.scale_twice_in_d_query",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_query by the scale twice",
      .look_for = "dS is scaled, and dQ again",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, 1, 0); }},
    {{.name = "gradient.scale_twice_in_d_key",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_key by the scale twice",
      .look_for = "Q that is scaled beforehand brings the scale into dK: not once more",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, 0, 1); }},
    {{.name = "gradient.scale_root",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_query and d_key by the root of the scale alone",
      .look_for = "where query and key each carry sqrt(scale), each gradient needs both",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, -0.5, -0.5); }},
    {{.name = "gradient.scale_divided",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "divides d_query and d_key by the scale",
      .look_for = "dQ = scale * dS K, not dS K / scale",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) { return set_scale(r, claim, -2, -2); }},
    {{.name = "gradient.scale_default",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_query and d_key by 1/sqrt(D), whatever the scale of the forward "
              "pass",
      .look_for = "the scale that the call was given, in the backward pass too",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       if (!claim.call.scale || *claim.call.scale == 0) return false;
       const double root = std::sqrt(static_cast<double>(claim.call.query.extent(3)));
       r.results[0].factor /= root * *claim.call.scale;
       r.results[1].factor /= root * *claim.call.scale;
       return true;
     }},
    {{.name = "gradient.scale_on_d_bias",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies d_bias by the scale",
      .look_for = "the bias is added after the scale: its gradient is d_scores before the scale",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias = BiasBack::scaled;
       return claim.call.bias && has_scale(claim);
     }},
    {{.name = "gradient.d_bias_after_softcap",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives the bias the gradient of the score before the softcap",
      .look_for = "the bias is added after the softcap: its gradient does not pass through tanh",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias = BiasBack::after_cap;
       return claim.call.bias && claim.call.softcap;
     }},
    {{.name = "gradient.d_bias_before_softmax",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "gives the bias the gradient of the weights",
      .look_for = "d_bias is d_scores, behind the softmax",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.bias = BiasBack::before_softmax;
       return claim.call.bias.has_value();
     }},
    {{.name = "gradient.softcap_missing",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not multiply by the derivative of the softcap",
      .look_for = "d_scaled = d_capped * (1 - tanh(scaled / cap)^2)",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::missing;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.softcap_of_capped_score",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the derivative of the softcap as 1 - capped^2, without dividing by "
              "the cap",
      .look_for = "1 - (capped / cap)^2",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::of_capped;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.softcap_of_scaled_score",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the derivative of the softcap as 1 - tanh(scaled)^2, without dividing"
              " by the cap",
      .look_for = "1 - tanh(scaled / cap)^2",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::of_scaled;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.softcap_not_squared",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the derivative of the softcap as 1 - tanh, not 1 - tanh^2",
      .look_for = "the square in 1 - t^2",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::not_squared;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.softcap_plus",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "computes the derivative of the softcap as 1 + tanh^2",
      .look_for = "the sign in 1 - t^2",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::plus;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.softcap_twice",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "multiplies by the derivative of the softcap twice",
      .look_for = "d_scores pass through tanh once",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.cap = CapBack::twice;
       return claim.call.softcap.has_value();
     }},
    {{.name = "gradient.sink_zero",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves the gradient of the sink zero",
      .look_for = "d_sink = -sum of w_sink * delta: the sink is a parameter",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.sink = SinkBack::zero;
       return has_sink(claim);
     }},
    {{.name = "gradient.sink_sign",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "has the gradient of the sink with the wrong sign",
      .look_for = "d_sink = w_sink * (d_log_sum_exp - delta)",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.results[4].factor = -1;
       return has_sink(claim);
     }},
    {{.name = "gradient.sink_unweighted",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "does not multiply the gradient of the sink by its weight",
      .look_for = "w_sink = exp(sink - log_sum_exp)",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.sink = SinkBack::unweighted;
       return has_sink(claim);
     }},
    {{.name = "gradient.sink_without_flow",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "leaves d_log_sum_exp out of the gradient of the sink",
      .look_for = "d_sink = w_sink * (d_log_sum_exp - delta)",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.sink = SinkBack::without_flow;
       return has_sink(claim);
     }},
    {{.name = "gradient.sink_last_batch",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "keeps the gradient of the sink of the last batch alone",
      .look_for = "d_sink is added to, not overwritten, from batch to batch",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.sink_batch = Gather::last;
       return has_sink(claim);
     }},
    {{.name = "gradient.sink_batch_mean",
      .axis = Axis::gradient,
      .kind = MistakeKind::wrong,
      .what = "averages the gradient of the sink over the batch",
      .look_for = "d_sink is a sum over batch and queries",
      .seen_in = ""},
     [](Recipe& r, const Claim& claim, double) {
       r.sink_batch = Gather::mean;
       return has_sink(claim);
     }},
};

}  // namespace

std::span<const GradientMistake> score_mistakes() { return table; }

}  // namespace attest::check::gradients
