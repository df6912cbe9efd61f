// SPDX-License-Identifier: MIT
#include "attest/io/safetensors.h"

#include <gtest/gtest.h>

#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::bytes_of;
using test::joined;
using test::little;
using test::refused;
using test::safetensors_file;
using test::same_bits;
using namespace std::string_view_literals;

const Bytes four_numbers = little({0.0F, 1.0F, 2.0F, 3.0F});
const std::string one_matrix = R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

Bytes good_file() { return safetensors_file(one_matrix, four_numbers); }

Result<NamedTensors> parse(const Bytes& bytes) { return parse_safetensors(bytes, "m.safetensors"); }

std::string entry(std::string_view name, std::string_view rest) {
  return sentence("\"", name, "\":{\"dtype\":\"F32\",", rest, "}");
}

/// Two 2×2 matrices a and b at these offsets.
std::string two(std::string_view a, std::string_view b) {
  return sentence("{", entry("a", sentence("\"shape\":[2,2],\"data_offsets\":", a)), ",",
                  entry("b", sentence("\"shape\":[2,2],\"data_offsets\":", b)), "}");
}

/// One tensor a with this shape and these offsets.
std::string one(std::string_view shape, std::string_view offsets) {
  return sentence("{", entry("a", sentence("\"shape\":", shape, ",\"data_offsets\":", offsets)),
                  "}");
}

/// A file with a whole entry as given, and 16 bytes of payload.
Result<NamedTensors> parse_entry(std::string_view text) {
  return parse(safetensors_file(sentence("{\"a\":", text, "}"), four_numbers));
}

TEST(Safetensors, ReadsWhatTheHeaderSays) {
  const auto file = parse(good_file());
  ASSERT_TRUE(accepted(file));
  ASSERT_EQ(file->tensors.size(), 1U);
  const AnyTensor* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(same_bits(*a, test::f32_tensor({2, 2}, {0, 1, 2, 3})));
  EXPECT_EQ(file->find("b"), nullptr);
}

// --- the header's length -----------------------------------------------------------------------

TEST(Safetensors, RejectsAHeaderLengthPastTheEnd) {
  // 2^64 - 4 and its like make "8 + length" wrap around to something small.
  const std::uint64_t size = good_file().size();
  for (const std::uint64_t length : {~std::uint64_t{0}, ~std::uint64_t{3}, std::uint64_t{1} << 63U,
                                     std::uint64_t{1000000000}, size, size - 7}) {
    const auto file = parse(safetensors_file(one_matrix, four_numbers, length));
    EXPECT_TRUE(refused(file, "header-too-long", sentence("length ", length))) << length;
  }
}

TEST(Safetensors, RejectsAHeaderOfNothing) {
  EXPECT_TRUE(
      refused(parse(safetensors_file(one_matrix, four_numbers, 0)), "not-a-safetensors-file"));
}

TEST(Safetensors, RejectsAHeaderThatIsCutByItsLength) {
  EXPECT_TRUE(
      refused(parse(safetensors_file(one_matrix, four_numbers, 40)), "truncated", "at byte 48"));
}

TEST(Safetensors, RejectsAFileShorterThanALength) {
  EXPECT_TRUE(refused(parse(bytes_of("\x08\0\0\0\0\0\0"sv)), "truncated", "has 7 bytes"));
  EXPECT_TRUE(refused(parse({}), "empty-file"));
}

TEST(Safetensors, TellsAWebPageByItsFirstBytes) {
  EXPECT_TRUE(refused(parse(bytes_of("<!DOCTYPE html><html><body>404</body></html>")), "html-page",
                      "HTML page"));
}

TEST(Safetensors, TellsAnLfsPointerByItsFirstBytes) {
  const auto file = parse(bytes_of("version https://git-lfs\noid sha256:00\nsize 548105171\n"));
  EXPECT_TRUE(refused(file, "lfs-pointer", "git lfs pull"));
}

TEST(Safetensors, IsNotTakenForAPageByTheLettersOfItsLength) {
  // 0x613C is "<a", and 0x8B1F begins a gzip file.
  for (const std::uint64_t length : {0x613CU, 0x8B1FU}) {
    EXPECT_TRUE(refused(parse(safetensors_file(one_matrix, four_numbers, length)),
                        "header-too-long", "incomplete download"));
  }
}

TEST(Safetensors, TakesAHeaderThatIsMostOfTheFile) {
  // No limit but the file's own size: 2 MB of names for 4 bytes of numbers.
  std::string header = "{";
  for (int i = 0; i < 20000; ++i) {
    header += sentence(entry(sentence("empty", i), R"("shape":[0,7],"data_offsets":[0,0])"), ",");
  }
  header += entry("last", R"("shape":[1],"data_offsets":[0,4])") + "}";
  const auto file = parse(safetensors_file(header, little({1.0F})));
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->tensors.size(), 20001U);
}

