// SPDX-License-Identifier: MIT
#include "attest/base/conventions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace attest {
namespace {

Convention preset(std::string_view name) {
  const auto found = find_convention(name);
  EXPECT_TRUE(found) << name;
  return found ? *found : Convention{};
}

/// A mask drawn with x for true and . for false, one text a row.
Tensor<bool> drawn(const std::vector<std::string>& rows) {
  Tensor<bool> mask(
      {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(rows[0].size())});
  std::size_t n = 0;
  for (const std::string& row : rows) {
    for (const char cell : row) mask.elements()[n++] = cell == 'x';
  }
  return mask;
}

std::vector<std::string> picture(const Tensor<bool>& mask) {
  std::vector<std::string> rows;
  for (std::int64_t i = 0; i < mask.extent(0); ++i) {
    rows.emplace_back();
    for (std::int64_t j = 0; j < mask.extent(1); ++j) rows.back() += mask(i, j) ? 'x' : '.';
  }
  return rows;
}

/// Which of five keys each of five queries sees through a window, as mask.h defines it.
std::vector<std::string> through(const Window& window) {
  Tensor<bool> mask({5, 5});
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      mask(i, j) =
          (!window.left || i - j <= *window.left) && (!window.right || j - i <= *window.right);
    }
  }
  return picture(mask);
}

AnyTensor floats(const std::vector<double>& numbers, DType dtype = DType::f32) {
  return AnyTensor::from_f64(Tensor<double>({static_cast<std::int64_t>(numbers.size())}, numbers),
                             dtype);
}

/// The failure of a result, or one that no test expects.
template <class T>
Failure failure_of(const Result<T>& result) {
  return result ? Failure{.id = "none", .message = "it succeeded"} : result.failure();
}

const std::vector<std::string> triangle{"x..", "xx.", "xxx"};
const std::vector<std::string> upper{".xx", "..x", "..."};

// ---- the table --------------------------------------------------------------------------------

TEST(Conventions, EveryPresetIsFoundByItsNameAndOursIsFirst) {
  const std::set<std::string_view> expected{
      "attest", "pytorch-sdpa", "pytorch-mha", "flash-attention", "flex-attention",
      "jax",    "onnx-23",      "onnx-24",     "onnx-25",         "onnxruntime-mha",
      "keras",  "ggml",         "mlx",         "onnxruntime-gqa"};
  std::set<std::string_view> listed;
  for (const Convention& convention : conventions()) {
    EXPECT_TRUE(listed.insert(convention.name).second) << convention.name << " stands there twice";
    EXPECT_FALSE(convention.title.empty()) << convention.name;
    EXPECT_EQ(preset(convention.name).title, convention.title);
  }
  EXPECT_EQ(listed, expected);
  EXPECT_EQ(conventions().front().name, "attest");
}

TEST(Conventions, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  for (const std::string_view name : {"pytorch", "", "PyTorch-SDPA", "onnx"}) {
    const auto found = find_convention(name);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.failure().id, "unknown-convention");
    for (const Convention& convention : conventions()) {
      EXPECT_NE(found.failure().message.find(convention.name), std::string::npos);
    }
  }
}

// ---- masks ------------------------------------------------------------------------------------

TEST(Conventions, PytorchsTwoInterfacesReadOneMaskAsOpposites) {
  const AnyTensor mask(drawn(triangle));
  const auto sdpa = to_visible(mask, preset("pytorch-sdpa"), "mask");
  const auto mha = to_visible(mask, preset("pytorch-mha"), "mask");
  ASSERT_TRUE(sdpa && sdpa->visible && !sdpa->bias);
  ASSERT_TRUE(mha && mha->visible && !mha->bias);
  EXPECT_EQ(picture(*sdpa->visible), triangle);
  EXPECT_EQ(picture(*mha->visible), upper);
}

