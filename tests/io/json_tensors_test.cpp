// SPDX-License-Identifier: MIT
#include "attest/io/json_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::refused;
using test::same_bits;

Result<NamedTensors> parse(std::string_view text) {
  return parse_json_tensors(text, "x.json", "only");
}
/// The tensor "query" of a file that has nothing else.
Result<NamedTensors> parse_query(std::string_view value) {
  return parse(sentence("{\"query\": ", value, "}"));
}
Result<NamedTensors> parse_long(std::string_view dtype, std::string_view shape,
                                std::string_view data) {
  return parse_query(
      sentence("{\"dtype\": \"", dtype, "\", \"shape\": ", shape, ", \"data\": ", data, "}"));
}

const Tensor<double> square({2, 2}, std::array{1.0, 2.5, -3.0, 4e3});

TEST(JsonTensors, ReadsNestedArraysByName) {
  const auto file = parse(R"({"query": [[1, 2.5], [-3, 4e3]], "mask": [[true], [false]]})");
  ASSERT_TRUE(accepted(file));
  EXPECT_TRUE(same_bits(*file->find("query"), square));
  EXPECT_TRUE(same_bits(*file->find("mask"), Tensor<bool>({2, 1}, std::array{true, false})));
}

TEST(JsonTensors, CallsASingleArrayAsTheCallerSays) {
  const auto file = parse("[[1, 2.5], [-3, 4e3]]");
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->tensors[0].first, "only");
  EXPECT_TRUE(same_bits(*file->find("only"), square));
  const auto longer = parse(R"({"dtype": "f64", "shape": [2, 2], "data": [1, 2.5, -3, 4e3]})");
  ASSERT_TRUE(accepted(longer));
  EXPECT_TRUE(same_bits(*longer->find("only"), square));
}

TEST(JsonTensors, TakesABareNumberAsRankZero) {
  const auto file = parse(R"({"scale": 0.5, "flag": true})");
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->find("scale")->shape(), Shape{});
  EXPECT_EQ(file->find("scale")->number(0), 0.5);
  EXPECT_EQ(file->find("flag")->dtype(), DType::boolean);
}

TEST(JsonTensors, ReadsInfinitiesAndNanFromStrings) {
  for (const auto& file : {parse_query(R"(["inf", "-inf", "nan", 1])"),
                           parse_long("f64", "[4]", R"(["inf", "-inf", "nan", 1])")}) {
    ASSERT_TRUE(accepted(file));
    const AnyTensor& query = *file->find("query");
    EXPECT_EQ(query.number(0), std::numeric_limits<double>::infinity());
    EXPECT_EQ(query.number(1), -std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::isnan(query.number(2)));
  }
  for (const std::string_view text : {"Inf", "NaN", "infinity", "1", "", "0.5"}) {
    EXPECT_TRUE(refused(parse_query(sentence("[\"", text, "\"]")), "not-a-number", "query[0]"));
  }
}

TEST(JsonTensors, RefusesRaggedRowsByIndex) {
  const auto file = parse_query("[[1, 2], [3]]");
  EXPECT_TRUE(refused(file, "ragged", "query[1] has 1 elements; the first row of this axis has 2"));
  EXPECT_EQ(file.failure().kind, ErrorKind::shape);
  EXPECT_TRUE(refused(parse_query("[[1, 2], [3, 4, 5]]"), "ragged", "query[1]"));
  EXPECT_TRUE(refused(parse_query("[[1], 2]"), "ragged", "query[1] is an integer"));
  EXPECT_TRUE(refused(parse_query("[1, [2]]"), "ragged", "query[1] is an array"));
  EXPECT_TRUE(refused(parse_query("[[[], []], [[], [1]]]"), "ragged", "query[1][1]"));
  EXPECT_TRUE(refused(parse_query("[[], [[]]]"), "ragged", "query[1]"));
}

