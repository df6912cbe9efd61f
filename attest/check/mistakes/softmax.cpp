// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr double ln2 = 0x1.62e42fefa39efp-1;

double largest_of(std::span<const double> numbers) {
  double out = -infinity;
  for (const double x : numbers) out = x > out ? x : out;
  return out;
}

/// Keys [begin, end) of one softmax of their own; its maximum and sum.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
  double peak = -infinity;
  double sum = 0;
};
Part part_of(const ScoredRow& row, std::size_t begin, std::size_t end) {
  Part out{.begin = begin, .end = end};
  for (std::size_t j = begin; j < end; ++j) {
    if (row.excluded[j] == 0) out.peak = std::max(out.peak, row.logits[j]);
  }
  for (std::size_t j = begin; j < end; ++j) {
    if (row.excluded[j] == 0) out.sum += std::exp(row.logits[j] - out.peak);
  }
  return out;
}

/// A softmax of what were weights: a hidden key has weight 0 by now, which is a score like others.
void again(std::vector<double>& weights) {
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w);
  for (double& w : weights) w /= sum;
}

}  // namespace

double Softmax::sink_of(Scorer& scorer, std::int64_t h, bool& any) const {
  const std::vector<double>& values =
      recipe_->sink.values ? *recipe_->sink.values : scorer.claim().call.sink;
  any = at_index(h) < values.size();
  if (!any) return 0;
  const double sink = values[at_index(h)];
  const double cap = scorer.claim().call.softcap.value_or(0);
  return recipe_->sink.capped && cap > 0 ? cap * std::tanh(sink / cap) : sink;
}

void Softmax::over_keys(Scorer& scorer, lab::RowPlace at, ScoredRow& row, WeighedRow& out) {
  const SoftmaxRecipe& how = recipe_->softmax;
  bool sunk = false;
  const double sink = sink_of(scorer, at.h, sunk);
  const SinkUse use = recipe_->sink.use;
  std::vector<double>& logits = row.logits;
  const std::size_t size = logits.size();
  if (sunk && use == SinkUse::added_to_all) {
    for (double& x : logits) x += sink;
  }
  if (sunk && use == SinkUse::added_to_first && size > 0) logits[0] += sink;
  if (sunk && use == SinkUse::maximum) {
    for (std::size_t j = 0; j < size; ++j) {
      if (row.excluded[j] == 0) logits[j] = std::max(logits[j], sink);
    }
  }
  if (how.exponent != 1) {
    for (double& x : logits) x *= how.exponent;
  }
  const bool joins = sunk && (use == SinkUse::denominator || use == SinkUse::twice);
  double zeros = how.more_zeros;
  if (how.zeros_to_multiple > 0) {
    const auto keys = static_cast<std::int64_t>(size);
    zeros += static_cast<double>((how.zeros_to_multiple - keys % how.zeros_to_multiple) %
                                 how.zeros_to_multiple);
  }
  const double top = largest_of(logits);
  double peak = top;
  if (joins) peak = std::max(peak, sink);
  if (zeros > 0) peak = std::max(peak, 0.0);
  double sum = 0;
  for (std::size_t j = 0; j < size; ++j) {
    const double e = row.excluded[j] != 0 ? 0 : std::exp(logits[j] - peak);
    out.weights[j] = e;
    sum += e;
  }
  const double own = sum;
  if (joins) sum += (use == SinkUse::twice ? 2 : 1) * std::exp(sink - peak);
  if (sunk && use == SinkUse::not_exp) sum += sink * std::exp(-peak);
  if (sunk && use == SinkUse::gate) sum *= 1 + std::exp(sink - peak - std::log(own));
  if (zeros > 0) sum += zeros * std::exp(-peak);
  out.top = top;
  out.peak = peak;
  out.sum = sum;
  out.log_sum_exp = peak + std::log(sum);
  out.log_sum_without_sink = peak + std::log(own);
  if (how.form == SoftmaxForm::softmax) {
    for (double& w : out.weights) w /= sum;
    if (how.averaged_parts > 0) in_parts(row, out);
    if (how.unrescaled_block > 0) unrescaled(row, out);
    if (how.no_max || how.max_not_below_zero) in_binary32(row, out);
  } else {
    other_form(row, out);
  }
}

