// SPDX-License-Identifier: MIT
// What lab::attention refuses, what it allows at the edges, and that a host's settings change
// nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/attention_row.h"
#include "tests/support/bits.h"
#include "tests/support/host_modes.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"
#include "tests/support/random_case.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace attest::lab {
namespace {

using test::same_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();

AttentionCase small_case() {
  Random random(77);
  AttentionCase out;
  out.query = test::random_tensor(random, {2, 4, 3, 5});
  out.key = test::random_tensor(random, {2, 2, 6, 5});
  out.value = test::random_tensor(random, {2, 2, 6, 7});
  return out;
}

AttentionOutputGradients flowing_back(const Tensor<double>& d_output) {
  AttentionOutputGradients out;
  out.d_output = d_output.view<4>();
  return out;
}

struct Refusal {
  const char* what;
  std::function<void(AttentionCase&)> change;
  const char* id;
  std::vector<std::string> in_message;  // both numbers, with their names
};

void expect_refused(const Refusal& refusal) {
  AttentionCase call = small_case();
  refusal.change(call);
  const auto found = attention(call.inputs(), call.options());
  ASSERT_FALSE(found) << refusal.what;
  EXPECT_EQ(found.failure().id, refusal.id) << refusal.what;
  for (const auto& part : refusal.in_message) {
    EXPECT_NE(found.failure().message.find(part), std::string::npos)
        << refusal.what << ": " << found.failure().message;
  }
  EXPECT_EQ(found.failure().message.find("[attention] "), 0U) << refusal.what;
  // The row and the gradients judge alike.
  EXPECT_EQ(test::failure_id(attention_row(call.inputs(), call.options(), {})), refusal.id);
  const Tensor<double> d_output({2, 4, 3, 7});
  const auto gradients = attention_backward(call.inputs(), call.options(), flowing_back(d_output));
  ASSERT_FALSE(gradients) << refusal.what;
  EXPECT_EQ(gradients.failure().id, refusal.id) << refusal.what;
}

TEST(Attention, ShapeErrorsNameBothNumbers) {
  const char* id = "shape-mismatch";
  const std::vector<Refusal> refusals{{"B of key",
                                       [](auto& c) {
                                         c.key = Tensor<double>({3, 2, 6, 5});
                                       },
                                       id,
                                       {"query has 2", "key has 3"}},
                                      {"B of value",
                                       [](auto& c) {
                                         c.value = Tensor<double>({3, 2, 6, 7});
                                       },
                                       id,
                                       {"key has 2", "value has 3"}},
                                      {"D",
                                       [](auto& c) {
                                         c.key = Tensor<double>({2, 2, 6, 4});
                                       },
                                       id,
                                       {"query has 5", "key has 4"}},
                                      {"S",
                                       [](auto& c) {
                                         c.value = Tensor<double>({2, 2, 9, 7});
                                       },
                                       id,
                                       {"key has 6", "value has 9", "same S"}},
                                      {"G",
                                       [](auto& c) {
                                         c.value = Tensor<double>({2, 1, 6, 7});
                                       },
                                       id,
                                       {"key has 2", "value has 1"}},
                                      {"H no multiple of G",
                                       [](auto& c) {
                                         c.key = Tensor<double>({2, 3, 6, 5});
                                         c.value = Tensor<double>({2, 3, 6, 7});
                                       },
                                       id,
                                       {"query has 4", "key has 3"}},
                                      {"D of 0",
                                       [](auto& c) {
                                         c.query = Tensor<double>({2, 4, 3, 0});
                                         c.key = Tensor<double>({2, 2, 6, 0});
                                       },
                                       id,
                                       {"D", "0"}}};
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Attention, ShapeErrorsOfOptionsNameBothNumbers) {
  const char* id = "shape-mismatch";
  const std::vector<Refusal> refusals{{"mask",
                                       [](auto& c) {
                                         c.visible = Tensor<bool>({2, 4, 3, 5});
                                       },
                                       id,
                                       {"[2, 4, 3, 6]", "[2, 4, 3, 5]"}},
                                      {"bias",
                                       [](auto& c) {
                                         c.bias = Tensor<double>({2, 2, 3, 6});
                                       },
                                       id,
                                       {"[2, 4, 3, 6]", "[2, 2, 3, 6]"}},
                                      {"slopes",
                                       [](auto& c) {
                                         c.alibi_slopes = {1, 2};
                                       },
                                       id,
                                       {"H = 4", "has 2"}},
                                      {"sinks",
                                       [](auto& c) {
                                         c.sink = {1, 2, 3, 4, 5};
                                       },
                                       id,
                                       {"H = 4", "has 5"}},
                                      {"causal",
                                       [](auto& c) { c.mask = Mask::causal(); },
                                       "causal-needs-square",
                                       {"T = 3", "S = 6"}}};
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Attention, OptionErrorsNameTheNumberFound) {
  const char* id = "bad-option";
  const std::vector<Refusal> refusals{
      {"offsets",
       [](auto& c) {
         c.mask = Mask::causal_at(1);
         c.mask.query_offset = {1, 2, 3};
       },
       id,
       {"B = 2", "has 3"}},
      {"no offset",
       [](auto& c) {
         c.mask = Mask::causal_at(1);
         c.mask.query_offset = {};
       },
       id,
       {"B = 2", "has 0"}},
      {"far offset",
       [](auto& c) { c.mask = Mask::causal_at((std::int64_t{1} << 61U) + 1); },
       id,
       {"2305843009213693953"}},
      {"lengths",
       [](auto& c) {
         c.mask.key_lengths = {1, 2, 3};
       },
       id,
       {"B = 2", "has 3"}},
      {"long length", [](auto& c) { c.mask.key_lengths = {7}; }, id, {"S = 6", "found 7"}},
      {"negative length",
       [](auto& c) {
         c.mask.key_lengths = {-1, 2};
       },
       id,
       {"found -1"}},
      {"window", [](auto& c) { c.mask.window.left = -1; }, id, {"found -1"}},
      {"right window", [](auto& c) { c.mask.window.right = -2; }, id, {"found -2"}},
      {"scale", [](auto& c) { c.scale = infinity; }, id, {"scale", "inf"}},
      {"nan scale", [](auto& c) { c.scale = std::nan(""); }, id, {"scale", "nan"}},
      {"softcap", [](auto& c) { c.softcap = 0; }, id, {"softcap", "0"}},
      {"negative softcap", [](auto& c) { c.softcap = -1; }, id, {"softcap", "-1"}},
      {"infinite softcap", [](auto& c) { c.softcap = infinity; }, id, {"softcap", "inf"}},
      {"slope",
       [](auto& c) {
         c.alibi_slopes = {1, 1, std::nan(""), 1};
       },
       id,
       {"alibi", "nan"}},
      {"sink",
       [](auto& c) {
         c.sink = {1, 1, 1, -infinity};
       },
       id,
       {"sink", "-inf"}}};
  for (const Refusal& refusal : refusals) expect_refused(refusal);
}

TEST(Attention, AbsentTensorsAreRefused) {
  const AttentionCase call = small_case();
  auto inputs = call.inputs();
  inputs.value = {};
  EXPECT_EQ(test::failure_id(attention(inputs)), "shape-mismatch");
}

TEST(Attention, RowsThatDoNotExistAreRefused) {
  const AttentionCase call = small_case();
  for (const RowPlace& at : {RowPlace{2, 0, 0}, RowPlace{0, 4, 0}, RowPlace{0, 0, 3},
                             RowPlace{-1, 0, 0}, RowPlace{0, -1, 0}, RowPlace{0, 0, -1}}) {
    const auto row = attention_row(call.inputs(), call.options(), at);
    ASSERT_FALSE(row);
    EXPECT_EQ(row.failure().id, "no-such-row");
    EXPECT_NE(row.failure().message.find("T = 3"), std::string::npos);
  }
}

AttentionCase sized(std::int64_t B, std::int64_t T, std::int64_t S, std::int64_t E) {
  AttentionCase out;
  out.query = Tensor<double>({B, 2, T, 3});
  out.key = Tensor<double>({B, 1, S, 3});
  out.value = Tensor<double>({B, 1, S, E});
  return out;
}

TEST(Attention, ZeroExtentsGiveEmptyResults) {
  for (const auto& [B, T, E] : {std::array<std::int64_t, 3>{0, 2, 3}, {2, 0, 3}, {2, 2, 0}}) {
    const AttentionCase call = sized(B, T, 4, E);
    const auto found = attention(call.inputs(), call.options());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->output.shape(), (Shape{B, 2, T, E}));
    EXPECT_EQ(found->weights.shape(), (Shape{B, 2, T, 4}));
    EXPECT_EQ(found->log_sum_exp.shape(), (Shape{B, 2, T}));
    const auto gradients =
        attention_backward(call.inputs(), call.options(), flowing_back(found->output));
    ASSERT_TRUE(gradients);
    EXPECT_EQ(gradients->d_key.shape(), (Shape{B, 1, 4, 3}));
    for (const double x : gradients->d_key.elements()) EXPECT_EQ(x, 0);
  }
}

