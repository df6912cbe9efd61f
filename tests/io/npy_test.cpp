// SPDX-License-Identifier: MIT
#include "attest/io/npy.h"

#include <gtest/gtest.h>

#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::bytes_of;
using test::joined;
using test::little;
using test::npy_file;
using test::refused;
using test::same_bits;
using namespace std::string_view_literals;

Result<AnyTensor> parse(const Bytes& bytes) { return parse_npy(bytes, "x.npy"); }

std::string header(std::string_view descr, std::string_view fortran, std::string_view shape) {
  return sentence("{'descr': ", descr, ", 'fortran_order': ", fortran, ", 'shape': ", shape,
                  ", }\n");
}

/// A file of one float32 that only its header tells apart.
Result<AnyTensor> parse_header(std::string_view text) {
  return parse(npy_file(text, little({1.0F})));
}

Bytes swapped(Bytes bytes, std::size_t width) {
  reverse_each(bytes, width);
  return bytes;
}

const Bytes rows = little({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
const Bytes columns = little({1.0F, 4.0F, 2.0F, 5.0F, 3.0F, 6.0F});
const AnyTensor matrix = test::f32_tensor({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Npy, ReadsRowsInCOrder) {
  const auto array = parse(npy_file(header("'<f4'", "False", "(2, 3)"), rows));
  ASSERT_TRUE(accepted(array));
  EXPECT_TRUE(same_bits(*array, matrix));
}

TEST(Npy, FortranOrderIsTransposedOnReading) {
  const auto array = parse(npy_file(header("'<f4'", "True", "(2, 3)"), columns));
  ASSERT_TRUE(accepted(array));
  EXPECT_TRUE(same_bits(*array, matrix));
}

TEST(Npy, BigEndianIsSwappedOnReading) {
  const auto array = parse(npy_file(header("'>f4'", "False", "(2, 3)"), swapped(rows, 4)));
  ASSERT_TRUE(accepted(array));
  EXPECT_TRUE(same_bits(*array, matrix));
}

TEST(Npy, FortranOrderAndBigEndianGoTogether) {
  const auto array = parse(npy_file(header("'>f4'", "True", "(2, 3)"), swapped(columns, 4)));
  ASSERT_TRUE(accepted(array));
  EXPECT_TRUE(same_bits(*array, matrix));
}

TEST(Npy, FortranOrderHoldsForAnyRank) {
  // Element [i, j, k] is 100 i + 10 j + k, and the first index runs fastest in the file.
  Bytes payload;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i)
        append(payload, little<std::int16_t>({std::int16_t(100 * i + 10 * j + k)}));
    }
  }
  const auto array = parse(npy_file(header("'<i2'", "True", "(2, 3, 4)"), payload));
  ASSERT_TRUE(accepted(array));
  std::size_t at = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(array->number(at++), 100 * i + 10 * j + k);
    }
  }
}

TEST(Npy, ReadsEveryVersion) {
  for (const auto major : std::array<unsigned char, 3>{1, 2, 3}) {
    const auto array = parse(npy_file(header("'<f4'", "False", "(2, 3)"), rows, major));
    ASSERT_TRUE(accepted(array)) << int{major};
    EXPECT_TRUE(same_bits(*array, matrix));
  }
  EXPECT_TRUE(refused(parse(npy_file(header("'<f4'", "False", "(2, 3)"), rows, 4)),
                      "unsupported-version", "4.0"));
}

