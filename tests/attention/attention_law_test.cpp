// SPDX-License-Identifier: MIT
// 500 random calls: the engine within its derived bound, and no worse than twice the plain loop, on
// every instruction set that this machine has.
#include <gtest/gtest.h>

#include "tests/attention/engine_cases_judge.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20260701;
constexpr std::int64_t cases = 125;  // of each of four types

TEST(AttentionLaw, FloatStaysWithinItsBoundOnEveryInstructionSet) {
  judge_cases(seed, cases, DType::f32);
}

TEST(AttentionLaw, BFloat16StaysWithinItsBoundOnEveryInstructionSet) {
  judge_cases(seed + 1000, cases, DType::bf16);
}

TEST(AttentionLaw, HalfStaysWithinItsBoundOnEveryInstructionSet) {
  judge_cases(seed + 2000, cases, DType::f16);
}

TEST(AttentionLaw, DoubleStaysWithinItsBoundOnEveryInstructionSet) {
  judge_cases(seed + 3000, cases, DType::f64);
}

/// The first row without a key, in the order batch, head, query; nothing if there is none.
std::optional<lab::RowPlace> first_empty(const EngineCase& c) {
  const auto inputs = c.inputs();
  const auto options = c.options();
  const auto shape = lab::check_attention(inputs, options);
  const lab::AttentionCall call{inputs, options, *shape, lab::Visibility(options, *shape)};
  const auto [B, H, G, T, S, D, E] = *shape;
  for (std::int64_t n = 0; n < B * H * T; ++n) {
    const lab::RowPlace at{n / (H * T), n / T % H, n % T};
    if (lab::compute_row(call, at, lab::Record::result).empty) return at;
  }
  return {};
}

TEST(AttentionLaw, AnEmptyRowIsAnErrorThatNamesTheFirst) {
  int failures = 0;
  for (std::uint64_t n = 0; n < 150; ++n) {
    EngineCase c = engine_case(seed + 4000 + n);
    c.chosen.empty_row = EmptyRow::error;
    const auto empty = first_empty(c);
    for (const Isa isa : present_isas()) {
      SCOPED_TRACE(name_of_case(c, isa));
      const EngineForward found = run_engine(c, {.isa = isa});
      ASSERT_EQ(found.failure.has_value(), empty.has_value());
      if (!empty) continue;
      ++failures;
      EXPECT_EQ(found.failure->id, "no-visible-key");
      for (const std::string& part : {sentence("query ", empty->i), sentence("batch ", empty->b),
                                      sentence("head ", empty->h)}) {
        EXPECT_NE(found.failure->message.find(part), std::string::npos)
            << found.failure->message << " does not say " << part;
      }
    }
  }
  EXPECT_GT(failures, 20);
}

}  // namespace
}  // namespace attest::test
