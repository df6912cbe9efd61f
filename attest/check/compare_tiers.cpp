// SPDX-License-Identifier: MIT
#include "attest/check/compare_tiers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "attest/attention/attention.h"
#include "attest/base/text.h"
#include "attest/base/widened.h"
#include "attest/check/engine_bound.h"
#include "attest/check/plain_row.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/bound.h"
#include "attest/lab/bound_fraction.h"
#include "attest/lab/environment.h"
#include "attest/lab/oracle.h"

namespace attest::check {
namespace {

using lab::AttentionShape;
using lab::RowPlace;

constexpr double infinity = std::numeric_limits<double>::infinity();

Failure bad_option(std::string message) {
  return {ErrorKind::value, "bad-option", "[compare] " + std::move(message)};
}

/// The same numbers in another type, if it has them all.
template <class T>
Result<Tensor<T>> narrowed(const Tensor<double>& from, std::string_view name) {
  Tensor<T> out(from.shape());
  for (std::size_t n = 0; n < from.size(); ++n) {
    const double x = from.elements()[n];
    out.elements()[n] = rounded_to<T>(x);
    if (widened(out.elements()[n]) == x || x != x) continue;
    return bad_option(sentence(name, " holds ", x, " at element ", n,
                               ", which is no number of type ", name_of(dtype_of<T>)));
  }
  return out;
}

/// A call in the engine's own types. Its options look into it and into the case that it came from.
template <class T>
struct TypedCall {
  using Sum = AccumulatorOf<T>;
  Tensor<T> query, key, value;
  Tensor<Sum> bias;
  AttentionOptions<Sum> options;

  static Result<TypedCall> of(const AttentionCase& call) {
    TypedCall out;
    for (const auto& [from, to, name] : {std::tuple(&call.query, &out.query, "query"),
                                         {&call.key, &out.key, "key"},
                                         {&call.value, &out.value, "value"}}) {
      auto numbers = narrowed<T>(*from, name);
      if (!numbers) return numbers.failure();
      *to = *std::move(numbers);
    }
    out.options = options_with<Sum>(call.options(), {});
    if (!call.bias) return out;
    auto bias = narrowed<Sum>(*call.bias, "bias");
    if (!bias) return bias.failure();
    out.bias = *std::move(bias);
    out.options.bias = std::as_const(out.bias).template view<4>();
    return out;
  }
  [[nodiscard]] AttentionInputs<T> inputs() const {
    return {query.template view<4>(), key.template view<4>(), value.template view<4>()};
  }
};

template <class T>
struct EngineResult {
  Tensor<T> output;                      // [B, H, T, E]
  Tensor<AccumulatorOf<T>> log_sum_exp;  // [B, H, T]

