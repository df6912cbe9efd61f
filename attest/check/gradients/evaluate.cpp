// SPDX-License-Identifier: MIT
#include "attest/check/gradients/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attest/check/at_index.h"

namespace attest::check::gradients {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::int64_t count(const auto& list) { return static_cast<std::int64_t>(list.size()); }
double square(double x) { return x * x; }

double rounded(double x, DType to) {
  if (to == DType::bf16) return to_double(to_bfloat16(x));
  if (to == DType::f16) return to_double(to_half(x));
  return to_float_nearest(x);
}

double unit_of_type(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-24;
}

/// The derivative of the softcap, as the recipe has it.
double slope_of(CapBack how, double scaled, double cap) {
  const double t = std::tanh(scaled / cap);
  switch (how) {
    case CapBack::right:
      return 1 - t * t;
    case CapBack::missing:
      return 1;
    case CapBack::of_capped:
      return 1 - square(cap * t);
    case CapBack::of_scaled:
      return 1 - square(std::tanh(scaled));
    case CapBack::not_squared:
      return 1 - t;
    case CapBack::plus:
      return 1 + t * t;
    case CapBack::twice:
      return square(1 - t * t);
  }
  return 1;
}

double dropout_factor(DropoutBack how, bool kept, double factor) {
  if (how == DropoutBack::none) return 1;
  if (!kept) return 0;
  if (how == DropoutBack::factor_missing) return 1;
  return how == DropoutBack::factor_twice ? factor * factor : factor;
}

}  // namespace

void Backward::Totals::resize(std::int64_t count) {
  value.assign(at_index(count), 0);
  alone.assign(at_index(count), 0);
  together.assign(at_index(count), 0);
}

Sample everything(const lab::AttentionShape& shape) {
  Sample out;
  out.rows.resize(at_index(shape.T));
  out.keys.resize(at_index(shape.S));
  std::iota(out.rows.begin(), out.rows.end(), 0);
  std::iota(out.keys.begin(), out.keys.end(), 0);
  return out;
}

Backward::Backward(const Problem& problem, const Noise& noise, const Sample& sample,
                   const GradientRecipe& recipe)
    : p_(problem), noise_(noise), sample_(sample), recipe_(recipe) {
  if (recipe.weights_rounded) narrow_ = unit_of_type(*recipe.weights_rounded) / 24;
  if (recipe.d_scores_rounded)
    narrow_ = std::max(narrow_, unit_of_type(*recipe.d_scores_rounded) / 24);
  const auto [B, H, G, T, S, D, E] = p_.shape;
  const std::int64_t key_heads = recipe.key_heads == Gather::apart ? H : G;
  const std::int64_t value_heads = recipe.value_heads == Gather::apart ? H : G;
  sums_[0].resize(B * H * count(sample.rows) * D);
  sums_[1].resize(B * key_heads * count(sample.keys) * D);
  sums_[2].resize(B * value_heads * count(sample.keys) * E);
  sums_[3].resize(count(places(problem, sample, recipe, GradientOf::bias)));
  sums_[4].resize(count(p_.dump.claim.call.sink));
}

bool Backward::hides(const HeadTable& head, std::size_t r, std::size_t k, unsigned forgets) const {
  unsigned bits = head.hidden[head.at(r, k)];
  if (recipe_.future_offset || recipe_.future_slack != 0) {
    const std::int64_t i = head.rows[r], j = head.keys[k];
    const std::int64_t position =
        recipe_.future_offset ? i + *recipe_.future_offset : p_.query_position(head.b, i);
    bits &= ~unsigned{by_future};
    if (p_.key_position(i, j) > position + recipe_.future_slack) bits |= by_future;
  }
  return (bits & ~forgets) != 0;
}

double Backward::weight(const HeadTable& head, std::size_t r, std::size_t k,
                        WeightsBack which) const {
  const std::size_t n = head.at(r, k);
  const RowFacts& row = head.facts[r];
  switch (which) {
    case WeightsBack::right:
      return head.weight[n];
    case WeightsBack::unnormalised:
      return std::exp(head.biased[n] - row.peak);
    case WeightsBack::base2:
      return std::exp2(head.biased[n] - row.log_sum_exp);
    case WeightsBack::without_sink:
      return head.weight[n] / (1 - row.sink_weight);
    case WeightsBack::unmasked:
      return std::exp(head.biased[n] - row.unmasked_log_sum_exp);
  }
  return 0;
}

