// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "attest/check/at_index.h"
#include "attest/check/mistakes/rounding.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Eight running sums, so that the compiler may use vectors.
double dot_product(const double* a, const double* b, std::size_t size) {
  std::array<double, 8> sums{};
  std::size_t d = 0;
  for (; d + 8 <= size; d += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += a[d + lane] * b[d + lane];
  }
  double rest = 0;
  for (; d < size; ++d) rest += a[d] * b[d];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) +
         rest;
}

/// Steps of a program's scores. A step that the dump's first table comes after is not taken.
using Steps = std::array<Stage, 5>;
Steps steps_of(CapPlace place) {
  using enum Stage;
  switch (place) {
    case CapPlace::dot:
      return {dot, capped, scaled, biased, masked};
    case CapPlace::biased:
      return {dot, scaled, biased, capped, masked};
    case CapPlace::masked:
      return {dot, scaled, biased, masked, capped};
    case CapPlace::scaled:
    case CapPlace::output:
      break;
  }
  return {dot, scaled, capped, biased, masked};
}

std::vector<double>& table_of(ScoredRow& row, Stage stage) {
  switch (stage) {
    case Stage::dot:
      return row.dot;
    case Stage::scaled:
      return row.scaled;
    case Stage::capped:
      return row.capped;
    case Stage::biased:
      return row.biased;
    default:
      return row.masked;
  }
}

/// Index of every key in the claim; empty if they are the same.
std::vector<std::int64_t> keys_of(const Operands& operands) {
  std::vector<std::int64_t> out;
  const std::int64_t size = operands.shape().S;
  std::int64_t same = 0;
  while (same < size && operands.key_index(same) == same) ++same;
  if (same == size) return out;
  for (std::int64_t j = 0; j < size; ++j) out.push_back(operands.key_index(j));
  return out;
}

bool zeroes_key(HideBy by) {
  return by == HideBy::zeroing_key || by == HideBy::zeroing_key_and_value;
}

}  // namespace

std::optional<Scorer> Scorer::make(const Dump& dump, const Recipe& recipe) {
  auto operands = Operands::make(dump.claim, recipe.operands);
  if (!operands) return std::nullopt;
  auto sight = Sight::make(dump.claim, operands->shape(), recipe.scoring.sight, recipe.scoring.bias,
                           keys_of(*operands));
  if (!sight) return std::nullopt;
  Scorer out(dump, recipe.scoring, std::move(*operands), std::move(*sight));
  if (!out.choose_start()) return std::nullopt;
  out.settle();
  const auto heads = at_index(out.shape().H);
  if (!out.slopes_.empty() && out.slopes_.size() < heads) return std::nullopt;
  return out;
}

bool Scorer::choose_start() {
  if (claim().has_query_and_key()) return true;
  const lab::AttentionShape& own = shape();
  const lab::AttentionShape& claimed = claim().shape;
  const bool as_claimed = own.B == claimed.B && own.H == claimed.H && own.T == claimed.T &&
                          own.S == claimed.S && sight_.claim_key(0) == 0;
  if (!as_claimed) return false;
  for (const Observed& table : dump_->stages) {
    if (table.stage >= Stage::log_sum_exp) continue;
    if (first_ == nullptr || table.stage < first_->stage) first_ = &table;
  }
  if (first_ == nullptr) return false;
  start_ = first_->stage;
  // The table that a dump begins with is believed: under another name it would explain whatever it is.
  return recipe_.label.shown_as(start_) == start_;
}

void Scorer::settle() {
  const AttentionCase& call = claim().call;
  scale_ = recipe_.scale ? *recipe_.scale
           : call.scale  ? *call.scale
                         : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape().D, 1)));
  scale_ *= recipe_.scale_factor;
  cap_ = recipe_.softcap.value_or(call.softcap.value_or(0));
  if (recipe_.cap.form == CapForm::missing) cap_ = 0;
  slopes_ = recipe_.alibi.slopes.value_or(call.alibi_slopes);
}

void Scorer::leave_out_hidden() {
  const HideRecipe& hide = recipe_.hide;
  // A program that caps last shows what it had hidden; under another name, any table may be looked at.
  leaves_out_hidden_ = hide.positions.by == HideBy::excluding &&
                       hide.masks.by == HideBy::excluding &&
                       recipe_.cap.place != CapPlace::masked && !recipe_.label.named;
}

