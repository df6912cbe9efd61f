// SPDX-License-Identifier: MIT
// The laws of packed documents and of documents by name.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/attention_row.h"
#include "attest/lab/oracle.h"
#include "attest/lab/trace.h"
#include "tests/lab/documents_support.h"
#include "tests/support/bits.h"
#include "tests/support/outcome.h"

namespace attest::lab {
namespace {

using test::back;
using test::Cut;
using test::cut_out;
using test::Flow;
using test::same_bits;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

::testing::AssertionResult same_tensor(const Tensor<double>& a, const Tensor<double>& b) {
  return same_bits(a.elements(), b.elements());
}

void expect_same_call(const AttentionCase& a, const AttentionCase& b, std::uint64_t seed) {
  const Flow flow(seed, a);
  const auto one = attention(a.inputs(), a.options());
  const auto other = attention(b.inputs(), b.options());
  ASSERT_TRUE(one && other) << test::failure_message(one) << test::failure_message(other);
  ASSERT_TRUE(same_tensor(one->output, other->output));
  ASSERT_TRUE(same_tensor(one->weights, other->weights));
  ASSERT_TRUE(same_tensor(one->log_sum_exp, other->log_sum_exp));
  const auto d_one = back(a, flow);
  const auto d_other = back(b, flow);
  ASSERT_TRUE(d_one && d_other);
  ASSERT_TRUE(same_tensor(d_one->d_query, d_other->d_query));
  ASSERT_TRUE(same_tensor(d_one->d_key, d_other->d_key));
  ASSERT_TRUE(same_tensor(d_one->d_value, d_other->d_value));
  ASSERT_TRUE(same_tensor(d_one->d_bias, d_other->d_bias));
  ASSERT_TRUE(same_tensor(d_one->d_sink, d_other->d_sink));
}

/// [B, H, T] as [B, H, T, 1], so that it can be cut like the rest.
Tensor<double> as_column(const Tensor<double>& rows) {
  return Tensor<double>(rows).reshaped({rows.extent(0), rows.extent(1), rows.extent(2), 1});
}

/// A packed call with a bias and a table for every pair, so that each document has its own.
AttentionCase packed_case(std::uint64_t seed) {
  AttentionCase call = test::random_case(seed, {.longest = 9, .widest = 3});
  Random random(seed, 7);
  test::pack(random, call);
  const Shape pairs{call.query.extent(0), call.query.extent(1), call.query.extent(2),
                    call.key.extent(2)};
  if (call.bias) call.bias = test::whole_table(*call.bias, pairs);
  Tensor<bool> visible(pairs);
  for (bool& seen : visible.elements()) seen = true;
  call.visible = call.visible ? test::whole_table(*call.visible, pairs) : visible;
  return call;
}

/// Document n as a call of its own. Its key lengths become part of the table: in the packed call they
/// hide keys and move nothing.
AttentionCase document_alone(const AttentionCase& whole, const Cut& cut) {
  AttentionCase out = whole;
  const auto D = whole.query.extent(3), E = whole.value.extent(3);
  out.query = cut_out(whole.query, {cut.first_row, cut.rows, 0, D});
  out.key = cut_out(whole.key, {cut.first_column, cut.columns, 0, D});
  out.value = cut_out(whole.value, {cut.first_column, cut.columns, 0, E});
  if (whole.bias) out.bias = cut_out(*whole.bias, cut);
  out.mask.packing = {};
  out.mask.key_lengths = {};
  Tensor<bool> visible = *whole.visible;
  const auto& lengths = whole.mask.key_lengths;
  for (std::int64_t b = 0; b < visible.extent(0) && !lengths.empty(); ++b) {
    const std::int64_t length =
        lengths.size() == 1 ? lengths[0] : lengths[static_cast<std::size_t>(b)];
    for (std::int64_t h = 0; h < visible.extent(1); ++h) {
      for (std::int64_t i = 0; i < visible.extent(2); ++i) {
        for (std::int64_t j = length; j < visible.extent(3); ++j) visible(b, h, i, j) = false;
      }
    }
  }
  out.visible = cut_out(visible, cut);
  return out;
}

Cut document(const Packing& packing, std::size_t n) {
  return {packing.query_starts[n], packing.query_starts[n + 1] - packing.query_starts[n],
          packing.key_starts[n], packing.key_starts[n + 1] - packing.key_starts[n]};
}

TEST(Documents, APackedCallIsTheSeparateCallsBitForBit) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const AttentionCase call = packed_case(seed);
    SCOPED_TRACE(test::describe_documents(seed, call));
    const auto D = call.query.extent(3), E = call.value.extent(3);
    const Flow flow(seed, call);
    const auto found = attention(call.inputs(), call.options());
    const auto gradients = back(call, flow);
    ASSERT_TRUE(found && gradients) << test::failure_message(found);
    for (std::size_t n = 0; n + 1 < call.mask.packing.query_starts.size(); ++n) {
      SCOPED_TRACE(sentence("document ", n));
      const Cut cut = document(call.mask.packing, n);
      const AttentionCase alone = document_alone(call, cut);
      const Cut of_rows{cut.first_row, cut.rows, 0, 1};
      Flow own(seed, alone);
      own.d_output = cut_out(flow.d_output, {cut.first_row, cut.rows, 0, E});
      own.d_log_sum_exp = cut_out(as_column(flow.d_log_sum_exp), of_rows)
                              .reshaped({call.query.extent(0), call.query.extent(1), cut.rows});
      const auto expected = attention(alone.inputs(), alone.options());
      const auto d = back(alone, own);
      ASSERT_TRUE(expected && d) << test::failure_message(expected);
      const Cut rows_of_value{cut.first_row, cut.rows, 0, E};
      ASSERT_TRUE(same_tensor(cut_out(found->output, rows_of_value), expected->output));
      ASSERT_TRUE(same_tensor(cut_out(found->weights, cut), expected->weights));
      ASSERT_TRUE(
          same_tensor(cut_out(as_column(found->log_sum_exp), of_rows), expected->log_sum_exp));
      const Cut keys{cut.first_column, cut.columns, 0, D};
      const Cut values{cut.first_column, cut.columns, 0, E};
      ASSERT_TRUE(
          same_tensor(cut_out(gradients->d_query, {cut.first_row, cut.rows, 0, D}), d->d_query));
      ASSERT_TRUE(same_tensor(cut_out(gradients->d_key, keys), d->d_key));
      ASSERT_TRUE(same_tensor(cut_out(gradients->d_value, values), d->d_value));
      if (call.bias) {
        ASSERT_TRUE(same_tensor(cut_out(gradients->d_bias, cut), d->d_bias));
      }
    }
  }
}