double Backward::rows_term(const HeadTable& head, const HeadTable& first_head, std::size_t r,
                           const Row& row) const {
  const RowFacts& facts = head.facts[r];
  switch (recipe_.rows) {
    case RowsTerm::right:
      return facts.rows_term;
    case RowsTerm::missing:
    case RowsTerm::per_key:  // by key, where it is taken away
      return 0;
    case RowsTerm::sign:
      return -facts.rows_term;
    case RowsTerm::before_dropout:
      return facts.before_dropout;
    case RowsTerm::without_dropout_factor:
      return facts.without_factor;
    case RowsTerm::unweighted:
      return facts.unweighted;
    case RowsTerm::mean:
      return facts.mean;
    case RowsTerm::from_d_output:
      return facts.sum_d_output;
    case RowsTerm::from_output:
      return facts.sum_output;
    case RowsTerm::output_squared:
      return facts.output_squared;
    case RowsTerm::first_head:
      return first_head.facts[r].rows_term;
    case RowsTerm::first_row:
      return head.rows_term_of_first;
    case RowsTerm::again:
      return std::inner_product(row.weight.begin(), row.weight.end(), row.softmax_flow.begin(),
                                0.0);
  }
  return 0;
}

/// softmax = exp(biased − peak)/sum:  d_biased = weights·(d_softmax − rows term + d_log_sum_exp)
void Backward::make_row(const HeadTable& head, const HeadTable& first_head, std::size_t r,
                        Row& row) const {
  const std::size_t keys = head.keys.size();
  for (auto* list : {&row.weight, &row.softmax_flow, &row.d_biased, &row.alone, &row.together,
                     &row.mixed, &row.mixed_noise}) {
    list->assign(keys, 0);
  }
  row.slope.assign(keys, 1);
  row.slope_noise.assign(keys, 0);
  row.sink = row.sink_noise = 0;
  row.nan_query = false;
  const RowFacts& facts = head.facts[r];
  if (facts.empty) return make_empty(head, r, row);
  make_scores(head, r, row);
  make_values(head, r, row);
  const double term = rows_term(head, first_head, r, row);
  const double flow = facts.flow * recipe_.flow;
  const double term_noise =
      facts.rows_term_noise *
      (recipe_.rows == RowsTerm::missing
           ? 0
           : 1 + std::fabs(term) / (std::fabs(facts.rows_term) + 1e-300) * 0x1p-20);
  for (std::size_t k = 0; k < keys; ++k) {
    if (hides(head, r, k, recipe_.score_forgets)) continue;
    const std::size_t n = head.at(r, k);
    const double taken = recipe_.rows == RowsTerm::per_key ? head.per_key[k] : term;
    const double x = row.softmax_flow[k] - taken + flow;
    const double w = row.weight[k];
    double d = w * x;
    if (recipe_.softmax == SoftmaxBack::passed_through) d = row.softmax_flow[k];
    if (recipe_.softmax == SoftmaxBack::diagonal) d = w * (1 - w) * row.softmax_flow[k];
    if (recipe_.d_scores_rounded) d = rounded(d, *recipe_.d_scores_rounded);
    const double size =
        std::fabs(w) * (std::fabs(row.softmax_flow[k]) + std::fabs(taken) + std::fabs(flow));
    const double enters = head.d_weight_noise[n] * p_.keep_factor;
    row.d_biased[k] = d;
    row.alone[k] = head.weight_noise[n] * std::fabs(d) + std::fabs(w) * enters +
                   3 * noise_.unit * size + (narrow_ + noise_.table) * std::fabs(d);
    row.together[k] = std::fabs(w) * term_noise + facts.common * std::fabs(d);
  }
  if (facts.sink_weight == 0 || recipe_.sink == SinkBack::zero) return;
  double sink_weight = recipe_.sink == SinkBack::unweighted ? 1 : facts.sink_weight;
  if (recipe_.score_weights == WeightsBack::unmasked) {
    sink_weight *= std::exp(facts.log_sum_exp - facts.unmasked_log_sum_exp);
  }
  const double sink_flow = recipe_.sink == SinkBack::without_flow ? 0 : flow;
  row.sink = sink_weight * (sink_flow - term);
  row.sink_noise = sink_weight * (facts.rows_term_noise +
                                  3 * noise_.unit * (std::fabs(term) + std::fabs(flow))) +
                   (facts.common + 4 * noise_.unit) * std::fabs(row.sink);
}

