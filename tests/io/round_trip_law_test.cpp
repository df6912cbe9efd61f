// SPDX-License-Identifier: MIT
// What is written reads back to the same bits: every format, every dtype it has, hostile values.

#include <gtest/gtest.h>

#include <cmath>

#include "attest/io/tensor_file.h"
#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"

namespace attest::io {
namespace {

using test::accepted;
using test::same_bits;

constexpr std::uint64_t seed = 20170612;
constexpr std::uint64_t rounds = 60;

/// Names with quotes, control characters, other scripts, path separators, and none at all.
const std::vector<std::string> hostile_names{
    "",      "a",     "a\"b\\c", "line\nbreak\x01",    "../x", "ключ é 🎉", "a.npy",
    "dtype", "shape", "data",    std::string(300, 'n')};

NamedTensors random_tensors(Random& random, TensorFormat format) {
  NamedTensors out;
  for (const std::string& name : hostile_names) {
    const auto pick = static_cast<std::size_t>(random.between(0, test::all_dtypes.size() - 1));
    DType dtype = test::all_dtypes[pick];
    const bool numpy = format == TensorFormat::npz || format == TensorFormat::npy;
    if (numpy && dtype == DType::bf16) dtype = DType::f32;
    out.add(name, test::random_bits(random, dtype, test::random_shape(random)));
    if (format == TensorFormat::npy) break;
  }
  if (format == TensorFormat::safetensors || format == TensorFormat::json) {
    out.metadata = {{"", "\"\\\n"}, {"ключ", "значение"}};
  }
  return out;
}

/// JSON has one NaN; every NaN becomes that one, so that bits can be compared.
void make_nans_plain(AnyTensor& tensor) {
  if (!is_floating(tensor.dtype())) return;
  Tensor<double> numbers(tensor.shape());
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const double number = tensor.number(i);
    numbers.data()[i] = std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number;
  }
  tensor = AnyTensor::from_f64(numbers, tensor.dtype());
}

class RoundTrip : public ::testing::TestWithParam<TensorFormat> {};

TEST_P(RoundTrip, WritingThenReadingGivesEqualBits) {
  for (std::uint64_t stream = 0; stream < rounds; ++stream) {
    SCOPED_TRACE(sentence("seed ", seed, ", stream ", stream));
    Random random(seed, stream);
    NamedTensors tensors = random_tensors(random, GetParam());
    if (GetParam() == TensorFormat::json) {
      for (auto& entry : tensors.tensors) make_nans_plain(entry.second);
    }
    const auto bytes = serialize_tensors(GetParam(), tensors);
    ASSERT_TRUE(accepted(bytes));
    const auto back = parse_tensors(*bytes, "x", {.single_name = tensors.tensors.front().first});
    ASSERT_TRUE(accepted(back));
    if (GetParam() != TensorFormat::npy) {
      ASSERT_TRUE(same_bits(*back, tensors));
    } else {
      ASSERT_TRUE(same_bits(back->tensors[0].second, tensors.tensors[0].second));
    }
  }
}

TEST_P(RoundTrip, EveryDtypeSurvives) {
  for (const DType dtype : test::all_dtypes) {
    const bool numpy = GetParam() == TensorFormat::npz || GetParam() == TensorFormat::npy;
    if (numpy && dtype == DType::bf16) continue;
    Random random(seed);
    NamedTensors tensors;
    tensors.add("x", test::random_bits(random, dtype, {3, 5, 7}));
    if (GetParam() == TensorFormat::json) make_nans_plain(tensors.tensors[0].second);
    const auto bytes = serialize_tensors(GetParam(), tensors);
    ASSERT_TRUE(accepted(bytes)) << name_of(dtype);
    const auto back = parse_tensors(*bytes, "x");
    ASSERT_TRUE(accepted(back)) << name_of(dtype);
    EXPECT_TRUE(same_bits(*back, tensors)) << name_of(dtype);
  }
}

TEST_P(RoundTrip, WritingIsAFunctionOfTheTensorsAlone) {
  Random random(seed);
  const NamedTensors tensors = random_tensors(random, GetParam());
  EXPECT_TRUE(*serialize_tensors(GetParam(), tensors) == *serialize_tensors(GetParam(), tensors));
}

INSTANTIATE_TEST_SUITE_P(EachFormat, RoundTrip,
                         ::testing::Values(TensorFormat::safetensors, TensorFormat::npz,
                                           TensorFormat::npy, TensorFormat::json),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace attest::io