TEST(Documents, NamesAreTheSameAsPackingInSelfAttention) {
  int compared = 0;
  for (std::uint64_t seed = 1; compared < 150; ++seed) {
    AttentionCase packed = test::random_case(seed, {.longest = 7, .widest = 3});
    if (packed.query.extent(2) != packed.key.extent(2)) continue;
    // Padding moves the bottom-right corner of a call, and not that of a document.
    if (packed.mask.corner == Corner::bottom_right) packed.mask.key_lengths = {};
    Random random(seed, 8);
    auto& [queries, keys] = packed.mask.packing;
    queries = keys = test::random_starts(random, random.between(1, 4), packed.query.extent(2));
    SCOPED_TRACE(test::describe_documents(seed, packed));
    AttentionCase named = packed;
    named.mask.packing = {};
    auto& names = named.mask.documents;
    for (std::size_t n = 0; n + 1 < queries.size(); ++n) {
      const auto name = random.between(0, 1) == 0 ? static_cast<std::int64_t>(n)
                                                  : -1000 - static_cast<std::int64_t>(n);
      for (auto i = queries[n]; i < queries[n + 1]; ++i) names.query.push_back(name);
    }
    names.key = names.query;
    expect_same_call(packed, named, seed);
    if (HasFatalFailure()) return;
    ++compared;
  }
}