std::span<const double> Scorer::observed(lab::RowPlace at) const {
  if (first_ == nullptr) return {};
  const std::int64_t size = shape().S;
  const std::int64_t row = (at.b * shape().H + at.h) * shape().T + at.i;
  return first_->values.elements().subspan(at_index(row * size), at_index(size));
}

void Scorer::multiply(lab::RowPlace at, ScoredRow& row) {
  const auto size = at_index(shape().S);
  const auto width = at_index(shape().D);
  std::span<const double> query = operands_.query(at);
  std::span<const double> keys = operands_.keys(at.b, at.h);
  if (recipe_.rounding.query_key != Precision::f64) {
    rounded_query_.assign(query.begin(), query.end());
    rounded_keys_.assign(keys.begin(), keys.end());
    round_all(recipe_.rounding.query_key, rounded_query_);
    round_all(recipe_.rounding.query_key, rounded_keys_);
    query = rounded_query_;
    keys = rounded_keys_;
  }
  double* const out = row.logits.data();
  for (std::size_t j = 0; j < size; ++j) {
    const bool left_out = leaves_out_hidden_ && row.hidden[j] != 0;
    out[j] = left_out ? 0 : dot_product(query.data(), keys.data() + j * width, width);
  }
  const auto zero_for = [&](HideBy by, std::uint8_t why) {
    if (!zeroes_key(by)) return;
    for (std::size_t j = 0; j < size; ++j) {
      if ((row.hidden[j] & why) != 0) out[j] = 0;
    }
  };
  zero_for(recipe_.hide.positions.by, hidden_by_position);
  zero_for(recipe_.hide.masks.by, hidden_by_mask);
  const Precision precision = recipe_.rounding.dot;
  round_all(precision, row.logits);
  if (!recipe_.rounding.dot_clipped) return;
  const double most = largest(precision);
  for (double& x : row.logits) x = std::clamp(x, -most, most);
}

void Scorer::add_table(lab::RowPlace at, std::span<double> scores) const {
  const BiasUse use = recipe_.bias.use;
  const bool arithmetic = use == BiasUse::added || use == BiasUse::subtracted ||
                          use == BiasUse::twice || use == BiasUse::multiplied ||
                          use == BiasUse::before_scale || use == BiasUse::after_softmax;
  if (!claim().call.bias || !arithmetic) return;
  lab::AttentionShape axes = shape();
  axes.S = claim().shape.S;
  const TableRow<double> row{claim().call.bias->view<4>(),
                             LookupRow::of(recipe_.bias.lookup, axes, at)};
  const double factor = use == BiasUse::subtracted ? -1 : use == BiasUse::twice ? 2 : 1;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const double bias = row.at(sight_.claim_key(static_cast<std::int64_t>(j))).value_or(0);
    scores[j] = use == BiasUse::multiplied ? scores[j] * bias : scores[j] + factor * bias;
  }
}

void Scorer::add_alibi(lab::RowPlace at, std::span<double> scores) const {
  if (slopes_.empty()) return;
  const AlibiRecipe& alibi = recipe_.alibi;
  const double slope = slopes_[at_index(at.h)];
  const std::int64_t p = alibi.at_index ? sight_.position_at_index(at) : sight_.position(at);
  for (std::size_t j = 0; j < scores.size(); ++j) {
    const std::int64_t key = sight_.claim_key(static_cast<std::int64_t>(j));
    const auto ahead = static_cast<double>(p - key);
    double distance = 0;
    switch (alibi.distance) {
      case AlibiDistance::absolute:
        distance = -std::fabs(ahead);
        break;
      case AlibiDistance::difference:
        distance = -ahead;
        break;
      case AlibiDistance::future_free:
        distance = -std::max(ahead, 0.0);
        break;
      case AlibiDistance::key:
        distance = static_cast<double>(key);
        break;
      case AlibiDistance::key_minus:
        distance = -static_cast<double>(key);
        break;
      case AlibiDistance::square:
        distance = -ahead * ahead;
        break;
    }
    scores[j] += slope * (distance - static_cast<double>(alibi.shift));
  }
}

