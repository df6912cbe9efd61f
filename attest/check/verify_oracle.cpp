// SPDX-License-Identifier: MIT
// The random cases against the oracle: results and gradients within their derived bounds, and the
// elementary functions equal to the nearest double.
#include <limits>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/elementary.h"

namespace attest::check {
namespace {

using lab::oracle::OracleTensor;
using lab::oracle::Real;

/// The call fails exactly where the oracle's does.
void all_succeed(const VerifyContext& context, Recorder& record) {
  for (const EvaluatedCase& each : context.cases) {
    record.succeeded(each.found, each.c.name);
    record.succeeded(each.expected, each.c.name + ", oracle");
    record.succeeded(each.bound, each.c.name + ", bound");
  }
}

void outputs(const VerifyContext& context, Recorder& record) {
  for (const EvaluatedCase& each : context.cases) {
    if (!each.complete()) continue;
    record.within(each.found->output, each.expected->output, each.bound->output,
                  {each.c.name, "output"});
  }
}

void weights(const VerifyContext& context, Recorder& record) {
  for (const EvaluatedCase& each : context.cases) {
    if (!each.complete()) continue;
    record.within(each.found->weights, each.expected->weights, each.bound->weights,
                  {each.c.name, "weights"});
  }
}

/// The oracle's fifty digits of a log_sum_exp are relative to the exponentials that it sums, here
/// about 1: a lone score of 10⁻³²⁰ is lost in log(1 + 10⁻³²⁰).
void log_sum_exps(const VerifyContext& context, Recorder& record) {
  for (const EvaluatedCase& each : context.cases) {
    if (!each.complete()) continue;
    Tensor<double> bound = each.bound->log_sum_exp;
    for (double& allowed : bound.elements()) allowed += allowed > 0 ? 1e-50 : 0;
    record.within(each.found->log_sum_exp, each.expected->log_sum_exp, bound,
                  {each.c.name, "log_sum_exp"});
  }
}

// ---- gradients --------------------------------------------------------------------------------

struct EvaluatedGradients {
  const EvaluatedCase& each;
  lab::AttentionGradients found;
  lab::oracle::AttentionGradients expected;
  lab::AttentionGradientBound bound;
};

std::vector<EvaluatedGradients> evaluate_gradients(const VerifyContext& context, Recorder& record) {
  std::vector<EvaluatedGradients> out;
  for (const EvaluatedCase& each : context.cases) {
    const auto inputs = each.c.call.inputs();
    const auto options = each.c.call.options();
    const lab::AttentionOutputGradients back{each.c.d_output.view<4>(),
                                             each.c.d_log_sum_exp.view<3>()};
    auto found = context.use.attention_backward(inputs, options, back);
    auto expected =
        lab::oracle::attention_backward(inputs, options, back.d_output, back.d_log_sum_exp);
    auto bound = lab::bound_attention_backward(inputs, options, back);
    const bool complete = record.succeeded(found, each.c.name) &&
                          record.succeeded(expected, each.c.name + ", oracle") &&
                          record.succeeded(bound, each.c.name + ", bound");
    if (!complete) continue;
    out.push_back({each, *std::move(found), *std::move(expected), *std::move(bound)});
  }
  return out;
}

/// One gradient of all cases; those that have none (no bias, no sink) are left out.
void gradient(const std::vector<EvaluatedGradients>& all, Recorder& record, std::string_view name,
              Tensor<double> lab::AttentionGradients::*found,
              OracleTensor lab::oracle::AttentionGradients::*expected,
              Tensor<double> lab::AttentionGradientBound::*bound) {
  for (const EvaluatedGradients& one : all) {
    if (!(one.expected.*expected).present() && (one.found.*found).size() == 0) continue;
    record.within(one.found.*found, one.expected.*expected, one.bound.*bound,
                  {one.each.c.name, name});
  }
}

// ---- elementary functions ---------------------------------------------------------------------

struct Function {
  const char* name;
  double (*found)(double) noexcept;
  Real (*expected)(const Real&);
  double low, high;  // of the arguments
};

constexpr Function functions[] = {
    {"exp", lab::exp, [](const Real& x) { return lab::oracle::exp(x); }, -746, 709},
    {"exp2", lab::exp2, [](const Real& x) { return Real(pow(Real(2), x)); }, -1076, 1023},
    {"log", lab::log, [](const Real& x) { return Real(log(x)); }, 1e-8, 10},
    {"tanh", lab::tanh, [](const Real& x) { return lab::oracle::tanh(x); }, -20, 20},
    {"erf", lab::erf, [](const Real& x) { return lab::oracle::erf(x); }, -6, 6},
    {"sin", lab::sin, [](const Real& x) { return Real(sin(x)); }, -1000, 1000},
    {"cos", lab::cos, [](const Real& x) { return Real(cos(x)); }, -1000, 1000}};

/// Half of the arguments fill the range, the others have all sizes down to 2⁻³⁰ of it.
void elementary(const VerifyContext& context, Recorder& record, const Function& f) {
  constexpr int arguments = 60;
  Random random(context.options.seed, static_cast<std::uint64_t>(&f - functions) + (1ULL << 40U));
  for (int n = 0; n < arguments; ++n) {
    double x = random.uniform(f.low, f.high);
    if (n % 2 == 1) {
      const auto smaller = static_cast<double>(std::int64_t{1} << random.between(0, 30));
      x = x / smaller;
    }
    record.equal(f.found(x), lab::oracle::nearest_double(f.expected(Real(x))),
                 sentence(f.name, "(", x, ")"));
  }
}

}  // namespace

VerifySection verify_against_oracle(const VerifyContext& context) {
  VerifySection section;
  add_check(section, "no case fails", "the random cases",
            [&](Recorder& record) { all_succeed(context, record); });
  add_check(section, "outputs within the derived bound", "stage output",
            [&](Recorder& record) { outputs(context, record); });
  add_check(section, "weights within the derived bound", "stage weights",
            [&](Recorder& record) { weights(context, record); });
  add_check(section, "log_sum_exp within the derived bound", "stage log_sum_exp",
            [&](Recorder& record) { log_sum_exps(context, record); });
  return section;
}

VerifySection verify_gradients(const VerifyContext& context) {
  using Found = lab::AttentionGradients;
  using Expected = lab::oracle::AttentionGradients;
  using Bound = lab::AttentionGradientBound;
  VerifySection section;
  std::vector<EvaluatedGradients> all;
  add_check(section, "no case fails", "the random cases",
            [&](Recorder& record) { all = evaluate_gradients(context, record); });
  const auto check = [&](const char* name, auto found, auto expected, auto bound) {
    add_check(section, std::string(name) + " within the derived bound", "gradients",
              [&](Recorder& record) { gradient(all, record, name, found, expected, bound); });
  };
  check("d_query", &Found::d_query, &Expected::d_query, &Bound::d_query);
  check("d_key", &Found::d_key, &Expected::d_key, &Bound::d_key);
  check("d_value", &Found::d_value, &Expected::d_value, &Bound::d_value);
  check("d_bias", &Found::d_bias, &Expected::d_bias, &Bound::d_bias);
  check("d_sink", &Found::d_sink, &Expected::d_sink, &Bound::d_sink);
  return section;
}

VerifySection verify_elementary(const VerifyContext& context) {
  VerifySection section;
  for (const Function& f : functions) {
    add_check(section, std::string(f.name) + " is the nearest double", "every stage that uses it",
              [&](Recorder& record) { elementary(context, record, f); });
  }
  return section;
}

}  // namespace attest::check
