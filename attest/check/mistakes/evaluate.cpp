// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/evaluate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/base/dropout.h"
#include "attest/check/at_index.h"
#include "attest/check/mistakes/dropout_fit.h"
#include "attest/check/mistakes/rounding.h"
#include "attest/check/mistakes/scores.h"
#include "attest/check/mistakes/softmax.h"

namespace attest::check {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ln2 = 0x1.62e42fefa39efp-1;

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
  std::vector<double> joined{};   // weights of all heads
  std::vector<std::int64_t> features{};
  bool as_claimed = true;  // the program's tables have the claim's shape
  StageRow row{};

  void compute(lab::RowPlace at);
  [[nodiscard]] const Observed* held(Stage stage) const;
  void drop_as_found(lab::RowPlace at, double rate);
  void drop(lab::RowPlace at);
  [[nodiscard]] std::span<const double> values_of(lab::RowPlace at);
  void mix(lab::RowPlace at);
  void finish(lab::RowPlace at);
  [[nodiscard]] double shown_log_sum_exp() const;
  void show();
  void join_heads(lab::RowPlace at);
  void output(lab::RowPlace at, std::optional<lab::RowPlace> done);
};

/// The table of that name in the dump, or null.
const Observed* Evaluation::State::held(Stage stage) const {
  const auto found = std::ranges::find(dump->stages, stage, &Observed::stage);
  return found == dump->stages.end() ? nullptr : &*found;
}

/// The dropped weights are found from the dump: from its weights, or else from its output.
void Evaluation::State::drop_as_found(lab::RowPlace at, double rate) {
  const auto row_of = [&](const Observed& table, std::int64_t width) {
    const lab::AttentionShape& s = scorer.claim().shape;
    const std::int64_t place = (at.b * s.H + at.h) * s.T + at.i;
    return table.values.elements().subspan(at_index(place * width), at_index(width));
  };
  std::vector<std::uint8_t> which;
  if (const Observed* const table = held(Stage::weights); table != nullptr && as_claimed) {
    const auto found = row_of(*table, scorer.shape().S);
    for (const double w : found) which.push_back(w == 0 ? 1 : 0);
  } else if (const Observed* const output = held(Stage::output); output != nullptr) {
    const std::int64_t width = scorer.shape().E;
    const bool in_place = as_claimed && width > 0 &&
                          same_row(scorer.operands().source_of_output(at, 0).row, at) &&
                          same_row(scorer.operands().source_of_output(at, width - 1).row, at);
    if (in_place) {
      which = dropped_keys(dropped, values_of(at), row_of(*output, width), rate,
                           scorer.claim().precision);
    }
  }
  for (std::size_t j = 0; j < which.size(); ++j) {
    dropped[j] = which[j] != 0 ? 0 : dropped[j] / (1 - rate);
  }
}

