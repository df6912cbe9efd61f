// SPDX-License-Identifier: MIT
#include "attest/io/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::refused;
using namespace std::string_view_literals;

Result<Json> parse(std::string_view text) { return parse_json(text, "x.json"); }

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, KeepsTheKindOfEachValue) {
  const auto tree =
      parse(R"([null, true, -7, 1.5, "a\u00e9\n", [], {}, 9223372036854775808, 1e0])");
  ASSERT_TRUE(accepted(tree));
  const auto items = tree->items();
  ASSERT_EQ(items.size(), 9U);
  EXPECT_TRUE(items[0].is(Json::Kind::null));
  EXPECT_TRUE(*items[1].boolean_if());
  EXPECT_EQ(*items[2].integer_if(), -7);
  EXPECT_EQ(*items[3].double_if(), 1.5);
  EXPECT_EQ(*items[4].string_if(), "aé\n");
  EXPECT_TRUE(items[5].is(Json::Kind::array));
  EXPECT_TRUE(items[6].is(Json::Kind::object));
  EXPECT_EQ(items[7].big_integer_if()->digits, "9223372036854775808");
  EXPECT_EQ(*items[8].double_if(), 1.0);
}

TEST(Json, KeepsTheOrderOfMembers) {
  const auto tree = parse(R"({"z": 1, "a": 2, "m": 3})");
  ASSERT_TRUE(accepted(tree));
  std::string names;
  for (const Json::Member& member : tree->members()) names += member.name;
  EXPECT_EQ(names, "zam");
  EXPECT_EQ(*tree->find("a")->integer_if(), 2);
  EXPECT_EQ(tree->find("b"), nullptr);
}

TEST(Json, RemembersWhereEachValueBegan) {
  const std::string text = R"( { "a\"\\" : [ 1 , -2.5e1 , "x\\" ] , "é":{"n":null}, "t" :true } )";
  const auto tree = parse(text);
  ASSERT_TRUE(accepted(tree));
  EXPECT_EQ(tree->offset(), text.find('{'));
  const auto members = tree->members();
  EXPECT_EQ(members[0].name, "a\"\\");
  EXPECT_EQ(members[0].name_offset, text.find("\"a"));
  EXPECT_EQ(members[0].value.offset(), text.find('['));
  EXPECT_EQ(members[0].value.items()[0].offset(), text.find('1'));
  EXPECT_EQ(members[0].value.items()[1].offset(), text.find("-2"));
  EXPECT_EQ(members[0].value.items()[2].offset(), text.find("\"x"));
  EXPECT_EQ(members[1].value.members()[0].value.offset(), text.find("null"));
  EXPECT_EQ(members[2].value.offset(), text.find("true"));
}

TEST(Json, RefusesDuplicateKeys) {
  EXPECT_TRUE(refused(parse(R"({"a": 1, "b": 2, "a": 1})"), "duplicate-key",
                      "byte 17: the name 'a' was already given at byte 1"));
  EXPECT_TRUE(refused(parse(R"([{"x": {"k": 1, "\u006b": 2}}])"), "duplicate-key", "'k'"));
  EXPECT_TRUE(accepted(parse(R"({"a": {"a": {"a": 1}}, "A": 1, "": 2})")));
}

TEST(Json, RefusesNanAndInfinity) {
  for (const std::string_view text :
       {"NaN", "[1, NaN]", "Infinity", "[-Infinity]", "{\"a\": NaN}"}) {
    EXPECT_TRUE(refused(parse(text), "bad-number", "not JSON")) << text;
  }
}

TEST(Json, RefusesNumbersThatOverflow) {
  for (const std::string_view number : {"1e999", "-1e309", "1.8e308"}) {
    EXPECT_TRUE(refused(parse(sentence("[0, ", number, "]")), "bad-number", number));
  }
  EXPECT_TRUE(refused(parse(std::string(400, '9')), "bad-number"));
  EXPECT_EQ(*parse("1e-999")->double_if(), 0.0);
  EXPECT_EQ(*parse("1.7976931348623157e308")->double_if(), 0x1.fffffffffffffp+1023);
}

TEST(Json, FlagsIntegersBeyond64Bits) {
  EXPECT_EQ(*parse("9223372036854775807")->integer_if(), INT64_MAX);
  EXPECT_EQ(*parse("-9223372036854775808")->integer_if(), INT64_MIN);
  for (const std::string_view digits :
       {"9223372036854775808", "-9223372036854775809", "18446744073709551615",
        "18446744073709551616", "123456789012345678901234567890"}) {
    const auto tree = parse(digits);
    ASSERT_TRUE(accepted(tree));
    ASSERT_TRUE(tree->is(Json::Kind::big_integer)) << digits;
    EXPECT_EQ(tree->big_integer_if()->digits, digits);
  }
}

TEST(Json, KeepsTheSignOfZero) {
  EXPECT_TRUE(std::signbit(*parse("-0")->double_if()));
  EXPECT_TRUE(std::signbit(*parse("-0.0")->double_if()));
  EXPECT_EQ(*parse("0")->integer_if(), 0);
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const std::string_view text :
       {"[1,]",    "[,1]",      "{\"a\"}",     "{\"a\":}", "{a:1}",  "{'a':1}", "[1 2]",
        "01",      "+1",        ".5",          "1.",       "0x10",   "1e",      "--1",
        "tru",     "True",      "nulls",       "[1]]",     "{} {}",  "1 2",     "// c\n1",
        "/* */ 1", "\"\\x41\"", "\"\\ud800\"", "\"a\nb\"", "\"\t\"", "]",       "}",
        ",",       ":",         "1,",          "[1}",      "{]"}) {
    const auto tree = parse(text);
    ASSERT_FALSE(tree) << text;
    EXPECT_TRUE(test::fails_politely(tree)) << text;
  }
}