/// exp and its sum as binary32 has them: they overflow, and they vanish.
void Softmax::in_binary32(const ScoredRow& row, WeighedRow& out) const {
  const double peak = recipe_->softmax.no_max ? 0 : std::max(out.peak, 0.0);
  float sum = 0;
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    const float e =
        row.excluded[j] != 0 ? 0.0F : std::exp(static_cast<float>(row.logits[j] - peak));
    out.weights[j] = static_cast<double>(e);
    sum += e;
  }
  const bool ordinary = sum > std::numeric_limits<float>::min() && std::isfinite(sum);
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    double& w = out.weights[j];
    if (ordinary) {
      w = row.excluded[j] != 0 ? 0 : std::exp(row.logits[j] - out.peak) / out.sum;
    } else if (row.excluded[j] == 0) {
      w = sum == 0 && recipe_->softmax.max_not_below_zero ? 0 : w / static_cast<double>(sum);
    }
  }
}

/// `out.weights` holds exponentials.
void Softmax::other_form(const ScoredRow& row, WeighedRow& out) const {
  double largest = 0;
  for (const double x : row.logits) largest += x == out.top ? 1 : 0;
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    double& w = out.weights[j];
    const double x = row.logits[j];
    if (recipe_->softmax.form == SoftmaxForm::twice) w /= out.sum;
    if (row.excluded[j] != 0) continue;
    switch (recipe_->softmax.form) {
      case SoftmaxForm::softmax:
      case SoftmaxForm::unnormalised:
      case SoftmaxForm::twice:
        break;
      case SoftmaxForm::missing:
        w = x;
        break;
      case SoftmaxForm::sigmoid:
        w = 1 / (1 + std::exp(-x));
        break;
      case SoftmaxForm::log:
        w = x - out.log_sum_exp;
        break;
      case SoftmaxForm::argmax:
        w = x == out.top ? 1 / largest : 0;
        break;
    }
  }
  if (recipe_->softmax.form == SoftmaxForm::twice) again(out.weights);
}

void Softmax::in_parts(const ScoredRow& row, WeighedRow& out) const {
  const SoftmaxRecipe& how = recipe_->softmax;
  const std::size_t size = row.logits.size();
  const auto parts = std::min(at_index(how.averaged_parts), size);
  const std::size_t width = (size + parts - 1) / parts;
  std::vector<Part> all;
  for (std::size_t begin = 0; begin < size; begin += width) {
    all.push_back(part_of(row, begin, std::min(begin + width, size)));
  }
  double most = -infinity;
  std::vector<double> shares;
  for (const Part& part : all) {
    const double log_sum = (part.peak + std::log(part.sum)) / (how.parts_merged_base2 ? ln2 : 1);
    shares.push_back(part.sum == 0 ? -infinity : log_sum);
    most = std::max(most, shares.back());
  }
  double total = 0;
  for (double& share : shares) {
    share = how.parts_merged_base2 ? std::exp(share - most) : 1;
    total += share;
  }
  for (std::size_t n = 0; n < all.size(); ++n) {
    for (std::size_t j = all[n].begin; j < all[n].end; ++j) {
      if (row.excluded[j] != 0) continue;
      out.weights[j] = std::exp(row.logits[j] - all[n].peak) / all[n].sum * (shares[n] / total);
    }
  }
}

/// The running sum is rescaled at block edges, the running mix is not.
void Softmax::unrescaled(const ScoredRow& row, WeighedRow& out) const {
  const auto width = at_index(recipe_->softmax.unrescaled_block);
  const std::size_t size = row.logits.size();
  double peak = -infinity;
  for (std::size_t begin = 0; begin < size; begin += width) {
    const std::size_t end = std::min(begin + width, size);
    peak = std::max(peak, part_of(row, begin, end).peak);
    for (std::size_t j = begin; j < end; ++j) {
      if (row.excluded[j] == 0) out.weights[j] = std::exp(row.logits[j] - peak) / out.sum;
    }
  }
}

const Softmax::Columns& Softmax::columns(Scorer& scorer, lab::RowPlace at) {
  const lab::AttentionShape& s = scorer.shape();
  const SoftmaxOver over = recipe_->softmax.over;
  const std::int64_t name = over == SoftmaxOver::heads   ? at.b * s.T + at.i
                            : over == SoftmaxOver::batch ? at.h * s.T + at.i
                                                         : at.b * s.H + at.h;
  const auto found = kept_.find(name);
  if (found != kept_.end()) return found->second;
  // Rows are mostly asked for query after query: what belongs to one query alone is not kept long.
  if (over == SoftmaxOver::heads || over == SoftmaxOver::batch) {
    if (kept_.size() >= 64) kept_.clear();
  }
  Columns& out = kept_[name];
  const auto size = at_index(s.S);
  out.peak.assign(size, -infinity);
  out.sum.assign(size, 0);
  const std::int64_t rows = over == SoftmaxOver::heads   ? s.H
                            : over == SoftmaxOver::batch ? s.B
                                                         : s.T;
  for (std::int64_t n = 0; n < rows; ++n) {
    lab::RowPlace place = at;
    (over == SoftmaxOver::heads ? place.h : over == SoftmaxOver::batch ? place.b : place.i) = n;
    scorer.score(place, other_);
    for (std::size_t j = 0; j < size; ++j) {
      if (other_.excluded[j] != 0) continue;
      const double x = other_.logits[j] * recipe_->softmax.exponent;
      if (x > out.peak[j]) {
        out.sum[j] = out.sum[j] * std::exp(out.peak[j] - x) + 1;
        out.peak[j] = x;
      } else {
        out.sum[j] += std::exp(x - out.peak[j]);
      }
    }
  }
  if (over == SoftmaxOver::pairs) {
    const double peak = largest_of(out.peak);
    double sum = 0;
    for (std::size_t j = 0; j < size; ++j) {
      if (out.sum[j] != 0) sum += out.sum[j] * std::exp(out.peak[j] - peak);
    }
    out.peak.assign(size, peak);
    out.sum.assign(size, sum);
  }
  return out;
}

