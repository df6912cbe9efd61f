// SPDX-License-Identifier: MIT
#include "attest/lab/bound_estimate.h"

#include <cmath>

#include "attest/lab/elementary.h"
#include "attest/lab/exact_sum.h"

namespace attest::lab::detail {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// An exponential and how far the true one may be above, or below, it.
struct Exponential {
  double value = 0;
  double deviation = 0;
  double least = 0;
};

Exponential exponential(Estimate exponent, double peak) {
  const double distance = exponent.value - peak;
  const double delta = exponent.error + sum_rounding(distance);
  Exponential out;
  out.value = exp(distance);
  const double own = distance == 0 ? 0 : rounding(out.value);  // exp(0) is exactly 1
  out.deviation = (out.value + own) * expm1(delta) + own;
  out.least = std::max(out.value - own, 0.0) * exp(-delta);
  if (delta > 0) out.deviation += tiny;
  return out;
}

/// The smallest number that is certainly at most |x − e|.
double nearest_to_zero(Estimate x) { return std::max(size_of(x.value) - x.error, 0.0); }

}  // namespace

Estimate product(Estimate a, Estimate b) {
  const bool nothing = (a.value == 0 && a.error == 0) || (b.value == 0 && b.error == 0);
  Estimate out{a.value * b.value, 0};
  if (nothing) return out;
  out.error = size_of(a.value) * b.error + size_of(b.value) * a.error + a.error * b.error +
              rounding(out.value);
  return out;
}

Estimate quotient(Estimate a, Estimate b) {
  Estimate out{a.value / b.value, 0};
  if (a.value == 0 && a.error == 0) return out;
  const double least = size_of(b.value) - b.error;
  out.error =
      least > 0 ? (a.error + size_of(out.value) * b.error) / least + rounding(out.value) : infinity;
  return out;
}

Estimate sum(std::span<const Estimate> terms) {
  std::vector<double> values;
  Estimate out;
  for (const Estimate& term : terms) {
    values.push_back(term.value);
    out.error += term.error;
  }
  out.value = exact_sum(values);
  if (terms.size() > 1) out.error += sum_rounding(out.value);
  return out;
}

Estimate difference(Estimate a, Estimate b) {
  const double value = a.value - b.value;
  return {value, a.error + b.error + sum_rounding(value)};
}

Estimate root(Estimate a) {
  const double value = std::sqrt(a.value);
  return {value, (a.error > 0 ? a.error / value : 0) + rounding(value)};
}

Estimate tanh_of(Estimate x) {
  const double value = tanh(x.value);
  return {value, x.error * sech_squared(nearest_to_zero(x)) + rounding(value)};
}

Estimate sech_squared_of(Estimate x) {
  const double value = sech_squared(x.value);
  const double moved = 2 * x.error * sech_squared(nearest_to_zero(x));
  return {value, std::min(1.0, moved) + rounding(value)};
}

Shares shares(std::span<const Estimate> exponents) {
  double peak = -infinity;
  for (const Estimate& x : exponents) peak = std::max(peak, x.value);
  std::vector<Exponential> terms;
  std::vector<double> values;
  double deviations = 0;
  double least = 0;
  double widest_delta = 0;
  for (const Estimate& x : exponents) {
    terms.push_back(exponential(x, peak));
    values.push_back(terms.back().value);
    deviations += terms.back().deviation;
    least += terms.back().least;
    widest_delta = std::max(widest_delta, x.error + sum_rounding(x.value - peak));
  }
  const double total = exact_sum(values);
  const bool alone = exponents.size() == 1;
  const auto count = static_cast<double>(exponents.size());

  Shares out;
  for (const Exponential& term : terms) {
    Estimate weight{term.value / total, 0};
    // What is left of the sums without term j; a subtraction errs by roundings of the whole.
    const double others = std::max(total - term.value, 0.0) + 2 * unit * total;
    const double other_deviations =
        std::max(deviations - term.deviation, 0.0) + (count + 1) * unit * deviations;
    const double moved =
        (term.value * other_deviations + others * term.deviation) / (total * least) + tiny;
    const double own = unit * weight.value + rounding(weight.value);
    const double most = std::max(weight.value, 1 - weight.value);
    if (!alone) weight.error = std::min(most, moved + own);
    out.weights.push_back(weight);
  }
  const double log_total = log(total);
  const double moved = std::min(widest_delta + 2 * unit + count * tiny, deviations / least);
  out.log_sum_exp.value = peak + log_total;
  out.log_sum_exp.error =
      moved + (alone ? 0 : unit + unit * size_of(log_total)) + sum_rounding(out.log_sum_exp.value);
  return out;
}

Estimate mean_of(std::span<const Estimate> weights, std::span<const Estimate> values, Sink sink) {
  double low = sink == Sink::present ? 0 : infinity;
  double high = sink == Sink::present ? 0 : -infinity;
  for (const Estimate& value : values) {
    low = std::min(low, value.value);
    high = std::max(high, value.value);
  }
  const double middle = values.empty() ? 0 : low / 2 + high / 2;
  const double width = values.empty() ? 0 : high - low;
  const bool certain = values.size() == 1 && sink == Sink::absent;  // 1·value

  std::vector<double> terms;
  double moved = 0;
  double rest = 0;
  for (std::size_t j = 0; j < values.size(); ++j) {
    const Estimate& w = weights[j];
    const Estimate& v = values[j];
    terms.push_back(w.value * v.value);
    moved += w.error * size_of(v.value - middle);
    rest += (w.value + w.error) * v.error;
    if (!certain && v.value != 0) rest += rounding(terms.back()) + tiny;
  }
  Estimate out{exact_sum(terms), 0};
  out.error = rest + (certain ? 0
                              : std::min(moved, width) + sum_rounding(out.value) +
                                    4 * unit * (size_of(middle) + width));
  return out;
}

}  // namespace attest::lab::detail
