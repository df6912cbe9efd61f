// SPDX-License-Identifier: MIT
#include "attest/check/block/layer_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest::check::block {
namespace {

/// What a norm measures along one line of numbers: a row, or a feature along a sequence.
struct Measured {
  double mean = 0, mean_variance = 0, mean_bound = 0;
  double divisor = 0, relative_variance = 0, relative_bound = 0;
};

/// The places of one line in a table.
struct Line {
  std::size_t first = 0;
  std::size_t step = 1;
  std::int64_t count = 0;
  [[nodiscard]] std::size_t at(std::int64_t k) const {
    return first + static_cast<std::size_t>(k) * step;
  }
};

Measured measure(const Numbers& x, const NormRecipe& recipe, Line line, const Rounding& u) {
  Measured out;
  const auto n = static_cast<double>(line.count);
  const bool centred = recipe.kind == Norm::layer_norm || recipe.centres_square;
  if (centred) {
    NoisySum sum;
    for (std::int64_t k = 0; k < line.count; ++k) {
      const std::size_t at = line.at(k);
      sum.add(x.value[at], x.variance_at(at), x.bound_at(at));
    }
    out.mean = sum.value / n;
    out.mean_variance = sum.variance(u) / (n * n) + mean_square(u.sum * out.mean);
    out.mean_bound = sum.bound(u) / n + u.sum * std::fabs(out.mean);
  }
  NoisySum squares;
  for (std::int64_t k = 0; k < line.count; ++k) {
    const std::size_t at = line.at(k);
    const double d = x.value[at] - out.mean;
    const double limit = x.bound_at(at) + out.mean_bound + u.sum * std::fabs(d);
    const double spread = x.variance_at(at) + mean_square(u.sum * d);
    squares.add(d * d, 4 * d * d * spread + mean_square(u.sum * d * d),
                2 * std::fabs(d) * limit + limit * limit + u.sum * d * d);
  }
  const double count = recipe.sum_for_mean ? 1 : recipe.sample ? n - 1 : n;
  const double variance = squares.value / count;
  using Root = NormRecipe::Root;
  const double under = recipe.root == Root::inside || recipe.root == Root::none_taken
                           ? variance + recipe.epsilon
                           : variance;
  const double root = recipe.root == Root::none_taken ? under : std::sqrt(under);
  out.divisor = recipe.root == Root::outside ? root + recipe.epsilon : root;
  const double power = recipe.root == Root::none_taken ? 1 : 0.5;
  const double relative = squares.bound(u) / (count * under) + 2 * u.sum;
  out.relative_variance = power * power * squares.variance(u) / (count * count * under * under) +
                          3 * mean_square(u.sum);
  out.relative_bound = relative < 1 ? std::pow(1 - relative, -power) - 1 + 3 * u.sum
                                    : std::numeric_limits<double>::infinity();
  return out;
}

double element(const Tensor<double>* vector, std::int64_t c, double otherwise) {
  if (vector == nullptr || vector->size() == 0) return otherwise;
  return vector->elements()[static_cast<std::size_t>(c)];
}

/// The derivative of an activation, for what errors do: by a difference, good to a few digits.
double slope_of(ActivationForm form, double x) {
  const double h = 1e-4 * std::max(1.0, std::fabs(x));
  return (activation_of(form, x + h) - activation_of(form, x - h)) / (2 * h);
}

struct Turn {
  double cos = 1, sin = 0;
  double angle = 0;
};

/// The cosines and sines of pair i of a row.
Turn turn_of(const RopeRecipe& recipe, const RopeData& data, std::int64_t row, std::int64_t pair,
             std::int64_t width, std::int64_t head_dim) {
  Turn out;
  std::int64_t which = pair;
  if (recipe.tables_of_other_pairing) {
    // cos and sin repeated for all features in the order of the other pairing, and read in this one
    const std::int64_t feature = recipe.pairing == RopePairing::half ? pair : 2 * pair;
    which = recipe.pairing == RopePairing::half ? feature / 2 : feature % (width / 2);
  }
  if (data.cos != nullptr) {
    out.cos = data.cos->elements()[static_cast<std::size_t>(row * (width / 2) + which)];
    out.sin = data.sin->elements()[static_cast<std::size_t>(row * (width / 2) + which)];
    out.angle = 1;
  } else {
    const auto over = static_cast<double>(recipe.whole_width ? head_dim : width);
    const double exponent = static_cast<double>(which) * (recipe.exponent_by_pair ? 1 : 2) / over;
    const auto position = static_cast<double>(data.positions[static_cast<std::size_t>(row)]);
    out.angle = position * std::pow(recipe.base, -exponent) * (recipe.twice ? 2 : 1);
    out.cos = std::cos(out.angle);
    out.sin = std::sin(out.angle);
  }
  if (recipe.backwards) out.sin = -out.sin;
  return out;
}

}  // namespace

