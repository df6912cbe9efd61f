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

/// Ids of one document that lie apart, in blocks of keys that every row's range covers: there nothing but
/// the ids hides a key.
TEST(AttentionLaw, IdsAreComparedInsideBlocksThatNoRangeCuts) {
  const std::vector<Isa> isas = present_isas();
  std::vector<Summary> summaries(isas.size());
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const std::int64_t T : {3, 70}) {
      Random random(seed, static_cast<std::uint64_t>(T));
      EngineCase c{.seed = seed, .storage = storage};
      c.query = stored_tensor(random, {1, 2, T, 9}, 2, storage);
      c.key = stored_tensor(random, {1, 1, 384, 9}, 2, storage);
      c.value = stored_tensor(random, {1, 1, 384, 5}, 2, storage);
      for (std::int64_t i = 0; i < T; ++i) c.chosen.mask.documents.query.push_back(i % 3);
      for (std::int64_t j = 0; j < 384; ++j) c.chosen.mask.documents.key.push_back(j % 3);
      judge_case(c, isas, summaries);
      if (HasFailure()) return;
    }
  }
}

/// One or two queries against thousands of keys. Position hides all but some of the parts that decoding
/// cuts them into: the first ones, the last ones, or different ones in each batch.
EngineCase decoding_case(std::uint64_t number, DType storage) {
  Random random(seed + number, 5000);
  const std::int64_t G = random.between(1, 2), H = G * random.between(1, 2);
  const std::int64_t T = random.between(1, 2), S = random.between(2100, 4000);
  const std::int64_t D = random.between(1, 20), E = random.between(1, 20);
  EngineCase c{.seed = number, .storage = storage};
  c.query = stored_tensor(random, {2, H, T, D}, 2, storage);
  c.key = stored_tensor(random, {2, G, S, D}, 2, storage);
  c.value = stored_tensor(random, {2, G, S, E}, 2, storage);
  c.chosen.empty_row = EmptyRow::zero;
  Mask& mask = c.chosen.mask;
  switch (number % 4) {
    case 0:  // a window that lies across two parts, and one in the last
      mask = Mask::causal_at(0);
      mask.query_offset = {2048 + random.between(0, 30), S - T};
      mask.window.left = 50;
      break;
    case 1:
      mask = Mask::causal_at(0);
      mask.query_offset = {random.between(0, S), random.between(0, S)};
      break;
    case 2:
      mask.key_lengths = {random.between(0, S), random.between(0, S)};
      break;
    default:
      mask.window = {random.between(0, 1500), random.between(0, 1500)};
      mask.corner = Corner::bottom_right;
      break;
  }
  if (one_in(random, 3)) {
    for (std::int64_t h = 0; h < H; ++h) c.chosen.sink.push_back(random.uniform(-3, 6));
  }
  return c;
}

TEST(AttentionLaw, DecodingJoinsThePartsOfTheKeysThatAreVisible) {
  const std::vector<Isa> isas = present_isas();
  std::vector<Summary> summaries(isas.size());
  for (const DType storage : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (std::uint64_t number = 0; number < 12; ++number) {
      judge_case(decoding_case(number, storage), isas, summaries);
      if (HasFailure()) return;
    }
  }
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