TEST(Json, SaysWhereTheTextStopsBeingJson) {
  EXPECT_TRUE(refused(parse("[1, 2}"), "bad-json", "byte 5: not JSON, near '}'"));
  EXPECT_TRUE(refused(parse("[1] x"), "bad-json", "byte 4"));
  EXPECT_TRUE(refused(parse("[1] 2 "), "bad-json"));
}

TEST(Json, RefusesTextThatEndsInsideAValue) {
  for (const std::string_view text : {"[1, 2", "{\"a\":", "\"abc", "{", "tr", "-", "\"\\"}) {
    EXPECT_TRUE(refused(parse(text), "truncated", sentence("at byte ", text.size()))) << text;
  }
}

TEST(Json, RefusesNoText) {
  EXPECT_TRUE(refused(parse(""), "empty-file"));
  EXPECT_TRUE(refused(parse(" \n\t"), "empty-file"));
}

TEST(Json, RefusesTextThatIsNotUtf8) {
  EXPECT_TRUE(refused(parse("\"a\xff\""), "not-utf-8", "byte 2"));
  EXPECT_TRUE(refused(parse("\"\xc0\x80\""), "not-utf-8"));          // overlong
  EXPECT_TRUE(refused(parse("\"\xed\xa0\x80\""), "not-utf-8"));      // a surrogate
  EXPECT_TRUE(refused(parse("\"\xf4\x90\x80\x80\""), "not-utf-8"));  // past U+10FFFF
  EXPECT_TRUE(refused(parse("\xef\xbb\xbf[]"), "not-utf-8", "byte order mark"));
  EXPECT_TRUE(accepted(parse("\"\xf0\x9f\x8e\x89 \xef\xbf\xbf\"")));
}

TEST(Json, RefusesNulBytesAlsoBehindTheValue) {
  EXPECT_TRUE(refused(parse("[1]\0[2]"sv), "bad-json", "byte 3: a NUL byte"));
  EXPECT_TRUE(refused(parse("\"a\0b\""sv), "bad-json"));
  EXPECT_EQ(*parse("\"a\\u0000b\"")->string_if(), "a\0b"sv);
}

TEST(Json, LimitsDepth) {
  EXPECT_TRUE(accepted(parse(nested(json_depth_limit))));
  EXPECT_TRUE(refused(parse(nested(json_depth_limit + 1)), "too-deep", "byte 256"));
  EXPECT_TRUE(refused(parse(std::string(1000000, '[')), "too-deep"));
}

TEST(Json, SpeaksForTheFileThatTheTextIsIn) {
  const auto tree = parse_json("{\"a\":1,\"a\":2}", {"safetensors", "m"}, 8);
  EXPECT_TRUE(refused(tree, "duplicate-key", "[safetensors] m: byte 15"));
}

// --- writing -----------------------------------------------------------------------------------

std::string written(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

std::string written(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

TEST(Json, WritesNumbersSoThatTheyReadBackToTheSameBits) {
  EXPECT_EQ(written(2.0), "2.0");
  EXPECT_EQ(written(-0.0), "-0.0");
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "\"inf\"");
  EXPECT_EQ(written(-std::numeric_limits<double>::infinity()), "\"-inf\"");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "\"nan\"");
  Random random(20260101);
  for (int i = 0; i < 10000; ++i) {
    const auto value = std::bit_cast<double>(random.bits());
    if (!std::isfinite(value)) continue;
    const auto back = parse(written(value));
    ASSERT_TRUE(accepted(back)) << written(value);
    ASSERT_NE(back->double_if(), nullptr) << written(value);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*back->double_if()),
              std::bit_cast<std::uint64_t>(value));
  }
}

TEST(Json, WritesStringsThatReadBack) {
  std::string all;
  for (char c = 0; c < 127; ++c) all += c;
  all += "\x7f é \xf0\x9f\x8e\x89";
  const auto back = parse(written(all));
  ASSERT_TRUE(accepted(back));
  EXPECT_EQ(*back->string_if(), all);
  EXPECT_EQ(written("a\"\\\n\x01"), R"("a\"\\\n\u0001")");
  EXPECT_EQ(written("a\xff z"), R"("a\ufffd z")");
}

TEST(Json, WritesTensorsRowByRow) {
  std::string out;
  append_json_tensor(out, Tensor<double>({2, 2}, std::array{1.0, 0.5, -2.0, 3.0}));
  EXPECT_EQ(out, "[[1.0, 0.5], [-2.0, 3.0]]");
  out.clear();
  append_json_tensor(out, Tensor<std::uint64_t>({1}, std::array{UINT64_MAX}));
  EXPECT_EQ(out, "[18446744073709551615]");
  out.clear();
  append_json_tensor(out, Tensor<bool>({2}, std::array{true, false}));
  EXPECT_EQ(out, "[true, false]");
  out.clear();
  append_json_tensor(out, Tensor<double>(Shape{}, std::array{7.0}));
  EXPECT_EQ(out, "7.0");
  out.clear();
  append_json_tensor(out, AnyTensor(DType::f64, {2, 0}));
  EXPECT_EQ(out, "[[], []]");
}

}  // namespace
}  // namespace attest::io
