// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/check/at_index.h"

namespace attest::check {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double alpha = 1e-6;  // how often a right dump of n numbers may be called unusual

double tiny_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-25;
    case DType::bf16:
      return 0x1p-134;
    case DType::f32:
      return 0x1p-150;
    default:
      return 0x1p-1074;
  }
}

bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

double square(double x) { return x * x; }

/// base^(−2i/R) for both features of pair i; 0 for features that do not turn.
std::vector<double> rates_of(const RopeConfig& config, std::int64_t width) {
  const std::int64_t turned =
      std::min(config.rotary_dim == 0 ? width : config.rotary_dim, width) / 2 * 2;
  std::vector<double> out(at_index(width));
  for (std::int64_t d = 0; d < turned; ++d) {
    const std::int64_t pair = config.pairing == RopePairing::half ? d % (turned / 2) : d / 2;
    out[at_index(d)] =
        std::pow(config.base, -2 * static_cast<double>(pair) / static_cast<double>(turned));
  }
  return out;
}

/// Where rotary positions put query or key `l` of batch `b`, `count` of each.
double position_of(const std::vector<std::int64_t>& positions, std::int64_t first, std::int64_t b,
                   std::int64_t l, std::int64_t count) {
  if (positions.empty()) return static_cast<double>(first + l);
  const bool by_batch = static_cast<std::int64_t>(positions.size()) > count;
  const std::size_t n = at_index(by_batch ? b * count + l : l);
  return n < positions.size() ? std::fabs(static_cast<double>(positions[n])) : 0;
}

}  // namespace

double unit_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return 0x1p-53;
    case DType::f32:
      return 0x1p-24;
    case DType::f16:
      return 0x1p-11;
    case DType::bf16:
      return 0x1p-8;
    default:
      return 0;
  }
}

double largest_deviation(std::int64_t numbers) {
  const double n = static_cast<double>(std::max<std::int64_t>(numbers, 1));
  return std::sqrt(2 * std::log(2 * n / alpha));
}

double largest_mean_deviation(std::int64_t numbers) {
  const double n = static_cast<double>(std::max<std::int64_t>(numbers, 1));
  return 1 + std::sqrt(std::log(1 / alpha) / n);
}

Arithmetic arithmetic_of(const Dump& dump) {
  Arithmetic out;
  const Precision precision = dump.claim.precision;
  // What is compared with is computed in binary64, and errs as binary64 does.
  out.sums = (precision == Precision::f64 ? 0x1p-53 : 0x1p-24) + 0x1p-53;
  if (precision == Precision::f64) out.tiny = 0x1p-1022;
  if (precision == Precision::tf32) out.products = 0x1p-11;
  if (precision == Precision::f16 || precision == Precision::bf16) {
    out.weights = unit_of(precision);
    out.scores_worst = unit_of(precision);
    out.parts = unit_of(precision);
    // Either may be rounded once more when it is scaled; turning one costs 2√2 + 1 roundings.
    out.factors_worst = (dump.claim.rope ? 10 : 2.1) * unit_of(precision);
    out.factors_kept = std::sqrt((dump.claim.rope ? 7 : 1) / 3.0) * unit_of(precision);
  }
  // A program that is claimed to compute in a wide type does not compute with what a narrow table holds.
  const bool narrow = precision == Precision::f16 || precision == Precision::bf16;
  const bool begins_with_table = !dump.claim.has_query_and_key();
  for (const Observed& table : dump.stages) {
    const bool first = begins_with_table && &table == &dump.stages.front();
    const bool used = (narrow && is_narrow(table.dtype)) || first;
    const double unit = used ? unit_of(table.dtype) : 0;
    if (table.stage <= Stage::masked) out.scores = std::max(out.scores, unit);
    if (table.stage == Stage::weights) out.weights = std::max(out.weights, unit);
  }
  out.scores_worst = std::max(out.scores_worst, out.scores);
  return out;
}