/// Weights after dropout: what multiplies value.
void Evaluation::State::drop(lab::RowPlace at) {
  dropped.assign(weighed.weights.begin(), weighed.weights.end());
  const ScoringRecipe& recipe = scorer.recipe();
  const MixRecipe& how = recipe.mix;
  if (recipe.bias.use == BiasUse::after_softmax) scorer.add_table(at, dropped);
  if (how.weight_factor != 1) {
    for (double& w : dropped) w *= how.weight_factor;
  }
  round_all(recipe.rounding.weights, dropped);
  if (how.fitted_dropout && !weighed.empty) drop_as_found(at, *how.fitted_dropout);
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

std::span<const double> Evaluation::State::values_of(lab::RowPlace at) {
  const std::span<const double> v = scorer.operands().values(at.b, at.h);
  const Precision precision = scorer.recipe().rounding.value;
  if (precision == Precision::f64) return v;
  values.assign(v.begin(), v.end());
  round_all(precision, values);
  return values;
}

void Evaluation::State::mix(lab::RowPlace at) {
  mixed.clear();
  if (!scorer.claim().has_value()) return;
  const auto width = at_index(scorer.shape().E);
  mixed.assign(width, 0);
  const std::span<const double> v = values_of(at);
  const HideRecipe& hide = scorer.recipe().hide;
  const auto zeroes = [](HideBy by) {
    return by == HideBy::zeroing_value || by == HideBy::zeroing_key_and_value;
  };
  const auto zeroed = (zeroes(hide.positions.by) ? hidden_by_position : 0U) |
                      (zeroes(hide.masks.by) ? hidden_by_mask : 0U);
  const bool reads_hidden = hide.hidden_values_read || weighed.reads_all;
  for (std::size_t j = 0; j < dropped.size(); ++j) {
    const double w = dropped[j];
    // Hidden and dropped values are not read; of a visible one, 0 times infinity is NaN.
    if (w == 0 && !reads_hidden && (scored.excluded[j] != 0 || weighed.weights[j] != 0)) continue;
    if ((scored.hidden[j] & zeroed) != 0) continue;
    const double* const value = v.data() + j * width;
    for (std::size_t e = 0; e < width; ++e) mixed[e] += w * value[e];
  }
}

/// What becomes of the mix.
void Evaluation::State::finish(lab::RowPlace at) {
  if (mixed.empty()) return;
  const ScoringRecipe& recipe = scorer.recipe();
  if (recipe.cap.place == CapPlace::output && scorer.softcap() != 0) {
    for (double& x : mixed) x = scorer.softcap() * std::tanh(x / scorer.softcap());
  }
  const bool padded = recipe.hide.padded_queries_zero && at.i >= scorer.sight().key_length(at.b);
  switch (recipe.mix.output) {
    case OutputForm::mix:
    case OutputForm::row_before:
      break;
    case OutputForm::zeros:
      std::ranges::fill(mixed, 0.0);
      break;
    case OutputForm::own_value: {
      const auto own = values_of(at).subspan(at_index(at.i) * mixed.size(), mixed.size());
      std::ranges::copy(own, mixed.begin());
      break;
    }
    case OutputForm::query_added: {
      const auto query = scorer.operands().query(at);
      for (std::size_t e = 0; e < mixed.size(); ++e) mixed[e] += query[e];
      break;
    }
    case OutputForm::negated:
      for (double& x : mixed) x = -x;
      break;
  }
  if (padded) std::ranges::fill(mixed, 0.0);
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
    scored.hidden.resize(from.size());
    scorer.sight().look(at, scored.hidden);
    scored.excluded = scored.hidden;
    weighed.weights.assign(from.begin(), from.end());
    dropped = weighed.weights;
    weighed.log_sum_exp = nan;
  }
  mix(at);
  finish(at);
}

double Evaluation::State::shown_log_sum_exp() const {
  switch (scorer.recipe().label.log_sum_exp) {
    case LseForm::natural:
      break;
    case LseForm::base2:
      return weighed.log_sum_exp / ln2;
    case LseForm::infinite_if_empty:
      return weighed.empty ? infinity : weighed.log_sum_exp;
    case LseForm::without_max:
      return std::log(weighed.sum);
    case LseForm::without_sink:
      return weighed.log_sum_without_sink;
    case LseForm::maximum:
      return weighed.peak;
    case LseForm::sum:
      return weighed.sum;
  }
  return weighed.log_sum_exp;
}

/// The dump's tables but for the output.
void Evaluation::State::show() {
  const LabelRecipe& label = scorer.recipe().label;
  const auto table = [&](Stage name) -> const std::vector<double>& {
    switch (label.shown_as(name)) {
      case Stage::dot:
        return scored.dot;
      case Stage::scaled:
        return scored.scaled;
      case Stage::capped:
        return scored.capped;
      case Stage::biased:
        return scored.biased;
      case Stage::masked:
        return scored.masked;
      default:
        return label.weights == WeightsShown::before_dropout ? weighed.weights : dropped;
    }
  };
  row.dot = table(Stage::dot);
  row.scaled = table(Stage::scaled);
  row.capped = table(Stage::capped);
  row.biased = table(Stage::biased);
  row.masked = table(Stage::masked);
  row.weights = table(Stage::weights);
  row.log_sum_exp = shown_log_sum_exp();
}