TEST(Documents, OneDocumentOfEverythingChangesNoBit) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const AttentionCase call = test::random_case(seed);
    SCOPED_TRACE(test::describe(seed, call));
    const std::int64_t T = call.query.extent(2), S = call.key.extent(2);
    AttentionCase named = call;
    named.mask.documents = {std::vector<std::int64_t>(static_cast<std::size_t>(T), 7),
                            std::vector<std::int64_t>(static_cast<std::size_t>(S), 7)};
    expect_same_call(call, named, seed);
    if (call.mask.corner == Corner::bottom_right && !call.mask.key_lengths.empty()) continue;
    AttentionCase packed = call;
    packed.mask.packing = {{0, T}, {0, S}};
    expect_same_call(call, packed, seed);
    if (HasFatalFailure()) return;
  }
}

TEST(Documents, NamesMayDifferBetweenBatches) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    AttentionCase call = test::random_case(seed);
    call.mask.query_offset = {};
    call.mask.corner = Corner::top_left;
    call.mask.key_lengths = {};
    call.visible.reset();
    call.bias.reset();
    Random random(seed, 9);
    const std::int64_t B = call.query.extent(0), H = call.query.extent(1);
    const std::int64_t T = call.query.extent(2), S = call.key.extent(2);
    auto& [queries, keys] = call.mask.documents;
    for (std::int64_t n = 0; n < B * T; ++n) queries.push_back(random.between(0, 2));
    for (std::int64_t n = 0; n < B * S; ++n) keys.push_back(random.between(0, 2));
    const auto whole = attention(call.inputs(), call.options());
    ASSERT_TRUE(whole) << test::describe_documents(seed, call);
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t n = 0; n < H * T * S; ++n) {
        const std::int64_t h = n / (T * S), i = n / S % T, j = n % S;
        const bool apart = queries[static_cast<std::size_t>(b * T + i)] !=
                           keys[static_cast<std::size_t>(b * S + j)];
        const auto row = attention_row(call.inputs(), call.options(), {b, h, i});
        ASSERT_TRUE(row);
        ASSERT_EQ(row->hidden[static_cast<std::size_t>(j)] == HiddenBy::document, apart)
            << test::describe_documents(seed, call) << " at " << to_string(Shape{b, h, i, j});
        if (apart && !row->empty) {
          ASSERT_TRUE(same_bits(whole->weights(b, h, i, j), 0.0));
        }
      }
    }
  }
}

/// All scores equal: a weight above 0 is an x, and a row that sees nothing is dots.
std::vector<std::string> picture(const Mask& mask, std::int64_t T, std::int64_t S) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, T, 1});
  call.key = call.value = Tensor<double>({1, 1, S, 1});
  call.mask = mask;
  call.empty_row = EmptyRow::zero;
  const auto found = attention(call.inputs(), call.options());
  const auto exact = oracle::attention(call.inputs(), call.options());
  if (!found || !exact) return {test::failure_message(found), test::failure_message(exact)};
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < T; ++i) {
    out.emplace_back();
    for (std::int64_t j = 0; j < S; ++j) {
      const bool seen = found->weights(0, 0, i, j) > 0;
      out.back() += seen == (exact->weights(0, 0, i, j) > 0) ? (seen ? 'x' : '.') : '?';
    }
  }
  return out;
}

using Picture = std::vector<std::string>;

TEST(Documents, PositionsCornersAndWindowsCountWithinTheDocument) {
  // Two queries over three keys, none over one, three over two.
  const Packing packing{{0, 2, 2, 5}, {0, 3, 4, 6}};
  const auto packed = [&](Mask mask) {
    mask.packing = packing;
    return picture(mask, 5, 6);
  };
  EXPECT_EQ(packed({}), (Picture{"xxx...", "xxx...", "....xx", "....xx", "....xx"}));
  EXPECT_EQ(packed(Mask::causal_top_left()),
            (Picture{"x.....", "xx....", "....x.", "....xx", "....xx"}));
  EXPECT_EQ(packed(Mask::causal_bottom_right()),
            (Picture{"xx....", "xxx...", "......", "....x.", "....xx"}));
  EXPECT_EQ(packed(Mask::causal_at(-1)),
            (Picture{"......", "x.....", "......", "....x.", "....xx"}));
  Mask window;
  window.corner = Corner::bottom_right;
  window.window = {.left = 0, .right = 1};
  EXPECT_EQ(packed(window), (Picture{".xx...", "..x...", "....x.", "....xx", ".....x"}));
  Mask lengths = Mask::causal_bottom_right();
  lengths.key_lengths = {5};
  EXPECT_EQ(packed(lengths), (Picture{"xx....", "xxx...", "......", "....x.", "....x."}))
      << "a length hides by the index in the whole tensor, and moves no corner";
}