Noise::Noise(const Dump& dump) : Noise(dump, arithmetic_of(dump)) {}

Noise::Noise(const Dump& dump, const Arithmetic& arithmetic)
    : dump_(dump), arithmetic_(arithmetic) {
  if (!dump.claim.has_query_and_key()) return;
  const Tensor<double>& key = dump.claim.call.key;
  const std::size_t width = at_index(key.extent(3));
  key_size_.resize(width == 0 ? 0 : key.size() / width);
  for (std::size_t n = 0; n < key_size_.size(); ++n) {
    double sum = 0;
    for (std::size_t d = 0; d < width; ++d) sum += square(key.data()[n * width + d]);
    key_size_[n] = std::sqrt(sum);
  }
  if (arithmetic.parts > 0) key_spread_ = fourth_powers(key);
  if (!dump.claim.rope) return;
  rates_ = rates_of(dump.claim.rope->config, key.extent(3));
  key_turn_.resize(key_size_.size());
  for (std::size_t n = 0; n < key_turn_.size(); ++n) {
    double sum = 0;
    for (std::size_t d = 0; d < width; ++d) sum += rates_[d] * square(key.data()[n * width + d]);
    key_turn_[n] = std::sqrt(sum);
  }
  double sum = 0, squares = 0;  // of pairs: every rate stands twice
  for (const double rate : rates_) {
    sum += rate / 2;
    squares += square(rate) / 2;
  }
  evenly_ = sum > 0 ? std::sqrt(squares) / sum : 0;
}

double Noise::Row::query_size() const {
  const Tensor<double>& query = noise_.dump_.claim.call.query;
  double sum = 0;
  for (std::int64_t d = 0; d < query.extent(3); ++d) {
    sum += square(query(at_.b, at_.h, at_.i, d));
  }
  return std::sqrt(sum);
}

double Noise::Row::query_turn() const {
  const Tensor<double>& query = noise_.dump_.claim.call.query;
  double sum = 0;
  for (std::int64_t d = 0; d < query.extent(3); ++d) {
    sum += noise_.rates_[at_index(d)] * square(query(at_.b, at_.h, at_.i, d));
  }
  return std::sqrt(sum);
}

void Noise::Row::begin(lab::RowPlace at, const StageRow& row) {
  at_ = at;
  row_ = &row;
  keys_ = std::max(row.masked.size(), row.weights.size());
  has_scores_ = row.masked.size() == keys_ && keys_ != 0;
  dot_.assign(keys_, {});
  score_.assign(keys_, {});
  share_.assign(keys_, {});
  common_.assign(keys_, 0);
  kept_.assign(keys_, 0);
  turned_.assign(keys_, 0);
  query_spread_ = -1;
  look();
  const Claim& claim = noise_.dump_.claim;
  const lab::AttentionShape& shape = claim.shape;
  const bool products = claim.has_query_and_key();
  const double query = products ? query_size() : 0;
  const std::size_t group =
      products ? at_index((at.b * shape.G + at.h / (shape.H / shape.G)) * shape.S) : 0;
  const bool turns = products && !noise_.key_turn_.empty();
  const double turn = turns ? query_turn() : 0;
  const double here =
      turns ? position_of(claim.rope->query_positions, claim.past, at.b, at.i, shape.T) : 0;
  for (std::size_t j = 0; j < keys_; ++j) {
    if (has_scores_ ? row.masked[j] == -infinity : !(row.weights[j] > 0)) continue;
    visible_ += 1;
    const bool own_key = products && group + j < noise_.key_size_.size();
    if (has_scores_ && own_key && turns) {
      const double there =
          position_of(claim.rope->key_positions, 0, at.b, static_cast<std::int64_t>(j), shape.S);
      score_errors(j, query * noise_.key_size_[group + j],
                   turn * noise_.key_turn_[group + j] * (here + there));
    } else if (has_scores_) {
      score_errors(j, own_key ? query * noise_.key_size_[group + j] : 0, 0);
    }
    if (!has_scores_) share_[j] = {noise_.arithmetic_.weights, 2 * noise_.arithmetic_.weights};
  }
  add_up();
}