TEST(Attention, NoHeadsGiveEmptyResults) {
  for (const std::int64_t G : {0, 2}) {
    AttentionCase call;
    call.query = Tensor<double>({1, 0, 2, 3});
    call.key = Tensor<double>({1, G, 4, 3});
    call.value = Tensor<double>({1, G, 4, 5});
    const auto found = attention(call.inputs(), call.options());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->output.size(), 0U);
    const auto gradients =
        attention_backward(call.inputs(), call.options(), flowing_back(found->output));
    ASSERT_TRUE(gradients);
    EXPECT_EQ(gradients->d_value.shape(), (Shape{1, G, 4, 5}));
  }
}

TEST(Attention, WithoutKeysEveryRowIsEmpty) {
  AttentionCase call = sized(1, 2, 0, 3);
  EXPECT_EQ(test::failure_id(attention(call.inputs(), call.options())), "no-visible-key");
  call.empty_row = EmptyRow::zero;
  const auto found = attention(call.inputs(), call.options());
  ASSERT_TRUE(found);
  for (const double x : found->output.elements()) EXPECT_EQ(x, 0);
  for (const double x : found->log_sum_exp.elements()) EXPECT_EQ(x, -infinity);
  const auto gradients =
      attention_backward(call.inputs(), call.options(), flowing_back(found->output));
  ASSERT_TRUE(gradients);
  for (const double x : gradients->d_query.elements()) EXPECT_EQ(x, 0);
}