TEST(JsonTensors, RefusesABooleanAmongNumbersByIndex) {
  const auto file = parse_query("[[1, 2, 3], [4, 5, true]]");
  EXPECT_TRUE(refused(file, "mixed-types", "byte 29: query[1][2] is a boolean among numbers"));
  EXPECT_EQ(file.failure().kind, ErrorKind::type);
  EXPECT_TRUE(refused(parse_query("[true, 1]"), "mixed-types", "query[1]"));
  EXPECT_TRUE(refused(parse_query("[true, 1.5]"), "mixed-types", "query[1]"));
}

TEST(JsonTensors, RefusesNullByIndex) {
  for (const std::string_view value : {"[[1], [null]]", "[[true], [null]]"}) {
    EXPECT_TRUE(refused(parse_query(value), "not-a-number", "query[1][0] is null")) << value;
  }
  EXPECT_TRUE(refused(parse_query("null"), "not-a-number", "query is null"));
  EXPECT_TRUE(refused(parse_query("[[1], null]"), "not-a-number", "query[1] is null"));
  EXPECT_TRUE(refused(parse_query("[1, {}]"), "not-a-number", "query[1] is an object"));
  EXPECT_TRUE(refused(parse_long("f32", "[1]", "[null]"), "not-a-number", "query.data[0] is null"));
}

TEST(JsonTensors, RefusesIntegersThatADoubleCannotHold) {
  EXPECT_TRUE(
      accepted(parse_query("[9007199254740992, -9223372036854775808, 4611686018427387904]")));
  EXPECT_TRUE(refused(parse_query("[0, 9007199254740993]"), "bad-number", "query[1]"));
  EXPECT_TRUE(refused(parse_query("[9223372036854775807]"), "bad-number", "query[0]"));
  EXPECT_TRUE(refused(parse_query("[123456789012345678901234567890]"), "bad-number",
                      "query[0] is 123456789012345678901234567890"));
}

TEST(JsonTensors, AllocatesNothingForAShapeThatOneRowSuggests) {
  // The first row of each axis has 1000 elements: 10^15, if one believed it.
  std::string row = "0";
  for (int axis = 0; axis < 5; ++axis) {
    std::string wide = "[" + row;
    for (int i = 1; i < 1000; ++i) wide += ",0";
    row = wide + "]";
  }
  EXPECT_TRUE(refused(parse_query(row), "ragged"));
}

TEST(JsonTensors, KeepsEmptyShapes) {
  const auto file = parse(R"({"a": [], "b": [[], []], "c": [[[]]]})");
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->find("a")->shape(), (Shape{0}));
  EXPECT_EQ(file->find("b")->shape(), (Shape{2, 0}));
  EXPECT_EQ(file->find("c")->shape(), (Shape{1, 1, 0}));
}

TEST(JsonTensors, ChecksIntegersAgainstTheirDtype) {
  const auto file = parse_long("u64", "[2]", "[18446744073709551615, 0]");
  ASSERT_TRUE(accepted(file));
  EXPECT_TRUE(same_bits(*file->find("query"),
                        Tensor<std::uint64_t>({2}, std::array{UINT64_MAX, std::uint64_t{0}})));
  const std::vector<std::pair<std::string_view, std::string_view>> outside{
      {"u8", "256"},
      {"u8", "-1"},
      {"i8", "128"},
      {"i16", "-32769"},
      {"u32", "4294967296"},
      {"i32", "2147483648"},
      {"u64", "18446744073709551616"},
      {"u64", "-1"},
      {"i64", "9223372036854775808"}};
  for (const auto& [dtype, number] : outside) {
    EXPECT_TRUE(refused(parse_long(dtype, "[2]", sentence("[0, ", number, "]")), "bad-number",
                        sentence("query.data[1] is ", number, ", which ", dtype)));
  }
  EXPECT_TRUE(refused(parse_long("i32", "[1]", "[1.0]"), "not-a-number", "query.data[0]"));
  EXPECT_TRUE(refused(parse_long("i32", "[1]", "[true]"), "not-a-number"));
  EXPECT_TRUE(refused(parse_long("bool", "[1]", "[1]"), "mixed-types"));
}