TEST(Documents, SquareMeansEveryDocument) {
  Mask mask = Mask::causal();
  mask.packing = {{0, 1, 3}, {0, 1, 3}};
  EXPECT_EQ(picture(mask, 3, 3), (Picture{"x..", ".x.", ".xx"}));
}

TEST(Documents, NamesLeavePositionsInTheWholeSequence) {
  Mask mask = Mask::causal_top_left();
  mask.window.left = 2;
  mask.documents = {{5, -1, 5, 5}, {5, 5, -1, 5}};
  EXPECT_EQ(picture(mask, 4, 4), (Picture{"x...", "....", "xx..", ".x.x"}));
}

TEST(Documents, AlibiCountsWithinTheDocument) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 3, 1});
  call.key = call.value = Tensor<double>({1, 1, 5, 1});
  call.alibi_slopes = {1};
  call.mask.corner = Corner::bottom_right;
  call.mask.packing = {{0, 1, 3}, {0, 2, 5}};
  const auto alibi = [&](std::int64_t i) {
    const auto row = attention_row(call.inputs(), call.options(), {0, 0, i});
    return row ? std::vector<double>(row->alibi) : std::vector<double>{};
  };
  const auto first = alibi(0), second = alibi(1), third = alibi(2);
  EXPECT_EQ((std::vector(first.begin(), first.begin() + 2)), (std::vector<double>{-1, 0}));
  EXPECT_EQ((std::vector(second.begin() + 2, second.end())), (std::vector<double>{-1, 0, -1}));
  EXPECT_EQ((std::vector(third.begin() + 2, third.end())), (std::vector<double>{-2, -1, 0}));
}

TEST(Documents, NaNOfAnotherDocumentNeverLeaks) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    AttentionCase call = packed_case(seed);
    SCOPED_TRACE(test::describe_documents(seed, call));
    const Flow flow(seed, call);
    const auto clean = attention(call.inputs(), call.options());
    const Cut last = document(call.mask.packing, call.mask.packing.query_starts.size() - 2);
    for (auto* tensor : {&call.key, &call.value}) {
      for (std::int64_t b = 0; b < tensor->extent(0); ++b) {
        for (std::int64_t g = 0; g < tensor->extent(1); ++g) {
          for (std::int64_t j = last.first_column; j < tensor->extent(2); ++j) {
            for (std::int64_t c = 0; c < tensor->extent(3); ++c)
              (*tensor)(b, g, j, c) = not_a_number;
          }
        }
      }
    }
    const auto found = attention(call.inputs(), call.options());
    ASSERT_TRUE(clean && found);
    const Cut others{0, last.first_row, 0, call.value.extent(3)};
    ASSERT_TRUE(same_tensor(cut_out(found->output, others), cut_out(clean->output, others)));
  }
}

TEST(Documents, TheTraceSaysThatAnotherDocumentHides) {
  EXPECT_EQ(reason(HiddenBy::document), "document");
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 3, 1});
  call.key = call.value = Tensor<double>({1, 1, 3, 1});
  call.mask = Mask::causal();
  call.mask.packing = {{0, 1, 3}, {0, 1, 3}};
  const auto trace = Trace::of(call);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->hidden_by("", 0, 1), HiddenBy::document);
  EXPECT_EQ(trace->hidden_by("", 1, 2), HiddenBy::future);
  const auto why = trace->why({"masked", {2, 0}});
  ASSERT_TRUE(why);
  EXPECT_NE(why->note.find("hidden by document"), std::string::npos) << why->note;
}

struct Refusal {
  const char* what;
  std::function<void(Mask&)> change;
  const char* id;
  std::vector<std::string> in_message;
};