TEST(Conventions, BooleansKeepTheirSenseWhereTrueMeansVisible) {
  for (const char* name : {"attest", "pytorch-sdpa", "flex-attention", "jax", "onnx-23", "onnx-24",
                           "onnx-25", "keras"}) {
    const auto read = to_visible(AnyTensor(drawn(triangle)), preset(name), "mask");
    ASSERT_TRUE(read && read->visible) << name;
    EXPECT_EQ(picture(*read->visible), triangle) << name;
  }
}

TEST(Conventions, WhatIsWrittenForAFrameworkReadsBackAsTheSameKeys) {
  const Tensor<bool> visible = drawn({"x.x.", ".xx.", "...."});
  for (const Convention& convention : conventions()) {
    const auto written = from_visible(visible, convention);
    if (!written) {
      EXPECT_EQ(written.failure().id, "not-stated") << convention.name;
      EXPECT_EQ(convention.name, "flash-attention")
          << "the only one of whose masks nothing is stated";
      continue;
    }
    EXPECT_EQ(written->shape(), visible.shape()) << convention.name;
    const auto read = to_visible(*written, convention, "mask");
    ASSERT_TRUE(read) << convention.name << ": " << read.failure().message;
    ASSERT_NE(read->visible.has_value(), read->bias.has_value()) << convention.name;
    for (std::size_t n = 0; n < visible.size(); ++n) {
      if (read->visible) {
        EXPECT_EQ(read->visible->elements()[n], visible.elements()[n]) << convention.name;
      } else {
        const double added = visible.elements()[n] ? 0 : -std::numeric_limits<double>::infinity();
        EXPECT_EQ(read->bias->elements()[n], added) << convention.name;
      }
    }
  }
}

TEST(Conventions, EachFrameworkIsWrittenTheMaskThatItTakes) {
  const Tensor<bool> visible = drawn({"x."});
  EXPECT_EQ(from_visible(visible, preset("pytorch-mha"))->number(0), 0) << "true hides there";
  EXPECT_EQ(from_visible(visible, preset("pytorch-sdpa"))->number(0), 1);
  EXPECT_EQ(from_visible(visible, preset("onnxruntime-mha"))->dtype(), DType::i32);
  EXPECT_EQ(from_visible(visible, preset("onnxruntime-mha"))->number(0), 1);
  EXPECT_EQ(from_visible(visible, preset("ggml"))->dtype(), DType::f16);
  EXPECT_EQ(from_visible(visible, preset("ggml"))->number(0), 0);
  EXPECT_TRUE(std::isinf(from_visible(visible, preset("ggml"))->number(1)));
}

TEST(Conventions, FloatMasksBecomeABiasWhereTheyAreAddedBitForBit) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers{0, -infinity, -1e9, 0.5, -0.0};
  for (const char* name : {"pytorch-sdpa", "pytorch-mha", "onnx-23", "onnx-24", "onnx-25",
                           "onnxruntime-mha", "onnxruntime-gqa", "ggml", "mlx"}) {
    const auto read = to_visible(floats(numbers, DType::f64), preset(name), "mask");
    ASSERT_TRUE(read && read->bias && !read->visible) << name;
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      EXPECT_EQ(read->bias->elements()[n], numbers[n]) << name;
      EXPECT_EQ(std::signbit(read->bias->elements()[n]), std::signbit(numbers[n])) << name;
    }
  }
}

TEST(Conventions, FloatMasksAreRefusedWhereMasksMustBeBoolean) {
  for (const char* name : {"attest", "jax"}) {
    const auto read = to_visible(floats({0, -1e9}), preset(name), "padding");
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.failure().id, "wrong-dtype");
    EXPECT_EQ(read.failure().kind, ErrorKind::type);
    EXPECT_NE(read.failure().message.find("padding"), std::string::npos);
    EXPECT_NE(read.failure().message.find("f32"), std::string::npos);
    EXPECT_NE(read.failure().message.find("bias"), std::string::npos);
  }
}

