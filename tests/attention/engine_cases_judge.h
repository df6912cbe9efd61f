// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <span>
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
  std::uint64_t most_orders = 0;  // of the plain loop that one case took
  void print(const char* what) const {
    std::cout << what << ": " << cases << " cases, " << numbers << " numbers; used of the bound: "
              << "output " << output << ", log_sum_exp " << log_sum_exp
              << "; root mean square error beside the plain loop's: "
              << std::sqrt(engine_share / std::max(plain_share, 0x1p-1000))
              << "; orders of the plain loop: " << most_orders << "\n";
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

/// How far plain loops are from the truth, in as many orders as are asked for, made when first wanted.
///
/// The truth is what the plain loop says in long double: the exact tier will not do for f64, whose plain
/// loop makes many of the exact tier's own roundings, so that their errors cancel.
class PlainErrors {
 public:
  static constexpr std::uint64_t most = 24;
  PlainErrors(const EngineCase& c, bool pairs) : case_(c), pairs_(pairs) {}
  const std::vector<double>& in_order(std::uint64_t order) {
    while (made_.size() <= order) made_.push_back(of(plain_output(case_, pairs_, made_.size())));
    return made_[static_cast<std::size_t>(order)];
  }
  /// [B·H·T·E]
  std::vector<double> of(std::span<const double> result) {
    if (truth_.empty()) truth_ = plain_rows<long double>(case_, false, 0);
    std::vector<double> out;
    for (std::size_t n = 0; n < result.size(); ++n) {
      const long double apart = static_cast<long double>(result[n]) - truth_[n];
      out.push_back(static_cast<double>(std::fabs(apart)));
    }
    return out;
  }

 private:
  const EngineCase& case_;
  bool pairs_;
  std::vector<long double> truth_{};
  std::vector<std::vector<double>> made_{};
};

/// The largest value that a kept weight meets.
inline double largest_value(const EngineCase& c) {
  double out = 0;
  for (const double x : c.value.elements()) out = std::max(out, std::fabs(x));
  return out / (1 - c.chosen.dropout.rate);
}

/// Which numbers of a result are compared with the plain loop's: those whose bound is below a sixteenth
/// of the values. Beyond, a score has no digits left, and both results are arbitrary.
inline std::vector<std::size_t> comparable(const EngineCase& c, const Tensor<double>& exact,
                                           const Tensor<double>& bound) {
  const double most = largest_value(c) / 16;
  std::vector<std::size_t> out;
  for (std::size_t n = 0; n < exact.size(); ++n) {
    const double limit = bound.elements()[n];
    if (limit > 0 && limit <= most && !std::isnan(exact.elements()[n])) out.push_back(n);
  }
  return out;
}

/// What the plain loop's last roundings may cost: its sum and its quotient, of a number as large as the
/// values, and the storing of the largest result.
inline double last_roundings(const EngineCase& c, double largest_result) {
  const double u = c.storage == DType::f64 ? 0x1p-53 : 0x1p-24;
  int exponent = 0;
  std::frexp(largest_result, &exponent);
  const int digits = c.storage == DType::bf16 ? 8 : c.storage == DType::f16 ? 11 : 0;
  const double storing = digits == 0 ? 0 : std::ldexp(0.5, exponent - digits);
  return 2 * u * largest_value(c) + storing;
}

/// The largest error of a tensor is at most twice the plain loop's.
///
/// A plain loop can be lucky. One row may decide the largest error of a tensor, by the few roundings of two
/// large scores: so where the order of the indices is not enough, the same loop is asked in up to 24
/// orders, and what counts is the largest error that any of them makes. And where all scores are alike
/// no order matters: what its last roundings may cost it is allowed. A kernel that loses digits does so
/// in all rows, and fails.
inline ::testing::AssertionResult no_worse_than_twice(const EngineCase& c,
                                                      const Tensor<double>& found,
                                                      PlainErrors& plain,
                                                      const Tensor<double>& exact,
                                                      const Tensor<double>& bound, Summary& into) {
  const std::vector<std::size_t> places = comparable(c, exact, bound);
  const auto largest_of = [&](const std::vector<double>& errors) {
    double out = 0;
    for (const std::size_t n : places) out = std::max(out, errors[n]);
    return out;
  };
  const auto share = [&](const std::vector<double>& errors) {
    double sum = 0;
    for (const std::size_t n : places) sum += std::pow(errors[n] / bound.elements()[n], 2);
    return sum;
  };
  const std::vector<double> errors = plain.of(found.elements());
  into.engine_share += share(errors);
  into.plain_share += share(plain.in_order(0));
  into.numbers += static_cast<std::int64_t>(places.size());
  const double largest = largest_of(errors);
  double largest_result = 0;
  for (const std::size_t n : places) {
    largest_result = std::max(largest_result, std::fabs(exact.elements()[n]));
  }
  double of_plain = last_roundings(c, largest_result);
  for (std::uint64_t order = 0; order < PlainErrors::most; ++order) {
    of_plain = std::max(of_plain, largest_of(plain.in_order(order)));
    if (largest <= 2 * of_plain) {
      into.most_orders = std::max(into.most_orders, order + 1);
      return ::testing::AssertionSuccess();
    }
  }
  return ::testing::AssertionFailure()
         << "largest error " << largest << ", of the plain loop in " << PlainErrors::most
         << " orders " << of_plain << ", values up to " << largest_value(c);
}

/// The engine on all these instruction sets against the exact tier: one summary for each.
inline void judge_case(const EngineCase& c, const std::vector<Isa>& isas,
                       std::vector<Summary>& summaries) {
  const auto exact = lab::attention(c.inputs(), c.options(), lab::Weights::drop);
  ASSERT_TRUE(exact) << exact.failure().message;
  std::optional<check::EngineBound> bounds[2];
  PlainErrors plain[2] = {PlainErrors(c, false), PlainErrors(c, true)};
  for (std::size_t n = 0; n < isas.size(); ++n) {
    SCOPED_TRACE(name_of_case(c, isas[n]));
    Summary& summary = summaries[n];
    const std::size_t kind = multiplies_pairs(c, isas[n]) ? 1 : 0;
    if (!bounds[kind]) {
      auto bound = check::engine_bound(c.inputs(), c.options(), {c.storage, isas[n]});
      ASSERT_TRUE(bound) << bound.failure().message;
      bounds[kind] = *std::move(bound);
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
        no_worse_than_twice(c, found.output, plain[kind], exact->output, bound.output, summary));
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