  static Result<EngineResult> of(const TypedCall<T>& call, const AttentionShape& s,
                                 const Execution& execution) {
    EngineResult out{Tensor<T>({s.B, s.H, s.T, s.E}), Tensor<AccumulatorOf<T>>({s.B, s.H, s.T})};
    const AttentionOutputs<T> into{out.output.template view<4>(),
                                   out.log_sum_exp.template view<3>()};
    if (auto ok = try_attention(into, call.inputs(), call.options, execution); !ok) {
      return ok.failure();
    }
    return out;
  }
};

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// "batch1.h0.output[2,3]"; −1 for no second index.
std::string address(const AttentionShape& s, RowPlace at, std::string_view stage, std::int64_t e) {
  std::string out;
  if (s.B > 1) out += sentence("batch", at.b, ".");
  if (s.H > 1) out += sentence("h", at.h, ".");
  out += sentence(stage, "[", at.i);
  return out + (e >= 0 ? sentence(",", e, "]") : "]");
}

/// How many rows are compared.
std::int64_t rows_to_compare(const AttentionShape& s, const CompareTiersOptions& options) {
  const std::int64_t all = s.B * s.H * s.T;
  if (options.rows) return std::min(all, *options.rows);
  const double work = exact_work(s);
  if (work <= much_exact_work) return all;
  const double each = work / static_cast<double>(all);
  return std::min(all,
                  std::max<std::int64_t>(16, static_cast<std::int64_t>(much_exact_work / each)));
}

/// The n-th of `compared` rows of all, evenly from the first to the last.
RowPlace sampled_row(const AttentionShape& s, std::int64_t n, std::int64_t compared) {
  const std::int64_t all = s.B * s.H * s.T;
  std::int64_t row = n;
  if (compared < all && compared > 1) {
    const double step = static_cast<double>(all - 1) / static_cast<double>(compared - 1);
    row = std::min(all - 1, static_cast<std::int64_t>(std::round(step * static_cast<double>(n))));
  }
  return {row / (s.H * s.T), row / s.T % s.H, row % s.T};
}

/// The engine on each set, with one thread and with several; the results of one thread are kept.
template <class T>
Result<std::vector<EngineResult<T>>> run_sets(const AttentionCase& call,
                                              const std::vector<Isa>& isas, TierComparison& out) {
  const auto typed = TypedCall<T>::of(call);
  if (!typed) return typed.failure();
  ThreadPool one(1);
  ThreadPool several(out.threads);
  std::vector<EngineResult<T>> found;
  for (const Isa isa : isas) {
    auto result = EngineResult<T>::of(*typed, out.shape, {.threads = &one, .isa = isa});
    if (!result) return result.failure();
    TierRun run{.name = sentence("engine ", name_of(isa)), .against = "exact"};
    if (out.threads > 1) {
      const auto again = EngineResult<T>::of(*typed, out.shape, {.threads = &several, .isa = isa});
      if (!again) return again.failure();
      run.same_bits = same_bits(result->output, again->output) &&
                      same_bits(result->log_sum_exp, again->log_sum_exp);
    }
    run.fits = {{.stage = "output"}, {.stage = "log_sum_exp"}};
    found.push_back(*std::move(result));
    out.runs.push_back(std::move(run));
  }
  return found;
}

/// The plain loop beside the bound of the portable engine.
void add_plain(TierFit& fit, const lab::AttentionCall& call, RowPlace at,
               const lab::AttentionRow& exact, DType storage) {
  if (exact.empty) return;
  const auto found = plain_row(call, at, exact, storage);
  const auto bound = engine_bound_row(call, at, exact, {storage, Isa::portable});
  for (std::size_t e = 0; e < found.size(); ++e) {
    fit.add(found[e], exact.output[e], bound.output[e],
            [&] { return address(call.shape, at, fit.stage, static_cast<std::int64_t>(e)); });
  }
}

template <class T>
Result<void> compare_engine(const AttentionCase& call, const CompareTiersOptions& options,
                            const std::vector<Isa>& sets, TierComparison& out) {
  const std::vector<Isa> none;
  const auto& [isas, skipped] =
      fits_engine(out.shape) ? std::tie(sets, none) : std::tie(none, sets);
  const std::size_t plain = out.runs.size();
  const std::size_t first = plain + 1;
  out.runs.push_back({.name = "plain loop", .against = "exact", .judged = false});
  out.runs[plain].fits = {{.stage = "output"}};
  const auto found = run_sets<T>(call, isas, out);
  if (!found) return found.failure();
  for (const Isa isa : skipped) {
    out.runs.push_back({.name = sentence("engine ", name_of(isa)),
                        .against = "exact",
                        .skipped = "its heads have 512 numbers at most"});
  }
  const lab::ExactEnvironment environment;
  const AttentionShape& s = out.shape;
  const auto inputs = call.inputs();
  const auto wide = call.options();
  const lab::AttentionCall checked{inputs, wide, s, lab::Visibility(wide, s)};
  for (std::int64_t n = 0; n < out.rows_compared; ++n) {
    const RowPlace at = sampled_row(s, n, out.rows_compared);
    const auto exact = lab::compute_row(checked, at, lab::Record::result);
    add_plain(out.runs[plain].fits[0], checked, at, exact, options.storage);
    for (std::size_t k = 0; k < isas.size(); ++k) {
      const auto bound = engine_bound_row(checked, at, exact, {options.storage, isas[k]});
      const EngineResult<T>& engine = (*found)[k];
      auto& fits = out.runs[first + k].fits;
      for (std::int64_t e = 0; e < s.E; ++e) {
        const auto place = static_cast<std::size_t>(e);
        fits[0].add(widened(engine.output(at.b, at.h, at.i, e)), exact.output[place],
                    bound.output[place], [&] { return address(s, at, "output", e); });
      }
      fits[1].add(engine.log_sum_exp(at.b, at.h, at.i), exact.log_sum_exp, bound.log_sum_exp,
                  [&] { return address(s, at, "log_sum_exp", -1); });
    }
    if (options.progress) options.progress(n + 1, out.rows_compared);
  }
  return {};
}

void compare_stage(TierFit& fit, const AttentionShape& s, const Tensor<double>& found,
                   const lab::oracle::OracleTensor& expected, const Tensor<double>& bound) {
  const bool per_row = found.rank() == 3;
  const std::int64_t width = per_row ? 1 : s.E;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const auto place = static_cast<std::int64_t>(n);
    const std::int64_t row = place / width;
    const RowPlace at{row / (s.H * s.T), row / s.T % s.H, row % s.T};
    // The oracle's own digits: docs/accuracy.md, "What is not contained".
    const double limit = bound.elements()[n] + (per_row && bound.elements()[n] > 0 ? 1e-50 : 0);
    const double ours = found.elements()[n];
    const double nearest = lab::oracle::nearest_double(expected.values[n]);
    const bool both_nan = ours != ours && nearest != nearest;
    // A bound of 1: what is used of it is the distance itself.
    fit.add_error(both_nan ? 0 : lab::used_fraction(ours, expected.values[n], 1), limit,
                  [&] { return address(s, at, fit.stage, per_row ? -1 : place % width); });
  }
}

/// Without the name of a tier that nobody asked for.
std::string without_origin(std::string text) {
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

/// The exact tier before the oracle, where the call is small enough for fifty digits.
Result<TierRun> compare_exact(const AttentionCase& call, const AttentionShape& s) {
  TierRun run{.name = "exact", .against = "oracle"};
  if (exact_work(s) > much_oracle_work) {
    run.skipped = "fifty digits are for small calls";
    return run;
  }
  const auto expected = lab::oracle::attention(call.inputs(), call.options());
  if (!expected) {
    Failure why = expected.failure();
    why.message = without_origin(std::move(why.message));
    if (why.id == "no-visible-key") {
      why.message = "[compare] " + why.message;
      return why;
    }
    run.skipped = why.message;
    return run;
  }
  const auto found = lab::attention(call.inputs(), call.options(), lab::Weights::drop);
  if (!found) return found.failure();
  const auto bound = lab::bound_attention(call.inputs(), call.options());
  if (!bound) return bound.failure();
  run.fits = {{.stage = "output"}, {.stage = "log_sum_exp"}};
  compare_stage(run.fits[0], s, found->output, expected->output, bound->output);
  compare_stage(run.fits[1], s, found->log_sum_exp, expected->log_sum_exp, bound->log_sum_exp);
  return run;
}

std::vector<Isa> sets_to_run(const CompareTiersOptions& options) {
  if (!options.isas.empty()) return options.isas;
  std::vector<Isa> out;
  for (const IsaState& state : instruction_sets()) {
    if (state.built && state.present) out.push_back(state.isa);
  }
  return out;
}

}  // namespace

double exact_work(const lab::AttentionShape& s) noexcept {
  double out = static_cast<double>(s.D) + static_cast<double>(s.E) + 8;
  for (const std::int64_t extent : {s.B, s.H, s.T, s.S}) out *= static_cast<double>(extent);
  return out;
}

void TierFit::add(double found, double expected, double bound,
                  const std::function<std::string()>& where) {
  const bool both_nan = found != found && expected != expected;
  const bool equal = both_nan || found == expected;
  add_error(equal ? 0 : std::fabs(found - expected), bound, where);
}

void TierFit::add_error(double error, double bound, const std::function<std::string()>& where) {
  ++numbers;
  if (bound == infinity) {
    ++unpromised;
    if (error != error) ++nan_apart;
    return;
  }
  if (!(error <= infinity)) error = infinity;  // a NaN in place of a number
  const double share = error == 0 ? 0 : error / bound;
  if (!(share <= 1)) ++broken;
  if (share > used) {
    used = share;
    used_at = where();
  }
  if (error > largest_error) {
    largest_error = error;
    error_at = where();
    bound_there = bound;
  }
}

Verdict TierComparison::verdict() const {
  bool any = false;
  bool all_promise = true;
  for (const TierRun& run : runs) {
    if (!run.judged || !run.skipped.empty()) continue;
    if (run.same_bits && !*run.same_bits) return Verdict::differs;
    std::int64_t promised = 0;
    for (const TierFit& fit : run.fits) {
      if (fit.broken > 0) return Verdict::differs;
      promised += fit.numbers - fit.unpromised;
    }
    any = true;
    all_promise = all_promise && promised > 0;
  }
  return any && all_promise ? Verdict::match : Verdict::undecided;
}

Result<TierComparison> compare_tiers(const AttentionCase& call,
                                     const CompareTiersOptions& options) {
  const auto shape = lab::check_attention(call.inputs(), call.options());
  if (!shape) return shape.failure();
  if (options.rows && *options.rows < 1) {
    return bad_option(sentence("rows must be at least 1; found ", *options.rows));
  }
  const auto processors = static_cast<int>(std::thread::hardware_concurrency());
  TierComparison out{.shape = *shape,
                     .storage = options.storage,
                     .threads = options.threads > 0 ? options.threads : std::max(2, processors),
                     .rows = shape->B * shape->H * shape->T,
                     .rows_compared = rows_to_compare(*shape, options)};
  const std::vector<Isa> isas = sets_to_run(options);
  const auto engine = [&]() -> Result<void> {
    switch (options.storage) {
      case DType::f64:
        return compare_engine<double>(call, options, isas, out);
      case DType::f32:
        return compare_engine<float>(call, options, isas, out);
      case DType::bf16:
        return compare_engine<BFloat16>(call, options, isas, out);
      case DType::f16:
        return compare_engine<Half>(call, options, isas, out);
      default:
        return bad_option(sentence("the engine computes in f64, f32, bf16 or f16, not in ",
                                   name_of(options.storage)));
    }
  };
  auto exact = compare_exact(call, *shape);
  if (!exact) return exact.failure();
  out.runs.push_back(*std::move(exact));
  if (auto ok = engine(); !ok) return ok.failure();
  return out;
}

}  // namespace attest::check