TEST(Conventions, AFloatMaskOfZerosAndOnesIsRefusedWithItsThreeReadings) {
  // A lower triangle as 0 and 1: kept keys, hidden keys, or one more on the score?
  const std::vector<double> lower{1, 0, 0, 1, 1, 0, 1, 1, 1};
  for (const Convention& convention : conventions()) {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      for (const auto& numbers : {lower, std::vector<double>{1, 1}, std::vector<double>{-0.0, 1}}) {
        const auto read = to_visible(floats(numbers, dtype), convention, "mask");
        ASSERT_FALSE(read) << convention.name;
        EXPECT_EQ(read.failure().id, "ambiguous-mask") << convention.name;
        for (const char* reading : {"1 may see", "1 is hidden", "1 is added", "bias"}) {
          EXPECT_NE(read.failure().message.find(reading), std::string::npos) << reading;
        }
      }
    }
  }
}

TEST(Conventions, AFloatMaskOfZerosAloneIsABiasThatChangesNothing) {
  const auto read = to_visible(floats({0, 0, 0}), preset("pytorch-sdpa"), "mask");
  ASSERT_TRUE(read && read->bias);
  for (const double added : read->bias->elements()) EXPECT_EQ(added, 0);
}

TEST(Conventions, OneKeepsAKeyForOnnxRuntimeInEveryIntegerType) {
  const Convention convention = preset("onnxruntime-mha");
  const auto check = [&](const AnyTensor& mask) {
    const auto read = to_visible(mask, convention, "key_padding_mask");
    ASSERT_TRUE(read && read->visible);
    EXPECT_EQ(picture(*read->visible), std::vector<std::string>{"xx."});
  };
  check(Tensor<std::int32_t>({1, 3}, std::vector<std::int32_t>{1, 1, 0}));
  check(Tensor<std::int64_t>({1, 3}, std::vector<std::int64_t>{1, 1, 0}));
  check(Tensor<std::uint8_t>({1, 3}, std::vector<std::uint8_t>{1, 1, 0}));
}

TEST(Conventions, OtherWholeNumbersInAMaskAreRefusedWithTheirPlace) {
  const AnyTensor mask(Tensor<std::int32_t>({1, 3}, std::vector<std::int32_t>{1, 0, 7}));
  const auto read = to_visible(mask, preset("onnxruntime-mha"), "key_padding_mask");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.failure().id, "bad-mask");
  EXPECT_NE(read.failure().message.find("holds 7 at element 2"), std::string::npos);
}

TEST(Conventions, AVectorOfLengthsIsSentToKeyLengths) {
  const AnyTensor lengths(Tensor<std::int32_t>({2}, std::vector<std::int32_t>{1, 1}));
  const auto read = to_visible(lengths, preset("onnxruntime-mha"), "key_padding_mask");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.failure().id, "bad-mask");
  EXPECT_NE(read.failure().message.find("key_lengths"), std::string::npos);
}

TEST(Conventions, IntegerMasksAreNeverGuessed) {
  const AnyTensor mask(Tensor<std::int64_t>({1, 2}, std::vector<std::int64_t>{1, 0}));
  for (const Convention& convention : conventions()) {
    if (convention.name == "onnxruntime-mha") continue;
    const auto read = to_visible(mask, convention, "mask");
    ASSERT_FALSE(read) << convention.name;
    const bool onnx = convention.name.starts_with("onnx-");
    const bool boolean_only = convention.name == "attest" || convention.name == "jax";
    EXPECT_EQ(read.failure().id, onnx           ? "not-offered"
                                 : boolean_only ? "wrong-dtype"
                                                : "not-stated")
        << convention.name;
  }
}

// ---- windows ----------------------------------------------------------------------------------

TEST(Conventions, TheSameWindowIsCountedInThreeWays) {
  const std::vector<std::string> three_keys{"x....", "xx...", "xxx..", ".xxx.", "..xxx"};
  Convention old_gqa = preset("onnxruntime-gqa");
  old_gqa.window = WindowCounts::width_beside_self;  // W + 1 keys, as before onnxruntime#25927
  EXPECT_EQ(through(*to_window(2, 0, preset("flash-attention"))), three_keys);
  EXPECT_EQ(through(*to_window(2, 0, preset("onnx-25"))), three_keys);
  EXPECT_EQ(through(*to_window(2, 0, preset("jax"))), three_keys);
  EXPECT_EQ(through(*to_window(2, 0, preset("attest"))), three_keys);
  EXPECT_EQ(through(*to_window(3, preset("onnxruntime-gqa"))), three_keys);
  EXPECT_EQ(through(*to_window(2, old_gqa)), three_keys);
}