/// The mean or the sum of the weights of all heads.
void Evaluation::State::join_heads(lab::RowPlace at) {
  const std::int64_t heads = scorer.shape().H;
  joined.assign(at_index(scorer.shape().S), 0);
  for (std::int64_t h = 0; h < heads; ++h) {
    compute({at.b, h, at.i});
    for (std::size_t j = 0; j < joined.size(); ++j) joined[j] += dropped[j];
  }
  if (scorer.recipe().label.weights == WeightsShown::head_sum) return;
  for (double& w : joined) w /= static_cast<double>(heads);
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
    lab::RowPlace next = operands.source_of_output(at, features.front()).row;
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

/// False where what stands for the mix would be read outside: another recipe may leave a program fewer
/// keys or narrower queries than the claim has.
bool holds_output(const Scorer& scorer) {
  const lab::AttentionShape& own = scorer.shape();
  switch (scorer.recipe().mix.output) {
    case OutputForm::own_value:
      return own.T <= own.S;
    case OutputForm::query_added:
      return scorer.claim().has_query_and_key() && own.E <= own.D;
    default:
      return true;
  }
}

Evaluation::Evaluation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Evaluation::~Evaluation() = default;
Evaluation::Evaluation(Evaluation&&) noexcept = default;
Evaluation& Evaluation::operator=(Evaluation&&) noexcept = default;

std::optional<Evaluation> Evaluation::make(const Dump& dump, const Recipe& recipe) {
  auto scorer = Scorer::make(dump, recipe);
  if (!scorer || !holds_output(*scorer)) return std::nullopt;
  const lab::AttentionShape& own = scorer->shape();
  const lab::AttentionShape& claimed = dump.claim.shape;
  const bool rows = own.B == claimed.B && own.H == claimed.H && own.T == claimed.T;
  for (const Observed& table : dump.stages) {
    if (table.stage == Stage::output) continue;
    if (!rows || (table.stage != Stage::log_sum_exp && own.S != claimed.S)) return std::nullopt;
  }
  const LabelRecipe& label = recipe.scoring.label;
  const auto holds = [&](Stage stage) {
    return std::ranges::find(dump.stages, stage, &Observed::stage) != dump.stages.end();
  };
  if (label.named && !holds(*label.named) && !(label.exchanged && holds(label.is))) {
    return std::nullopt;
  }
  if (label.log_sum_exp != LseForm::natural && !holds(Stage::log_sum_exp)) return std::nullopt;
  if (label.weights != WeightsShown::own && !holds(Stage::weights)) return std::nullopt;
  auto state = std::make_unique<State>(dump, std::move(*scorer));
  state->as_claimed = rows;
  return Evaluation(std::move(state));
}

void Evaluation::leave_out_hidden_scores() { state_->scorer.leave_out_hidden(); }

const StageRow& Evaluation::row(lab::RowPlace at) {
  State& state = *state_;
  const ScoringRecipe& recipe = state.scorer.recipe();
  if (!state.as_claimed) {
    state.output(at, std::nullopt);
    return state.row;
  }
  const WeightsShown weights = recipe.label.weights;
  const bool joins = weights == WeightsShown::head_mean || weights == WeightsShown::head_sum;
  if (joins) state.join_heads(at);
  state.compute(at);
  state.show();
  if (joins) state.row.weights = state.joined;
  if (recipe.mix.output != OutputForm::row_before) {
    state.output(at, at);
  } else if (at.i > 0) {
    state.output({at.b, at.h, at.i - 1}, std::nullopt);
  } else {
    state.row.output.assign(at_index(state.scorer.claim().shape.E), 0);
  }
  return state.row;
}

}  // namespace attest::check