void Softmax::over_others(Scorer& scorer, lab::RowPlace at, const ScoredRow& row, WeighedRow& out) {
  const Columns& columns = this->columns(scorer, at);
  double sum = 0;
  for (std::size_t j = 0; j < row.logits.size(); ++j) {
    const double x = row.logits[j] * recipe_->softmax.exponent;
    const double w = row.excluded[j] != 0 ? 0 : std::exp(x - columns.peak[j]) / columns.sum[j];
    out.weights[j] = w;
    sum += w;
  }
  out.peak = largest_of(row.logits);
  out.sum = sum;
  out.log_sum_exp = nan;  // such a program has none
}

void Softmax::weigh(Scorer& scorer, lab::RowPlace at, ScoredRow& row, WeighedRow& out) {
  out.weights.assign(row.logits.size(), 0);
  out.empty = row.empty;
  out.reads_all = false;
  if (row.empty) {
    answer_empty(row, scorer.claim().call.empty_row, out);
    if (recipe_->softmax.form == SoftmaxForm::twice) again(out.weights);
    return;
  }
  const SoftmaxRecipe& how = recipe_->softmax;
  if (how.over == SoftmaxOver::keys) {
    over_keys(scorer, at, row, out);
  } else {
    over_others(scorer, at, row, out);
  }
  hide_after(row, out);
}

/// Weights that are made 0 once they are weights.
void Softmax::hide_after(const ScoredRow& row, WeighedRow& out) const {
  const auto late = [](HideBy by) {
    return by == HideBy::after_softmax || by == HideBy::after_softmax_renormalised;
  };
  const HideBy positions = recipe_->hide.positions.by;
  const HideBy masks = recipe_->hide.masks.by;
  const auto why =
      (late(positions) ? hidden_by_position : 0U) | (late(masks) ? hidden_by_mask : 0U);
  if (why == 0) return;
  double left = 0;
  for (std::size_t j = 0; j < row.hidden.size(); ++j) {
    if ((row.hidden[j] & why) != 0) out.weights[j] = 0;
    left += out.weights[j];
  }
  if (positions != HideBy::after_softmax_renormalised &&
      masks != HideBy::after_softmax_renormalised) {
    return;
  }
  for (double& w : out.weights) w = left == 0 ? 0 : w / left;
}

void Softmax::answer_empty(const ScoredRow& row, EmptyRow claimed, WeighedRow& out) const {
  EmptyAnswer answer = recipe_->hide.empty;
  if (answer == EmptyAnswer::claimed) {
    answer = claimed == EmptyRow::nan ? EmptyAnswer::nan : EmptyAnswer::zero;
  }
  out.log_sum_exp = -infinity;
  out.peak = -infinity;
  out.sum = 0;
  out.reads_all = true;
  const std::size_t size = out.weights.size();
  switch (answer) {
    case EmptyAnswer::claimed:
    case EmptyAnswer::zero:
      out.reads_all = false;
      break;
    case EmptyAnswer::nan:
      std::ranges::fill(out.weights, nan);
      out.reads_all = true;
      break;
    case EmptyAnswer::uniform:
      std::ranges::fill(out.weights, 1 / static_cast<double>(size));
      break;
    case EmptyAnswer::first_value:
      if (size > 0) out.weights[0] = 1;
      break;
    case EmptyAnswer::unmasked: {
      const std::vector<double>& scores = row.biased.empty() ? row.logits : row.biased;
      const double peak = largest_of(scores);
      double sum = 0;
      for (std::size_t j = 0; j < size; ++j) sum += out.weights[j] = std::exp(scores[j] - peak);
      for (double& w : out.weights) w /= sum;
      out.log_sum_exp = peak + std::log(sum);
      break;
    }
  }
}

}  // namespace attest::check
