// SPDX-License-Identifier: MIT
// What a program may round to 16 bits on its way, and what all of that comes to.
#include <algorithm>
#include <cmath>

#include "attest/check/at_index.h"
#include "attest/check/diagnose/noise.h"

namespace attest::check {
namespace {

double square(double x) { return x * x; }

/// √Σ x⁴: by Cauchy and Schwarz Σ query²·key² is at most the product of two.
double fourth_power(const double* x, std::size_t count) {
  double sum = 0;
  for (std::size_t d = 0; d < count; ++d) sum += square(square(x[d]));
  return std::sqrt(sum);
}

}  // namespace

double most_deviations() {
  static const double out = largest_deviation(std::int64_t{1} << 30);
  return out;
}

double RowNoise::by_chance(std::size_t k) const {
  const double one = typical[k], other = kept[k];
  if (other == 0) return std::max(worst[k], most_deviations() * one);
  return most_deviations() * std::sqrt(one * one + other * other);
}

std::vector<double> fourth_powers(const Tensor<double>& rows) {
  const std::size_t width = at_index(rows.extent(3));
  std::vector<double> out(width == 0 ? 0 : rows.size() / width);
  for (std::size_t n = 0; n < out.size(); ++n) {
    out[n] = fourth_power(rows.data() + n * width, width);
  }
  return out;
}

/// The tangent hyperbolic is steepest at 0: an error does most where it makes the score smaller.
double Noise::Row::through_cap(double scaled, double error, double deviations) const {
  const std::optional<double>& softcap = noise_.dump_.claim.call.softcap;
  if (!softcap || !(scaled > 0) || !std::isfinite(scaled)) return error;
  const double cap = std::fabs(*softcap);
  const double most =
      cap * (std::tanh(scaled / cap) - std::tanh((scaled - deviations * error) / cap));
  return std::min(error, most / deviations);
}

void Noise::Row::keep(std::size_t j, const ScoreSizes& sizes) {
  const Arithmetic& a = noise_.arithmetic_;
  const Claim& claim = noise_.dump_.claim;
  const double unit = a.scores_worst / std::sqrt(3.0);  // of a rounding, uniform in ± u·|x| at most
  double factors = 0;
  if (!noise_.key_spread_.empty()) {
    const std::int64_t group = at_.b * claim.shape.G + at_.h / (claim.shape.H / claim.shape.G);
    const std::size_t n = at_index(group * claim.shape.S) + j;
    if (query_spread_ < 0) {
      query_spread_ =
          fourth_power(&claim.call.query(at_.b, at_.h, at_.i, 0), at_index(claim.shape.D));
    }
    if (n < noise_.key_spread_.size()) {
      factors = ratio_ * a.factors_kept * std::sqrt(query_spread_ * noise_.key_spread_[n]);
    }
  }
  const double early = unit * std::sqrt(sizes.capped > 0 ? 3.0 : 2.0) * sizes.scaled;
  const double late = unit * std::sqrt(2 * square(sizes.capped) + square(sizes.bias) +
                                       square(sizes.biased) + square(sizes.gap));
  const double alone = through_cap(sizes.scaled, std::hypot(early, factors), most_deviations());
  kept_[j] = std::hypot(alone, late);
  turned_[j] = through_cap(sizes.scaled, factors, most_deviations());
}

/// Σ w·key² − (Σ w·key)², feature by feature, times query²: what the roundings of a query, which all of
/// its keys share, do to the differences of its scores.
double Noise::Row::query_rounding() const {
  const Claim& claim = noise_.dump_.claim;
  double sum = 0, whole = 0;
  for (std::size_t j = 0; j < keys_ && j < row_->weights.size(); ++j) {
    const double w = row_->weights[j];
    if (!(w > 0)) continue;
    whole += w * square(turned_[j]);
  }
  if (claim.rope || whole == 0) return whole;
  const std::size_t width = at_index(claim.shape.D);
  const std::int64_t group = at_.h / (claim.shape.H / claim.shape.G);
  std::vector<double> mean(width), squares(width);
  double weight = 0;
  for (std::size_t j = 0; j < keys_ && j < row_->weights.size(); ++j) {
    const double w = row_->weights[j];
    if (!(w > 0)) continue;
    weight += w;
    const double* const key = &claim.call.key(at_.b, group, static_cast<std::int64_t>(j), 0);
    for (std::size_t d = 0; d < width; ++d) {
      const double before = key[d] - mean[d];
      mean[d] += w / weight * before;
      squares[d] += w * before * (key[d] - mean[d]);
    }
  }
  const double* const query = &claim.call.query(at_.b, at_.h, at_.i, 0);
  for (std::size_t d = 0; d < width; ++d) sum += square(query[d]) * squares[d];
  return std::min(whole, square(ratio_ * noise_.arithmetic_.factors_kept) * sum);
}

void Noise::Row::kept_scores(Stage stage, RowNoise& out) const {
  const double ratio = stage == Stage::dot && ratio_ > 0 ? 1 / ratio_ : 1;
  for (std::size_t j = 0; j < out.kept.size() && j < kept_.size(); ++j) {
    out.kept[j] = ratio * std::hypot(kept_[j], turned_[j]);
  }
}

void Noise::Row::kept_weights(RowNoise& out) const {
  const double shared = query_rounding();
  double all = 0;
  for (std::size_t j = 0; j < row_->weights.size(); ++j) {
    if (row_->weights[j] > 0) all += square(row_->weights[j] * kept_[j]);
  }
  for (std::size_t j = 0; j < out.kept.size(); ++j) {
    const double w = row_->weights[j];
    if (w > 0) out.kept[j] = w * std::sqrt(square(kept_[j]) + all + square(turned_[j]) + shared);
  }
}

double Noise::Row::kept_log_sum_exp() const {
  double alone = 0, together = 0;
  for (std::size_t j = 0; j < row_->weights.size() && j < kept_.size(); ++j) {
    const double w = row_->weights[j];
    if (!(w > 0)) continue;
    alone += square(w * kept_[j]);
    together += w * turned_[j];
  }
  return std::hypot(std::sqrt(alone), together);
}

/// What all roundings of a 16-bit program together leave, where they are small enough to add up as
/// random numbers: far less than the worst case of each at once.
void Noise::Row::kept_output(const double* values, const Shares& shares, RowNoise& out) const {
  const Arithmetic& a = noise_.arithmetic_;
  const std::size_t width = out.kept.size();
  std::vector<double> spread(width);
  for (std::size_t j = 0; j < row_->weights.size(); ++j) {
    const double w = row_->weights[j];
    if (!(w > 0)) continue;
    for (std::size_t e = 0; e < width; ++e) {
      const double apart = square(values[j * width + e] - row_->output[e]);
      out.kept[e] += square(w * kept_[j]) * apart;
      spread[e] += w * apart;
    }
  }
  const double shared = query_rounding();
  const double parts = a.parts * std::sqrt(visible_ / 16 + 2);
  for (std::size_t e = 0; e < width; ++e) {
    out.kept[e] = std::sqrt(out.kept[e] + shared * spread[e] + square(parts * size_[e]));
  }
  if (has_scores_ && !(shares.tied && shares.left > 0.5)) return;
  for (std::size_t e = 0; e < width; ++e) {
    out.worst[e] =
        std::min(out.worst[e], most_deviations() * std::hypot(out.typical[e], out.kept[e]));
  }
}

}  // namespace attest::check
