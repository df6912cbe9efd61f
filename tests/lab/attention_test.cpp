// SPDX-License-Identifier: MIT
#include "attest/lab/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attest/base/random.h"
#include "attest/lab/attention_row.h"
#include "tests/support/bits.h"
#include "tests/support/matrices.h"
#include "tests/support/plain_attention.h"
#include "tests/support/random_case.h"

namespace attest::lab {
namespace {

using test::PlainCall;
using test::PlainRow;
using test::same_bits;
using test::within;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::size_t index_of(std::int64_t n) { return static_cast<std::size_t>(n); }

::testing::AssertionResult same_results(const AttentionResult& a, const AttentionResult& b) {
  if (auto same = same_bits(a.output.elements(), b.output.elements()); !same) return same;
  if (auto same = same_bits(a.weights.elements(), b.weights.elements()); !same) return same;
  return same_bits(a.log_sum_exp.elements(), b.log_sum_exp.elements());
}

/// A plain call: no option, sizes all different.
AttentionCase plain_case(std::uint64_t seed) {
  Random random(seed);
  AttentionCase out;
  out.query = test::random_tensor(random, {2, 3, 4, 5});
  out.key = test::random_tensor(random, {2, 3, 6, 5});
  out.value = test::random_tensor(random, {2, 3, 6, 7});
  return out;
}

Result<AttentionResult> run(const AttentionCase& call) {
  return attention(call.inputs(), call.options());
}

/// Every number of a call against the plain loop, each within its derived bound.
void expect_as_the_plain_loop(const AttentionCase& call, const std::string& which) {
  const auto inputs = call.inputs();
  const auto options = call.options();
  const auto found = attention(inputs, options);
  ASSERT_TRUE(found) << which << ": " << found.failure().message;
  const PlainCall plain{inputs, options};
  const long double floor = test::output_floor(plain);
  for (std::int64_t n = 0; n < plain.B() * plain.H() * plain.T(); ++n) {
    const std::int64_t b = n / (plain.H() * plain.T());
    const std::int64_t h = n / plain.T() % plain.H();
    const std::int64_t i = n % plain.T();
    const PlainRow row = test::plain_row(plain, b, h, i);
    const double filler = call.empty_row == EmptyRow::nan ? not_a_number : 0;
    std::vector<bool> seen(index_of(plain.S()), false);
    for (std::size_t k = 0; k < row.seen.size(); ++k) {
      seen[index_of(row.seen[k])] = true;
      ASSERT_TRUE(within(found->weights(b, h, i, row.seen[k]), row.weights[k], row.weight_bound(k)))
          << which << " weights[" << i << "," << row.seen[k] << "] of head " << h;
    }
    for (std::int64_t j = 0; j < plain.S(); ++j) {
      if (seen[index_of(j)]) continue;
      ASSERT_TRUE(same_bits(found->weights(b, h, i, j), row.seen.empty() ? filler : 0.0))
          << which << " hidden weights[" << i << "," << j << "] of head " << h;
    }
    for (std::int64_t e = 0; e < plain.E(); ++e) {
      const auto place = index_of(e);
      const long double expected = row.seen.empty() ? filler : row.output[place];
      ASSERT_TRUE(within(found->output(b, h, i, e), expected, row.output_bound(place, floor)))
          << which << " output[" << i << "," << e << "] of head " << h;
    }
    ASSERT_TRUE(within(found->log_sum_exp(b, h, i), row.log_sum_exp, row.lse_bound()))
        << which << " log_sum_exp[" << i << "] of head " << h;
  }
}

TEST(Attention, StaysWithinItsBoundOfThePlainLoopWithEveryOption) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    const AttentionCase call = test::random_case(seed);
    expect_as_the_plain_loop(call, test::describe(seed, call));
  }
}

TEST(Attention, StaysWithinItsBoundForLargeScores) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const AttentionCase call = test::random_case(seed, {.longest = 9, .widest = 9, .size = 60});
    expect_as_the_plain_loop(call, test::describe(seed, call));
  }
}

