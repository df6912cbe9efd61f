// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/dropout.h"
#include "attest/check/mistakes/rounding.h"
#include "attest/check/mistakes/scores.h"
#include "attest/check/mistakes/softmax.h"

namespace attest::check {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::size_t at_index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool same_row(lab::RowPlace a, lab::RowPlace b) { return a.b == b.b && a.h == b.h && a.i == b.i; }

bool is_score(Stage stage) { return stage < Stage::weights; }

}  // namespace

std::span<const double> StageRow::of(Stage stage) const {
  switch (stage) {
    case Stage::dot:
      return dot;
    case Stage::scaled:
      return scaled;
    case Stage::capped:
      return capped;
    case Stage::biased:
      return biased;
    case Stage::masked:
      return masked;
    case Stage::weights:
      return weights;
    case Stage::log_sum_exp:
      return {&log_sum_exp, 1};
    case Stage::output:
      return output;
  }
  return {};
}

struct Evaluation::State {
  State(const Dump& d, Scorer s) : dump(&d), scorer(std::move(s)), softmax(scorer.recipe()) {}

  const Dump* dump;
  Scorer scorer;
  Softmax softmax;
  ScoredRow scored{};
  WeighedRow weighed{};
  std::vector<double> dropped{};  // [S], weights after dropout
  std::vector<double> mixed{};    // [E]
  std::vector<double> values{};   // rounded
  std::vector<std::int64_t> features{};
  bool as_claimed = true;  // the program's tables have the claim's shape
  StageRow row{};

  void compute(lab::RowPlace at);
  void drop(lab::RowPlace at);
  void mix(lab::RowPlace at);
  void tables(lab::RowPlace at);
  void show(lab::RowPlace at);
  void show_log_sum_exp();
  void show_weights(lab::RowPlace at);
  void output(lab::RowPlace at, std::optional<lab::RowPlace> done);
};

/// Weights after dropout: what multiplies value.
void Evaluation::State::drop(lab::RowPlace at) {
  dropped.assign(weighed.weights.begin(), weighed.weights.end());
  const MixRecipe& how = scorer.recipe().mix;
  if (how.weight_factor != 1) {
    for (double& w : dropped) w *= how.weight_factor;
  }
  round_all(scorer.recipe().rounding.weights, dropped);
  const Dropout& dropout = scorer.claim().call.dropout;
  if (dropout.rate == 0 || how.dropout_ignored || weighed.empty) return;
  const double kept = how.dropout_unscaled ? 1 : 1 / (1 - dropout.rate);
  const std::uint32_t threshold = dropout_threshold(dropout.rate);
  WeightPlace place{.b = static_cast<std::uint32_t>(at.b),
                    .h = static_cast<std::uint32_t>(at.h),
                    .i = static_cast<std::uint32_t>(at.i)};
  for (std::size_t j = 0; j < dropped.size(); ++j) {
    place.j = static_cast<std::uint32_t>(j);
    if (weighed.weights[j] == 0) continue;
    dropped[j] = attest::dropped(dropout.seed, threshold, place) ? 0 : dropped[j] * kept;
  }
}

void Evaluation::State::mix(lab::RowPlace at) {
  const auto width = at_index(scorer.shape().E);
  mixed.assign(width, 0);
  if (!scorer.claim().has_value()) {
    mixed.clear();
    return;
  }
  const ScoringRecipe& recipe = scorer.recipe();
  std::span<const double> v = scorer.operands().values(at.b, at.h);
  if (recipe.rounding.value != Precision::f64) {
    values.assign(v.begin(), v.end());
    round_all(recipe.rounding.value, values);
    v = values;
  }
  const bool reads_hidden = recipe.hide.hidden_values_read || weighed.reads_all;
  for (std::size_t j = 0; j < dropped.size(); ++j) {
    const double w = dropped[j];
    // Hidden and dropped values are not read; of a visible one, 0 times infinity is NaN.
    if (w == 0 && !reads_hidden && (scored.excluded[j] != 0 || weighed.weights[j] != 0)) continue;
    const double* const value = v.data() + j * width;
    for (std::size_t e = 0; e < width; ++e) mixed[e] += w * value[e];
  }
  round_all(recipe.rounding.output, mixed);
}

/// Every table of one row of the program.
void Evaluation::State::compute(lab::RowPlace at) {
  if (is_score(scorer.start())) {
    scorer.score(at, scored);
    softmax.weigh(scorer, at, scored, weighed);
    drop(at);
  } else {
    const auto from = scorer.observed(at);
    scored.excluded.resize(from.size());
    scorer.sight().look(at, scored.excluded);
    weighed.weights.assign(from.begin(), from.end());
    dropped = weighed.weights;
    weighed.log_sum_exp = nan;
  }
  mix(at);
}

/// The dump's tables but for the output.
void Evaluation::State::tables(lab::RowPlace at) {
  row.dot = scored.dot;
  row.scaled = scored.scaled;
  row.capped = scored.capped;
  row.biased = scored.biased;
  row.masked = scored.masked;
  row.weights = dropped;
  row.log_sum_exp = weighed.log_sum_exp;
  (void)at;
}

/// Where the program lays its numbers elsewhere, those of several of its rows make one of the dump.
/// `done` is the program's row that `mixed` belongs to, if any.
void Evaluation::State::output(lab::RowPlace at, std::optional<lab::RowPlace> done) {
  const Operands& operands = scorer.operands();
  const auto width = scorer.claim().has_value() ? scorer.claim().shape.E : 0;
  row.output.assign(at_index(width), nan);
  features.clear();
  for (std::int64_t e = 0; e < width; ++e) features.push_back(e);
  while (!features.empty()) {
    const lab::RowPlace next = operands.source_of_output(at, features.front()).row;
    if (!done || !same_row(next, *done)) compute(next);
    done = next;
    std::size_t left = 0;
    for (const std::int64_t e : features) {
      const auto source = operands.source_of_output(at, e);
      if (same_row(source.row, next)) {
        row.output[at_index(e)] = mixed[at_index(source.feature)];
      } else {
        features[left++] = e;
      }
    }
    features.resize(left);
  }
}

Evaluation::Evaluation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Evaluation::~Evaluation() = default;
Evaluation::Evaluation(Evaluation&&) noexcept = default;
Evaluation& Evaluation::operator=(Evaluation&&) noexcept = default;

std::optional<Evaluation> Evaluation::make(const Dump& dump, const Recipe& recipe) {
  auto scorer = Scorer::make(dump, recipe);
  if (!scorer) return std::nullopt;
  const lab::AttentionShape& own = scorer->shape();
  const lab::AttentionShape& claimed = dump.claim.shape;
  const bool rows = own.B == claimed.B && own.H == claimed.H && own.T == claimed.T;
  for (const Observed& table : dump.stages) {
    if (table.stage == Stage::output) continue;
    if (!rows || (table.stage != Stage::log_sum_exp && own.S != claimed.S)) return std::nullopt;
  }
  auto state = std::make_unique<State>(dump, std::move(*scorer));
  state->as_claimed = rows;
  return Evaluation(std::move(state));
}

const StageRow& Evaluation::row(lab::RowPlace at) {
  if (state_->as_claimed) {
    state_->compute(at);
    state_->tables(at);
    state_->output(at, at);
  } else {
    state_->output(at, std::nullopt);
  }
  return state_->row;
}

}  // namespace attest::check