Numbers normalise(const Numbers& x, const NormRecipe& recipe, const NormData& data,
                  const Rounding& u) {
  if (recipe.missing || x.empty()) return x;
  Numbers out(x.rows, x.columns, x.noisy());
  const std::int64_t per = x.rows / data.sequences;
  const std::int64_t lines = recipe.over_positions ? data.sequences * x.columns : x.rows;
  for (std::int64_t n = 0; n < lines; ++n) {
    const Line line = recipe.over_positions ? Line{x.at(n / x.columns * per, n % x.columns),
                                                   static_cast<std::size_t>(x.columns), per}
                                            : Line{x.at(n, 0), 1, x.columns};
    const Measured m = measure(x, recipe, line, u);
    const bool subtracts = (recipe.kind == Norm::layer_norm || recipe.centres_square) &&
                           !recipe.keeps_mean && !recipe.centres_square;
    for (std::int64_t k = 0; k < line.count; ++k) {
      const std::size_t at = line.at(k);
      const auto c = static_cast<std::int64_t>(at) % x.columns;
      const double stored_gain = recipe.without_gain ? 1 : element(data.gain, c, 1);
      const bool has_gain = data.gain != nullptr && data.gain->size() != 0;
      const double gain = recipe.one_plus_gain && has_gain ? 1 + stored_gain : stored_gain;
      const double bias = recipe.without_bias ? 0 : element(data.bias, c, 0);
      const double d = subtracts ? x.value[at] - m.mean : x.value[at];
      const double y = d / m.divisor * gain;
      const double spread =
          x.variance_at(at) + (subtracts ? m.mean_variance : 0) + mean_square(u.sum * d);
      const double limit = x.bound_at(at) + (subtracts ? m.mean_bound : 0) + u.sum * std::fabs(d);
      const double share = gain / m.divisor;
      // A program may store n before it multiplies by the gain.
      const double twice = has_gain ? u.store * std::fabs(y) : 0;
      out.set(
          at, y + bias,
          share * share * (spread + d * d * m.relative_variance) + mean_square(u.sum * y) +
              mean_square(twice),
          std::fabs(share) * (limit * (1 + m.relative_bound) + std::fabs(d) * m.relative_bound) +
              3 * u.sum * std::fabs(y) + twice);
    }
  }
  store(out, u);
  return out;
}

double activation_of(ActivationForm form, double x) {
  constexpr double half_root = 0.70710678118654752440;  // √½
  constexpr double root = 0.79788456080286535588;       // √(2/π)
  switch (form) {
    case ActivationForm::relu:
      return x > 0 ? x : x != x ? x : 0;
    case ActivationForm::gelu_erf:
      return 0.5 * x * std::erfc(-x * half_root);
    case ActivationForm::gelu_tanh:
      return x / (1 + std::exp(-2 * root * (x + 0.044715 * x * x * x)));
    case ActivationForm::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    case ActivationForm::silu:
      return x / (1 + std::exp(-x));
    case ActivationForm::leaky_relu:
      return x > 0 ? x : 0.01 * x;
    case ActivationForm::none:
      return x;
  }
  return x;
}