/// The largest visible score, and what the program multiplies its products by.
void Noise::Row::look() {
  visible_ = 0;
  peak_ = -infinity;
  ratio_ = 1;
  double dots = 0, scaled = 0;
  for (std::size_t j = 0; j < keys_ && has_scores_; ++j) {
    if (row_->masked[j] == -infinity) continue;
    peak_ = std::max(peak_, row_->masked[j]);
    if (row_->dot.size() != keys_ || row_->scaled.size() != keys_) continue;
    dots += std::fabs(row_->dot[j]);
    scaled += std::fabs(row_->scaled[j]);
  }
  if (dots > 0 && std::isfinite(scaled / dots)) ratio_ = scaled / dots;
}

/// e_j and ρ_j; `size` is |query|·|key_j|, `turn` what a relative error of the angles turns.
void Noise::Row::score_errors(std::size_t j, double size, double turn) {
  const StageRow& row = *row_;
  const Arithmetic& a = noise_.arithmetic_;
  const double u = a.sums;
  const double width = static_cast<double>(std::max<std::int64_t>(noise_.dump_.claim.shape.D, 1));
  dot_[j].typical = u * (std::sqrt(width) + 3) * size + 4 * a.products * size / std::sqrt(width);
  dot_[j].worst = u * (width + 4) * size + (2.1 * a.products + a.factors_worst) * size;
  if (turn > 0) {
    dot_[j].typical += std::sqrt(2.0) * u * noise_.evenly_ * turn;  // rate and product, rounded
    dot_[j].worst += 4 * u * turn + 8 * u * size;
  }
  // A dump may begin with any score: what lies before it has no numbers.
  const bool has_biased = row.biased.size() == keys_, has_capped = row.capped.size() == keys_;
  const double biased = std::fabs(has_biased ? row.biased[j] : row.masked[j]);
  const double capped = has_capped ? std::fabs(row.capped[j]) : 0;
  const double bias = has_biased && has_capped ? std::fabs(row.biased[j] - row.capped[j]) : 0;
  const double scaled = row.scaled.size() == keys_ ? std::fabs(row.scaled[j]) : 0;
  const double caps = noise_.dump_.claim.call.softcap ? capped : 0;
  const double rounded =
      scaled * (caps > 0 ? 3 : 2);  // the product, its scaling, its share of the cap
  score_[j].typical = through_cap(scaled, ratio_ * dot_[j].typical, most_deviations()) +
                      u * (6 * caps + 2 * bias + biased) + a.scores * biased;
  score_[j].worst = through_cap(scaled, ratio_ * dot_[j].worst + a.scores_worst * rounded, 1) +
                    u * (10 * caps + 5 * bias + biased + scaled) +
                    a.scores_worst * (2 * caps + bias + biased);
  const double gap = std::max(0.0, peak_ - row.masked[j]);
  const double blocks = static_cast<double>(keys_) / 16 + 2;
  share_[j].typical = std::sqrt(square(score_[j].typical) + square(2 * u * gap) + square(3 * u) +
                                square(a.weights));
  const double worst = score_[j].worst + 4 * u * gap + u * (3.25 + 4.25 * blocks);
  if (a.parts > 0) {
    keep(j, {.scaled = scaled,
             .capped = caps,
             .bias = bias,
             .biased = bias > 0 ? biased : 0,
             .gap = gap});
  }
  common_[j] = std::expm1(std::min(700.0, worst));  // e^709 is the end of binary64
  share_[j].worst = std::expm1(std::min(700.0, worst + 2 * a.weights));
}