TEST(Npy, ReadsEveryNumberTypeInBothByteOrders) {
  const std::vector<std::pair<std::string_view, DType>> types{
      {"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16}, {"b1", DType::boolean},
      {"i8", DType::i64}, {"i4", DType::i32}, {"i2", DType::i16}, {"i1", DType::i8},
      {"u8", DType::u64}, {"u4", DType::u32}, {"u2", DType::u16}, {"u1", DType::u8}};
  for (const auto& [name, dtype] : types) {
    const std::size_t width = size_of(dtype);
    Bytes one(width);
    one[0] = std::byte{1};  // the number 1 in the order of little-endian machines
    for (const char order : {'<', '>', '=', '|'}) {
      const Bytes payload = order == '>' ? swapped(one, width) : one;
      const auto array =
          parse(npy_file(header(sentence("'", order, name, "'"), "False", "()"), payload));
      ASSERT_TRUE(accepted(array)) << order << name;
      EXPECT_EQ(array->dtype(), dtype);
      EXPECT_EQ(array->bytes()[0], std::byte{1}) << order << name;
    }
  }
}

TEST(Npy, RefusesOtherTypesByName) {
  const std::vector<std::pair<std::string_view, std::string_view>> types{
      {"'<c8'", "complex"},
      {"'<c16'", "complex"},
      {"'|O'", "pickle"},
      {"'<U3'", "texts"},
      {"'|S3'", "texts"},
      {"'<M8[ns]'", "dates"},
      {"'|V2'", "bfloat16"},
      {"'<f16'", "width"},
      {"'f4'", "width"},
      {"'<i3'", "unknown"},
      {"''", "unknown"},
      {"'<'", "unknown"},
      {"[('a', '<f4')]", "records"},
      {"(2, 'f4')", "records"}};
  for (const auto& [descr, word] : types) {
    const auto array = parse_header(header(descr, "False", "(1,)"));
    EXPECT_TRUE(refused(array, "unsupported-dtype", word)) << descr;
    EXPECT_EQ(array.failure().kind, ErrorKind::type);
  }
}

TEST(Npy, TakesRankZeroAndExtentsOfZero) {
  const auto scalar = parse_header(header("'<f4'", "False", "()"));
  ASSERT_TRUE(accepted(scalar));
  EXPECT_EQ(scalar->shape(), Shape{});
  for (const std::string_view order : {"False", "True"}) {
    const auto empty = parse(npy_file(header("'<f4'", order, "(0, 9223372036854775807)"), {}));
    ASSERT_TRUE(accepted(empty));
    EXPECT_EQ(empty->shape(), (Shape{0, INT64_MAX}));
  }
}

TEST(Npy, TakesAnyWayThatPythonMayWriteTheHeader) {
  for (const std::string_view text :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{\"shape\": (1L,), \"descr\": \"<f4\", \"fortran_order\": False}\n",
        "{'descr':'<f4','fortran_order':False,'shape':(1,),}      \n",
        "  { 'fortran_order' : False , 'shape' : ( 1 , 1 ) , 'descr' : '<f4' , } "}) {
    EXPECT_TRUE(accepted(parse_header(text))) << text;
  }
}

TEST(Npy, RejectsAHeaderThatIsNotThisDictionary) {
  for (const std::string_view text :
       {"",
        " ",
        "{",
        "{}",
        "[]",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (1,)}",
        "{'fortran_order': False, 'shape': (1,)}",
        "{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': Falsely, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': [1]}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,),,}",
        "{'descr': '\\x3cf4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr: <f4, fortran_order: False, shape: (1,)}"}) {
    EXPECT_TRUE(refused(parse_header(text), "bad-header")) << text;
  }
}

TEST(Npy, RejectsDuplicateKeys) {
  EXPECT_TRUE(refused(
      parse_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'shape': (1,)}"),
      "duplicate-key", "'shape'"));
}

TEST(Npy, RejectsShapesThatNoMemoryHolds) {
  EXPECT_TRUE(
      refused(parse_header(header("'<f4'", "False", "(4611686018427387904,)")), "bad-shape"));
  EXPECT_TRUE(
      refused(parse_header(header("'<f4'", "False", "(4294967296, 4294967296)")), "bad-shape"));
  EXPECT_TRUE(refused(parse_header(header("'<f4'", "False", "(9223372036854775808,)")),
                      "bad-number", "9223372036854775808"));
  std::string deep = "(";
  for (int i = 0; i < 65; ++i) deep += "1,";
  EXPECT_TRUE(refused(parse_header(header("'<f4'", "False", deep + ")")), "bad-shape", "64 axes"));
}

TEST(Npy, RejectsTooFewAndTooManyElements) {
  const std::string text = header("'<f4'", "False", "(2, 3)");
  Bytes cut = npy_file(text, rows);
  cut.pop_back();
  EXPECT_TRUE(refused(parse(cut), "truncated", "needs 24 bytes, of which 23"));
  EXPECT_TRUE(refused(parse(npy_file(text, joined({rows, bytes_of("x")}))), "trailing-bytes",
                      "1 bytes follow"));
  // Nothing is allocated for what a header only claims.
  EXPECT_TRUE(refused(parse_header(header("'<f8'", "False", "(100000000000, 1000)")), "truncated"));
}

TEST(Npy, RejectsACutHeader) {
  const Bytes whole = npy_file(header("'<f4'", "False", "(2, 3)"), rows);
  for (const std::size_t size : {6U, 7U, 8U, 9U, 10U, 30U}) {
    EXPECT_TRUE(refused(parse({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)}),
                        "truncated"))
        << size;
  }
  EXPECT_TRUE(refused(parse(bytes_of("\x93NUMP")), "not-an-npy-file"));
  EXPECT_TRUE(refused(parse(bytes_of("<html>")), "html-page"));
}

TEST(Npy, RejectsBooleansThatAreNeither0Nor1) {
  const std::string text = header("'|b1'", "False", "(3,)");
  EXPECT_TRUE(accepted(parse(npy_file(text, bytes_of("\0\1\1"sv)))));
  EXPECT_TRUE(
      refused(parse(npy_file(text, bytes_of("\0\xff\1"sv))), "bad-boolean", "element 1 is 255"));
}

TEST(Npy, WritesTheBytesThatNumpyWrites) {
  const auto file = serialize_npy(matrix);
  ASSERT_TRUE(accepted(file));
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  text.resize(117, ' ');
  EXPECT_EQ(*file, npy_file(text + "\n", rows));
}

TEST(Npy, SendsBf16ToSafetensors) {
  const auto file = serialize_npy(AnyTensor(DType::bf16, {1}));
  EXPECT_TRUE(refused(file, "unsupported-dtype", "safetensors"));
  EXPECT_EQ(file.failure().kind, ErrorKind::type);
}

}  // namespace
}  // namespace attest::io