Numbers activated(const Numbers& x, ActivationForm form, const Rounding& u) {
  Numbers out = x;
  const bool smooth = form != ActivationForm::relu && form != ActivationForm::leaky_relu &&
                      form != ActivationForm::none;
  for (std::size_t n = 0; n < out.value.size(); ++n) {
    const double y = activation_of(form, x.value[n]);
    if (!x.noisy()) {
      out.value[n] = y;
      continue;
    }
    // A kink: what lies within the error may fall on either side. No activation is steeper than 1.13.
    const double limit = x.bound[n];
    const bool dead = form == ActivationForm::relu && x.value[n] < 0;
    const double steepest = smooth
                                ? std::min(1.13, std::fabs(slope_of(form, x.value[n])) + 2 * limit)
                            : dead && x.value[n] + limit < 0 ? 0
                                                             : 1;
    const double slope = smooth ? slope_of(form, x.value[n]) : steepest;
    // 1 + erf, 1 + tanh and 1 + exp err by their rounding beside 1, which x multiplies.
    const bool leak = form == ActivationForm::leaky_relu && y < 0;
    const double lost = smooth ? 4 * u.sum * (std::fabs(x.value[n]) + std::fabs(y))
                        : leak ? 4 * u.sum * std::fabs(y)
                               : 0;
    out.set(n, y, slope * slope * x.variance[n] + mean_square(lost / 4), steepest * limit + lost);
  }
  if (form != ActivationForm::none) store(out, u);
  return out;
}

Numbers turned(const Numbers& x, std::int64_t heads, const RopeRecipe& recipe, const RopeData& data,
               const Rounding& u) {
  if (recipe.none || x.empty()) return x;
  const std::int64_t blocks = recipe.across_heads ? 1 : heads;
  const std::int64_t head_dim = x.columns / blocks;
  const std::int64_t chosen = recipe.rotary_dim == 0 ? head_dim : recipe.rotary_dim;
  const std::int64_t width = recipe.across_heads ? head_dim : chosen;
  const std::int64_t skipped = recipe.last_features ? head_dim - width : 0;
  Numbers out = x;
  for (std::int64_t n = 0; n < x.rows * blocks * (width / 2); ++n) {
    const std::int64_t r = n / (blocks * (width / 2));
    const std::int64_t h = n / (width / 2) % blocks;
    const std::int64_t i = n % (width / 2);
    const bool half = recipe.pairing == RopePairing::half;
    const std::size_t base = x.at(r, h * head_dim + skipped);
    const std::size_t a = base + static_cast<std::size_t>(half ? i : 2 * i);
    const std::size_t b = base + static_cast<std::size_t>(half ? i + width / 2 : 2 * i + 1);
    const Turn turn = turn_of(recipe, data, r, i, width, head_dim);
    const double lost =
        u.sum * (2 * std::fabs(turn.angle) + 4) * (std::fabs(x.value[a]) + std::fabs(x.value[b]));
    const double c2 = turn.cos * turn.cos, s2 = turn.sin * turn.sin;
    const double c1 = std::fabs(turn.cos), s1 = std::fabs(turn.sin);
    out.set(a, x.value[a] * turn.cos - x.value[b] * turn.sin,
            c2 * x.variance_at(a) + s2 * x.variance_at(b) + mean_square(lost / 2),
            c1 * x.bound_at(a) + s1 * x.bound_at(b) + lost);
    out.set(b, x.value[b] * turn.cos + x.value[a] * turn.sin,
            c2 * x.variance_at(b) + s2 * x.variance_at(a) + mean_square(lost / 2),
            c1 * x.bound_at(b) + s1 * x.bound_at(a) + lost);
  }
  // cos and sin may be stored, and each product too.
  if (out.noisy() && u.store > u.sum) {
    for (std::size_t n = 0; n < out.value.size(); ++n) {
      const double lost = 3 * u.store * std::fabs(x.value[n]);
      out.variance[n] += mean_square(lost);
      out.bound[n] += 2 * lost;
    }
  }
  store(out, u);
  return out;
}