/// What the denominator's errors add up to.
void Noise::Row::add_up() {
  sum_ = {};
  if (row_->weights.size() != keys_) return;
  for (std::size_t j = 0; j < keys_; ++j) {
    const double w = std::fabs(row_->weights[j]);
    if (!(w > 0)) continue;
    sum_.typical += square(w * share_[j].typical);
    sum_.worst += w * share_[j].worst;
  }
  const double u = has_scores_ ? noise_.arithmetic_.sums : 0;
  sum_.typical = std::sqrt(sum_.typical) + u * std::sqrt(visible_);
  sum_.worst += u * visible_;
}

Noise::Row::Error Noise::Row::log_sum_exp(double storage) const {
  const double lse = std::fabs(row_->log_sum_exp);
  const double u = noise_.arithmetic_.sums;
  double typical = 0, worst = 0;
  for (std::size_t j = 0; j < share_.size() && j < row_->weights.size(); ++j) {
    typical += square(row_->weights[j] * score_[j].typical);
    worst += std::fabs(row_->weights[j]) * share_[j].worst;
  }
  const double peak = std::isfinite(peak_) ? std::fabs(peak_) : 0;
  return {std::sqrt(typical) + u * (std::sqrt(visible_) + lse + peak + 3) + storage * lse,
          worst + u * (visible_ + 6 * (lse + peak) + 10) + 2 * storage * lse};
}

void Noise::Row::of(Stage stage, DType dtype, RowNoise& out) {
  const std::size_t count = row_->of(stage).size();
  out.typical.assign(count, 0);
  out.worst.assign(count, 0);
  out.kept.assign(count, 0);
  const double storage = unit_of(dtype);
  switch (stage) {
    case Stage::weights:
      weights(storage, out);
      kept_weights(out);
      break;
    case Stage::output:
      output(storage, out);
      break;
    case Stage::log_sum_exp:
      out.typical[0] = log_sum_exp(storage).typical;
      out.worst[0] = log_sum_exp(storage).worst;
      out.kept[0] = kept_log_sum_exp();
      break;
    default:
      scores(stage, storage, out);
      kept_scores(stage, out);
  }
  const double tiny = tiny_of(dtype) + noise_.arithmetic_.tiny * (visible_ + 1);
  const bool nothing_visible = visible_ == 0 && stage >= Stage::weights;
  for (std::size_t n = 0; n < count; ++n) {
    if (!nothing_visible) out.typical[n] += tiny;
    if (!nothing_visible) out.worst[n] += tiny;
    out.worst[n] = std::max(out.worst[n], out.typical[n]);
  }
}

void Noise::Row::scores(Stage stage, double storage, RowNoise& out) const {
  const std::span<const double> row = row_->of(stage);
  const double u = noise_.arithmetic_.sums;
  for (std::size_t j = 0; j < row.size() && j < score_.size(); ++j) {
    Error error = score_[j];
    if (stage == Stage::dot) error = dot_[j];
    if (stage == Stage::scaled) {
      error = {ratio_ * dot_[j].typical + u * std::fabs(row[j]),
               ratio_ * dot_[j].worst + 2 * u * std::fabs(row[j])};
    }
    const double size = std::isfinite(row[j]) ? std::fabs(row[j]) : 0;
    out.typical[j] = error.typical + storage * size;
    out.worst[j] = error.worst + (2 * storage + noise_.arithmetic_.scores_worst) * size;
  }
}

void Noise::Row::weights(double storage, RowNoise& out) const {
  for (std::size_t j = 0; j < row_->weights.size(); ++j) {
    const double w = std::fabs(row_->weights[j]);
    if (!(w > 0)) continue;
    out.typical[j] =
        w * std::sqrt(square(share_[j].typical) + square(sum_.typical) + square(storage));
    out.worst[j] = w * (share_[j].worst + sum_.worst) * (1 + sum_.worst) + 2 * storage * w;
  }
}

