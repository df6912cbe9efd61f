// SPDX-License-Identifier: MIT
#include "attest/check/engine_bound.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attest/base/dropout.h"
#include "attest/check/at_index.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/environment.h"
#include "attest/lab/visibility.h"

namespace attest::check {
namespace {

using lab::AttentionShape;
using lab::HiddenBy;
using lab::RowPlace;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double own_rounding = 1 + 0x1p-30;  // of the binary64 arithmetic below

/// An arithmetic, as the proof in docs/accuracy.md names its parts.
struct Arithmetic {
  double u = 0x1p-53;         // one rounding
  double tiny = 0x1p-1074;    // what an underflow may cost
  double largest = 0x1p1023;  // of the range
  double score_fixed = 0;     // roundings of a score beside D additions
  bool score_grows = false;   // with D
  double exponential = 1;     // of exp2 or exp, in u
  double rescaling = 0;       // of one change of the peak, in u
  double tanh = 1;            // in u
  bool sums_grow = false;     // with the number of terms
  double pair = 0;            // of a weight that is rounded for the mix
  double storage = 0;         // of a stored result
  double storage_tiny = 0;    // likewise where it is subnormal

  [[nodiscard]] double gamma(double roundings) const {
    const double nu = roundings * u;
    return nu < 0.5 ? nu / (1 - nu) : infinity;
  }
  [[nodiscard]] double sum(double terms) const { return gamma((sums_grow ? terms : 0) + 2); }
};

Arithmetic exact_tier() { return {.score_fixed = 4}; }

Arithmetic engine(const EngineArithmetic& of) {
  const bool wide = of.storage == DType::f64;
  Arithmetic out{.u = wide ? 0x1p-53 : 0x1p-24,
                 .tiny = wide ? 0x1p-1022 : 0x1p-126,
                 .largest = wide ? 0x1p1022 : 0x1p126,
                 .score_fixed = 4,
                 .score_grows = true,
                 .exponential = wide ? 2.0 : 3.25,
                 .rescaling = wide ? 3.0 : 4.25,
                 .tanh = 7,
                 .sums_grow = true};
  if (of.storage == DType::bf16) {
    out.storage = 0x1p-8;
    out.storage_tiny = 0x1p-134;
    if (of.isa >= Isa::avx512bf16) out.pair = 0x1p-8;
  }
  if (of.storage == DType::f16) {
    out.storage = 0x1p-11;
    out.storage_tiny = 0x1p-25;
  }
  return out;
}

/// A checked call.
struct Call {
  lab::AttentionCall exact;
  Arithmetic a;
  double scale = 1;
  double keep = 1;  // what a kept weight is multiplied by
  double blocks = 1;