void Scorer::scale(lab::RowPlace at, ScoredRow& row) {
  if (recipe_.bias.use == BiasUse::before_scale) add_table(at, row.logits);
  if (recipe_.alibi.before_scale) add_alibi(at, row.logits);
  for (double& x : row.logits) x *= scale_;
  round_all(recipe_.rounding.scaled, row.logits);
}

void Scorer::cap(ScoredRow& row) const {
  if (cap_ == 0 || recipe_.cap.place == CapPlace::output) return;
  const double c = cap_;
  for (double& x : row.logits) {
    switch (recipe_.cap.form) {
      case CapForm::tanh:
        x = c * std::tanh(x / c);
        break;
      case CapForm::no_multiply_back:
        x = std::tanh(x / c);
        break;
      case CapForm::no_divide:
        x = c * std::tanh(x);
        break;
      case CapForm::clip:
        x = std::clamp(x, -c, c);
        break;
      case CapForm::missing:
        break;
    }
  }
  // A program that caps last caps what it had hidden, too: nothing is hidden any more.
  if (recipe_.cap.place == CapPlace::masked) std::ranges::fill(row.excluded, std::uint8_t{0});
}

void Scorer::add_bias(lab::RowPlace at, ScoredRow& row) {
  const BiasUse use = recipe_.bias.use;
  if (use != BiasUse::before_scale && use != BiasUse::after_softmax) add_table(at, row.logits);
  if (!recipe_.alibi.before_scale) add_alibi(at, row.logits);
  round_all(recipe_.rounding.biased, row.logits);
}

namespace {

/// One way of hiding, for the keys that `why` holds of. Excluding is left to the caller.
void hide_by(const Hide& hide, std::uint8_t why, ScoredRow& row) {
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    const bool hidden = (row.hidden[j] & why) != 0;
    double& x = row.logits[j];
    if (hidden && hide.by == HideBy::replacing) x = hide.number;
    if (hidden && hide.by == HideBy::multiplying) x = 0;
    const bool added = hidden ? hide.by == HideBy::adding : hide.by == HideBy::adding_visible;
    if (added) x = rounded(hide.sum, rounded(hide.sum, x) + rounded(hide.sum, hide.number));
  }
}

}  // namespace

void Scorer::hide(ScoredRow& row) const {
  const HideRecipe& how = recipe_.hide;
  if (how.positions.by != HideBy::excluding) hide_by(how.positions, hidden_by_position, row);
  if (how.masks.by != HideBy::excluding) hide_by(how.masks, hidden_by_mask, row);
  const auto excluding = (how.positions.by == HideBy::excluding ? hidden_by_position : 0U) |
                         (how.masks.by == HideBy::excluding ? hidden_by_mask : 0U);
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    const bool out = (row.hidden[j] & excluding) != 0;
    row.excluded[j] = out ? 1 : 0;
    row.logits[j] = out ? -infinity : row.logits[j];
  }
}

void Scorer::score(lab::RowPlace at, ScoredRow& row) {
  const auto size = at_index(shape().S);
  row.logits.resize(size);
  row.hidden.resize(size);
  row.excluded.assign(size, 0);
  sight_.look(at, row.hidden);
  bool begun = false;
  for (const Stage step : steps_of(recipe_.cap.place)) {
    std::vector<double>& table = table_of(row, step);
    if (!begun && step != start_) {
      table.clear();
      continue;
    }
    if (!begun && first_ != nullptr) {
      const auto from = observed(at);
      std::ranges::copy(from, row.logits.begin());
      if (step == Stage::masked) {
        for (std::size_t j = 0; j < size; ++j) row.excluded[j] = from[j] == -infinity ? 1 : 0;
      }
    } else {
      if (step == Stage::dot) multiply(at, row);
      if (step == Stage::scaled) scale(at, row);
      if (step == Stage::capped) cap(row);
      if (step == Stage::biased) add_bias(at, row);
      if (step == Stage::masked) hide(row);
    }
    begun = true;
    table.assign(row.logits.begin(), row.logits.end());
  }
  row.empty = std::ranges::find(row.excluded, std::uint8_t{0}) == row.excluded.end();
}

}  // namespace attest::check
