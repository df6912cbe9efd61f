// SPDX-License-Identifier: MIT
#include "attest/check/diagnose/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "attest/base/random.h"
#include "attest/check/diagnose/judge.h"
#include "tests/support/draws.h"
#include "tests/support/random_case.h"

namespace attest::check {
namespace {

/// Attention in plain binary32, left to right, as somebody writes it who knows what he does; `exp` may
/// be two units off, and sums of weights may be rescaled block by block.
struct PlainProgram {
  std::int64_t block = 0;        // of an online softmax; 0: none
  bool base2 = false;            // exp2 with log2(e) in the scale
  double exp_error = 0;          // units of binary32
  DType storage = DType::f32;    // of the output
  bool weights_rounded = false;  // to the storage type, as 16-bit programs do before the mix

  [[nodiscard]] float exponential(float x, Random& random) const {
    const double exact =
        base2 ? std::exp2(static_cast<double>(x)) : std::exp(static_cast<double>(x));
    return static_cast<float>(exact * (1 + exp_error * 0x1p-23 * (random.uniform() - 0.5) * 2));
  }
  [[nodiscard]] double stored(double x) const {
    if (storage == DType::bf16) return to_double(to_bfloat16(x));
    if (storage == DType::f16) return to_double(to_half(x));
    return static_cast<double>(static_cast<float>(x));
  }
};

void run_row(const PlainProgram& program, const AttentionCase& call, lab::RowPlace at,
             Random& random, Tensor<double>& output) {
  const std::int64_t S = call.key.extent(2), D = call.key.extent(3), E = call.value.extent(3);
  const float scale = 1 / std::sqrt(static_cast<float>(D)) * (program.base2 ? 1.44269504F : 1.0F);
  std::vector<float> sums(static_cast<std::size_t>(E));
  float peak = -INFINITY, sum = 0;
  const std::int64_t block = program.block == 0 ? S : program.block;
  for (std::int64_t first = 0; first < S; first += block) {
    std::vector<float> scores;
    float higher = peak;
    for (std::int64_t j = first; j < std::min(S, first + block); ++j) {
      float dot = 0;
      for (std::int64_t d = 0; d < D; ++d) {
        dot += static_cast<float>(call.query(at.b, at.h, at.i, d)) *
               static_cast<float>(call.key(at.b, at.h, j, d));
      }
      scores.push_back(dot * scale);
      higher = std::max(higher, scores.back());
    }
    const float rescale = peak == -INFINITY ? 0 : program.exponential(peak - higher, random);
    sum *= rescale;
    for (float& x : sums) x *= rescale;
    peak = higher;
    for (std::size_t k = 0; k < scores.size(); ++k) {
      const float p = program.exponential(scores[k] - peak, random);
      sum += p;
      const float used = program.weights_rounded ? static_cast<float>(program.stored(p)) : p;
      for (std::int64_t e = 0; e < E; ++e) {
        sums[static_cast<std::size_t>(e)] +=
            used *
            static_cast<float>(call.value(at.b, at.h, first + static_cast<std::int64_t>(k), e));
      }
    }
  }
  for (std::int64_t e = 0; e < E; ++e) {
    output(at.b, at.h, at.i, e) = program.stored(sums[static_cast<std::size_t>(e)] / sum);
  }
}

AttentionCase drawn(std::uint64_t seed, Shape query, std::int64_t S, double size,
                    const std::function<double(double)>& stored) {
  Random random(seed);
  AttentionCase call;
  const auto draw = [&](Shape shape) {
    Tensor<double> out(std::move(shape));
    for (double& x : out.elements()) x = stored(size * random.bell());
    return out;
  };
  call.query = draw(query);
  call.key = draw({query[0], query[1], S, query[3]});
  call.value = draw({query[0], query[1], S, query[3]});
  return call;
}

Judged judged_of(const PlainProgram& program, std::uint64_t seed, Precision precision,
                 std::int64_t S, std::int64_t D, double size) {
  const auto stored = [&](double x) { return program.stored(x); };
  Dump dump;
  dump.claim.call = drawn(seed, {1, 2, 9, D}, S, size, stored);
  dump.claim.precision = precision;
  dump.claim.shape = {1, 2, 2, 9, S, D, D};
  Tensor<double> output({1, 2, 9, D});
  Random random(seed, 1);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < 9; ++i) {
      run_row(program, dump.claim.call, {0, h, i}, random, output);
    }
  }
  dump.stages.push_back({Stage::output, std::move(output), program.storage, "output"});
  ThreadPool pool(1);
  const Noise noise(dump);
  return *judge(dump, {}, noise, NaNs::as_claimed, pool);
}