void softmax(SoftmaxInput& row, const Rounding& u) {
  double peak = -std::numeric_limits<double>::infinity();
  for (const double x : row.x) peak = std::max(peak, x);
  std::vector<double> raw(row.x.size());
  NoisySum sum;
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    raw[j] = std::exp(row.x[j] - peak);
    sum.add(raw[j], 0, 0);
  }
  double shared_spread = mean_square(u.sum) * (sum.squares / (sum.value * sum.value) + 2);
  double shared_limit = u.sum * (static_cast<double>(row.x.size()) + 4);
  std::vector<double> spread(row.x.size()), limit(row.x.size());
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double w = raw[j] / sum.value;
    const double fall = raw[j] == 0 ? 0 : peak - row.x[j];
    const bool noisy = !row.variance.empty();
    spread[j] = (noisy ? row.variance[j] : 0) + mean_square(u.sum * (fall + 2));
    limit[j] = (noisy ? row.bound[j] : 0) + u.sum * (2 * fall + 4);
    shared_spread += w * w * spread[j];
    shared_limit += w * std::expm1(std::min(limit[j], 700.0));
    row.x[j] = w;
  }
  if (row.variance.empty()) return;
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double w = row.x[j];
    const double lost = std::max(u.store * w, u.floor);
    row.variance[j] = w * w * (spread[j] + shared_spread) + mean_square(lost);
    const double relative = std::expm1(std::min(limit[j] + shared_limit, 700.0));
    row.bound[j] = w * relative + lost;
  }
}

void weigh(SoftmaxInput& row, AttendRecipe::Form form, const Rounding& u) {
  using Form = AttendRecipe::Form;
  constexpr double ln2 = 0.69314718055994530942;
  const bool noisy = !row.variance.empty();
  const auto put = [&](std::size_t j, double value, double slope, double lost) {
    row.x[j] = value;
    if (!noisy) return;
    row.variance[j] = slope * slope * row.variance[j] + mean_square(lost);
    row.bound[j] = slope * std::expm1(std::min(row.bound[j], 700.0)) + lost;
  };
  double peak = form == Form::plus_one ? 0 : -std::numeric_limits<double>::infinity();
  for (const double x : row.x) peak = std::max(peak, x);
  const bool stretched = form == Form::base2 || form == Form::log2e_twice;
  for (std::size_t j = 0; j < row.x.size(); ++j) {
    const double x = row.x[j];
    const bool hidden = x == -std::numeric_limits<double>::infinity();
    if (stretched && !hidden) {
      const double factor = form == Form::base2 ? ln2 : 1 / ln2;
      row.x[j] = x * factor;
      if (!noisy) continue;
      const double lost = 2 * u.sum * (std::fabs(x * factor) + peak);
      row.variance[j] = factor * factor * row.variance[j] + mean_square(lost);
      row.bound[j] = factor * row.bound[j] + lost;
    } else if (form == Form::unnormalised) {
      const double w = std::exp(x - peak);
      put(j, w, w, hidden ? 0 : w * (u.sum * (std::fabs(x - peak) + 4) + u.store) + u.floor);
    } else if (form == Form::sigmoid) {
      const double w = 1 / (1 + std::exp(-x));
      put(j, w, w * (1 - w), hidden ? 0 : w * (4 * u.sum + u.store) + u.floor);
    }
  }
  if (form == Form::unnormalised || form == Form::sigmoid) return;
  if (form == Form::plus_one) {
    row.x.push_back(0);
    if (noisy) row.variance.push_back(0), row.bound.push_back(0);
  }
  softmax(row, u);
  if (form == Form::plus_one) {
    row.x.pop_back();
    if (noisy) row.variance.pop_back(), row.bound.pop_back();
  }
  if (form == Form::twice) softmax(row, u);
}

}  // namespace attest::check::block
