// SPDX-License-Identifier: MIT
// The laws of masks, policies and the other options of lab::attention, and its errors.
#include <gtest/gtest.h>

#include <array>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/attention_row.h"
#include "tests/support/bits.h"
#include "tests/support/matrices.h"
#include "tests/support/outcome.h"
#include "tests/support/plain_attention.h"
#include "tests/support/random_case.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace attest::lab {
namespace {

using test::mask_of;
using test::one_head;
using test::same_bits;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Result<AttentionResult> run(const AttentionCase& call) {
  return attention(call.inputs(), call.options());
}

::testing::AssertionResult same_results(const AttentionResult& a, const AttentionResult& b) {
  if (auto same = same_bits(a.output.elements(), b.output.elements()); !same) return same;
  if (auto same = same_bits(a.weights.elements(), b.weights.elements()); !same) return same;
  return same_bits(a.log_sum_exp.elements(), b.log_sum_exp.elements());
}

/// All keys zero: the weights are equal over the visible keys, so the weights spell out the mask.
AttentionCase uniform_case(std::int64_t T, std::int64_t S, std::int64_t B = 1) {
  AttentionCase out;
  out.query = Tensor<double>({B, 1, T, 1});
  out.key = Tensor<double>({B, 1, S, 1});
  out.value = Tensor<double>({B, 1, S, 1});
  out.empty_row = EmptyRow::zero;
  return out;
}

/// Which keys got a share, as a picture: one string for each query.
std::vector<std::string> picture(const AttentionCase& call, std::int64_t b = 0) {
  const auto found = run(call);
  if (!found) return {found.failure().message};
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < call.query.extent(2); ++i) {
    std::string row;
    for (std::int64_t j = 0; j < call.key.extent(2); ++j) {
      row += found->weights(b, 0, i, j) > 0 ? 'x' : '.';
    }
    out.push_back(row);
  }
  return out;
}

using Picture = std::vector<std::string>;

TEST(Attention, CausalCornersFollowTheirPictures) {
  AttentionCase call = uniform_case(2, 5);
  call.mask = Mask::causal_top_left();
  EXPECT_EQ(picture(call), (Picture{"x....", "xx..."}));
  call.mask = Mask::causal_bottom_right();
  EXPECT_EQ(picture(call), (Picture{"xxxx.", "xxxxx"}));
  call.mask = Mask::causal_at(1);
  EXPECT_EQ(picture(call), (Picture{"xx...", "xxx.."}));
  call.mask = Mask::causal();
  EXPECT_EQ(test::failure_id(run(call)), "causal-needs-square");
  AttentionCase square = uniform_case(3, 3);
  for (const Mask& mask : {Mask::causal(), Mask::causal_top_left(), Mask::causal_bottom_right()}) {
    square.mask = mask;
    EXPECT_EQ(picture(square), (Picture{"x..", "xx.", "xxx"}));
  }
  AttentionCase tall = uniform_case(4, 2);
  tall.mask = Mask::causal_bottom_right();
  EXPECT_EQ(picture(tall), (Picture{"..", "..", "x.", "xx"}));
}

TEST(Attention, CausalCornersFollowTheirPicturesForAllSmallLengths) {
  for (std::int64_t T = 1; T <= 6; ++T) {
    for (std::int64_t S = 1; S <= 6; ++S) {
      AttentionCase call = uniform_case(T, S);
      const auto expect = [&](const Mask& mask, std::int64_t offset) {
        call.mask = mask;
        Picture expected;
        for (std::int64_t i = 0; i < T; ++i) {
          std::string row;
          for (std::int64_t j = 0; j < S; ++j) row += j <= i + offset ? 'x' : '.';
          expected.push_back(row);
        }
        EXPECT_EQ(picture(call), expected) << "T " << T << " S " << S << " offset " << offset;
      };
      expect(Mask::causal_top_left(), 0);
      expect(Mask::causal_bottom_right(), S - T);
      for (std::int64_t offset = -T - 1; offset <= S + 1; ++offset) {
        expect(Mask::causal_at(offset), offset);
      }
      if (T == S) expect(Mask::causal(), 0);
    }
  }
}

TEST(Attention, OffsetsMayDifferPerBatch) {
  AttentionCase call = uniform_case(2, 4, 3);
  call.mask = Mask::causal_at(0);
  call.mask.query_offset = {0, 2, -1};
  EXPECT_EQ(picture(call, 0), (Picture{"x...", "xx.."}));
  EXPECT_EQ(picture(call, 1), (Picture{"xxx.", "xxxx"}));
  EXPECT_EQ(picture(call, 2), (Picture{"....", "x..."}));
}