// --- where the tensors lie ---------------------------------------------------------------------

TEST(Safetensors, TakesEntriesInAnyOrder) {
  const Bytes payload = little({0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F});
  const auto file = parse(safetensors_file(two("[16,32]", "[0,16]"), payload));
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(file->tensors[0].first, "a");
  EXPECT_TRUE(same_bits(*file->find("a"), test::f32_tensor({2, 2}, {4, 5, 6, 7})));
  EXPECT_TRUE(same_bits(*file->find("b"), test::f32_tensor({2, 2}, {0, 1, 2, 3})));
}

TEST(Safetensors, RejectsOffsetsThatAlias) {
  EXPECT_TRUE(refused(parse(safetensors_file(two("[0,16]", "[0,16]"), four_numbers)),
                      "offsets-alias", "the same bytes as 'a'"));
}

TEST(Safetensors, RejectsOffsetsThatOverlap) {
  const Bytes payload = little({0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F});
  EXPECT_TRUE(refused(parse(safetensors_file(two("[0,16]", "[8,24]"), payload)), "offsets-overlap",
                      "'b', at bytes 8 to 24"));
}

TEST(Safetensors, RejectsAnEmptyTensorInsideAnother) {
  const std::string header = sentence("{", entry("a", R"("shape":[2,2],"data_offsets":[0,16])"),
                                      ",", entry("b", R"("shape":[0],"data_offsets":[8,8])"), "}");
  EXPECT_TRUE(refused(parse(safetensors_file(header, four_numbers)), "offsets-overlap"));
}

TEST(Safetensors, RejectsAHoleBetweenTensors) {
  const Bytes payload(36);
  EXPECT_TRUE(refused(parse(safetensors_file(two("[0,16]", "[20,36]"), payload)), "offsets-hole",
                      "4 bytes before tensor 'b', from byte 16"));
}

TEST(Safetensors, RejectsReversedOffsets) {
  EXPECT_TRUE(refused(parse(safetensors_file(one("[2,2]", "[16,0]"), four_numbers)), "bad-offsets",
                      "begins at byte 16"));
}

TEST(Safetensors, RejectsATensorPastTheEnd) {
  EXPECT_TRUE(refused(parse(safetensors_file(one("[2,4]", "[0,32]"), four_numbers)), "truncated",
                      "tensor 'a' ends at byte 32 of the payload, which has 16"));
}

TEST(Safetensors, RejectsAShapeThatIsNotWhatTheOffsetsSpan) {
  EXPECT_TRUE(refused(parse(safetensors_file(one("[1000,1000]", "[0,16]"), four_numbers)),
                      "size-mismatch", "needs 4000000 bytes; its offsets 0 and 16 give 16"));
}

TEST(Safetensors, RejectsAShapeWhoseProductWraps) {
  // 2^62 elements of 4 bytes are 2^64 bytes: 0, if one multiplies carelessly.
  EXPECT_TRUE(
      refused(parse(safetensors_file(one("[4611686018427387904]", "[0,0]"), {})), "bad-shape"));
  EXPECT_TRUE(
      refused(parse(safetensors_file(one("[4294967296,4294967296]", "[0,0]"), {})), "bad-shape"));
}

TEST(Safetensors, RejectsOffsetsThatAreNotTwoNonNegativeIntegers) {
  for (const std::string_view offsets :
       {"[16]", "[0,8,16]", "[]", "[-16,0]", "[0,16.0]", "[0,1.6e1]", R"(["0","16"])", "[0,null]",
        "[true,16]", "{}", "16", "\"0,16\"", "[0,18446744073709551632]", "[-0,16]"}) {
    const auto file = parse(safetensors_file(one("[2,2]", offsets), four_numbers));
    EXPECT_TRUE(refused(file, "bad-offsets", "'a'")) << offsets;
  }
}

TEST(Safetensors, RejectsExtentsThatAreNotNonNegativeIntegers) {
  for (const std::string_view shape : {"[2.0,2]", "[-2,-2]", R"(["2",2])", "[null]", "[[2,2]]", "4",
                                       "{}", "null", "[9223372036854775808]"}) {
    const auto file = parse(safetensors_file(one(shape, "[0,16]"), four_numbers));
    EXPECT_TRUE(refused(file, "bad-shape", "'a'")) << shape;
  }
}

// --- cut and over-long files -------------------------------------------------------------------

TEST(Safetensors, SaysWhichTensorACutFileLacks) {
  Bytes cut = good_file();
  cut.resize(cut.size() - 4);
  const auto file = parse(cut);
  ASSERT_TRUE(refused(file, "truncated"));
  EXPECT_EQ(file.failure().message,
            "[safetensors] m.safetensors: tensor 'a' ends at byte 16 of the payload, which has 12 "
            "(an incomplete download?)");
  EXPECT_EQ(file.failure().kind, ErrorKind::file);
}