  [[nodiscard]] std::int64_t group(std::int64_t h) const {
    return h / (exact.shape.H / exact.shape.G);
  }
};

Call call_of(const AttentionInputs<double>& in, const AttentionOptions<double>& options,
             const AttentionShape& shape, const Arithmetic& a) {
  const double root = std::sqrt(static_cast<double>(shape.D));
  return {.exact = {in, options, shape, lab::Visibility(options, shape)},
          .a = a,
          .scale = options.scale.value_or(1 / root),
          .keep = 1 / (1 - options.dropout.rate),
          .blocks = std::ceil(static_cast<double>(shape.S) / 16) + 2.0};
}

/// One visible key of a row.
struct Term {
  std::int64_t j = 0;
  double weight = 0;  // w_j, before dropout
  double kept = 1;    // 0 or 1/(1 − rate)
  double score = 0;   // biased, natural
  double error = 0;   // e_j of it, absolute
  double slope = 1;   // d capped / d scaled
  double slope_error = 0;
};

struct Row {
  std::vector<Term> terms{};
  double peak = 0;
  double log_sum_exp = 0;
  double sink_weight = 0;
  double sink_score = 0;
  double worst = 0;      // largest e_j
  bool promised = true;  // inside the range of the arithmetic
};

/// e_j ≤ γ(D + 4)·A_j + 9u·|capped| + u·(…) + underflows.
Term term_of(const Call& call, RowPlace at, const lab::AttentionRow& row, std::int64_t j,
             bool& promised) {
  const auto& [in, options, shape, visibility] = call.exact;
  const Arithmetic& a = call.a;
  const double scale = std::fabs(call.scale);
  double dot = 0, key_size = 0, query_size = 0;
  for (std::int64_t d = 0; d < shape.D; ++d) {
    const double q = std::fabs(in.query(at.b, at.h, at.i, d));
    const double k = std::fabs(in.key(at.b, call.group(at.h), j, d));
    dot += q * k;
    key_size += k;
    query_size += q;
  }
  const double size = dot * scale;  // A_j
  Term out{.j = j, .score = row.biased[at_index(j)]};
  const double roundings = a.score_fixed + (a.score_grows ? static_cast<double>(shape.D) : 0);
  const double lost = (1 + scale) * (key_size + query_size + 2 * static_cast<double>(shape.D));
  const double scaled = a.gamma(roundings) * size + 2 * a.tiny * (lost + dot + 4);
  const double capped = std::fabs(row.capped[at_index(j)]);
  const double alibi = std::fabs(row.alibi[at_index(j)]);
  const double bias = std::fabs(visibility.bias(at, j));
  out.error = scaled;
  if (options.softcap) {
    const double t = capped / *options.softcap;
    const double bent = scaled + (a.tanh + 2) * a.u * (capped + scaled);
    const double cap_error = std::min(bent, (2 + 16 * a.u) * *options.softcap);
    out.error = cap_error + a.tiny * (1 + *options.softcap);
    const double t_error = cap_error / *options.softcap + 2 * a.u;
    out.slope = std::max(0.0, 1 - t * t);
    out.slope_error = (2 * t + t_error) * t_error + 3 * a.u;
  }
  if (options.bias || !options.alibi_slopes.empty() || options.softcap) {
    const double added = capped + 2 * bias + 5 * alibi;
    out.error += a.u * (added * (1 + 8 * a.u) + 2 * out.error) + 2 * a.tiny;
  }
  const double reach = std::max({size, dot, query_size * scale, bias, alibi, scale}) * 2;
  promised = promised && reach < a.largest && std::isfinite(out.score);
  return out;
}

Row row_of(const Call& call, RowPlace at, const lab::AttentionRow& exact) {
  const auto& options = call.exact.options;
  Row out{.log_sum_exp = exact.log_sum_exp};
  const std::uint32_t threshold = dropout_threshold(options.dropout.rate);
  out.peak = -infinity;
  for (std::int64_t j = 0; j < call.exact.shape.S; ++j) {
    if (exact.hidden[at_index(j)] != HiddenBy::nothing) continue;
    Term term = term_of(call, at, exact, j, out.promised);
    term.weight = std::exp(term.score - exact.log_sum_exp);
    const WeightPlace place{static_cast<std::uint32_t>(at.b), static_cast<std::uint32_t>(at.h),
                            static_cast<std::uint32_t>(at.i), static_cast<std::uint32_t>(j)};
    term.kept = threshold != 0 && dropped(options.dropout.seed, threshold, place) ? 0 : call.keep;
    out.peak = std::max(out.peak, term.score);
    out.worst = std::max(out.worst, term.error);
    out.terms.push_back(term);
  }
  if (!options.sink.empty()) {
    out.sink_score = options.sink[at_index(at.h)];
    out.sink_weight = std::exp(out.sink_score - exact.log_sum_exp);
    out.peak = std::max(out.peak, out.sink_score);
    out.worst = std::max(out.worst, 3 * call.a.u * std::fabs(out.sink_score));
  }
  out.promised = out.promised && std::isfinite(exact.log_sum_exp);
  return out;
}

/// log(1 + ρ_j): what may happen to exp(score − peak) on its way to the sums. The roundings of the
/// changing peaks add up to one of peak − score, for the peak only grows.
double exponent_error(const Call& call, const Row& row, double score, double error) {
  const Arithmetic& a = call.a;
  const double gap = std::max(0.0, row.peak - score) + row.worst + error;
  return error + a.gamma(4) * gap + a.u * (a.exponential + a.rescaling * call.blocks);
}

struct RowBound {
  std::vector<double> output;  // [E]
  std::vector<double> size;    // [E], Σ w·kept·|value|
  double log_sum_exp = 0;
};

/// The softmax's own errors: relative ones of a numerator, and of the sum.
struct Shares {
  std::vector<double> numerator{};  // of each term
  double sum = 0;
  double exponent = 0;  // the largest log(1 + ρ)
  double any = 0;       // of sums whose terms are right: for bounds by the hull
};

Shares shares_of(const Call& call, const Row& row) {
  const Arithmetic& a = call.a;
  const double n = static_cast<double>(row.terms.size()) + 2;
  const double added = a.sum(n);
  Shares out{.sum = 2 * n * a.tiny, .any = (1 + added) * (1 + a.pair) - 1};
  for (const Term& term : row.terms) {
    const double exponent = exponent_error(call, row, term.score, term.error);
    out.numerator.push_back(std::expm1(exponent + added + a.pair));
    out.sum += term.weight == 0 ? 0 : term.weight * std::expm1(exponent + added);
    out.exponent = std::max(out.exponent, exponent);
  }
  if (row.sink_weight > 0) {
    const double error = 3 * a.u * std::fabs(row.sink_score);
    const double exponent = exponent_error(call, row, row.sink_score, error);
    out.sum += row.sink_weight * std::expm1(exponent + added);
    out.exponent = std::max(out.exponent, exponent);
  }
  return out;
}

double stored(const Arithmetic& a, double size, double error) {
  return (error + a.storage * (size + error) + a.storage_tiny) * own_rounding;
}

RowBound bound_row(const Call& call, RowPlace at, const Row& row) {
  const AttentionShape& shape = call.exact.shape;
  const Arithmetic& a = call.a;
  RowBound out;
  const Shares shares = shares_of(call, row);
  const double left = 1 - shares.sum;
  for (std::int64_t e = 0; e < shape.E; ++e) {
    double error = 0, size = 0, hull = 0, values = 0;
    for (std::size_t k = 0; k < row.terms.size(); ++k) {
      const Term& term = row.terms[k];
      const double value =
          std::fabs(call.exact.in.value(at.b, call.group(at.h), term.j, e)) * term.kept;
      const double part = term.weight * value;
      if (part > 0) error += part * (shares.numerator[k] + shares.sum);
      size += part;
      hull = std::max(hull, value);
      values += value;
    }
    if (!std::isfinite(size) || !row.promised || values > a.largest) {
      out.output.push_back(infinity);
      out.size.push_back(size);
      continue;
    }
    const double most = hull * (1 + (1 + shares.any) / std::max(1 - shares.any, 0.5));
    error = left > 0 ? std::min(error / left, most) : most;
    error += 4 * a.u * (size + error);
    error += 2 * a.tiny * (values + 2 * static_cast<double>(row.terms.size()) + 2);
    out.output.push_back(stored(a, size, error));
    out.size.push_back(size);
  }
  const double sum = row.log_sum_exp - row.peak;  // log of the sum beside the peak
  double error = left > 0 ? -std::log1p(-shares.sum) : infinity;
  error = std::min(error, shares.exponent + 2 * a.gamma(static_cast<double>(row.terms.size()) + 4));
  error += a.gamma(4) * (1 + 2 * (std::fabs(sum) + error) + std::fabs(row.log_sum_exp) + error) +
           2 * a.tiny;
  out.log_sum_exp = row.promised ? error * own_rounding : infinity;
  return out;
}

/// The backward pass of one row, as far as it does not depend on which gradient is asked for.
struct BackRow {
  double delta = 0, delta_error = 0, flow = 0;  // flow: d_log_sum_exp
  std::vector<double> d_biased, d_biased_error;
  std::vector<double> d_scaled, d_scaled_error;
  std::vector<double> weight_error;  // of a weight, absolute
};

double weight_error_of(const Call& call, const Row& row, const Term& term, double lse_error) {
  const Arithmetic& a = call.a;
  const double errors = term.error + lse_error;
  const double gap = std::fabs(term.score - row.log_sum_exp) + errors;
  const double exponent = errors + a.gamma(3) * gap + a.u * (a.exponential + 1);
  return term.weight * std::expm1(exponent) + 2 * a.tiny;
}

BackRow back_row(const Call& call, RowPlace at, const Row& row, const RowBound& forward,
                 const lab::AttentionOutputGradients& back) {
  const auto& [in, options, shape, visibility] = call.exact;
  const Arithmetic& a = call.a;
  const double wide = a.sum(static_cast<double>(shape.E) + 1);
  BackRow out;
  std::vector<double> slopes;  // |d_output[e]|
  if (back.d_log_sum_exp) out.flow = back.d_log_sum_exp(at.b, at.h, at.i);
  for (std::int64_t e = 0; e < shape.E; ++e) {
    const double d = std::fabs(back.d_output(at.b, at.h, at.i, e));
    const double error = forward.output[at_index(e)], size = forward.size[at_index(e)];
    if (d > 0) out.delta_error += d * error + wide * d * (size + error);
    out.delta += d * size;
    out.delta_error += 2 * a.tiny * (1 + d);
  }
  for (const Term& term : row.terms) {
    double product = 0;
    for (std::int64_t e = 0; e < shape.E; ++e) {
      product += std::fabs(back.d_output(at.b, at.h, at.i, e) *
                           in.value(at.b, call.group(at.h), term.j, e));
    }
    const double size = term.kept * product + out.delta + std::fabs(out.flow);  // ≥ |x|
    const double enters = term.kept * product * (wide + 3 * a.u) + out.delta_error +
                          2 * a.tiny * static_cast<double>(shape.E + 2);
    const double x_error = enters + a.gamma(2) * (size + enters);
    const double weight = weight_error_of(call, row, term, forward.log_sum_exp);
    const double error = (term.weight + weight) * x_error + weight * size +
                         2 * a.u * (term.weight + weight) * (size + x_error) + a.tiny * (2 + size);
    const double biased = term.weight * size;
    out.weight_error.push_back(weight);
    out.d_biased.push_back(biased);
    out.d_biased_error.push_back(error);
    out.d_scaled.push_back(biased * term.slope);
    out.d_scaled_error.push_back(error * (term.slope + term.slope_error) +
                                 biased * term.slope_error +
                                 a.u * (biased + error) * (term.slope + term.slope_error) + a.tiny);
  }
  return out;
}

/// Sizes and errors of the sums that rows add into: Σ|term| + errors, and the number of terms.
struct Sums {
  Tensor<double> size, error, count;
  explicit Sums(const Shape& shape) : size(shape), error(shape), count(shape) {}
  void add(std::size_t n, double term, double term_error) {
    size.elements()[n] += term + term_error;
    error.elements()[n] += term_error;
    count.elements()[n] += 1;
  }
  /// What is stored, after `factor` roundings more for each term.
  void publish(const Arithmetic& a, double factor, Tensor<double>& into, bool narrow) const {
    for (std::size_t n = 0; n < into.size(); ++n) {
      double whole = error_of(a, factor, n);
      if (narrow) whole = stored(a, size.elements()[n], whole);
      into.elements()[n] += std::isnan(whole) ? infinity : whole * own_rounding;
    }
  }
  [[nodiscard]] double error_of(const Arithmetic& a, double factor, std::size_t n) const {
    const double terms = count.elements()[n];
    if (terms == 0) return 0;
    return error.elements()[n] + (a.sum(terms) + a.gamma(factor)) * size.elements()[n] +
           2 * a.tiny * (terms + 2);
  }
};

struct GradientSums {
  Sums query, key, value, bias, sink;
};

/// The place of a score's bias in the dense tensor of d_bias.
std::size_t bias_place(const View<const double, 4>& bias, RowPlace at, std::int64_t j) {
  const std::int64_t index[] = {at.b, at.h, at.i, j};
  std::int64_t place = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    place = place * bias.extent(axis) + (bias.extent(axis) == 1 ? 0 : index[axis]);
  }
  return at_index(place);
}

void add_row(const Call& call, RowPlace at, const Row& row, const BackRow& back,
             View<const double, 4> d_output, GradientSums& sums) {
  const auto& [in, options, shape, visibility] = call.exact;
  const double scale = std::fabs(call.scale), pair = call.a.pair;
  const std::int64_t g = call.group(at.h);
  const std::int64_t query_row = ((at.b * shape.H + at.h) * shape.T + at.i) * shape.D;
  for (std::size_t k = 0; k < row.terms.size(); ++k) {
    const Term& term = row.terms[k];
    const std::int64_t key_row = (at.b * shape.G + g) * shape.S + term.j;
    const double d = back.d_scaled[k] * scale;
    const double error = (back.d_scaled_error[k] * (1 + pair) + pair * back.d_scaled[k]) * scale +
                         2 * call.a.tiny * (1 + scale);
    for (std::int64_t n = 0; n < shape.D; ++n) {
      const double key = std::fabs(in.key(at.b, g, term.j, n));
      const double query = std::fabs(in.query(at.b, at.h, at.i, n)) * (1 + pair);
      sums.query.add(at_index(query_row + n), d * key, error * key);
      sums.key.add(at_index(key_row * shape.D + n), d * query, error * query + pair * d * query);
    }
    const double weight_error =
        back.weight_error[k] * (1 + pair) + pair * term.weight + 2 * call.a.tiny;
    for (std::int64_t e = 0; e < shape.E; ++e) {
      const double flow = std::fabs(d_output(at.b, at.h, at.i, e)) * term.kept;
      sums.value.add(at_index(key_row * shape.E + e), flow * term.weight, flow * weight_error);
    }
    if (options.bias) {
      sums.bias.add(bias_place(options.bias, at, term.j), back.d_biased[k], back.d_biased_error[k]);
    }
  }
}

void add_sink(const Call& call, RowPlace at, const Row& row, const BackRow& back, double lse_error,
              GradientSums& sums) {
  if (call.exact.options.sink.empty()) return;
  const Term sink{.weight = row.sink_weight,
                  .score = row.sink_score,
                  .error = 3 * call.a.u * std::fabs(row.sink_score)};
  const double error = weight_error_of(call, row, sink, lse_error);
  const double x = back.delta + std::fabs(back.flow);
  sums.sink.add(at_index(at.h), sink.weight * x,
                (sink.weight + error) * (back.delta_error + 3 * call.a.u * x) + error * x);
}

void add_gradient_bound(const Call& call, const lab::AttentionOutputGradients& back,
                        EngineGradientBound& out) {
  const auto [B, H, G, T, S, D, E] = call.exact.shape;
  GradientSums sums{Sums(out.d_query.shape()), Sums(out.d_key.shape()), Sums(out.d_value.shape()),
                    Sums(out.d_bias.shape()), Sums(out.d_sink.shape())};
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const RowPlace at{n / (H * T), n / T % H, n % T};
    const auto exact = lab::compute_row(call.exact, at, lab::Record::result);
    if (exact.empty) continue;
    const Row row = row_of(call, at, exact);
    const RowBound forward = bound_row(call, at, row);
    const BackRow flows = back_row(call, at, row, forward, back);
    add_row(call, at, row, flows, back.d_output, sums);
    add_sink(call, at, row, flows, forward.log_sum_exp, sums);
  }
  sums.query.publish(call.a, 4, out.d_query, true);
  sums.key.publish(call.a, 4, out.d_key, true);
  sums.value.publish(call.a, 4, out.d_value, true);
  sums.bias.publish(call.a, 2, out.d_bias, false);
  sums.sink.publish(call.a, 4, out.d_sink, false);
}

}  // namespace

