// SPDX-License-Identifier: MIT
// The shape fuzzer: 10,000 random calls against the exact tier, on every instruction set.
#include <gtest/gtest.h>

#include "tests/attention/engine_cases_judge.h"

namespace attest::test {
namespace {

constexpr std::uint64_t seed = 20270101;
constexpr std::int64_t cases = 2500;  // of each of four types

TEST(ShapesLong, FloatOfAnyShapeStaysWithinItsBound) { judge_cases(seed, cases, DType::f32); }

TEST(ShapesLong, BFloat16OfAnyShapeStaysWithinItsBound) {
  judge_cases(seed + 10000, cases, DType::bf16);
}

TEST(ShapesLong, HalfOfAnyShapeStaysWithinItsBound) {
  judge_cases(seed + 20000, cases, DType::f16);
}

TEST(ShapesLong, DoubleOfAnyShapeStaysWithinItsBound) {
  judge_cases(seed + 30000, cases, DType::f64);
}

TEST(ShapesLong, EveryWidthFromOneTo512) {
  const std::vector<Isa> isas = present_isas();
  std::vector<Summary> summaries(isas.size());
  for (std::int64_t width = 1; width <= 512; ++width) {
    for (const DType storage : {DType::f32, DType::bf16}) {
      Random random(seed, static_cast<std::uint64_t>(width));
      EngineCase c{.seed = static_cast<std::uint64_t>(width), .storage = storage};
      c.query = stored_tensor(random, {1, 1, 3, width}, 2, storage);
      c.key = stored_tensor(random, {1, 1, 5, width}, 2, storage);
      c.value = stored_tensor(random, {1, 1, 5, 513 - width}, 2, storage);
      judge_case(c, isas, summaries);
      if (HasFailure()) return;
    }
  }
}

TEST(ShapesLong, TenThousandKeysStayWithinTheBound) {
  const std::vector<Isa> isas = present_isas();
  std::vector<Summary> summaries(isas.size());
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    Random random(seed, 999);
    EngineCase c{.seed = seed, .storage = storage};
    c.query = stored_tensor(random, {1, 2, 3, 33}, 2, storage);
    c.key = stored_tensor(random, {1, 1, 10007, 33}, 2, storage);
    c.value = stored_tensor(random, {1, 1, 10007, 17}, 2, storage);
    judge_case(c, isas, summaries);
    if (HasFailure()) return;
  }
  for (std::size_t n = 0; n < isas.size(); ++n) summaries[n].print("10007 keys");
}

}  // namespace
}  // namespace attest::test
