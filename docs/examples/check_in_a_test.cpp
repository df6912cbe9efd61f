// SPDX-License-Identifier: MIT
// The checker inside somebody's own tests: a function is right, or the test says which mistake it makes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attest/base/random.h"
#include "attest/check/gtest.h"

namespace {

using attest::AttentionCase;
using attest::Tensor;

// The function under test, in float: causal, its heads in groups.
Tensor<double> my_attention(const AttentionCase& call, std::int64_t heads_for_one_key_head) {
  const std::int64_t B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  const std::int64_t D = call.query.extent(3), E = call.value.extent(3);
  const std::int64_t G = call.key.extent(1);
  Tensor<double> output({B, H, T, E});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t g = h / heads_for_one_key_head % G;
      for (std::int64_t i = 0; i < T; ++i) {
        std::vector<float> weights;
        float sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          float score = 0;
          for (std::int64_t d = 0; d < D; ++d) {
            score += static_cast<float>(call.query(b, h, i, d) * call.key(b, g, j, d));
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<float>(D))));
          sum += weights.back();
        }
        for (std::int64_t e = 0; e < E; ++e) {
          float mixed = 0;
          for (std::int64_t j = 0; j <= i; ++j) {
            mixed += weights[static_cast<std::size_t>(j)] / sum *
                     static_cast<float>(call.value(b, g, j, e));
          }
          output(b, h, i, e) = mixed;
        }
      }
    }
  }
  return output;
}

// Numbers that a float holds, in sizes that do not coincide.
AttentionCase random_call() {
  attest::Random random(7);
  AttentionCase call;
  call.query = Tensor<double>({2, 6, 7, 5});
  call.key = Tensor<double>({2, 2, 7, 5});
  call.value = Tensor<double>({2, 2, 7, 4});
  for (Tensor<double>* each : {&call.query, &call.key, &call.value}) {
    for (double& x : each->elements()) x = static_cast<float>(random.bell());
  }
  call.mask = attest::Mask::causal();
  return call;
}

TEST(MyAttention, IsRight) {
  const AttentionCase call = random_call();
  EXPECT_TRUE(attest::check::is_right(attest::check::dump_of(call, my_attention(call, 3))));
}

TEST(MyAttention, WouldBeCaughtReadingHeadsInTurn) {
  const AttentionCase call = random_call();
  const auto dump = attest::check::dump_of(call, my_attention(call, 1));  // h mod G
  EXPECT_FALSE(attest::check::is_right(dump));
  EXPECT_TRUE(attest::check::is_explained_by(dump, "gqa.tile"));
}

}  // namespace
