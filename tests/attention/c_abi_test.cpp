// SPDX-License-Identifier: MIT
// The C interface says what the C++ one says. tests/consumer/project/uses_c.c calls it from C.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/attention/attest_c.h"
#include "attest/base/random.h"
#include "tests/support/matrices.h"

namespace attest {
namespace {

using test::random_numbers;

static_assert(std::is_standard_layout_v<attest_attention_options>);
static_assert(std::is_trivially_copyable_v<attest_attention_options>);

template <class T>
inline constexpr std::int32_t code = ATTEST_F32;
template <>
inline constexpr std::int32_t code<double> = ATTEST_F64;
template <>
inline constexpr std::int32_t code<Half> = ATTEST_F16;
template <>
inline constexpr std::int32_t code<BFloat16> = ATTEST_BF16;
template <>
inline constexpr std::int32_t code<bool> = ATTEST_BOOL;

template <class Described, class T>
Described described(T& tensor) {
  Described out{};
  out.data = tensor.data();
  out.dtype = code<std::remove_cvref_t<decltype(*tensor.data())>>;
  out.rank = static_cast<std::int32_t>(tensor.rank());
  const auto steps = row_major_strides(tensor.shape());
  std::copy(tensor.shape().begin(), tensor.shape().end(), out.extents);
  std::copy(steps.begin(), steps.end(), out.strides);
  return out;
}
template <class T>
attest_view in(const T& tensor) {
  return described<attest_view>(tensor);
}
template <class T>
attest_output into(T& tensor) {
  return described<attest_output>(tensor);
}

template <class T>
bool same(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// Two heads over one, causal, with a bias, a sink, a softcap and lengths: every kind of field.
template <class T>
struct Example {
  using A = AccumulatorOf<T>;
  static constexpr std::int64_t B = 2, H = 2, G = 1, T_ = 3, S = 4, D = 5, E = 6;
  explicit Example(std::uint64_t seed) {
    Random random(seed);
    query = random_numbers<T>(random, {B, H, T_, D});
    key = random_numbers<T>(random, {B, G, S, D});
    value = random_numbers<T>(random, {B, G, S, E});
    d_output = random_numbers<T>(random, {B, H, T_, E});
    bias = random_numbers<A>(random, {1, H, T_, S});
    for (bool& x : visible.elements()) x = random.between(0, 3) != 0;
    choices.mask = Mask::causal_at(1);
    choices.mask.key_lengths = {4, 3};
    choices.mask.window.left = 2;
    choices.mask.visible = std::as_const(visible).template view<4>();
    choices.bias = std::as_const(bias).template view<4>();
    choices.scale = 0.75;
    choices.softcap = 3.0;
    choices.alibi_slopes = {0.5, 0.25};
    choices.sink = {0.125, -1.0};
    choices.dropout = {.rate = 0.25, .seed = 99};
    choices.empty_row = EmptyRow::zero;

    options.size = sizeof options;
    options.future_hidden = 1;
    options.corner = ATTEST_CORNER_AT_OFFSET;
    options.query_offset = {offset, 1};
    options.key_lengths = {lengths, 2};
    options.has_window_left = 1;
    options.window_left = 2;
    options.visible = in(visible);
    options.bias = in(bias);
    options.has_scale = options.has_softcap = 1;
    options.scale = 0.75;
    options.softcap = 3.0;
    options.alibi_slopes = {slopes, 2};
    options.sink = {sink, 2};
    options.dropout_rate = 0.25;
    options.dropout_seed = 99;
    options.empty_row = ATTEST_EMPTY_ROW_ZERO;
    inputs = {in(query), in(key), in(value)};
    outputs = {into(output), into(log_sum_exp)};
  }
  Example(const Example&) = delete;
  Example& operator=(const Example&) = delete;
  ~Example() = default;

  [[nodiscard]] AttentionInputs<T> views() const {
    return {query.template view<4>(), key.template view<4>(), value.template view<4>()};
  }
  attest_status run() { return attest_attention_forward(&outputs, &inputs, &options); }

  std::int64_t offset[1] = {1};
  std::int64_t lengths[2] = {4, 3};
  double slopes[2] = {0.5, 0.25};
  double sink[2] = {0.125, -1.0};
  Tensor<T> query, key, value, d_output;
  Tensor<A> bias;
  Tensor<bool> visible{Shape{B, 1, T_, S}};
  Tensor<T> output{Shape{B, H, T_, E}};
  Tensor<A> log_sum_exp{Shape{B, H, T_}};
  AttentionOptions<A> choices{};
  attest_attention_options options{};
  attest_attention_inputs inputs{};
  attest_attention_outputs outputs{};
};

template <class T>
class CAbi : public ::testing::Test {};
using Numbers = ::testing::Types<float, double, BFloat16, Half>;
TYPED_TEST_SUITE(CAbi, Numbers);

TYPED_TEST(CAbi, ForwardGivesTheBitsOfTheCppCall) {
  using T = TypeParam;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Example<T> example(seed);
    ASSERT_EQ(example.run(), ATTEST_OK) << attest_last_error() << ", seed " << seed;
    const auto views = example.views();
    const auto expected = attention(views.query, views.key, views.value, example.choices);
    EXPECT_TRUE(same(example.output, expected.memory)) << "seed " << seed;
    EXPECT_TRUE(same(example.log_sum_exp, expected.log_sum_exp)) << "seed " << seed;
  }
}

TYPED_TEST(CAbi, BackwardGivesTheBitsOfTheCppCall) {
  using T = TypeParam;
  using A = AccumulatorOf<T>;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Example<T> example(seed);
    ASSERT_EQ(example.run(), ATTEST_OK) << attest_last_error() << ", seed " << seed;
    using E = Example<T>;
    const auto gradients = [] {
      return AttentionGradients<T>{Tensor<T>({E::B, E::H, E::T_, E::D}),
                                   Tensor<T>({E::B, E::G, E::S, E::D}),
                                   Tensor<T>({E::B, E::G, E::S, E::E}),
                                   Tensor<A>({1, E::H, E::T_, E::S}), Tensor<A>(Shape{E::H})};
    };
    AttentionGradients<T> found = gradients(), expected = gradients();
    const attest_attention_gradients targets = {into(found.d_query), into(found.d_key),
                                                into(found.d_value), into(found.d_bias),
                                                into(found.d_sink)};
    const attest_attention_backward_inputs results = {in(example.output), in(example.log_sum_exp),
                                                      in(example.d_output), attest_view{}};
    ASSERT_EQ(attest_attention_backward(&targets, &example.inputs, &results, &example.options),
              ATTEST_OK)
        << attest_last_error() << ", seed " << seed;
    const AttentionBackwardInputs<T> left{
        .output = std::as_const(example.output).template view<4>(),
        .log_sum_exp = std::as_const(example.log_sum_exp).template view<3>(),
        .d_output = std::as_const(example.d_output).template view<4>()};
    attention_backward_into<T, A>(
        {expected.d_query.template view<4>(), expected.d_key.template view<4>(),
         expected.d_value.template view<4>(), expected.d_bias.template view<4>(),
         expected.d_sink.template view<1>()},
        example.views(), left, example.choices);
    EXPECT_TRUE(same(found.d_query, expected.d_query)) << "seed " << seed;
    EXPECT_TRUE(same(found.d_key, expected.d_key)) << "seed " << seed;
    EXPECT_TRUE(same(found.d_value, expected.d_value)) << "seed " << seed;
    EXPECT_TRUE(same(found.d_bias, expected.d_bias)) << "seed " << seed;
    EXPECT_TRUE(same(found.d_sink, expected.d_sink)) << "seed " << seed;
  }
}

TEST(CAbiChecks, AllZeroOptionsAndNullMeanTheDefaults) {
  Example<float> example(1);
  const auto views = example.views();
  const auto expected = attention(views.query, views.key, views.value);
  attest_attention_options defaults{};
  defaults.size = sizeof defaults;
  for (const attest_attention_options* options :
       {&std::as_const(defaults), static_cast<const attest_attention_options*>(nullptr)}) {
    ASSERT_EQ(attest_attention_forward(&example.outputs, &example.inputs, options), ATTEST_OK)
        << attest_last_error();
    EXPECT_TRUE(same(example.output, expected.memory));
  }
}

TEST(CAbiChecks, ANewerCallersOptionsAreReadIfTheirNewFieldsSayNothing) {
  Example<float> example(2);
  struct Newer {
    attest_attention_options known{};
    std::int64_t unknown = 0;
  } newer;
  newer.known = example.options;
  newer.known.size = sizeof newer;
  EXPECT_EQ(attest_attention_forward(&example.outputs, &example.inputs, &newer.known), ATTEST_OK)
      << attest_last_error();
  newer.unknown = 1;
  EXPECT_EQ(attest_attention_forward(&example.outputs, &example.inputs, &newer.known),
            ATTEST_ERROR_VALUE);
  newer.known.size = sizeof(attest_attention_options) - 1;
  EXPECT_EQ(attest_attention_forward(&example.outputs, &example.inputs, &newer.known),
            ATTEST_ERROR_VALUE);
}

/// One thing made wrong, and what must be said about it.
struct Wrong {
  const char* what;
  void (*make)(Example<float>&);
  attest_status status;
  const char* id;
};

TEST(CAbiChecks, EveryMistakeIsACodeAndASentence) {
  using X = Example<float>;
  static unsigned char bytes[24];
  const std::vector<Wrong> all = {
      {"rank", [](X& x) { x.inputs.query.rank = 3; }, ATTEST_ERROR_SHAPE, "shape-mismatch"},
      {"negative extent", [](X& x) { x.inputs.key.extents[2] = -1; }, ATTEST_ERROR_SHAPE,
       "shape-mismatch"},
      {"no data", [](X& x) { x.inputs.value.data = nullptr; }, ATTEST_ERROR_SHAPE,
       "shape-mismatch"},
      {"no query", [](X& x) { x.inputs.query = attest_view{}; }, ATTEST_ERROR_TYPE,
       "unsupported-dtype"},
      {"no key", [](X& x) { x.inputs.key = attest_view{}; }, ATTEST_ERROR_SHAPE, "shape-mismatch"},
      {"no output", [](X& x) { x.outputs.output = attest_output{}; }, ATTEST_ERROR_SHAPE,
       "shape-mismatch"},
      {"other S", [](X& x) { x.inputs.value.extents[2] = 3; }, ATTEST_ERROR_SHAPE,
       "shape-mismatch"},
      {"dtype of key", [](X& x) { x.inputs.key.dtype = ATTEST_F64; }, ATTEST_ERROR_TYPE,
       "unsupported-dtype"},
      {"dtype of query", [](X& x) { x.inputs.query.dtype = 77; }, ATTEST_ERROR_TYPE,
       "unsupported-dtype"},
      {"dtype of the bias", [](X& x) { x.options.bias.dtype = ATTEST_F16; }, ATTEST_ERROR_TYPE,
       "unsupported-dtype"},
      {"dtype of the mask", [](X& x) { x.options.visible.dtype = ATTEST_F32; }, ATTEST_ERROR_TYPE,
       "unsupported-dtype"},
      {"a boolean of 2",
       [](X& x) {
         bytes[5] = 2;
         x.options.visible.data = bytes;
       },
       ATTEST_ERROR_VALUE, "bad-option"},
      {"corner", [](X& x) { x.options.corner = 4; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"future_hidden", [](X& x) { x.options.future_hidden = 2; }, ATTEST_ERROR_VALUE,
       "bad-option"},
      {"empty_row", [](X& x) { x.options.empty_row = -1; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"reproducible", [](X& x) { x.options.reproducible = 2; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"list without data", [](X& x) { x.options.sink.data = nullptr; }, ATTEST_ERROR_VALUE,
       "bad-option"},
      {"softcap", [](X& x) { x.options.softcap = -1; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"key length", [](X& x) { x.lengths[1] = 9; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"isa", [](X& x) { x.options.isa = "6502"; }, ATTEST_ERROR_VALUE, "bad-isa"},
      {"size", [](X& x) { x.options.size = 0; }, ATTEST_ERROR_VALUE, "bad-option"},
      {"empty row",
       [](X& x) {
         for (bool& seen : x.visible.elements()) seen = false;
         x.options.empty_row = ATTEST_EMPTY_ROW_ERROR;
       },
       ATTEST_ERROR_VALUE, "no-visible-key"}};
  for (const Wrong& wrong : all) {
    Example<float> example(3);
    wrong.make(example);
    EXPECT_EQ(example.run(), wrong.status) << wrong.what;
    EXPECT_STREQ(attest_last_error_id(), wrong.id) << wrong.what << ": " << attest_last_error();
    EXPECT_EQ(attest_last_error()[0], '[') << wrong.what << ": " << attest_last_error();
  }
  EXPECT_EQ(attest_attention_forward(nullptr, nullptr, nullptr), ATTEST_ERROR_SHAPE);
  EXPECT_EQ(attest_attention_backward(nullptr, nullptr, nullptr, nullptr), ATTEST_ERROR_SHAPE);
}

/// Whoever walked over 2^40 bytes that are one, or that nobody reads, would not come back.
TEST(CAbiChecks, OnlyBytesThatAreThereAndReadAreChecked) {
  constexpr std::int64_t countless = std::int64_t{1} << 40U;
  const float one = 1;
  std::int64_t offset = 5;
  unsigned char byte = 1;
  float output = 0;
  const auto view = [&](std::int64_t B, std::int64_t S) {
    return attest_view{&one, ATTEST_F32, 4, {B, 1, S, 1}, {0, 0, 0, 0}};
  };
  attest_attention_options options{};
  options.size = sizeof options;
  options.future_hidden = 1;
  options.corner = ATTEST_CORNER_AT_OFFSET;
  options.query_offset = {&offset, 1};
  options.visible = {&byte, ATTEST_BOOL, 4, {1, 1, 1, countless}, {0, 0, 0, 0}};
  attest_attention_inputs inputs{view(1, 1), view(1, countless), view(1, countless)};
  attest_attention_outputs outputs{{&output, ATTEST_F32, 4, {1, 1, 1, 1}, {1, 1, 1, 1}}, {}};
  EXPECT_EQ(attest_attention_forward(&outputs, &inputs, &options), ATTEST_OK)
      << attest_last_error();
  EXPECT_EQ(output, 1);
  byte = 2;
  EXPECT_EQ(attest_attention_forward(&outputs, &inputs, &options), ATTEST_ERROR_VALUE);

  options.visible = {&byte, ATTEST_BOOL, 4, {countless, 1, 1, 1}, {1, 0, 0, 0}};
  inputs = {view(countless, 0), view(countless, 1), view(countless, 1)};
  outputs.output = {&output, ATTEST_F32, 4, {countless, 1, 0, 1}, {1, 1, 1, 1}};
  EXPECT_EQ(attest_attention_forward(&outputs, &inputs, &options), ATTEST_OK)
      << attest_last_error();
}

TEST(CAbiChecks, TheLastErrorIsTheThreadsOwn) {
  EXPECT_EQ(attest_attention_forward(nullptr, nullptr, nullptr), ATTEST_ERROR_SHAPE);
  const std::string here = attest_last_error();
  EXPECT_NE(here, "");
  std::string there = "not asked";
  std::thread([&] { there = attest_last_error(); }).join();
  EXPECT_EQ(there, "");
  Example<float> example(4);
  EXPECT_EQ(example.run(), ATTEST_OK);
  EXPECT_EQ(attest_last_error(), here) << "a call that succeeds leaves it";
}

TEST(CAbiChecks, AnEmptyTensorNeedsNoMemory) {
  attest_attention_inputs inputs{};
  for (attest_view* view : {&inputs.query, &inputs.key, &inputs.value}) {
    *view = {nullptr, ATTEST_F32, 4, {1, 1, 0, 4}, {0, 0, 4, 1}};
  }
  attest_attention_outputs outputs{};
  outputs.output = {nullptr, ATTEST_F32, 4, {1, 1, 0, 4}, {0, 0, 4, 1}};
  EXPECT_EQ(attest_attention_forward(&outputs, &inputs, nullptr), ATTEST_OK) << attest_last_error();
}

}  // namespace
}  // namespace attest