TEST(Safetensors, SaysThatAHeaderIsCut) {
  Bytes cut = good_file();
  cut.resize(40);
  EXPECT_TRUE(refused(parse(cut), "header-too-long",
                      "the header length 64 reaches past the end of the file, which has 32 bytes "
                      "after it (an incomplete download?)"));
}

TEST(Safetensors, RejectsBytesAfterTheLastTensor) {
  const auto file = parse(joined({good_file(), bytes_of("\x09\x07\x2f\x00"sv)}));
  EXPECT_TRUE(refused(file, "trailing-bytes", "the last 4 bytes"));
}

// --- the header's text -------------------------------------------------------------------------

TEST(Safetensors, RejectsDuplicateKeysAnywhere) {
  EXPECT_TRUE(refused(
      parse(safetensors_file(sentence("{", entry("a", R"("shape":[2],"data_offsets":[0,8])"), ",",
                                      entry("a", R"("shape":[2],"data_offsets":[8,16])"), "}"),
                             four_numbers)),
      "duplicate-key", "'a'"));
  EXPECT_TRUE(
      refused(parse_entry(R"({"dtype":"F32","dtype":"F32","shape":[2,2],"data_offsets":[0,16]})"),
              "duplicate-key", "'dtype'"));
  EXPECT_TRUE(refused(parse(safetensors_file(R"({"__metadata__":{"k":"1","k":"2"}})", {})),
                      "duplicate-key"));
}

TEST(Safetensors, RejectsUnknownDtypesByName) {
  for (const std::string_view dtype : {"F8_E4M3", "F4", "C64", "f32", "", "F32 ", "BFLOAT16"}) {
    const auto file =
        parse_entry(sentence(R"({"dtype":")", dtype, R"(","shape":[2,2],"data_offsets":[0,16]})"));
    EXPECT_TRUE(refused(file, "unsupported-dtype", sentence("'", dtype, "'")));
    EXPECT_EQ(file.failure().kind, ErrorKind::type);
  }
}

TEST(Safetensors, RejectsEntriesWithOtherFields) {
  EXPECT_TRUE(refused(parse_entry(R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"x":1})"),
                      "bad-entry", "unknown field 'x'"));
  EXPECT_TRUE(
      refused(parse_entry(R"({"dtype":"F32","shape":[2,2]})"), "bad-entry", "no data_offsets"));
  EXPECT_TRUE(
      refused(parse_entry(R"({"dtype":4,"shape":[2,2],"data_offsets":[0,16]})"), "bad-entry"));
  EXPECT_TRUE(refused(parse_entry("[]"), "bad-entry", "not an object"));
  EXPECT_TRUE(refused(parse_entry("null"), "bad-entry"));
}

TEST(Safetensors, RejectsAHeaderThatIsNotOneJsonObject) {
  EXPECT_TRUE(refused(parse(safetensors_file("[]", {})), "not-a-safetensors-file"));
  EXPECT_TRUE(refused(parse(safetensors_file(" {}", {})), "not-a-safetensors-file"));
  EXPECT_TRUE(refused(parse(safetensors_file("{} {}", {})), "bad-json"));
  EXPECT_TRUE(refused(parse(safetensors_file("{'a':1}", {})), "bad-json"));
  EXPECT_TRUE(refused(parse(safetensors_file(std::string("{}\0\0\0\0\0\0", 8), {})), "bad-json"));
  EXPECT_TRUE(refused(parse(safetensors_file("{\"\xff\":1}", {})), "not-utf-8", "byte 10"));
}

TEST(Safetensors, CountsBytesFromTheStartOfTheFile) {
  // 8 bytes of length, then the value of "a" at byte 5 of the header.
  EXPECT_TRUE(refused(parse_entry("3"), "bad-entry", "byte 13:"));
}

TEST(Safetensors, RejectsBooleansThatAreNeither0Nor1) {
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  EXPECT_TRUE(accepted(parse(safetensors_file(header, bytes_of("\0\1\1"sv)))));
  EXPECT_TRUE(refused(parse(safetensors_file(header, bytes_of("\0\1\7"sv))), "bad-boolean",
                      "byte 2 of the payload is 7"));
}

TEST(Safetensors, KeepsMetadataAndRefusesOtherThanTexts) {
  const auto file = parse(safetensors_file(R"({"__metadata__":{"format":"pt","a":""}})", {}));
  ASSERT_TRUE(accepted(file));
  const std::vector<std::pair<std::string, std::string>> expected{{"format", "pt"}, {"a", ""}};
  EXPECT_EQ(file->metadata, expected);
  for (const std::string_view bad : {R"({"n":1})", R"({"n":null})", R"({"n":{}})", "[]", "\"\""}) {
    EXPECT_TRUE(refused(parse(safetensors_file(sentence("{\"__metadata__\":", bad, "}"), {})),
                        "bad-metadata"));
  }
}