TEST(Attention, WindowsCountKeysBesideTheOwnPosition) {
  AttentionCase call = uniform_case(4, 4);
  call.mask.window = {.left = 1, .right = 1};
  EXPECT_EQ(picture(call), (Picture{"xx..", "xxx.", ".xxx", "..xx"}));
  call.mask.window = {.left = 0, .right = 0};
  EXPECT_EQ(picture(call), (Picture{"x...", ".x..", "..x.", "...x"}));
  call.mask.window = {.left = 1, .right = {}};
  EXPECT_EQ(picture(call), (Picture{"xxxx", "xxxx", ".xxx", "..xx"}));
  call.mask.window = {.left = {}, .right = 2};
  EXPECT_EQ(picture(call), (Picture{"xxx.", "xxxx", "xxxx", "xxxx"}));
  call.mask = Mask::causal();
  call.mask.window = {.left = 1, .right = 2};
  EXPECT_EQ(picture(call), (Picture{"x...", "xx..", ".xx.", "..xx"}));
  AttentionCase decode = uniform_case(1, 5);
  decode.mask = Mask::causal_bottom_right();
  decode.mask.window.left = 2;
  EXPECT_EQ(picture(decode), (Picture{"..xxx"}));
  decode.mask.future_hidden = false;  // the position remains, and with it the window
  EXPECT_EQ(picture(decode), (Picture{"..xxx"}));
  decode.mask.window.left = std::int64_t{1} << 61U;
  EXPECT_EQ(picture(decode), (Picture{"xxxxx"}));
}

TEST(Attention, KeyLengthsHideWhatLiesBeyond) {
  AttentionCase call = uniform_case(2, 4, 3);
  call.mask.key_lengths = {4, 1, 0};
  EXPECT_EQ(picture(call, 0), (Picture{"xxxx", "xxxx"}));
  EXPECT_EQ(picture(call, 1), (Picture{"x...", "x..."}));
  EXPECT_EQ(picture(call, 2), (Picture{"....", "...."}));
  call.mask = Mask::causal_bottom_right();
  call.mask.key_lengths = {4, 3, 1};
  EXPECT_EQ(picture(call, 0), (Picture{"xxx.", "xxxx"}));
  EXPECT_EQ(picture(call, 1), (Picture{"xx..", "xxx."}));
  EXPECT_EQ(picture(call, 2), (Picture{"....", "x..."}));
  call.mask.key_lengths = {2};  // one for all
  EXPECT_EQ(picture(call, 2), (Picture{"x...", "xx.."}));
}

TEST(Attention, TheMaskIsReadByQueryAndKeyAndAndedWithTheRest) {
  AttentionCase call = uniform_case(3, 3);
  call.visible = mask_of({"TFT", "TTF", "FTT"});
  EXPECT_EQ(picture(call), (Picture{"x.x", "xx.", ".xx"}));
  call.mask = Mask::causal();
  EXPECT_EQ(picture(call), (Picture{"x..", "xx.", ".xx"}));
  call.visible = mask_of({"TFT"});  // broadcast over the queries
  EXPECT_EQ(picture(call), (Picture{"x..", "x..", "x.x"}));
}

TEST(Attention, MinusInfinityBiasHides) {
  AttentionCase call = uniform_case(2, 3);
  call.bias = one_head({{0, -infinity, 0}, {-infinity, -infinity, -infinity}});
  call.value = one_head({{1}, {not_a_number}, {3}});
  const auto found = run(call);
  ASSERT_TRUE(found);
  EXPECT_EQ(picture(call), (Picture{"x.x", "..."}));
  EXPECT_EQ(found->output(0, 0, 0, 0), 2);
  EXPECT_EQ(found->output(0, 0, 1, 0), 0);
  call.empty_row = EmptyRow::error;
  EXPECT_EQ(test::failure_id(run(call)), "no-visible-key");
  // A bias of −∞ is the same call as the mask it spells.
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    AttentionCase by_bias = test::random_case(seed);
    by_bias.bias = Tensor<double>({1, 1, 1, by_bias.key.extent(2)});
    by_bias.visible.reset();
    AttentionCase by_mask = by_bias;
    by_mask.visible = Tensor<bool>({1, 1, 1, by_bias.key.extent(2)});
    Random random(seed, 2);
    for (std::size_t j = 0; j < by_bias.bias->size(); ++j) {
      const bool seen = random.between(0, 2) != 0;
      by_mask.visible->elements()[j] = seen;
      if (!seen) by_bias.bias->elements()[j] = -infinity;
    }
    ASSERT_TRUE(same_results(test::run_or_nan(by_bias), test::run_or_nan(by_mask)))
        << test::describe(seed, by_bias);
  }
}