TEST(Attention, PermutingKeysAndValuesTogetherChangesOnlyRounding) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const AttentionCase call = plain_case(seed);
    AttentionCase permuted = call;
    Random random(seed, 1);
    std::vector<std::int64_t> order(6);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t n = 6; n > 1; --n) {
      std::swap(order[n - 1], order[index_of(random.between(0, static_cast<std::int64_t>(n) - 1))]);
    }
    for (std::int64_t n = 0; n < 2 * 3 * 6; ++n) {
      const std::int64_t b = n / 18, g = n / 6 % 3, j = n % 6;
      for (std::int64_t d = 0; d < 5; ++d) {
        permuted.key(b, g, j, d) = call.key(b, g, order[index_of(j)], d);
      }
      for (std::int64_t e = 0; e < 7; ++e) {
        permuted.value(b, g, j, e) = call.value(b, g, order[index_of(j)], e);
      }
    }
    const auto first = run(call);
    const auto second = run(permuted);
    ASSERT_TRUE(first && second);
    // Every sum of the exact tier is correctly rounded, so not even the rounding changes.
    ASSERT_TRUE(same_bits(first->output.elements(), second->output.elements())) << "seed " << seed;
    ASSERT_TRUE(same_bits(first->log_sum_exp.elements(), second->log_sum_exp.elements()));
  }
}

TEST(Attention, RowsSumToOneWithinRounding) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    AttentionCase call = test::random_case(seed);
    call.sink.clear();
    const auto found = run(call);
    ASSERT_TRUE(found);
    const auto S = found->weights.extent(3);
    for (std::size_t row = 0; row < found->log_sum_exp.size(); ++row) {
      if (std::isinf(found->log_sum_exp.elements()[row])) continue;  // an empty row
      long double sum = 0;
      for (std::size_t j = 0; j < index_of(S); ++j) {
        const double w = found->weights.elements()[row * index_of(S) + j];
        ASSERT_GE(w, 0) << test::describe(seed, call);
        ASSERT_LE(w, 1) << test::describe(seed, call);
        sum += w;
      }
      // exp / sum: the exact quotients sum to Σexp / sum, one rounding from 1, and each quotient
      // is rounded once: u + u·Σw. Underflow adds less than S·2⁻¹⁰⁷⁴.
      ASSERT_TRUE(within(static_cast<double>(sum), 1, 2.01L * test::u + test::u))
          << test::describe(seed, call);
    }
  }
}

TEST(Attention, OutputLiesInTheHullOfVisibleValues) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    AttentionCase call = test::random_case(seed);
    call.sink.clear();
    const auto inputs = call.inputs();
    const auto options = call.options();
    const PlainCall plain{inputs, options};
    const auto found = attention(inputs, options);
    ASSERT_TRUE(found);
    for (std::int64_t n = 0; n < plain.B() * plain.H() * plain.T() * plain.E(); ++n) {
      const std::int64_t e = n % plain.E(), i = n / plain.E() % plain.T();
      const std::int64_t h = n / plain.E() / plain.T() % plain.H();
      const std::int64_t b = n / plain.E() / plain.T() / plain.H();
      double low = infinity, high = -infinity, size = 0;
      for (std::int64_t j = 0; j < plain.S(); ++j) {
        if (!plain.sees(b, h, i, j)) continue;
        const double v = call.value(b, plain.group(h), j, e);
        low = std::min(low, v);
        high = std::max(high, v);
        size = std::max(size, std::fabs(v));
      }
      if (low > high) continue;
      // The weights sum to 1 ± 2u (above), products and their sum round twice more.
      const double slack = 4.01 * test::unit_roundoff * size;
      ASSERT_GE(found->output(b, h, i, e), low - slack) << test::describe(seed, call);
      ASSERT_LE(found->output(b, h, i, e), high + slack) << test::describe(seed, call);
    }
  }
}