TEST(Safetensors, NeverShowsControlCharactersInAMessage) {
  const auto file = parse(safetensors_file("{\"a\\n\\u0000\\u001b[31m\":3}", {}));
  EXPECT_TRUE(refused(file, "bad-entry", R"('a\x0a\x00\x1b[31m')"));
}

// --- number formats ----------------------------------------------------------------------------

TEST(Safetensors, ReadsBf16AsBf16AndNotAsFp16) {
  const Bytes payload = bytes_of("\x80\x3f\x49\x40\xcd\x3d\x80\xff\xc0\x7f\x01\x00\x7f\x7f"sv);
  const auto file = parse(
      safetensors_file(R"({"w":{"dtype":"BF16","shape":[7],"data_offsets":[0,14]}})", payload));
  ASSERT_TRUE(accepted(file));
  const AnyTensor& w = *file->find("w");
  EXPECT_EQ(w.dtype(), DType::bf16);
  EXPECT_EQ(w.number(0), 1.0);
  EXPECT_EQ(w.number(1), 3.140625);
  EXPECT_EQ(w.number(2), 0.10009765625);
  EXPECT_EQ(w.number(3), -std::numeric_limits<double>::infinity());
  EXPECT_NE(w.number(4), w.number(4));
  EXPECT_EQ(w.number(5), 9.183549615799121e-41);
  EXPECT_EQ(w.number(6), 3.3895313892515355e+38);
}

TEST(Safetensors, RoundsToBf16AndDoesNotCut) {
  const Tensor<double> numbers(
      {6}, std::array{1.00390625, 1.01171875, 0.1, 3.4028234663852886e+38, 65504.0, 1e-40});
  NamedTensors out;
  out.add("w", AnyTensor::from_f64(numbers, DType::bf16));
  const auto file = serialize_safetensors(out);
  ASSERT_TRUE(accepted(file));
  const Bytes expected = little<std::uint16_t>({0x3F80, 0x3F82, 0x3DCD, 0x7F80, 0x4780, 0x0001});
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), file->end() - 12));
}

// --- writing -----------------------------------------------------------------------------------

TEST(Safetensors, WritesTheseBytes) {
  NamedTensors tensors;
  tensors.metadata = {{"by", "attest"}};
  tensors.add("flag", Tensor<bool>({1}, std::array{true}));
  tensors.add("x", test::f32_tensor({}, {1.0F}));
  const auto file = serialize_safetensors(tensors);
  ASSERT_TRUE(accepted(file));
  // x comes first in the payload: 4 bytes wide, it would else begin at byte 1.
  const std::string header =
      R"({"__metadata__":{"by":"attest"},"flag":{"dtype":"BOOL","shape":[1],"data_offsets":[4,5]},)"
      R"("x":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})";
  EXPECT_EQ(*file, safetensors_file(header, bytes_of("\x00\x00\x80\x3f\x01"sv)));
}

TEST(Safetensors, BeginsEachTensorAtAMultipleOfItsElement) {
  NamedTensors tensors;
  for (const DType dtype : test::all_dtypes) {
    tensors.tensors.insert(tensors.tensors.begin(),
                           {std::string(name_of(dtype)), AnyTensor(dtype, {3})});
  }
  const auto file = serialize_safetensors(tensors);
  ASSERT_TRUE(accepted(file));
  EXPECT_EQ(load_little<std::uint64_t>(*file, 0) % 8, 0U);
  EXPECT_TRUE(accepted(parse(*file)));
  EXPECT_NE(as_text(*file).find(R"("u8":{"dtype":"U8","shape":[3],"data_offsets":[)"),
            std::string_view::npos);
}

TEST(Safetensors, RefusesToWriteWhatNoReaderWouldTake) {
  NamedTensors twice;
  twice.add("a", AnyTensor());
  twice.add("a", AnyTensor());
  EXPECT_TRUE(refused(serialize_safetensors(twice), "duplicate-key", "'a'"));
  NamedTensors reserved;
  reserved.add("__metadata__", AnyTensor());
  EXPECT_TRUE(refused(serialize_safetensors(reserved), "bad-name"));
  NamedTensors bytes;
  bytes.add("\xff", AnyTensor());
  EXPECT_TRUE(refused(serialize_safetensors(bytes), "not-utf-8"));
  NamedTensors keys;
  keys.metadata = {{"k", "1"}, {"k", "2"}};
  EXPECT_TRUE(refused(serialize_safetensors(keys), "duplicate-key"));
}

}  // namespace
}  // namespace attest::io
