// SPDX-License-Identifier: MIT Operands against the same readings made in the way of a tensor
// library: transposes and reshapes of whole tensors, number by number.

#include "attest/check/mistakes/operands.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/check/whole_tensors.h"

namespace attest::check {
namespace {

using test::heads_and_rows;
using test::joined;
using test::numbered;
using test::numbered_claim;
using test::permuted;
using test::reshaped;
using test::rows_of;

std::string at_row(std::int64_t b, std::int64_t h, std::int64_t i) {
  return std::to_string(b) + "," + std::to_string(h) + "," + std::to_string(i);
}

void expect_row(std::span<const double> found, const Tensor<double>& expected,
                const lab::RowPlace& at, const char* what) {
  ASSERT_EQ(static_cast<std::int64_t>(found.size()), expected.extent(3)) << what;
  for (std::int64_t w = 0; w < expected.extent(3); ++w) {
    ASSERT_EQ(found[static_cast<std::size_t>(w)], expected(at.b, at.h, at.i, w))
        << what << " " << at_row(at.b, at.h, at.i) << "," << w;
  }
}

/// What each head should read, [B, G, ...] as the program has them.
struct Expected {
  Tensor<double> query{}, key{}, value{};
};

void expect_operands(const Claim& claim, const OperandRecipe& recipe, const Expected& expected) {
  auto operands = Operands::make(claim, recipe);
  ASSERT_TRUE(operands.has_value());
  const lab::AttentionShape shape = operands->shape();
  ASSERT_EQ(expected.query.shape(), (Shape{shape.B, shape.H, shape.T, shape.D}));
  ASSERT_EQ(expected.key.shape(), (Shape{shape.B, shape.G, shape.S, shape.D}));
  ASSERT_EQ(expected.value.shape(), (Shape{shape.B, shape.G, shape.S, shape.E}));
  for (std::int64_t b = 0; b < shape.B; ++b) {
    for (std::int64_t h = 0; h < shape.H; ++h) {
      for (std::int64_t i = 0; i < shape.T; ++i) {
        expect_row(operands->query({b, h, i}), expected.query, {b, h, i}, "query");
      }
      const std::int64_t g = h / (shape.H / shape.G);
      const auto keys = operands->keys(b, h);
      const auto values = operands->values(b, h);
      ASSERT_EQ(static_cast<std::int64_t>(keys.size()), shape.S * shape.D);
      ASSERT_EQ(static_cast<std::int64_t>(values.size()), shape.S * shape.E);
      for (std::int64_t j = 0; j < shape.S; ++j) {
        const auto row = [&](std::span<const double> all, std::int64_t width) {
          return all.subspan(static_cast<std::size_t>(j * width), static_cast<std::size_t>(width));
        };
        expect_row(row(keys, shape.D), expected.key, {b, g, j}, "key");
        expect_row(row(values, shape.E), expected.value, {b, g, j}, "value");
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Shapes of every oddness: T and S, D and E, one of each.
std::vector<lab::AttentionShape> odd_shapes() {
  return {{.B = 2, .H = 6, .G = 3, .T = 5, .S = 7, .D = 4, .E = 3},
          {.B = 1, .H = 1, .G = 1, .T = 3, .S = 2, .D = 2, .E = 5},
          {.B = 3, .H = 4, .G = 1, .T = 1, .S = 4, .D = 1, .E = 2},
          {.B = 2, .H = 2, .G = 2, .T = 4, .S = 1, .D = 6, .E = 1},
          {.B = 3, .H = 2, .G = 2, .T = 5, .S = 5, .D = 3, .E = 3}};
}

Tensor<double> split(const Tensor<double>& in, Split how) {
  const Shape& s = in.shape();
  switch (how) {
    case Split::right:
      return in;
    case Split::reshaped:
      return reshaped(permuted(in, heads_and_rows), s);
    case Split::unshaped:
      return permuted(reshaped(in, {s[0], s[2], s[1], s[3]}), heads_and_rows);
    case Split::width_major:
      return permuted(reshaped(permuted(in, heads_and_rows), {s[0], s[2], s[3], s[1]}),
                      {0, 3, 1, 2});
    case Split::exchanged:
      return permuted(in, heads_and_rows);
  }
  return in;
}

TEST(Operands, AreTheClaimsOwnMemoryWhereNothingIsWrong) {
  for (const lab::AttentionShape& shape : odd_shapes()) {
    const Claim claim = numbered_claim(shape, shape.S > 2 ? 1 : 0);
    expect_operands(claim, {}, {claim.call.query, claim.call.key, claim.call.value});
    auto operands = Operands::make(claim, {});
    EXPECT_EQ(operands->query({0, 0, 0}).data(), claim.call.query.data());
    EXPECT_EQ(operands->keys(0, 0).data(), claim.call.key.data());
    EXPECT_EQ(operands->values(0, 0).data(), claim.call.value.data());
  }
}

TEST(Operands, SplitsAreReshapesAndTransposesOfTheWholeTensor) {
  for (const lab::AttentionShape& shape : odd_shapes()) {
    const Claim claim = numbered_claim(shape);
    for (const Split how : {Split::reshaped, Split::unshaped, Split::width_major}) {
      OperandRecipe recipe;
      for (Reading& reading : recipe.reading) reading.split = how;
      expect_operands(
          claim, recipe,
          {split(claim.call.query, how), split(claim.call.key, how), split(claim.call.value, how)});
      // Of one alone.
      recipe.reading = {};
      recipe.reading[1].split = how;
      expect_operands(claim, recipe,
                      {claim.call.query, split(claim.call.key, how), claim.call.value});
    }
  }
}

TEST(Operands, ExchangedHeadsAreAnotherShape) {
  const Claim claim = numbered_claim({.B = 2, .H = 3, .G = 3, .T = 5, .S = 5, .D = 4, .E = 2});
  OperandRecipe recipe;
  for (Reading& reading : recipe.reading) reading.split = Split::exchanged;
  recipe.output.merge = Merge::reshaped;
  const auto how = Split::exchanged;
  expect_operands(
      claim, recipe,
      {split(claim.call.query, how), split(claim.call.key, how), split(claim.call.value, how)});
  EXPECT_EQ(Operands::make(claim, recipe)->shape().H, 5);
}

TEST(Operands, OnlyNewKeysAreSplitUnlessTheCacheIsReadLikewise) {
  const lab::AttentionShape shape{.B = 2, .H = 6, .G = 3, .T = 5, .S = 9, .D = 4, .E = 3};
  const Claim claim = numbered_claim(shape, 4);
  for (const Split how : {Split::reshaped, Split::unshaped, Split::width_major}) {
    OperandRecipe recipe;
    for (Reading& reading : recipe.reading) reading.split = how;
    const auto fresh = [&](const Tensor<double>& in) {
      return joined(rows_of(in, 0, 4), split(rows_of(in, 4, 9), how));
    };
    expect_operands(claim, recipe,
                    {split(claim.call.query, how), fresh(claim.call.key), fresh(claim.call.value)});
    recipe.cache_read_likewise = true;
    expect_operands(
        claim, recipe,
        {split(claim.call.query, how), split(claim.call.key, how), split(claim.call.value, how)});
  }
}

TEST(Operands, HeadsAreCutFromTheWholeRow) {
  const lab::AttentionShape shape{.B = 2, .H = 4, .G = 4, .T = 3, .S = 5, .D = 6, .E = 2};
  const Claim claim = numbered_claim(shape);
  const std::array<std::pair<HeadCount, std::int64_t>, 3> counts{
      {{HeadCount::one, 1}, {HeadCount::half, 2}, {HeadCount::twice, 8}}};
  for (const auto& [count, heads] : counts) {
    const auto cut = [&, n = heads](const Tensor<double>& in) {
      const Shape& s = in.shape();
      return permuted(reshaped(permuted(in, heads_and_rows), {s[0], s[2], n, s[1] * s[3] / n}),
                      heads_and_rows);
    };
    expect_operands(claim, {.head_count = count},
                    {cut(claim.call.query), cut(claim.call.key), cut(claim.call.value)});
  }
}

TEST(Operands, BatchAndSequenceAreExchangedOrReshaped) {
  const lab::AttentionShape shape{.B = 3, .H = 2, .G = 2, .T = 4, .S = 4, .D = 3, .E = 2};
  const Claim claim = numbered_claim(shape);
  const auto exchanged = [](const Tensor<double>& in) { return permuted(in, {2, 1, 0, 3}); };
  expect_operands(
      claim, {.batch_time = BatchTime::exchanged},
      {exchanged(claim.call.query), exchanged(claim.call.key), exchanged(claim.call.value)});
  const auto viewed = [](const Tensor<double>& in) {
    const Shape& s = in.shape();
    return permuted(reshaped(permuted(in, {2, 0, 1, 3}), {s[0], s[2], s[1], s[3]}), heads_and_rows);
  };
  expect_operands(claim, {.batch_time = BatchTime::reshaped},
                  {viewed(claim.call.query), viewed(claim.call.key), viewed(claim.call.value)});
}

/// [B, H, L, D] of three, one after the other: [3, B, H, L, D].
Tensor<double> stacked(const Claim& claim) {
  const Shape& s = claim.call.query.shape();
  Tensor<double> out({3, s[0], s[1], s[2], s[3]});
  const std::array<const Tensor<double>*, 3> three{&claim.call.query, &claim.call.key,
                                                   &claim.call.value};
  for (std::size_t c = 0; c < 3; ++c) {
    std::copy_n(three[c]->data(), three[c]->size(), out.data() + c * three[c]->size());
  }
  return out;
}

TEST(Operands, FusedProjectionsAreReadInEveryOrder) {
  const lab::AttentionShape shape{.B = 2, .H = 4, .G = 4, .T = 3, .S = 3, .D = 5, .E = 5};
  const Claim claim = numbered_claim(shape);
  const Tensor<double> all = stacked(claim);
  const std::array<std::pair<FusedOrder, std::array<std::size_t, 3>>, 6> orders{
      {{FusedOrder::chd, {0, 2, 4}},
       {FusedOrder::hcd, {2, 0, 4}},
       {FusedOrder::hdc, {2, 4, 0}},
       {FusedOrder::cdh, {0, 4, 2}},
       {FusedOrder::dch, {4, 0, 2}},
       {FusedOrder::dhc, {4, 2, 0}}}};
  for (const auto& [written, w] : orders) {
    for (const auto& [read, r] : orders) {
      Tensor<double> memory = permuted(all, {1, 3, w[0], w[1], w[2]});
      const Shape& s = all.shape();
      memory = reshaped(std::move(memory), {s[1], s[3], s[r[0]], s[r[1]], s[r[2]]});
      // Back to [3, B, H, L, D]: where each of its axes stands in [B, L, r0, r1, r2].
      test::Axes back(5);
      back[1] = 0;
      back[3] = 1;
      for (std::size_t n = 0; n < 3; ++n) back[r[n]] = n + 2;
      const Tensor<double> parts = permuted(memory, back);
      const auto part = [&](std::size_t c) {
        const std::size_t size = parts.size() / 3;
        return Tensor<double>(claim.call.query.shape(), parts.elements().subspan(c * size, size));
      };
      expect_operands(claim, {.fused_written = written, .fused_read = read},
                      {part(0), part(1), part(2)});
    }
  }
}

TEST(Operands, FusedProjectionsOfGroupsAreReadByHeads) {
  const lab::AttentionShape shape{.B = 2, .H = 6, .G = 2, .T = 3, .S = 5, .D = 2, .E = 2};
  const Claim claim = numbered_claim(shape, 2);
  // Ten heads in a row: 6 of queries, 2 of keys, 2 of values; or [G][3 queries, key, value].
  using Head = std::pair<std::size_t, std::int64_t>;
  const std::array<Head, 10> blocked{
      {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}};
  const std::array<Head, 10> grouped{
      {{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}, {0, 3}, {0, 4}, {0, 5}, {1, 1}, {2, 1}}};
  const std::array<const Tensor<double>*, 3> three{&claim.call.query, &claim.call.key,
                                                   &claim.call.value};
  const auto misread = [&](const std::array<Head, 10>& written, const std::array<Head, 10>& read) {
    std::array<Tensor<double>, 3> out{claim.call.query, claim.call.key, claim.call.value};
    for (std::size_t n = 0; n < 10; ++n) {
      for (std::int64_t at = 0; at < 2 * 3 * 2; ++at) {
        const std::int64_t b = at / 6, l = at / 2 % 3, w = at % 2;
        const auto [from, head] = written[n];
        const auto [to, place] = read[n];
        out[to](b, place, l + (to == 0 ? 0 : 2), w) =
            (*three[from])(b, head, l + (from == 0 ? 0 : 2), w);
      }
    }
    return Expected{out[0], out[1], out[2]};
  };
  expect_operands(claim, {.fused_written = FusedOrder::chd, .fused_read = FusedOrder::hcd},
                  misread(blocked, grouped));
  expect_operands(claim, {.fused_written = FusedOrder::hcd, .fused_read = FusedOrder::chd},
                  misread(grouped, blocked));
}

TEST(Operands, APartOfAFusedBufferReadAsDenseRunsIntoItsNeighbours) {
  // The buffer 1 … 36 of [position 3][query, key, value][head 2][feature 2].
  const Tensor<double> memory = numbered({1, 3, 3, 2, 2}, 1);
  const Tensor<double> parts = permuted(memory, {2, 0, 3, 1, 4});
  Claim claim;
  claim.shape = {.B = 1, .H = 2, .G = 2, .T = 3, .S = 3, .D = 2, .E = 2};
  const auto part = [&](std::size_t c) {
    return Tensor<double>({1, 2, 3, 2}, parts.elements().subspan(c * 12, 12));
  };
  claim.call.query = part(0);
  claim.call.key = part(1);
  claim.call.value = part(2);
  OperandRecipe recipe;
  recipe.reading[2].strides = FusedStrides::heads_first;
  // The value begins at 9, and its 12 numbers are taken to lie as [2, 3, 2].
  expect_operands(claim, recipe, {part(0), part(1), numbered({1, 2, 3, 2}, 9)});
  recipe.reading[2].strides = FusedStrides::sequence_first;
  expect_operands(claim, recipe,
                  {part(0), part(1), permuted(numbered({1, 3, 2, 2}, 9), heads_and_rows)});
}

TEST(Operands, MistakesOfSeveralStepsAreMadeTogether) {
  // New keys split by a reshape, joined before the cache, the first key lost, and tiled over heads.
  const lab::AttentionShape shape{.B = 2, .H = 6, .G = 2, .T = 3, .S = 7, .D = 4, .E = 3};
  const Claim claim = numbered_claim(shape, 4);
  OperandRecipe recipe;
  for (Reading& reading : recipe.reading) reading.split = Split::reshaped;
  recipe.cache = CacheUse::after_new;
  recipe.slots.drop_first = 1;
  recipe.heads.keys = recipe.heads.values = HeadMap::tiled;
  auto operands = Operands::make(claim, recipe);
  ASSERT_TRUE(operands.has_value());
  EXPECT_EQ(operands->shape().S, 6);
  EXPECT_EQ(operands->key_index(0), 1);
  const auto read = [&](const Tensor<double>& in) {
    return rows_of(joined(split(rows_of(in, 4, 7), Split::reshaped), rows_of(in, 0, 4)), 1, 7);
  };
  const Tensor<double> key = read(claim.call.key), value = read(claim.call.value);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 6; ++h) {
      const auto keys = operands->keys(b, h);
      const auto values = operands->values(b, h);
      const std::int64_t first = (b * 2 + h % 2) * 6;
      for (std::size_t n = 0; n < 24; ++n) {
        EXPECT_EQ(keys[n], key.elements()[static_cast<std::size_t>(first * 4) + n]);
      }
      for (std::size_t n = 0; n < 18; ++n) {
        EXPECT_EQ(values[n], value.elements()[static_cast<std::size_t>(first * 3) + n]);
      }
    }
  }
}

TEST(Operands, CacheSlotsHoldWhatWasWrittenThere) {
  const lab::AttentionShape shape{.B = 1, .H = 1, .G = 1, .T = 2, .S = 7, .D = 1, .E = 1};
  const Claim claim = numbered_claim(shape, 5);
  const std::array<std::pair<CacheUse, std::vector<double>>, 6> slots{
      {{CacheUse::ignored, {6, 7}},
       {CacheUse::alone, {1, 2, 3, 4, 5}},
       {CacheUse::after_new, {6, 7, 1, 2, 3, 4, 5}},
       {CacheUse::overwritten, {6, 7, 3, 4, 5, 0, 0}},
       {CacheUse::one_slot_early, {1, 2, 3, 4, 6, 7, 0}},
       {CacheUse::one_slot_late, {1, 2, 3, 4, 5, 0, 6}}}};
  for (const auto& [use, expected] : slots) {
    auto operands = Operands::make(claim, {.cache = use});
    ASSERT_TRUE(operands.has_value());
    const auto keys = operands->keys(0, 0);
    ASSERT_EQ(keys.size(), expected.size());
    for (std::size_t j = 0; j < keys.size(); ++j) {
      EXPECT_EQ(keys[j], expected[j] == 0 ? 0 : 100000 + expected[j]) << static_cast<int>(use);
    }
    EXPECT_EQ(operands->key_index(0), use == CacheUse::ignored ? 5 : 0);
  }
}

TEST(Operands, ReadHeadsAsTheMapSays) {
  const lab::AttentionShape shape{.B = 1, .H = 6, .G = 3, .T = 1, .S = 2, .D = 1, .E = 1};
  const Claim claim = numbered_claim(shape);
  // Key g of the claim is 100001 + 2g and the one after it.
  const std::array<std::pair<HeadMap, std::array<std::int64_t, 6>>, 9> maps{
      {{HeadMap::claimed, {0, 0, 1, 1, 2, 2}},
       {HeadMap::tiled, {0, 1, 2, 0, 1, 2}},
       {HeadMap::first, {0, 0, 0, 0, 0, 0}},
       {HeadMap::last, {2, 2, 2, 2, 2, 2}},
       {HeadMap::reversed, {2, 2, 1, 1, 0, 0}},
       {HeadMap::next, {1, 1, 2, 2, 0, 0}},
       {HeadMap::previous, {2, 2, 0, 0, 1, 1}},
       {HeadMap::divided_by_G, {0, 0, 0, 1, 1, 1}},
       {HeadMap::modulo_group, {0, 1, 0, 1, 0, 1}}}};
  for (const auto& [map, heads] : maps) {
    auto operands = Operands::make(claim, {.heads = {.keys = map, .wrong_head = 5}});
    ASSERT_TRUE(operands.has_value());
    for (std::int64_t h = 0; h < 6; ++h) {
      const std::int64_t g = h == 5 ? 0 : heads[static_cast<std::size_t>(h)];
      EXPECT_EQ(operands->keys(0, h)[0], 100001 + static_cast<double>(2 * g));
      const std::int64_t own = h == 5 ? 0 : h / 2 * 2;
      EXPECT_EQ(operands->values(0, h)[0], 200001 + static_cast<double>(own));
    }
  }
  auto mean = Operands::make(claim, {.heads = {.keys = HeadMap::mean}});
  EXPECT_EQ(mean->keys(0, 4)[1], 100004);
  auto repeated = Operands::make(claim, {.heads = {.keys = HeadMap::reshaped_keys}});
  // [3, 2·2] of 1 1 2 2, 3 3 4 4, 5 5 6 6, viewed as six heads of two keys.
  for (std::int64_t h = 0; h < 6; ++h) {
    EXPECT_EQ(repeated->keys(0, h)[0], 100001 + static_cast<double>(h));
    EXPECT_EQ(repeated->keys(0, h)[1], 100001 + static_cast<double>(h));
  }
}

/// Numbers of a program's output, laid into the dump as the program's code would.
Tensor<double> merged(const Tensor<double>& program, const Shape& dump, Merge merge) {
  const Shape packed{dump[0], dump[2], dump[1], dump[3]};
  switch (merge) {
    case Merge::right:
      return permuted(reshaped(permuted(program, heads_and_rows), packed), heads_and_rows);
    case Merge::reshaped:
      return permuted(reshaped(program, packed), heads_and_rows);
    case Merge::unshaped:
      return reshaped(permuted(program, heads_and_rows), dump);
    case Merge::width_major:
      return permuted(reshaped(permuted(program, {0, 2, 3, 1}), packed), heads_and_rows);
  }
  return program;
}

void expect_output(const Claim& claim, const OperandRecipe& recipe, const Tensor<double>& program,
                   const Tensor<double>& expected) {
  const auto operands = Operands::make(claim, recipe);
  ASSERT_TRUE(operands.has_value());
  const lab::AttentionShape& s = operands->shape();
  ASSERT_EQ(program.shape(), (Shape{s.B, s.H, s.T, s.E}));
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(expected.size()); ++n) {
    const std::int64_t E = expected.extent(3), T = expected.extent(2), H = expected.extent(1);
    const auto from = operands->source_of_output({n / E / T / H, n / E / T % H, n / E % T}, n % E);
    ASSERT_EQ(program(from.row.b, from.row.h, from.row.i, from.feature),
              expected.elements()[static_cast<std::size_t>(n)])
        << "number " << n;
  }
}

TEST(Operands, OutputsAreMergedAsTheWholeTensorWouldBe) {
  for (const lab::AttentionShape& shape : odd_shapes()) {
    const Claim claim = numbered_claim(shape);
    const Shape dump{shape.B, shape.H, shape.T, shape.E};
    const Tensor<double> program = numbered(dump, 1);
    for (const Merge merge : {Merge::right, Merge::reshaped, Merge::unshaped, Merge::width_major}) {
      expect_output(claim, {.output = {.merge = merge}}, program, merged(program, dump, merge));
    }
    expect_output(claim, {.output = {.read_transposed = true}}, program,
                  reshaped(permuted(program, {0, 1, 3, 2}), dump));
  }
}

TEST(Operands, OutputsOfOtherShapesFillTheDump) {
  const Claim claim = numbered_claim({.B = 3, .H = 4, .G = 4, .T = 5, .S = 5, .D = 2, .E = 6});
  const Shape dump{3, 4, 5, 6};
  OperandRecipe recipe{.head_count = HeadCount::half};
  expect_output(claim, recipe, numbered({3, 2, 5, 12}, 1),
                merged(numbered({3, 2, 5, 12}, 1), dump, Merge::right));
  recipe = {};
  for (Reading& reading : recipe.reading) reading.split = Split::exchanged;
  for (const Merge merge : {Merge::right, Merge::reshaped, Merge::unshaped}) {
    recipe.output.merge = merge;
    expect_output(claim, recipe, numbered({3, 5, 4, 6}, 1),
                  merged(numbered({3, 5, 4, 6}, 1), dump, merge));
  }
  recipe = {.batch_time = BatchTime::exchanged};
  expect_output(claim, recipe, numbered({5, 4, 3, 6}, 1),
                permuted(numbered({5, 4, 3, 6}, 1), {2, 1, 0, 3}));
  recipe = {.batch_time = BatchTime::reshaped};
  const Tensor<double> packed = permuted(numbered(dump, 1), heads_and_rows);  // [B, T, H, E]
  expect_output(claim, recipe, numbered(dump, 1),
                permuted(reshaped(packed, {5, 3, 4, 6}), {1, 2, 0, 3}));
}

TEST(Operands, HeadsAndBatchesStandInTheOrderThatTheRecipeSays) {
  const lab::AttentionShape shape{.B = 3, .H = 6, .G = 2, .T = 1, .S = 1, .D = 1, .E = 1};
  const Claim claim = numbered_claim(shape);
  const Tensor<double> heads = numbered({3, 6, 1, 1}, 1);
  // The dump's head at each place, of the program's 1 … 6.
  const auto regrouped = [&](std::int64_t from, std::int64_t to) {
    return reshaped(permuted(reshaped(heads, {3, from, to}), {0, 2, 1}), {3, 6, 1, 1});
  };
  expect_output(claim, {.output = {.heads = HeadOrder::regrouped}}, heads, regrouped(2, 3));
  expect_output(claim, {.output = {.heads = HeadOrder::regrouped_back}}, heads, regrouped(3, 2));
  const std::array<std::pair<HeadOrder, std::array<double, 6>>, 3> orders{
      {{HeadOrder::reversed, {6, 5, 4, 3, 2, 1}},
       {HeadOrder::next, {2, 3, 4, 5, 6, 1}},
       {HeadOrder::previous, {6, 1, 2, 3, 4, 5}}}};
  for (const auto& [order, expected] : orders) {
    auto queries = Operands::make(claim, {.heads = {.queries = order}});
    const auto output = Operands::make(claim, {.output = {.heads = order}});
    for (std::int64_t h = 0; h < 6; ++h) {
      const double head = expected[static_cast<std::size_t>(h)];
      EXPECT_EQ(queries->query({0, h, 0})[0], head);
      EXPECT_EQ(static_cast<double>(output->source_of_output({0, h, 0}, 0).row.h + 1), head);
    }
  }
  const std::array<std::pair<BatchUse, std::array<std::int64_t, 3>>, 4> batches{
      {{BatchUse::next, {1, 2, 0}},
       {BatchUse::previous, {2, 0, 1}},
       {BatchUse::reversed, {2, 1, 0}},
       {BatchUse::first, {0, 0, 0}}}};
  for (const auto& [use, expected] : batches) {
    auto operands = Operands::make(claim, {.key_batch = use});
    const auto output = Operands::make(claim, {.output = {.batch = use}});
    for (std::int64_t b = 0; b < 3; ++b) {
      const std::int64_t from = expected[static_cast<std::size_t>(b)];
      EXPECT_EQ(operands->keys(b, 0)[0], claim.call.key(from, 0, 0, 0));
      EXPECT_EQ(operands->values(b, 5)[0], claim.call.value(from, 1, 0, 0));
      EXPECT_EQ(output->source_of_output({b, 0, 0}, 0).row.b, from);
    }
  }
}

}  // namespace
}  // namespace attest::check