EngineRowBound engine_bound_row(const lab::AttentionCall& call, RowPlace at,
                                const lab::AttentionRow& exact,
                                const EngineArithmetic& arithmetic) {
  EngineRowBound out{std::vector<double>(at_index(call.shape.E)), 0};
  if (exact.empty) return out;
  // What each of the two may be away from the mathematical value.
  for (const Arithmetic& a : {engine(arithmetic), exact_tier()}) {
    const Call judged = call_of(call.in, call.options, call.shape, a);
    const RowBound bound = bound_row(judged, at, row_of(judged, at, exact));
    for (std::size_t e = 0; e < out.output.size(); ++e) out.output[e] += bound.output[e];
    out.log_sum_exp += bound.log_sum_exp;
  }
  return out;
}

Result<EngineBound> engine_bound(const AttentionInputs<double>& inputs,
                                 const AttentionOptions<double>& options,
                                 const EngineArithmetic& arithmetic) {
  const lab::ExactEnvironment environment;
  const auto shape = lab::check_attention(inputs, options);
  if (!shape) return shape.failure();
  const lab::AttentionCall call{inputs, options, *shape, lab::Visibility(options, *shape)};
  const auto [B, H, G, T, S, D, E] = *shape;
  EngineBound out{Tensor<double>({B, H, T, E}), Tensor<double>({B, H, T})};
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const RowPlace at{n / (H * T), n / T % H, n % T};
    const auto exact = lab::compute_row(call, at, lab::Record::result);
    const EngineRowBound row = engine_bound_row(call, at, exact, arithmetic);
    std::copy(row.output.begin(), row.output.end(), out.output.data() + n * E);
    out.log_sum_exp(at.b, at.h, at.i) = row.log_sum_exp;
  }
  return out;
}

Result<EngineGradientBound> engine_gradient_bound(const AttentionInputs<double>& inputs,
                                                  const AttentionOptions<double>& options,
                                                  const lab::AttentionOutputGradients& gradients,
                                                  const EngineArithmetic& arithmetic) {
  const lab::ExactEnvironment environment;
  const auto shape = lab::check_attention(inputs, options);
  if (!shape) return shape.failure();
  const auto [B, H, G, T, S, D, E] = *shape;
  Shape bias{0};
  if (options.bias) bias.assign(options.bias.extents.begin(), options.bias.extents.end());
  const Shape sink{options.sink.empty() ? 0 : H};
  EngineGradientBound out{Tensor<double>({B, H, T, D}), Tensor<double>({B, G, S, D}),
                          Tensor<double>({B, G, S, E}), Tensor<double>(bias), Tensor<double>(sink)};
  for (const Arithmetic& a : {engine(arithmetic), exact_tier()}) {
    add_gradient_bound(call_of(inputs, options, *shape, a), gradients, out);
  }
  return out;
}

}  // namespace attest::check