/// Puts poison wherever nobody may look: keys, values and biases that every query of their group is
/// forbidden to see, and the biases of hidden pairs. Returns how many places it found.
int poison(AttentionCase& call) {
  const AttentionCase clean = call;
  const auto inputs = clean.inputs();
  const auto options = clean.options();
  const test::PlainCall plain{inputs, options};
  constexpr std::array<double, 3> poisons{not_a_number, infinity, -infinity};
  int count = 0;
  for (std::int64_t n = 0; n < plain.B() * plain.G() * plain.S(); ++n) {
    const std::int64_t b = n / (plain.G() * plain.S()), g = n / plain.S() % plain.G();
    const std::int64_t j = n % plain.S();
    bool seen = false;
    for (std::int64_t h = 0; h < plain.H(); ++h) {
      if (plain.group(h) != g) continue;
      for (std::int64_t i = 0; i < plain.T(); ++i) seen = seen || plain.sees(b, h, i, j);
    }
    if (seen) continue;
    for (std::int64_t d = 0; d < plain.D(); ++d)
      call.key(b, g, j, d) = poisons[static_cast<std::size_t>(++count % 3)];
    for (std::int64_t e = 0; e < plain.E(); ++e)
      call.value(b, g, j, e) = poisons[static_cast<std::size_t>(++count % 3)];
  }
  const Shape full{plain.B(), plain.H(), plain.T(), plain.S()};
  if (!call.bias || call.bias->shape() != full) return count;
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(call.bias->size()); ++n) {
    const std::int64_t j = n % full[3], i = n / full[3] % full[2];
    const std::int64_t h = n / full[3] / full[2] % full[1], b = n / full[3] / full[2] / full[1];
    const bool by_bias = clean.bias->elements()[static_cast<std::size_t>(n)] == -infinity;
    if (!plain.sees(b, h, i, j) && !by_bias) {
      call.bias->elements()[static_cast<std::size_t>(n)] =
          ++count % 2 == 0 ? infinity : not_a_number;
    }
  }
  return count;
}

TEST(Attention, HiddenNaNNeverLeaks) {
  int places = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    const AttentionCase clean = test::random_case(seed);
    AttentionCase poisoned = clean;
    places += poison(poisoned);
    const auto expected = run(clean);
    const auto found = run(poisoned);
    ASSERT_TRUE(expected && found);
    ASSERT_TRUE(same_results(*expected, *found)) << test::describe(seed, clean);
  }
  EXPECT_GT(places, 1000);
}

TEST(Attention, AVisibleNaNSpoilsItsOwnRowsAndHidesNothing) {
  AttentionCase call = uniform_case(3, 3);
  call.mask = Mask::causal();
  call.value = one_head({{1}, {10}, {100}});
  call.query = one_head({{1}, {1}, {1}});
  call.key = one_head({{0}, {not_a_number}, {0}});
  const auto found = run(call);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->output(0, 0, 0, 0), 1);
  for (std::int64_t i : {1, 2}) {
    EXPECT_TRUE(std::isnan(found->output(0, 0, i, 0)));
    EXPECT_TRUE(std::isnan(found->log_sum_exp(0, 0, i)));
  }
  EXPECT_TRUE(same_bits(found->weights(0, 0, 1, 2), 0.0));  // hidden, also beside a NaN
  call.key = one_head({{0}, {infinity}, {0}});
  EXPECT_TRUE(std::isnan(test::run_or_nan(call).output(0, 0, 1, 0)));
  call.key = one_head({{-infinity}, {0}, {0}});
  const auto lost = run(call);
  EXPECT_TRUE(std::isnan(lost->output(0, 0, 0, 0)));  // −∞ in all visible scores
  EXPECT_EQ(lost->output(0, 0, 1, 0), 10);            // and in one of two: it gets nothing
}

TEST(Attention, EmptyRowPolicies) {
  AttentionCase call = uniform_case(2, 2);
  call.value = one_head({{1}, {3}});
  call.visible = mask_of({"TT", "FF"});
  call.empty_row = EmptyRow::error;
  const auto refused = run(call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().id, "no-visible-key");
  EXPECT_EQ(refused.failure().kind, ErrorKind::value);
  EXPECT_NE(refused.failure().message.find("query 1 of batch 0, head 0"), std::string::npos);
  for (const EmptyRow policy : {EmptyRow::zero, EmptyRow::nan}) {
    const double filler = policy == EmptyRow::zero ? 0 : not_a_number;
    call.empty_row = policy;
    const auto found = run(call);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->output(0, 0, 0, 0), 2);
    EXPECT_TRUE(same_bits(found->output(0, 0, 1, 0), filler));
    EXPECT_TRUE(same_bits(found->weights(0, 0, 1, 0), filler));
    EXPECT_TRUE(same_bits(found->weights(0, 0, 1, 1), filler));
    EXPECT_EQ(found->log_sum_exp(0, 0, 1), -infinity);
  }
}