struct Size {
  std::int64_t S, D;
  double size;
};
constexpr Size sizes[]{{1, 1, 1},    {7, 5, 1},   {64, 16, 1},  {300, 64, 1},
                       {33, 128, 2}, {300, 8, 4}, {1024, 64, 1}};

TEST(Noise, ClearsPlainLoopsOfBinary32) {
  const PlainProgram programs[]{
      {}, {.base2 = true}, {.exp_error = 2}, {.block = 16, .exp_error = 2}};
  for (const Size& s : sizes) {
    for (const PlainProgram& program : programs) {
      for (std::uint64_t seed = 0; seed < test::draws(4, 4); ++seed) {
        const Judged judged = judged_of(program, seed, Precision::f32, s.S, s.D, s.size);
        EXPECT_TRUE(judged.possible()) << "S " << s.S << " D " << s.D << " seed " << seed;
        EXPECT_TRUE(judged.typical())
            << "S " << s.S << " D " << s.D << " size " << s.size << " seed " << seed << " uses "
            << judged.total(0).typical_used;
      }
    }
  }
}

TEST(Noise, ClearsSixteenBitProgramsThatRoundTheirWeights) {
  for (const Size& s : sizes) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (std::uint64_t seed = 0; seed < test::draws(4, 4); ++seed) {
        const PlainProgram program{.block = 16, .storage = dtype, .weights_rounded = true};
        const Precision precision = dtype == DType::bf16 ? Precision::bf16 : Precision::f16;
        const Judged judged = judged_of(program, seed, precision, s.S, s.D, s.size);
        EXPECT_TRUE(judged.typical())
            << "S " << s.S << " D " << s.D << " " << name_of(dtype) << " seed " << seed << " uses "
            << judged.total(0).typical_used;
      }
    }
  }
}

TEST(Noise, DoesNotClearSixteenBitNumbersThatAreSaidToBeBinary32) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    PlainProgram program{.storage = dtype, .weights_rounded = true};
    Judged judged = judged_of(program, 3, Precision::bf16, 64, 16, 1);
    EXPECT_TRUE(judged.typical());
    program.storage = dtype;
    Dump dump;
    dump.claim.call = drawn(3, {1, 2, 9, 16}, 64, 1, [&](double x) { return program.stored(x); });
    dump.claim.shape = {1, 2, 2, 9, 64, 16, 16};
    Tensor<double> output({1, 2, 9, 16});
    Random random(3, 1);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < 9; ++i) {
        run_row(program, dump.claim.call, {0, h, i}, random, output);
      }
    }
    dump.stages.push_back({Stage::output, std::move(output), DType::f32, "output"});
    ThreadPool pool(1);
    EXPECT_FALSE(judge(dump, {}, Noise(dump), NaNs::as_claimed, pool)->possible());
  }
}

TEST(Noise, TypicalIsNeverAboveTheWorstCaseAndGrowsWithTheNumberOfNumbers) {
  EXPECT_LT(largest_deviation(1), largest_deviation(1000));
  EXPECT_NEAR(largest_deviation(1), std::sqrt(2 * std::log(2e6)), 1e-12);
  EXPECT_GT(largest_mean_deviation(1), largest_mean_deviation(1000));
}

}  // namespace
}  // namespace attest::check
