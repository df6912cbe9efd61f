// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "attest/check/engine_bound.h"
#include "attest/lab/attention.h"
#include "tests/attention/engine_cases_plain.h"
#include "tests/attention/engine_cases_typed.h"

/// The engine, the exact tier, the derived bound and the plain loop on one case.
namespace attest::test {

/// What many cases used of the bound, and how they compare with the plain loop.
struct Summary {
  double output = 0, log_sum_exp = 0;        // largest used fractions
  double engine_share = 0, plain_share = 0;  // Σ (error / bound)²
  std::int64_t numbers = 0;
  std::int64_t cases = 0;
  void print(const char* what) const {
    std::cout << what << ": " << cases << " cases, " << numbers << " numbers; used of the bound: "
              << "output " << output << ", log_sum_exp " << log_sum_exp
              << "; root mean square error beside the plain loop's: "
              << std::sqrt(engine_share / std::max(plain_share, 0x1p-1000)) << "\n";
  }
};

/// |found − expected| / bound; 0 where both are the same NaN or number, infinite where they differ
/// in kind.
inline double used_of(double found, double expected, double bound) {
  if (std::isnan(found) || std::isnan(expected)) {
    const bool both = std::isnan(found) && std::isnan(expected);
    return both || bound == engine_infinity ? 0 : engine_infinity;
  }
  if (found == expected || bound == engine_infinity) return 0;
  return bound > 0 ? std::fabs(found - expected) / bound : engine_infinity;
}

/// The largest used fraction, and where.
inline ::testing::AssertionResult within_bound(const Tensor<double>& found,
                                               const Tensor<double>& expected,
                                               const Tensor<double>& bound, double& largest) {
  if (found.shape() != expected.shape() || found.shape() != bound.shape()) {
    return ::testing::AssertionFailure() << "shapes differ";
  }
  for (std::size_t n = 0; n < found.size(); ++n) {
    const double used = used_of(found.elements()[n], expected.elements()[n], bound.elements()[n]);
    if (!(used <= 1)) {
      return ::testing::AssertionFailure()
             << "element " << n << " of " << to_string(found.shape()) << ": found "
             << found.elements()[n] << ", expected " << expected.elements()[n] << ", bound "
             << bound.elements()[n] << ", used " << used;
    }
    largest = std::max(largest, used);
  }
  return ::testing::AssertionSuccess();
}

/// The largest error of the tensor against twice the plain loop's.
///
/// Slack, for a plain loop that was lucky: three roundings of a number of the values' size, and twice
/// one rounding of the largest score, before the softcap or after. The engine's scores are multiples
/// of log 2, so each rounds once more than a score that is given (as a bias is, or a softcap that is
/// reached). Looked at are tensors of 256 numbers on, where luck is rare, and numbers whose bound is below a sixteenth of the
/// values: beyond, a score has no digits left, and both results are arbitrary. `Summary` compares
/// the root mean square without any slack.
inline ::testing::AssertionResult no_worse_than_twice(const EngineCase& c,
                                                      const Tensor<double>& found,
                                                      const PlainOutput& plain,
                                                      const Tensor<double>& exact,
                                                      const Tensor<double>& bound, Summary& into) {
  const double u = c.storage == DType::f64 ? 0x1p-53 : 0x1p-24;
  double largest = 0, of_plain = 0, values = 0;
  std::int64_t count = 0;
  for (const double x : c.value.elements()) values = std::max(values, std::fabs(x));
  values /= 1 - c.chosen.dropout.rate;  // what a kept weight meets
  for (std::size_t n = 0; n < found.size(); ++n) {
    const double limit = bound.elements()[n];
    if (!(limit > 0) || limit > values / 16 || std::isnan(exact.elements()[n])) continue;
    const double error = std::fabs(found.elements()[n] - exact.elements()[n]);
    const double other = std::fabs(plain.output.elements()[n] - exact.elements()[n]);
    largest = std::max(largest, error);
    of_plain = std::max(of_plain, other);
    into.engine_share += error * error / limit / limit;
    into.plain_share += other * other / limit / limit;
    ++count;
  }
  into.numbers += count;
  if (count < 256 || largest <= 2 * of_plain + (3 + 2 * plain.largest_score) * u * values) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "largest error " << largest << ", of the plain loop "
                                       << of_plain << ", values up to " << values;
}

/// The engine on all these instruction sets against the exact tier: one summary for each.
inline void judge_case(const EngineCase& c, const std::vector<Isa>& isas,
                       std::vector<Summary>& summaries) {
  const auto exact = lab::attention(c.inputs(), c.options(), lab::Weights::drop);
  ASSERT_TRUE(exact) << exact.failure().message;
  std::optional<check::EngineBound> bounds[2];
  std::optional<PlainOutput> plain[2];
  for (std::size_t n = 0; n < isas.size(); ++n) {
    SCOPED_TRACE(name_of_case(c, isas[n]));
    Summary& summary = summaries[n];
    const std::size_t kind = multiplies_pairs(c, isas[n]) ? 1 : 0;
    if (!bounds[kind]) {
      auto bound = check::engine_bound(c.inputs(), c.options(), {c.storage, isas[n]});
      ASSERT_TRUE(bound) << bound.failure().message;
      bounds[kind] = *std::move(bound);
      plain[kind] = plain_output(c, kind == 1);
    }
    const EngineForward found = run_engine(c, {.isa = isas[n]});
    ASSERT_FALSE(found.failure) << found.failure->message;
    ASSERT_TRUE(found.gaps_untouched);
    const check::EngineBound& bound = *bounds[kind];
    ASSERT_TRUE(within_bound(found.output, exact->output, bound.output, summary.output))
        << "output";
    ASSERT_TRUE(
        within_bound(found.log_sum_exp, exact->log_sum_exp, bound.log_sum_exp, summary.log_sum_exp))
        << "log_sum_exp";
    ASSERT_TRUE(
        no_worse_than_twice(c, found.output, *plain[kind], exact->output, bound.output, summary));
    ++summary.cases;
  }
}

/// `count` cases from `seed` on, of one storage.
inline void judge_cases(std::uint64_t seed, std::int64_t count, DType storage,
                        const EngineLimits& limits = {}) {
  const std::vector<Isa> isas = present_isas();
  std::vector<Summary> summaries(isas.size());
  for (std::int64_t n = 0; n < count; ++n) {
    judge_case(engine_case(seed + static_cast<std::uint64_t>(n), storage, limits), isas, summaries);
    if (::testing::Test::HasFailure()) return;
  }
  for (std::size_t n = 0; n < isas.size(); ++n) {
    const std::string what = sentence(name_of(storage), ", ", name_of(isas[n]));
    summaries[n].print(what.c_str());
    if (count < 50) continue;
    EXPECT_LE(summaries[n].engine_share, 4 * summaries[n].plain_share)
        << what << ": the root mean square error is more than twice the plain loop's";
    EXPECT_GT(summaries[n].output, 0.02) << what << ": the bound would be vacuous";
  }
}

}  // namespace attest::test