TEST(Attention, ConstantValuesStayConstant) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    AttentionCase call = plain_case(seed);
    for (std::size_t n = 0; n < call.value.size(); ++n) {
      call.value.elements()[n] = n % 7 == 0 ? 3 : -2;
    }
    const auto found = run(call);
    ASSERT_TRUE(found);
    for (std::size_t n = 0; n < found->output.size(); ++n) {
      const double constant = n % 7 == 0 ? 3 : -2;
      ASSERT_TRUE(
          within(found->output.elements()[n], constant, 4.01L * test::u * std::fabs(constant)))
          << "seed " << seed;
    }
  }
  // With as many equal keys as a power of two, all is exact.
  AttentionCase even = plain_case(1);
  even.key = Tensor<double>({2, 3, 8, 5});
  even.value = Tensor<double>({2, 3, 8, 7});
  std::fill(even.value.elements().begin(), even.value.elements().end(), 0.1);
  const auto found = run(even);
  ASSERT_TRUE(found);
  for (const double w : found->weights.elements()) EXPECT_EQ(w, 0.125);
  for (const double x : found->output.elements()) EXPECT_EQ(x, 0.1);
}

TEST(Attention, GroupedHeadsEqualRepeatedHeads) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const AttentionCase grouped = test::random_case(seed);
    AttentionCase repeated = grouped;
    const auto B = grouped.key.extent(0), G = grouped.key.extent(1), S = grouped.key.extent(2);
    const auto H = grouped.query.extent(1);
    const auto D = grouped.key.extent(3), E = grouped.value.extent(3);
    repeated.key = Tensor<double>({B, H, S, D});
    repeated.value = Tensor<double>({B, H, S, E});
    for (std::int64_t n = 0; n < B * H * S; ++n) {
      const std::int64_t b = n / (H * S), h = n / S % H, j = n % S;
      const std::int64_t g = h / (H / G);
      for (std::int64_t d = 0; d < D; ++d) repeated.key(b, h, j, d) = grouped.key(b, g, j, d);
      for (std::int64_t e = 0; e < E; ++e) repeated.value(b, h, j, e) = grouped.value(b, g, j, e);
    }
    const auto one = run(grouped);
    const auto other = run(repeated);
    ASSERT_TRUE(one && other);
    ASSERT_TRUE(same_results(*one, *other)) << test::describe(seed, grouped);
  }
}

/// The same numbers in another memory: [B, T, H, D], or every axis backwards.
struct OtherMemory {
  std::vector<double> memory;
  View<const double, 4> view;
};
OtherMemory swapped_memory(const Tensor<double>& from) {
  OtherMemory out;
  const auto B = from.extent(0), H = from.extent(1), T = from.extent(2), D = from.extent(3);
  for (std::int64_t n = 0; n < B * T * H * D; ++n) {
    out.memory.push_back(from(n / (T * H * D), n / D % H, n / (H * D) % T, n % D));
  }
  out.view = View<const double, 4>(out.memory.data(), {B, T, H, D}).swapped(1, 2);
  return out;
}
OtherMemory reversed_memory(const Tensor<double>& from) {
  OtherMemory out;
  out.memory.assign(from.elements().rbegin(), from.elements().rend());
  const auto dense = from.view<4>();
  out.view = {out.memory.data() + out.memory.size() - 1, dense.extents, dense.strides};
  for (auto& stride : out.view.strides) stride = -stride;
  return out;
}

TEST(Attention, StridesDoNotMatter) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const AttentionCase call = test::random_case(seed);
    const auto expected = run(call);
    ASSERT_TRUE(expected);
    for (const auto other : {swapped_memory, reversed_memory}) {
      const OtherMemory query = other(call.query), key = other(call.key), value = other(call.value);
      auto options = call.options();
      OtherMemory bias;
      if (call.bias) {
        bias = other(*call.bias);
        options.bias = bias.view;
      }
      const auto found = attention({query.view, key.view, value.view}, options);
      ASSERT_TRUE(found);
      ASSERT_TRUE(same_results(*expected, *found)) << test::describe(seed, call);
    }
  }
}