TEST(Conventions, KerasCountsTheWidthOnEachSide) {
  const std::vector<std::string> one_each_way{"xx...", "xxx..", ".xxx.", "..xxx", "...xx"};
  EXPECT_EQ(through(*to_window(2, preset("keras"))), one_each_way);
  EXPECT_EQ(through(*to_window(1, 1, preset("attest"))), one_each_way);
}

TEST(Conventions, AWindowOfTheOwnKeyAloneIsTheDiagonal) {
  const std::vector<std::string> diagonal{"x....", ".x...", "..x..", "...x.", "....x"};
  EXPECT_EQ(through(*to_window(0, 0, preset("flash-attention"))), diagonal);
  EXPECT_EQ(through(*to_window(1, preset("onnxruntime-gqa"))), diagonal);
  EXPECT_EQ(through(*to_window(1, preset("keras"))), diagonal);
}

TEST(Conventions, MinusOneOpensASideForOnnxAndIsRefusedElsewhere) {
  const auto open = to_window(-1, 0, preset("onnx-25"));
  ASSERT_TRUE(open);
  EXPECT_FALSE(open->left.has_value());
  EXPECT_EQ(through(*open),
            (std::vector<std::string>{"x....", "xx...", "xxx..", "xxxx.", "xxxxx"}));
  for (const char* name : {"attest", "flash-attention", "jax"}) {
    const auto window = to_window(-1, 0, preset(name));
    ASSERT_FALSE(window) << name;
    EXPECT_EQ(window.failure().id, "bad-window");
  }
  EXPECT_EQ(failure_of(to_window(0, -2, preset("onnx-25"))).id, "bad-window");
}

TEST(Conventions, WindowsThatCannotBeAreRefused) {
  EXPECT_EQ(failure_of(to_window(0, preset("onnxruntime-gqa"))).id, "bad-window");
  EXPECT_EQ(failure_of(to_window(0, preset("keras"))).id, "bad-window");
  EXPECT_EQ(failure_of(to_window(128, preset("flash-attention"))).id, "bad-window");
  EXPECT_EQ(failure_of(to_window(128, 0, preset("keras"))).id, "bad-window");
  EXPECT_EQ(failure_of(to_window(128, preset("onnx-24"))).id, "not-offered");
  EXPECT_EQ(failure_of(to_window(128, 0, preset("onnx-24"))).id, "not-offered");
}

// ---- corners, empty rows, scale ---------------------------------------------------------------

TEST(Conventions, CornersAreThoseOfTheFrameworks) {
  for (const Cache cache : {Cache::none, Cache::present}) {
    EXPECT_EQ(*corner_of(preset("attest"), cache), Corner::square);
    for (const char* name : {"pytorch-sdpa", "jax", "keras"}) {
      EXPECT_EQ(*corner_of(preset(name), cache), Corner::top_left) << name;
    }
    for (const char* name : {"flash-attention", "mlx"}) {
      EXPECT_EQ(*corner_of(preset(name), cache), Corner::bottom_right) << name;
    }
  }
}

TEST(Conventions, TheOffsetCountsOnlyWhereThereIsACache) {
  for (const char* name : {"onnx-23", "onnx-24", "onnx-25", "onnxruntime-gqa"}) {
    EXPECT_EQ(*corner_of(preset(name), Cache::none), Corner::top_left) << name;
    EXPECT_EQ(*corner_of(preset(name), Cache::present), Corner::at_offset) << name;
  }
}