/// Whether the weights are shares of one denominator, and what is left of that at worst.
Noise::Row::Shares Noise::Row::shares() const {
  const AttentionCase& call = noise_.dump_.claim.call;
  Shares out;
  double sum = 0, largest = 0;
  for (std::size_t j = 0; j < keys_ && j < row_->weights.size(); ++j) {
    const double w = row_->weights[j];
    if (!(w > 0)) continue;
    out.left += w / (1 + common_[j]);
    sum += w;
    largest = std::max(largest, common_[j]);
  }
  const bool has_sink = !call.sink.empty() && sum < 1;
  out.tied = has_scores_ && call.dropout.rate == 0 && (has_sink || std::fabs(sum - 1) < 1e-9);
  if (has_sink) {
    const double logit = std::fabs(call.sink[at_index(at_.h) % call.sink.size()]);
    const double u = noise_.arithmetic_.sums, narrow = noise_.arithmetic_.scores_worst;
    const double error = largest + std::expm1(std::min(700.0, (4 * u + narrow) * logit));
    out.left += (1 - sum) / (1 + error);
    out.sink = (1 - sum) * error;
  }
  return out;
}

void Noise::Row::output(double storage, RowNoise& out) {
  const Claim& claim = noise_.dump_.claim;
  const lab::AttentionShape& shape = claim.shape;
  const Tensor<double>& value = claim.call.value;
  const Arithmetic& a = noise_.arithmetic_;
  const std::size_t width = row_->output.size();
  const std::size_t keys = row_->weights.size();
  const std::int64_t heads =
      std::max<std::int64_t>(1, shape.H / std::max<std::int64_t>(1, shape.G));
  if (value.size() == 0 || at_index(shape.E) != width || keys > at_index(shape.S)) {
    for (std::size_t e = 0; e < width; ++e) {
      out.typical[e] = storage * std::fabs(row_->output[e]);
      out.worst[e] = 2 * out.typical[e];
    }
    return;
  }
  const Shares shares = this->shares();
  size_.assign(width, 0);
  const double* rows = value.data() + at_index((at_.b * shape.G + at_.h / heads) * shape.S) * width;
  double share_worst = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    const double w = row_->weights[j];
    if (w == 0 || std::isnan(w)) continue;
    const double random = square(share_[j].typical) + square(2 * a.products);
    const double common = std::fabs(w) * common_[j];
    share_worst = std::max(share_worst, share_[j].worst + 2.1 * a.products);
    const double* v = rows + j * width;
    const double* const mean = row_->output.data();
    double* const squares = out.typical.data();
    double* const moved = out.worst.data();
    double* const sizes = size_.data();
    for (std::size_t e = 0; e < width; ++e) {
      const double part = w * v[e];
      squares[e] += random * (part * part);
      moved[e] += common * std::fabs(v[e] - mean[e]);
      sizes[e] += std::fabs(part);
    }
  }
  for (std::size_t e = 0; e < width; ++e) {
    if (shares.tied) {
      out.worst[e] = (out.worst[e] + shares.sink * std::fabs(row_->output[e])) / shares.left +
                     2.1 * (a.products + a.weights) * size_[e];
    } else {
      out.worst[e] = (share_worst + sum_.worst) * size_[e] * (1 + sum_.worst);
    }
  }
  const double added = a.sums * std::sqrt(visible_ + 1) + a.parts;
  const double added_worst = (a.sums + a.parts) * (visible_ + 4) + a.sums * visible_;
  double squares = 0;
  for (const double o : row_->output) squares += std::isfinite(o) ? o * o : 0;
  const double row_size = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(width, 1)));
  for (std::size_t e = 0; e < width; ++e) {
    const double o = std::fabs(row_->output[e]);
    out.typical[e] = std::sqrt(out.typical[e] + square(o * sum_.typical) +
                               square(added * size_[e]) + square(storage * (o + row_size)));
    // What is added is at most what the shares may have grown to.
    out.worst[e] +=
        added_worst * (size_[e] + out.worst[e]) + 4 * a.sums * o + 2 * storage * (o + out.worst[e]);
  }
  if (a.parts > 0) kept_output(rows, shares, out);
}

}  // namespace attest::check
