// SPDX-License-Identifier: MIT
#include "attest/check/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "attest/io/json.h"
#include "attest/lab/exact_sum.h"

namespace attest::check {
namespace {

using Sections = std::set<std::string>;

Sections failing_sections(const VerifyReport& report) {
  Sections out;
  for (const VerifySection& section : report.sections) {
    if (section.failed() > 0) out.insert(section.name);
  }
  return out;
}

/// Verifies a wrong implementation: it must fail in all of these sections.
void expect_caught(const Implementation& wrong, const Sections& expected) {
  const VerifyReport report = verify({.implementation = wrong});
  EXPECT_FALSE(report.passed());
  const Sections failing = failing_sections(report);
  for (const std::string& section : expected) {
    EXPECT_TRUE(failing.contains(section))
        << "seed " << report.seed << ": section \"" << section << "\" did not notice";
  }
}

/// The exact tier with its call changed before, and its result after.
using ChangeCall = std::function<void(AttentionInputs<double>&, AttentionOptions<double>&)>;
Implementation with_changed_call(const ChangeCall& change) {
  Implementation out = Implementation::exact_tier();
  out.attention = [change](const AttentionInputs<double>& inputs,
                           const AttentionOptions<double>& options) {
    AttentionInputs<double> in = inputs;
    AttentionOptions<double> chosen = options;
    change(in, chosen);
    return lab::attention(in, chosen);
  };
  return out;
}
using ChangeResult = std::function<void(const AttentionInputs<double>&, lab::AttentionResult&)>;
Implementation with_changed_result(const ChangeResult& change) {
  Implementation out = Implementation::exact_tier();
  out.attention = [change](const AttentionInputs<double>& inputs,
                           const AttentionOptions<double>& options) {
    auto result = lab::attention(inputs, options);
    if (result) change(inputs, *result);
    return result;
  };
  return out;
}

TEST(Verify, PassesForEverySeed) {
  for (const std::uint64_t seed : {20170612ULL, 1ULL, 2ULL, 3ULL, 0xFFFFFFFFFFFFFFFFULL}) {
    const VerifyReport report = verify({.seed = seed});
    EXPECT_TRUE(report.passed()) << to_text(report);
    EXPECT_GE(report.assertions(), release_assertions) << "seed " << seed;
    EXPECT_EQ(report.cases, release_cases);
  }
}

/// The oracle section alone outdoes the release's count.
TEST(Verify, ComparesMoreThanTheReleaseWithTheOracle) {
  const VerifyReport report = verify();
  ASSERT_NE(report.find("oracle"), nullptr);
  EXPECT_GE(report.find("oracle")->assertions(), release_assertions);
}

TEST(Verify, UsesItsBoundsWithoutExceedingThem) {
  const VerifyReport report = verify();
  double largest = 0;
  for (const VerifySection& section : report.sections) {
    for (const VerifyCheck& check : section.checks) {
      EXPECT_LE(check.used, 1) << check.name << " at " << check.used_at;
      largest = std::max(largest, check.used);
    }
  }
  EXPECT_GT(largest, 0.05) << "all bounds would be vacuous";
}

TEST(Verify, IsAFunctionOfItsSeed) {
  EXPECT_EQ(to_text(verify({.seed = 7})), to_text(verify({.seed = 7})));
  EXPECT_NE(to_text(verify({.seed = 7})), to_text(verify({.seed = 8})));
}

TEST(Verify, RaisesTooFewCases) { EXPECT_EQ(verify({.cases = 1}).cases, release_cases); }

TEST(Verify, TellsItsProgress) {
  std::vector<std::string> seen;
  const VerifyReport report =
      verify({.progress = [&](std::string_view section, std::int64_t, std::int64_t) {
        seen.emplace_back(section);
      }});
  EXPECT_EQ(seen.size(), report.sections.size());
}

TEST(Verify, ReportsAsJson) {
  const auto parsed = io::parse_json(to_json(verify()), "report");
  ASSERT_TRUE(parsed) << parsed.failure().message;
  EXPECT_TRUE(*parsed->find("passed")->boolean_if());
}

TEST(Verify, CatchesAMissingScale) {
  expect_caught(with_changed_call([](auto&, auto& options) {
                  if (!options.scale) options.scale = 1;
                }),
                {"hand-calculated facts", "oracle"});
}

TEST(Verify, CatchesTheTopLeftCorner) {
  expect_caught(with_changed_call([](auto&, auto& options) {
                  if (options.mask.corner == Corner::bottom_right) {
                    options.mask.corner = Corner::top_left;
                  }
                }),
                {"oracle", "invariants"});
}

TEST(Verify, CatchesAnIgnoredMask) {
  expect_caught(with_changed_call([](auto&, auto& options) { options.mask.visible = {}; }),
                {"hand-calculated facts", "invariants", "oracle", "errors"});
}

TEST(Verify, CatchesALeakingFuture) {
  expect_caught(with_changed_call([](auto&, auto& options) { options.mask.future_hidden = false; }),
                {"hand-calculated facts", "invariants", "oracle", "future change"});
}

TEST(Verify, CatchesAHiddenDiagonalOfTheBlock) {
  Implementation wrong = Implementation::exact_tier();
  wrong.block = [](const Tensor<double>& rows, const lab::workbook::BlockParameters& p,
                   const lab::workbook::AttentionOptions&) {
    return lab::workbook::transformer_block(rows, p, {.causal = false});
  };
  expect_caught(wrong, {"hand-calculated facts", "future change", "block and layers"});
}

TEST(Verify, CatchesReorderedHeadsOfTheBlock) {
  Implementation wrong = Implementation::exact_tier();
  wrong.block = [](const Tensor<double>& rows, const lab::workbook::BlockParameters& p,
                   const lab::workbook::AttentionOptions& options) {
    lab::workbook::BlockParameters swapped = p;
    std::swap(swapped.P1, swapped.P2);
    return lab::workbook::transformer_block(rows, swapped, {.causal = options.causal});
  };
  expect_caught(wrong, {"hand-calculated facts", "block and layers"});
}

TEST(Verify, CatchesReorderedHeads) {
  expect_caught(with_changed_call([](auto& in, auto&) {
                  // The last head first: the same memory with a negative stride.
                  const std::int64_t H = in.query.extent(1);
                  in.query.data += (H - 1) * in.query.strides[1];
                  in.query.strides[1] = -in.query.strides[1];
                }),
                {"oracle"});
}

TEST(Verify, CatchesASoftmaxOverQueries) {
  expect_caught(with_changed_result([](const auto&, lab::AttentionResult& r) {
                  const auto [B, H, T, S] = r.weights.view<4>().extents;
                  for (std::int64_t n = 0; n < B * H * S; ++n) {
                    const std::int64_t b = n / (H * S), h = n / S % H, j = n % S;
                    double sum = 0;
                    for (std::int64_t i = 0; i < T; ++i) sum += r.weights(b, h, i, j);
                    for (std::int64_t i = 0; i < T && sum > 0; ++i) r.weights(b, h, i, j) /= sum;
                  }
                }),
                {"hand-calculated facts", "invariants", "oracle"});
}

TEST(Verify, CatchesUnnormalisedOutputs) {
  expect_caught(with_changed_result([](const auto&, lab::AttentionResult& r) {
                  for (double& x : r.output.elements()) x *= 2;
                }),
                {"hand-calculated facts", "invariants", "oracle", "permutation and constants"});
}

/// A single step of one bit in every weight is more than correct rounding allows.
TEST(Verify, CatchesWeightsThatAreOffByEightUlps) {
  expect_caught(with_changed_result([](const auto&, lab::AttentionResult& r) {
                  for (double& w : r.weights.elements()) w *= 1 + 8 * 0x1p-52;
                }),
                {"invariants", "oracle"});
}

TEST(Verify, CatchesASumThatDependsOnTheOrderOfKeys) {
  expect_caught(with_changed_result([](const auto& in, lab::AttentionResult& r) {
                  const auto [B, H, T, S] = r.weights.view<4>().extents;
                  const std::int64_t E = in.value.extent(3);
                  for (std::int64_t n = 0; n < B * H * T * E; ++n) {
                    const std::int64_t b = n / (H * T * E), h = n / (T * E) % H, i = n / E % T;
                    double sum = 0;
                    for (std::int64_t j = 0; j < S; ++j) {
                      const double w = r.weights(b, h, i, j);
                      const double v = in.value(b, h / (H / in.value.extent(1)), j, n % E);
                      if (w != 0) sum += w * v;
                    }
                    r.output.elements()[static_cast<std::size_t>(n)] = sum;
                  }
                }),
                {"permutation and constants"});
}

TEST(Verify, CatchesNaN) {
  expect_caught(with_changed_result([](const auto&, lab::AttentionResult& r) {
                  for (double& x : r.output.elements()) x = std::nan("");
                }),
                {"hand-calculated facts", "invariants", "oracle"});
}

TEST(Verify, CatchesAResultOfAnotherShape) {
  expect_caught(with_changed_result([](const auto&, lab::AttentionResult& r) {
                  r.weights = Tensor<double>({1, 1, 1, 1});
                }),
                {"oracle"});
}

/// d_biased = weights·d_weights, without the pull of every score at every weight through the sum.
TEST(Verify, CatchesAMissingSumTermInTheGradient) {
  Implementation wrong = Implementation::exact_tier();
  wrong.attention_backward = [](const AttentionInputs<double>& in,
                                const AttentionOptions<double>& options,
                                const lab::AttentionOutputGradients& back) {
    // delta = 0 is what d_log_sum_exp + delta undoes: delta = d_output·output.
    const auto forward = lab::attention(in, options);
    if (!forward) return lab::attention_backward(in, options, back);
    const auto [B, H, T, E] = back.d_output.extents;
    Tensor<double> d_lse({B, H, T});
    for (std::int64_t n = 0; n < B * H * T; ++n) {
      const std::int64_t b = n / (H * T), h = n / T % H, i = n % T;
      for (std::int64_t e = 0; e < E; ++e) {
        d_lse(b, h, i) += back.d_output(b, h, i, e) * forward->output(b, h, i, e);
      }
      if (back.d_log_sum_exp) d_lse(b, h, i) += back.d_log_sum_exp(b, h, i);
    }
    return lab::attention_backward(in, options, {back.d_output, d_lse.view<3>()});
  };
  const VerifyReport report = verify({.implementation = wrong});
  EXPECT_EQ(failing_sections(report), Sections{"gradients"}) << "and in no other section";
}

TEST(Verify, AFailureNamesAddressNumbersAndSeed) {
  const VerifyReport report =
      verify({.seed = 42, .implementation = with_changed_call([](auto&, auto& o) {
                            if (!o.scale) o.scale = 1;
                          })});
  const std::string text = to_text(report);
  EXPECT_NE(text.find("seed 42: workbook case"), std::string::npos) << text;
  EXPECT_NE(text.find("weights[0,0]"), std::string::npos);
  EXPECT_NE(text.find("0.669762"), std::string::npos);
  EXPECT_NE(text.find("FAILED"), std::string::npos);
}

}  // namespace
}  // namespace attest::check