TEST(Conventions, AFlagThatIsOnlyAHintNeedsTheMask) {
  const auto corner = corner_of(preset("pytorch-mha"), Cache::none);
  ASSERT_FALSE(corner);
  EXPECT_EQ(corner.failure().id, "not-offered");
  EXPECT_NE(corner.failure().message.find("give the mask"), std::string::npos);
}

TEST(Conventions, ACornerThatNobodyElseHasIsTakenWhereItCannotDiffer) {
  EXPECT_EQ(*corner_of(preset("onnxruntime-mha"), Cache::none), Corner::square);
  EXPECT_EQ(failure_of(corner_of(preset("onnxruntime-mha"), Cache::present)).id, "not-stated");
}

TEST(Conventions, EmptyRowsAreThoseOfTheFrameworks) {
  EXPECT_EQ(*empty_row_of(preset("attest")), EmptyRow::error);
  EXPECT_EQ(*empty_row_of(preset("pytorch-mha")), EmptyRow::nan);
  for (const char* name : {"pytorch-sdpa", "flash-attention", "flex-attention", "onnx-23",
                           "onnx-24", "onnx-25", "ggml"}) {
    EXPECT_EQ(*empty_row_of(preset(name)), EmptyRow::zero) << name;
  }
}

TEST(Conventions, AMadeUpDistributionIsRefusedAndExplained) {
  const std::pair<const char*, const char*> made_up[] = {
      {"jax", "equal weights over all keys"},
      {"keras", "zeros or equal weights"},
      {"onnxruntime-mha", "as if nothing were hidden"}};
  for (const auto& [name, meaning] : made_up) {
    const auto row = empty_row_of(preset(name));
    ASSERT_FALSE(row) << name;
    EXPECT_EQ(row.failure().id, "not-offered");
    EXPECT_NE(row.failure().message.find(meaning), std::string::npos) << row.failure().message;
  }
}

TEST(Conventions, DefaultScalesAreThoseOfTheFrameworks) {
  for (const char* name : {"attest", "pytorch-sdpa", "flash-attention", "jax", "onnx-25", "keras",
                           "onnxruntime-mha", "onnxruntime-gqa"}) {
    const auto scale = scale_of(preset(name));
    ASSERT_TRUE(scale) << name;
    EXPECT_FALSE(scale->has_value()) << name;
  }
  EXPECT_EQ(failure_of(scale_of(preset("ggml"))).id, "not-offered");
  EXPECT_EQ(**scale_of({.name = "unscaled", .scale = DefaultScale::one}), 1);
}

TEST(Conventions, WhatIsNotStatedIsRefusedByName) {
  const Convention silent{.name = "silent"};
  const AnyTensor booleans(drawn(triangle));
  const AnyTensor integers(Tensor<std::int32_t>({1, 1}));
  const Failure failures[] = {failure_of(to_visible(booleans, silent, "mask")),
                              failure_of(to_visible(floats({0.5}), silent, "mask")),
                              failure_of(to_visible(integers, silent, "mask")),
                              failure_of(from_visible(drawn(triangle), silent)),
                              failure_of(to_window(1, silent)),
                              failure_of(to_window(1, 1, silent)),
                              failure_of(corner_of(silent, Cache::none)),
                              failure_of(empty_row_of(silent)),
                              failure_of(scale_of(silent))};
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.id, "not-stated");
    EXPECT_NE(failure.message.find("silent"), std::string::npos) << failure.message;
  }
}

TEST(Conventions, OurOwnPresetSaysWhatTheDefaultsOfACallAre) {
  const Convention& attest = conventions().front();
  EXPECT_EQ(*corner_of(attest, Cache::none), Mask::causal().corner);
  EXPECT_EQ(attest.boolean_mask, BooleanMask::true_visible);
  EXPECT_EQ(attest.grouped_heads, GroupedHeads::interleave);
  EXPECT_EQ(attest.log_sum_exp, LogSumExpBase::natural);
  EXPECT_EQ(attest.softcap, SoftcapPlace::before_bias_and_mask);
}

}  // namespace
}  // namespace attest
