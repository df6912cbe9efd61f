// SPDX-License-Identifier: MIT
// The search finds what the catalogue holds: every mistake that can be made on a call, and random pairs
// of them, are named from the numbers that they give, or are the same as what is named.
//
//     ATTEST_ALL_DRAWS=1 ATTEST_PAIRS=1000 check_diagnose_law_test    so many pairs for each call
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>

#include "attest/base/random.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/evaluate.h"
#include "tests/support/draws.h"
#include "tests/support/matrices.h"

namespace attest::check {
namespace {

using test::random_bell;

/// Calls on which much can be done wrong.
Claim claim_of(int kind, std::uint64_t seed) {
  Random random(seed);
  const lab::AttentionShape s = kind == 1 ? lab::AttentionShape{2, 6, 6, 13, 13, 10, 10}
                                          : lab::AttentionShape{3, 6, 2, 9, 14, 10, 7};
  Claim out;
  out.shape = s;
  out.call.query = random_bell(random, {s.B, s.H, s.T, s.D});
  out.call.key = random_bell(random, {s.B, s.G, s.S, s.D});
  out.call.value = random_bell(random, {s.B, s.G, s.S, s.E});
  AttentionCase& call = out.call;
  if (kind == 0) {
    call.mask = Mask::causal_bottom_right();
    call.mask.key_lengths = {11, 14, 13};
    call.softcap = 1.7;
  } else if (kind == 1) {
    call.mask = Mask::causal();
    call.mask.window.left = 4;
    call.alibi_slopes = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  } else {
    Tensor<bool> visible({3, 1, 9, 14});
    for (bool& seen : visible.elements()) seen = random.between(0, 3) != 0;
    call.visible = std::move(visible);
    call.bias = random_bell(random, {3, 6, 9, 14});
    call.sink = {0.3, -0.4, 1.1, 0.8, -1.2, 0.5};
  }
  return out;
}

std::optional<Dump> dump_of(const Claim& claim, const Recipe& recipe) {
  Dump out{.claim = claim};
  const lab::AttentionShape& s = claim.shape;
  out.stages.push_back({Stage::output, Tensor<double>({s.B, s.H, s.T, s.E}), DType::f32, "output"});
  auto evaluation = Evaluation::make(out, recipe);
  if (!evaluation) return std::nullopt;
  Tensor<double> numbers({s.B, s.H, s.T, s.E});
  for (std::int64_t n = 0; n < s.B * s.H * s.T; ++n) {
    const StageRow& row = evaluation->row({n / (s.H * s.T), n / s.T % s.H, n % s.T});
    for (std::int64_t e = 0; e < s.E; ++e) {
      numbers.data()[n * s.E + e] =
          static_cast<double>(to_float_nearest(row.output[static_cast<std::size_t>(e)]));
    }
  }
  out.stages.front().values = std::move(numbers);
  return out;
}

bool same_numbers(const Tensor<double>& a, const Tensor<double>& b) {
  double apart = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    if (std::isnan(a.data()[n]) != std::isnan(b.data()[n])) return false;
    if (!std::isfinite(a.data()[n])) continue;
    apart += (a.data()[n] - b.data()[n]) * (a.data()[n] - b.data()[n]);
    size += a.data()[n] * a.data()[n];
  }
  return apart <= 1e-11 * size;  // a few units of binary32
}

/// Whether what was named gives the numbers: as the recorded mistakes do, or a simpler one as well.
bool explains(const Claim& claim, const Dump& dump, const Diagnosis& diagnosis,
              std::size_t most_mistakes) {
  if (diagnosis.judgement == Judgement::right) {
    return same_numbers(dump_of(claim, {})->stages[0].values, dump.stages[0].values);
  }
  if (diagnosis.explanations.empty()) return false;
  const Explanation& best = diagnosis.explanations.front();
  if (best.mistakes.size() > most_mistakes) return false;
  if (best.mistakes.empty()) return false;
  Recipe recipe;
  for (const Made& made : best.mistakes) {
    if (!made.mistake->make(recipe, claim, made.value)) return false;
  }
  const auto again = dump_of(claim, recipe);
  return again && same_numbers(again->stages[0].values, dump.stages[0].values);
}

std::vector<Made> all_made(const Claim& claim) {
  std::vector<Made> out;
  for (const Mistake& mistake : catalogue()) {
    if (mistake.make == nullptr || mistake.name == "dropout.on") continue;
    // What was stored in a narrower type before it was widened is right, and said so.
    if (mistake.name.starts_with("num.output_")) continue;
    for (std::size_t n = 0; n < std::max<std::size_t>(1, mistake.values.size()); ++n) {
      const double value = mistake.values.empty() ? 0 : mistake.values[n];
      Recipe recipe;
      if (mistake.make(recipe, claim, value)) out.push_back({&mistake, value});
    }
  }
  return out;
}

struct Score {
  int all = 0, explained = 0;
};

void name_one(const Claim& claim, const Dump& dump, const std::string& what, Score& score) {
  const auto diagnosis = diagnose(dump);
  ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
  ++score.all;
  const bool fine = explains(claim, dump, *diagnosis, 1);
  score.explained += fine ? 1 : 0;
  EXPECT_TRUE(fine) << what << "\n" << to_text(dump, *diagnosis);
}

TEST(DiagnoseLaw, NamesEveryMistakeOfTheCatalogue) {
  struct Place {
    int kind = 0;
    Made made{};
  };
  const std::array claims{claim_of(0, 100), claim_of(1, 100), claim_of(2, 100)};
  std::map<std::string, std::vector<Place>> places;
  for (int kind = 0; kind < 3; ++kind) {
    for (const Made& made : all_made(claims[static_cast<std::size_t>(kind)])) {
      places[made.label()].push_back({kind, made});
    }
  }
  Score score;
  std::size_t turn = 0;
  for (const auto& [label, where] : places) {
    if (turn++ % test::stride(1) != 0) continue;
    // All calls that it can be made on, or in turn one of them.
    for (std::size_t n = 0; n < where.size(); ++n) {
      const Place& place = where[(n + turn) % where.size()];
      const Claim& claim = claims[static_cast<std::size_t>(place.kind)];
      Recipe recipe;
      ASSERT_TRUE(place.made.mistake->make(recipe, claim, place.made.value));
      const auto dump = dump_of(claim, recipe);
      if (!dump) continue;
      name_one(claim, *dump, label + " in call " + std::to_string(place.kind), score);
      if (!test::all_draws()) break;
    }
  }
  std::cout << "explained " << score.explained << " of " << score.all << " single mistakes\n";
}

TEST(DiagnoseLaw, NamesRandomPairs) {
  const char* text = std::getenv("ATTEST_PAIRS");
  const int pairs =
      static_cast<int>(test::draws(10, text != nullptr ? std::strtoull(text, nullptr, 10) : 40));
  int all = 0, explained = 0;
  for (int kind = 0; kind < 3; ++kind) {
    const Claim claim = claim_of(kind, 200);
    const std::vector<Made> made = all_made(claim);
    Random random(300);
    for (int n = 0; n < pairs;) {
      const auto last = static_cast<std::int64_t>(made.size()) - 1;
      const Made& a = made[static_cast<std::size_t>(random.between(0, last))];
      const Made& b = made[static_cast<std::size_t>(random.between(0, last))];
      if (a.mistake->axis == b.mistake->axis) continue;
      Recipe recipe;
      if (!a.mistake->make(recipe, claim, a.value)) continue;
      if (!b.mistake->make(recipe, claim, b.value)) continue;
      const auto dump = dump_of(claim, recipe);
      if (!dump) continue;
      ++n;
      const auto diagnosis = diagnose(*dump);
      ASSERT_TRUE(diagnosis.has_value()) << diagnosis.failure().message;
      ++all;
      const bool fine = explains(claim, *dump, *diagnosis, 2);
      explained += fine ? 1 : 0;
      if (!fine) {
        std::cout << "not explained in call " << kind << ": " << a.label() << " + " << b.label()
                  << ": " << name_of(diagnosis->judgement) << "\n";
      }
    }
  }
  std::cout << "explained " << explained << " of " << all << " pairs\n";
  EXPECT_GE(explained * 100, all * 95);
}

}  // namespace
}  // namespace attest::check
