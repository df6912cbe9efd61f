// SPDX-License-Identifier: MIT
// Where 16 bits may change nearly anything, nothing is cleared that another row would be cleared for.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "attest/base/random.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/evaluate.h"

namespace attest::check {
namespace {

constexpr lab::AttentionShape shape{.B = 2, .H = 4, .G = 4, .T = 12, .S = 12, .D = 16, .E = 16};

double stored(double x) { return to_double(to_bfloat16(x)); }

Tensor<double> drawn(Random& random, Shape extents, double size, double offset) {
  Tensor<double> out(std::move(extents));
  for (double& x : out.elements()) x = stored(offset + size * random.bell());
  return out;
}

struct Inputs {
  double query = 1, key_offset = 0;
  std::optional<double> softcap{};
};

Claim claim_of(const Inputs& inputs, std::uint64_t seed) {
  Random random(seed);
  Claim out{.shape = shape};
  out.precision = Precision::bf16;
  out.call.query = drawn(random, {2, 4, 12, 16}, inputs.query, 0);
  out.call.key = drawn(random, {2, 4, 12, 16}, 1, inputs.key_offset);
  out.call.value = drawn(random, {2, 4, 12, 16}, 1, 0);
  out.call.softcap = inputs.softcap;
  return out;
}

/// What a program gives that keeps scores and weights in f32, or scores in bf16, and the output in bf16.
enum class Keeps { nothing, scores };
Dump dump_of(const Claim& claim, Keeps keeps) {
  Dump out{.claim = claim};
  out.stages.push_back({Stage::output, Tensor<double>({2, 4, 12, 16}), DType::bf16, "output"});
  const double scale = 1 / std::sqrt(16.0);
  const auto kept = [&](double x) { return keeps == Keeps::scores ? stored(x) : x; };
  for (std::int64_t n = 0; n < 2 * 4 * 12; ++n) {
    const std::int64_t b = n / 48, h = n / 12 % 4, i = n % 12;
    std::vector<double> scores, sums(16);
    double peak = -1e300, sum = 0;
    for (std::int64_t j = 0; j < 12; ++j) {
      double dot = 0;
      for (std::int64_t d = 0; d < 16; ++d) {
        dot += claim.call.query(b, h, i, d) * claim.call.key(b, h, j, d);
      }
      double score = kept(kept(dot) * scale);
      if (const auto cap = claim.call.softcap)
        score = kept(*cap * kept(std::tanh(kept(score / *cap))));
      scores.push_back(score);
      peak = std::max(peak, score);
    }
    for (std::int64_t j = 0; j < 12; ++j) {
      const double p = std::exp(scores[static_cast<std::size_t>(j)] - peak);
      sum += p;
      for (std::size_t e = 0; e < 16; ++e) {
        sums[e] += p * claim.call.value(b, h, j, static_cast<std::int64_t>(e));
      }
    }
    for (std::size_t e = 0; e < 16; ++e) {
      out.stages[0].values(b, h, i, static_cast<std::int64_t>(e)) = stored(sums[e] / sum);
    }
  }
  return out;
}

/// Pairs of mistakes take long where nothing explains, and are not what this is about.
const DiagnoseOptions one_mistake{.most_mistakes = 1};

bool is_cleared(const Diagnosis& diagnosis) {
  return diagnosis.judgement == Judgement::right ||
         diagnosis.judgement == Judgement::right_by_rounding;
}
bool is_convicted(const Diagnosis& diagnosis) {
  return diagnosis.judgement == Judgement::wrong_named ||
         diagnosis.judgement == Judgement::wrong_unexplained;
}

/// Keys with a large common part: scores of about 80, whose bf16 numbers are half a unit apart.
constexpr Inputs alike{.key_offset = 80};
/// Scores far beyond the cap.
constexpr Inputs capped{.query = 30, .softcap = 5};

TEST(DiagnoseExcuse, ClearsNoExchangedHeads) {
  for (const Keeps keeps : {Keeps::nothing, Keeps::scores}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      Dump dump = dump_of(claim_of(alike, seed), keeps);
      Tensor<double>& output = dump.stages[0].values;
      for (std::int64_t i = 0; i < 12; ++i) {
        for (std::int64_t e = 0; e < 16; ++e) std::swap(output(0, 0, i, e), output(0, 1, i, e));
      }
      const auto diagnosis = diagnose(dump, one_mistake);
      ASSERT_TRUE(diagnosis.has_value());
      EXPECT_FALSE(is_cleared(*diagnosis)) << "seed " << seed << "\n" << to_text(dump, *diagnosis);
      if (diagnosis->judgement != Judgement::undecided) continue;
      EXPECT_FALSE(diagnosis->would_decide.empty());
      EXPECT_FALSE(diagnosis->remarks.empty());
    }
  }
}

TEST(DiagnoseExcuse, ClearsNoWrongRow) {
  for (const Inputs& inputs : {alike, capped}) {
    for (const Keeps keeps : {Keeps::nothing, Keeps::scores}) {
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        Dump dump = dump_of(claim_of(inputs, seed), keeps);
        Tensor<double>& output = dump.stages[0].values;
        for (std::int64_t e = 0; e < 16; ++e) output(1, 2, 5, e) = output(1, 2, 6, e);
        const auto diagnosis = diagnose(dump, one_mistake);
        ASSERT_TRUE(diagnosis.has_value());
        EXPECT_FALSE(is_cleared(*diagnosis)) << "seed " << seed << "\n"
                                             << to_text(dump, *diagnosis);
      }
    }
  }
}

TEST(DiagnoseExcuse, ConvictsNobodyForRounding) {
  for (const Inputs& inputs : {Inputs{}, alike, capped}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Claim claim = claim_of(inputs, seed);
      const Dump careful = dump_of(claim, Keeps::nothing), eager = dump_of(claim, Keeps::scores);
      const auto one = diagnose(careful, one_mistake), other = diagnose(eager, one_mistake);
      ASSERT_TRUE(one.has_value() && other.has_value());
      EXPECT_EQ(one->judgement, Judgement::right) << to_text(careful, *one);
      EXPECT_FALSE(is_convicted(*other)) << "seed " << seed << "\n" << to_text(eager, *other);
    }
  }
}

}  // namespace
}  // namespace attest::check