void Backward::make_scores(const HeadTable& head, std::size_t r, Row& row) const {
  const AttentionCase& call = p_.dump.claim.call;
  for (std::size_t k = 0; k < head.keys.size(); ++k) {
    if (hides(head, r, k, recipe_.score_forgets)) continue;
    const std::size_t n = head.at(r, k);
    double w = weight(head, r, k, recipe_.score_weights);
    if (recipe_.weights_rounded) w = rounded(w, *recipe_.weights_rounded);
    row.weight[k] = w;
    const double kept = dropout_factor(recipe_.score_dropout, head.kept[n] != 0, p_.keep_factor);
    row.softmax_flow[k] = kept == 0 ? 0 : kept * head.d_weight[n];
    if (!call.softcap) continue;
    row.slope[k] = slope_of(recipe_.cap, head.scaled[n], *call.softcap);
    const double t = std::tanh(head.scaled[n] / *call.softcap);
    row.slope_noise[k] = 8 * noise_.unit + 2 * t * t * noise_.table +
                         2 * std::fabs(t) * head.weight_noise[n] / *call.softcap;
  }
}

void Backward::make_values(const HeadTable& head, std::size_t r, Row& row) const {
  const RowFacts& facts = head.facts[r];
  for (std::size_t k = 0; k < head.keys.size(); ++k) {
    if (hides(head, r, k, recipe_.value_forgets)) continue;
    const std::size_t n = head.at(r, k);
    const double kept = dropout_factor(recipe_.value_dropout, head.kept[n] != 0, p_.keep_factor);
    if (kept == 0) continue;
    double w = weight(head, r, k, recipe_.value_weights) * kept;
    if (recipe_.weights_rounded) w = rounded(w, *recipe_.weights_rounded);
    row.mixed[k] = w;
    row.mixed_noise[k] =
        std::fabs(w) * std::hypot(head.weight_noise[n] + 2 * noise_.unit, facts.common,
                                  noise_.cast + noise_.entry + narrow_);
  }
}

/// A row that sees no key gives nothing, or what its mistake makes of it.
void Backward::make_empty(const HeadTable& head, std::size_t r, Row& row) const {
  const std::size_t keys = head.keys.size();
  row.nan_query = recipe_.empty == EmptyBack::nan_query;
  if (recipe_.empty == EmptyBack::nan_everywhere) {
    std::ranges::fill(row.d_biased, not_a_number);
    std::ranges::fill(row.mixed, not_a_number);
  }
  const bool everything_even = recipe_.empty == EmptyBack::uniform;
  if (!everything_even && recipe_.empty != EmptyBack::uniform_values) return;
  const double even = 1 / static_cast<double>(p_.shape.S);
  const auto& softcap = p_.dump.claim.call.softcap;
  double term = 0;
  for (std::size_t k = 0; k < keys; ++k) {
    const std::size_t n = head.at(r, k);
    const double kept = dropout_factor(recipe_.score_dropout, head.kept[n] != 0, p_.keep_factor);
    row.softmax_flow[k] = kept == 0 ? 0 : kept * head.d_weight[n];
    term += even * row.softmax_flow[k];
    row.mixed[k] = even * dropout_factor(recipe_.value_dropout, head.kept[n] != 0, p_.keep_factor);
    row.mixed_noise[k] = row.mixed[k] * (4 * noise_.unit + noise_.cast);
  }
  for (std::size_t k = 0; k < keys && everything_even; ++k) {
    const std::size_t n = head.at(r, k);
    const double flow = head.facts[r].flow * recipe_.flow;
    const double size = std::fabs(row.softmax_flow[k]) + std::fabs(term) + std::fabs(flow);
    row.d_biased[k] = even * (row.softmax_flow[k] - term + flow);
    row.alone[k] = even * (head.d_weight_noise[n] * p_.keep_factor + 8 * noise_.unit * size);
    if (softcap) row.slope[k] = slope_of(recipe_.cap, head.scaled[n], *softcap);
  }
}

}  // namespace attest::check::gradients