TEST(Attention, ZeroStridesRepeat) {
  AttentionCase call = plain_case(5);
  // One key row for all batches, heads and positions; the query likewise for all heads.
  auto inputs = call.inputs();
  inputs.key.strides = {0, 0, 0, 1};
  inputs.query.strides[1] = 0;
  const auto found = attention(inputs);
  ASSERT_TRUE(found);
  AttentionCase dense = call;
  for (std::int64_t n = 0; n < 2 * 3 * 6 * 5; ++n) {
    dense.key(n / 90, n / 30 % 3, n / 5 % 6, n % 5) = call.key(0, 0, 0, n % 5);
  }
  for (std::int64_t n = 0; n < 2 * 3 * 4 * 5; ++n) {
    dense.query(n / 60, n / 20 % 3, n / 5 % 4, n % 5) = call.query(n / 60, 0, n / 5 % 4, n % 5);
  }
  const auto expected = run(dense);
  ASSERT_TRUE(expected);
  EXPECT_TRUE(same_results(*expected, *found));
}

TEST(Attention, CacheRowEqualsFullRow) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const std::int64_t T = random.between(2, 7);
    AttentionCase full;
    full.query = test::random_tensor(random, {1, 2, T, 3});
    full.key = test::random_tensor(random, {1, 2, T, 3});
    full.value = test::random_tensor(random, {1, 2, T, 4});
    full.mask = Mask::causal();
    full.alibi_slopes = {0.5, 0.25};
    const auto expected = run(full);
    ASSERT_TRUE(expected);
    for (std::int64_t i = 0; i < T; ++i) {
      auto inputs = full.inputs();
      inputs.query.data = &full.query(0, 0, i, 0);
      inputs.query.extents[2] = 1;
      inputs.key.extents[2] = inputs.value.extents[2] = i + 1;
      auto options = full.options();
      for (const Mask& mask : {Mask::causal_at(i), Mask::causal_bottom_right()}) {
        options.mask = mask;
        const auto row = attention(inputs, options);
        ASSERT_TRUE(row);
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t e = 0; e < 4; ++e) {
            ASSERT_TRUE(same_bits(row->output(0, h, 0, e), expected->output(0, h, i, e)))
                << "seed " << seed << " row " << i;
          }
          ASSERT_TRUE(same_bits(row->log_sum_exp(0, h, 0), expected->log_sum_exp(0, h, i)));
        }
      }
    }
  }
}

TEST(Attention, RowOfACallIsThatRowOfTheWhole) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const AttentionCase call = test::random_case(seed);
    const auto whole = run(call);
    ASSERT_TRUE(whole);
    const auto [B, H, T, S] = std::array{call.query.extent(0), call.query.extent(1),
                                         call.query.extent(2), call.key.extent(2)};
    for (std::int64_t n = 0; n < B * H * T; ++n) {
      const RowPlace at{n / (H * T), n / T % H, n % T};
      const auto row = attention_row(call.inputs(), call.options(), at);
      ASSERT_TRUE(row);
      const auto E = index_of(call.value.extent(3));
      const auto output = std::span(whole->output.elements()).subspan(index_of(n) * E, E);
      const auto weights =
          std::span(whole->weights.elements()).subspan(index_of(n * S), index_of(S));
      ASSERT_TRUE(same_bits(row->output, output)) << test::describe(seed, call);
      ASSERT_TRUE(same_bits(row->weights, weights)) << test::describe(seed, call);
      ASSERT_TRUE(same_bits(row->log_sum_exp, whole->log_sum_exp(at.b, at.h, at.i)));
    }
  }
}

TEST(Attention, WeightsCanBeDropped) {
  const AttentionCase call = test::random_case(7);
  const auto kept = run(call);
  const auto dropped = attention(call.inputs(), call.options(), Weights::drop);
  ASSERT_TRUE(kept && dropped);
  EXPECT_EQ(dropped->weights.size(), 0U);
  EXPECT_TRUE(same_bits(kept->output.elements(), dropped->output.elements()));
  EXPECT_TRUE(same_bits(kept->log_sum_exp.elements(), dropped->log_sum_exp.elements()));
}

}  // namespace
}  // namespace attest::lab