/// Everything that a call and its gradients return, one after the other.
std::vector<double> everything(const AttentionCase& call) {
  std::vector<double> out;
  const auto append = [&](const Tensor<double>& tensor) {
    out.insert(out.end(), tensor.elements().begin(), tensor.elements().end());
  };
  const auto forward = attention(call.inputs(), call.options());
  if (!forward) return out;
  append(forward->output);
  append(forward->weights);
  append(forward->log_sum_exp);
  Random random(5);
  const Tensor<double> d_output = test::random_tensor(random, forward->output.shape());
  const auto back = attention_backward(call.inputs(), call.options(), flowing_back(d_output));
  if (!back) return out;
  for (const auto* part :
       {&back->d_query, &back->d_key, &back->d_value, &back->d_bias, &back->d_sink}) {
    append(*part);
  }
  return out;
}

/// Cases with tiny numbers too, so that flushing would show.
AttentionCase hostile_case(std::uint64_t seed) {
  AttentionCase call = test::random_case(seed);
  if (seed % 2 == 0) {
    for (double& x : call.value.elements()) x *= 0x1p-1040;
  }
  if (seed % 3 == 0) {
    for (double& x : call.query.elements()) x *= 300;
  }
  return call;
}

TEST(Attention, SameBitsUnderHostRoundingModes) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase call = hostile_case(seed);
    const std::vector<double> expected = everything(call);
    ASSERT_FALSE(expected.empty());
    for (const auto& [mode, found] : test::under_host_modes([&] { return everything(call); })) {
      ASSERT_TRUE(same_bits(expected, found)) << mode << ", " << test::describe(seed, call);
    }
  }
}

#if defined(__SSE2__)
TEST(Attention, LeavesTheHostsEnvironmentAsItWas) {
  const unsigned host = _mm_getcsr();
  const AttentionCase call = small_case();
  for (const unsigned mode : {0x8040U, 0x2000U, 0x4000U, 0x6000U, 0x0000U}) {
    _mm_setcsr(0x1F80U | mode);
    const auto found = attention(call.inputs(), call.options());
    const unsigned after = _mm_getcsr();
    _mm_setcsr(host);
    ASSERT_TRUE(found);
    EXPECT_EQ(after & ~0x3FU, 0x1F80U | mode);
  }
}
#endif

}  // namespace
}  // namespace attest::lab