TEST(JsonTensors, RefusesFiniteNumbersThatBecomeInfinite) {
  EXPECT_TRUE(refused(parse_long("f16", "[2]", "[65504, 65520]"), "bad-number",
                      "query.data[1] is 65520, too large for f16"));
  EXPECT_TRUE(refused(parse_long("f32", "[1]", "[1e39]"), "bad-number"));
  EXPECT_TRUE(accepted(parse_long("f16", "[1]", "[\"inf\"]")));
}

TEST(JsonTensors, ChecksTheLongForm) {
  EXPECT_TRUE(refused(parse_long("f32", "[2, 2]", "[1, 2, 3]"), "size-mismatch",
                      "shape [2, 2] has 3 elements"));
  EXPECT_TRUE(refused(parse_long("f32", "[1000000000000]", "[1]"), "size-mismatch"));
  EXPECT_TRUE(refused(parse_long("f32", "[4294967296, 4294967296]", "[]"), "size-mismatch"));
  EXPECT_TRUE(refused(parse_long("f8", "[1]", "[1]"), "unsupported-dtype", "'f8'"));
  EXPECT_TRUE(refused(parse_long("f32", "[-1]", "[]"), "bad-entry"));
  EXPECT_TRUE(refused(parse_long("f32", "[1.0]", "[1]"), "bad-entry"));
  EXPECT_TRUE(refused(parse_long("f32", "1", "[1]"), "bad-entry", "a shape that is an integer"));
  EXPECT_TRUE(
      refused(parse_query(R"({"dtype": "f32", "shape": [1]})"), "bad-entry", "without data"));
  EXPECT_TRUE(refused(parse_query(R"({"dtype": "f32", "shape": [1], "data": [1], "x": 0})"),
                      "bad-entry", "'x'"));
  EXPECT_TRUE(refused(parse_query("{}"), "bad-entry"));
}

TEST(JsonTensors, KeepsMetadata) {
  const auto file = parse(R"({"__metadata__": {"by": "attest"}, "a": [1]})");
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->metadata.size(), 1U);
  EXPECT_EQ(file->tensors.size(), 1U);
  EXPECT_TRUE(refused(parse(R"({"__metadata__": {"by": 1}})"), "bad-metadata", "'by'"));
  EXPECT_TRUE(refused(parse(R"({"__metadata__": [1]})"), "bad-metadata"));
}

TEST(JsonTensors, WritesThisText) {
  NamedTensors tensors;
  tensors.metadata = {{"by", "attest"}};
  tensors.add("query", square);
  tensors.add("mask", Tensor<bool>({1, 2}, std::array{true, false}));
  tensors.add("ids", Tensor<std::int64_t>({2}, std::array<std::int64_t, 2>{3, -4}));
  tensors.add("scale", Tensor<double>(Shape{}, std::array{0.5}));
  tensors.add("none", AnyTensor(DType::f64, {0, 3}));
  const auto text = serialize_json_tensors(tensors);
  ASSERT_TRUE(accepted(text));
  EXPECT_EQ(*text, R"({
  "__metadata__": {"by": "attest"},
  "query": [[1.0, 2.5], [-3.0, 4000.0]],
  "mask": [[true, false]],
  "ids": {"dtype": "i64", "shape": [2], "data": [3, -4]},
  "scale": {"dtype": "f64", "shape": [], "data": [0.5]},
  "none": {"dtype": "f64", "shape": [0, 3], "data": []}
}
)");
  const auto back = parse(*text);
  ASSERT_TRUE(accepted(back));
  EXPECT_TRUE(same_bits(*back, tensors));
}

TEST(JsonTensors, RefusesToWriteWhatNoReaderWouldTake) {
  NamedTensors reserved;
  reserved.add("__metadata__", square);
  EXPECT_TRUE(refused(serialize_json_tensors(reserved), "bad-name"));
  NamedTensors twice;
  twice.add("a", square);
  twice.add("a", square);
  EXPECT_TRUE(refused(serialize_json_tensors(twice), "duplicate-key"));
}

}  // namespace
}  // namespace attest::io