TEST(Documents, WrongListsAreRefusedWithBothNumbers) {
  const std::vector<Refusal> refusals{{"keys missing",
                                       [](Mask& m) {
                                         m.packing.query_starts = {0, 4};
                                       },
                                       "bad-option",
                                       {"0"}},
                                      {"one entry",
                                       [](Mask& m) {
                                         m.packing = {{0}, {0}};
                                       },
                                       "bad-option",
                                       {"1"}},
                                      {"begin",
                                       [](Mask& m) {
                                         m.packing = {{1, 4}, {0, 6}};
                                       },
                                       "bad-option",
                                       {"0", "1"}},
                                      {"end of queries",
                                       [](Mask& m) {
                                         m.packing = {{0, 3}, {0, 6}};
                                       },
                                       "bad-option",
                                       {"4", "3"}},
                                      {"end of keys",
                                       [](Mask& m) {
                                         m.packing = {{0, 4}, {0, 7}};
                                       },
                                       "bad-option",
                                       {"6", "7"}},
                                      {"fall",
                                       [](Mask& m) {
                                         m.packing = {{0, 3, 2, 4}, {0, 1, 2, 6}};
                                       },
                                       "bad-option",
                                       {"3", "2"}},
                                      {"below 0",
                                       [](Mask& m) {
                                         m.packing = {{0, -1, 4}, {0, 1, 6}};
                                       },
                                       "bad-option",
                                       {"-1"}},
                                      {"beyond",
                                       [](Mask& m) {
                                         m.packing = {{0, 1, 4}, {0, 9, 6}};
                                       },
                                       "bad-option",
                                       {"9", "6"}},
                                      {"counts",
                                       [](Mask& m) {
                                         m.packing = {{0, 2, 4}, {0, 6}};
                                       },
                                       "bad-option",
                                       {"3", "2"}},
                                      {"query names",
                                       [](Mask& m) {
                                         m.documents = {{1, 2, 3}, {1, 1, 1, 1, 1, 1}};
                                       },
                                       "bad-option",
                                       {"T = 4", "B = 2", "3"}},
                                      {"key names",
                                       [](Mask& m) {
                                         m.documents = {{1, 1, 1, 1}, {1}};
                                       },
                                       "bad-option",
                                       {"S = 6", "B = 2", "1"}},
                                      {"no key names",
                                       [](Mask& m) {
                                         m.documents.query = {1, 1, 1, 1};
                                       },
                                       "bad-option",
                                       {"6", "0"}}};
  for (const Refusal& refusal : refusals) {
    AttentionCase call;
    call.query = Tensor<double>({2, 1, 4, 1});
    call.key = call.value = Tensor<double>({2, 1, 6, 1});
    refusal.change(call.mask);
    const auto found = attention(call.inputs(), call.options());
    EXPECT_EQ(test::failure_id(found), refusal.id) << refusal.what;
    for (const std::string& part : refusal.in_message) {
      EXPECT_NE(test::failure_message(found).find(part), std::string::npos)
          << refusal.what << ": " << test::failure_message(found);
    }
    EXPECT_EQ(test::failure_id(oracle::attention(call.inputs(), call.options())), "bad-option")
        << refusal.what;
  }
}

TEST(Documents, CausalNeedsEveryDocumentSquare) {
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 4, 1});
  call.key = call.value = Tensor<double>({1, 1, 4, 1});
  call.mask = Mask::causal();
  call.mask.packing = {{0, 1, 4}, {0, 2, 4}};
  const auto found = attention(call.inputs(), call.options());
  EXPECT_EQ(test::failure_id(found), "causal-needs-square");
  EXPECT_NE(test::failure_message(found).find("document 0 has 1 queries and 2 keys"),
            std::string::npos)
      << test::failure_message(found);
  EXPECT_FALSE(oracle::attention(call.inputs(), call.options()));
  call.mask.corner = Corner::bottom_right;
  call.empty_row = EmptyRow::zero;  // the first of three queries over two keys
  EXPECT_TRUE(oracle::attention(call.inputs(), call.options()));
}

}  // namespace
}  // namespace attest::lab