TEST(Attention, TheFirstEmptyRowIsNamed) {
  AttentionCase call = test::random_case(3);
  call.mask = {};
  const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  call.visible = Tensor<bool>({B, H, T, 1});
  for (bool& seen : call.visible->elements()) seen = true;
  call.bias.reset();
  call.empty_row = EmptyRow::error;
  ASSERT_TRUE(run(call));
  call.visible->elements()[call.visible->size() - 1] = false;
  const auto refused = run(call);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.failure().message.find(
                sentence("query ", T - 1, " of batch ", B - 1, ", head ", H - 1)),
            std::string::npos)
      << refused.failure().message;
}

TEST(Attention, SinkOnlyJoinsTheDenominator) {
  // Three keys scoring 0 and a sink of 0: a quarter each, and a quarter for nobody.
  AttentionCase call = uniform_case(1, 3);
  call.value = one_head({{4}, {8}, {16}});
  call.sink = {0.0};
  const auto found = run(call);
  ASSERT_TRUE(found);
  for (std::int64_t j = 0; j < 3; ++j) EXPECT_EQ(found->weights(0, 0, 0, j), 0.25);
  EXPECT_EQ(found->output(0, 0, 0, 0), 7);
  EXPECT_TRUE(test::within(found->log_sum_exp(0, 0, 0), std::log(4.0L), 2 * test::u));
  // A row that sees no key stays empty: a sink is no key, and the policy holds as without one.
  call.visible = mask_of({"FFF"});
  call.sink = {1.5};
  EXPECT_EQ(test::run_or_nan(call).output(0, 0, 0, 0), 0);
  EXPECT_EQ(test::run_or_nan(call).log_sum_exp(0, 0, 0), -infinity);
  call.empty_row = EmptyRow::error;
  EXPECT_EQ(test::failure_id(run(call)), "no-visible-key");
  call.empty_row = EmptyRow::zero;
  // A sink far above every score leaves the keys nothing, and no NaN.
  call.visible.reset();
  call.sink = {1e4};
  EXPECT_EQ(test::run_or_nan(call).output(0, 0, 0, 0), 0);
  EXPECT_EQ(test::run_or_nan(call).log_sum_exp(0, 0, 0), 1e4);
  call.sink = {-1e4};
  EXPECT_TRUE(
      test::within(test::run_or_nan(call).output(0, 0, 0, 0), 28 / 3.0L, 8 * 28 / 3.0L * test::u));
}

TEST(Attention, SoftcapComesBeforeBias) {
  AttentionCase call = uniform_case(1, 2);
  call.query = one_head({{1000}});
  call.key = one_head({{1}, {0}});
  call.softcap = 2;
  call.bias = one_head({{0, 30}});
  const auto row = attention_row(call.inputs(), call.options(), {});
  ASSERT_TRUE(row);
  // 2·tanh(500) is 2 exactly in binary64; capping after the bias would leave [2, 2].
  EXPECT_EQ(row->scaled, (std::vector<double>{1000, 0}));
  EXPECT_EQ(row->capped, (std::vector<double>{2, 0}));
  EXPECT_EQ(row->biased, (std::vector<double>{2, 30}));
}

TEST(Attention, ScaleMultipliesAndTheDefaultDividesByTheRootOfD) {
  AttentionCase call;
  call.query = one_head({{2, 0, 0, 0}});
  call.key = one_head({{3, 1, 1, 1}, {5, 1, 1, 1}});
  call.value = one_head({{1, 2, 3}, {4, 5, 6}});
  auto row = attention_row(call.inputs(), call.options(), {});
  EXPECT_EQ(row->dot, (std::vector<double>{6, 10}));
  EXPECT_EQ(row->scaled, (std::vector<double>{3, 5}));
  call.scale = 0.25;
  row = attention_row(call.inputs(), call.options(), {});
  EXPECT_EQ(row->scaled, (std::vector<double>{1.5, 2.5}));
  call.scale = 0;
  EXPECT_EQ(test::run_or_nan(call).output(0, 0, 0, 0), 2.5);
}

TEST(Attention, AlibiSubtractsTheDistanceFromTheQueriesPosition) {
  AttentionCase call = uniform_case(2, 4);
  call.alibi_slopes = {0.5};
  auto row = attention_row(call.inputs(), call.options(), {.i = 1});
  EXPECT_EQ(row->biased, (std::vector<double>{-.5, 0, -.5, -1}));
  call.mask.corner = Corner::bottom_right;
  row = attention_row(call.inputs(), call.options(), {.i = 1});
  EXPECT_EQ(row->biased, (std::vector<double>{-1.5, -1, -.5, 0}));
  call.mask.corner = Corner::at_offset;
  call.mask.query_offset = {-3};
  row = attention_row(call.inputs(), call.options(), {.i = 1});
  EXPECT_EQ(row->biased, (std::vector<double>{-1, -1.5, -2, -2.5}));
}

}  // namespace
}  // namespace attest::lab
