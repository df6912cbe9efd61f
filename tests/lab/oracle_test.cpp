// SPDX-License-Identifier: MIT
#include "attest/lab/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

// Published answers, and the contract's edges. Each published number has 17 digits.
namespace attest::lab::oracle {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

Tensor<double> tensor(Shape shape, std::vector<double> numbers) {
  return Tensor<double>(std::move(shape), std::span<const double>(numbers));
}

/// One head of one batch: [1, 1, rows, columns].
struct Head {
  Tensor<double> query, key, value;

  [[nodiscard]] AttentionInputs<double> inputs() const {
    return {query.view<4>(), key.view<4>(), value.view<4>()};
  }
};

Head head(std::vector<double> query, std::vector<double> key, std::vector<double> value,
          std::int64_t D) {
  const auto rows = [](const std::vector<double>& numbers, std::int64_t width) {
    return static_cast<std::int64_t>(numbers.size()) / width;
  };
  const std::int64_t T = rows(query, D);
  const std::int64_t S = rows(key, D);
  const std::int64_t E = rows(value, S);
  return {tensor({1, 1, T, D}, std::move(query)), tensor({1, 1, S, D}, std::move(key)),
          tensor({1, 1, S, E}, std::move(value))};
}

/// T queries and S keys of zeros, and values 1, 10, 100, …: the output spells out who was seen.
Head spelling(std::int64_t T, std::int64_t S) {
  std::vector<double> value;
  for (std::int64_t j = 0; j < S; ++j) value.push_back(std::pow(10.0, static_cast<double>(j)));
  return head(std::vector<double>(static_cast<std::size_t>(T)),
              std::vector<double>(static_cast<std::size_t>(S)), value, 1);
}

/// Half a unit of the seventeenth digit.
void expect_digits(const OracleTensor& found, const std::vector<std::string>& published) {
  ASSERT_EQ(found.values.size(), published.size());
  for (std::size_t k = 0; k < published.size(); ++k) {
    if (published[k] == "-inf") {
      EXPECT_EQ(found.values[k], -infinity()) << "element " << k;
      continue;
    }
    const Real expected(published[k]);
    EXPECT_LE(abs(found.values[k] - expected), Real("5e-17") * abs(expected))
        << "element " << k << ": " << digits(found.values[k], 20) << ", published " << published[k];
  }
}

void expect_output(const Head& call, const AttentionOptions<double>& options,
                   const std::vector<std::string>& published) {
  const Result<Attention> out = attention(call.inputs(), options);
  ASSERT_TRUE(out) << out.failure().message;
  expect_digits(out->output, published);
}

void expect_failure(const Result<Attention>& out, const std::string& id,
                    const std::string& message) {
  ASSERT_FALSE(out.has_value());
  EXPECT_EQ(out.failure().id, id);
  EXPECT_EQ(out.failure().message, message);
}

Tensor<bool> booleans(Shape shape, const std::vector<int>& bits) {
  Tensor<bool> out(std::move(shape));
  for (std::size_t k = 0; k < bits.size(); ++k) out.elements()[k] = bits[k] != 0;
  return out;
}

AttentionOptions<double> masked(const Mask& mask) {
  AttentionOptions<double> options;
  options.mask = mask;
  return options;
}

const std::vector<double> three_keys{1, 0, 0, 1, 1, 1};
const std::vector<double> three_values{1, 2, 3, 4, 5, 6};

TEST(Oracle, WorkbookFixtureToFiftyDigits) {
  const Head call = head({1, 0, 0, 1}, {1, 0, 0, 1}, {10, 0, 0, 20}, 2);
  const Attention out = attention(call.inputs()).value();
  const Real larger = 1 / (1 + exp(-1 / sqrt(Real(2))));  // exp(1/√2) / (exp(1/√2) + 1)
  EXPECT_LE(abs(out.weights(0, 0, 0, 0) - larger), Real("1e-62"));
  EXPECT_LE(abs(out.output(0, 0, 0, 1) - 20 * (1 - larger)), Real("1e-61"));
  EXPECT_EQ(digits(out.output(0, 0, 0, 0), 7), "6.697615e+00");
  EXPECT_EQ(digits(out.output(0, 0, 1, 1), 8), "1.3395231e+01");
}

TEST(Oracle, WorkbookBlockGivesItsPrintedNumbers) {
  Tensor<double> identity({4, 4});
  for (int k = 0; k < 4; ++k) identity(k, k) = 1;
  Tensor<double> half = identity;
  for (double& x : half.elements()) x /= 2;
  const Tensor<double> x = tensor({3, 4}, {1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0});
  const WorkbookBlock fixed{
      tensor({4, 2}, {1, 0, 0, 1, 0, 0, 0, 0}), tensor({4, 2}, {0, 0, 0, 0, 1, 0, 0, 1}), identity,
      tensor({4, 4}, {1, -1, 0, 0, 0, 1, -1, 0, 0, 0, 1, -1, -1, 0, 0, 1}), half};
  const Block out = workbook_block(x, fixed).value();
  const double printed[] = {0.999998,  -0.999998, 0.999998, -0.999998, -0.999998, 0.999998,
                            -0.999998, 0.999998,  1.347147, 0.577349,  -0.962248, -0.962248};
  for (std::size_t k = 0; k < 12; ++k) EXPECT_LE(abs(out.output.values[k] - printed[k]), 5e-7);
  const double first_map[] = {1, 0, 0, 0.330238, 0.669762, 0, 0.248255, 0.248255, 0.503490};
  for (std::size_t k = 0; k < 9; ++k) EXPECT_LE(abs(out.weights.values[k] - first_map[k]), 5e-7);
  EXPECT_LE(abs(out.weights(0, 1, 2, 1) - Real(1) / 3), Real("1e-63"));
}

TEST(Oracle, EmptyRowFailsByDefaultAndNamesTheFirst) {
  const Head call = head({1, 0, 0, 1}, three_keys, three_values, 2);
  const Tensor<bool> visible = booleans({1, 1, 2, 3}, {1, 0, 1, 0, 0, 0});
  AttentionOptions<double> options;
  options.mask.visible = visible.view<4>();
  expect_failure(attention(call.inputs(), options), "no-visible-key",
                 "[oracle attention] query 1 of batch 0, head 0 sees no key");
  options.sink = {1.5};  // a sink is no key
  EXPECT_FALSE(attention(call.inputs(), options).has_value());
}

TEST(Oracle, EmptyRowIsFilledAsChosen) {
  const Head call = head({1, 0, nan, 1}, three_keys, three_values, 2);
  const Tensor<bool> visible = booleans({1, 1, 2, 3}, {1, 0, 1, 0, 0, 0});
  AttentionOptions<double> options;
  options.mask.visible = visible.view<4>();
  options.empty_row = EmptyRow::zero;
  const Attention out = attention(call.inputs(), options).value();
  expect_digits(out.output, {"3", "4", "0", "0"});
  expect_digits(out.weights, {"0.5", "0", "0.5", "0", "0", "0"});
  expect_digits(out.log_sum_exp, {"1.4002539617464928", "-inf"});
  options.empty_row = EmptyRow::nan;
  const Attention filled = attention(call.inputs(), options).value();
  EXPECT_TRUE(isnan(filled.output(0, 0, 1, 0)) && isnan(filled.weights(0, 0, 1, 2)));
  EXPECT_EQ(filled.log_sum_exp(0, 0, 1), -infinity());
  const Tensor<double> d_output = tensor({1, 1, 2, 2}, {1, 1, nan, inf});
  const auto d = attention_backward(call.inputs(), options, d_output.view<4>()).value();
  EXPECT_EQ(d.d_query(0, 0, 1, 0), 0);
  EXPECT_EQ(d.d_value(0, 0, 0, 0), Real(0.5));
  EXPECT_EQ(d.d_value(0, 0, 1, 0), 0);
}

TEST(Oracle, CornersPlaceTheQueries) {
  const Head call = spelling(2, 5);
  expect_output(call, masked(Mask::causal_bottom_right()), {"277.75", "2222.2"});
  expect_output(call, masked(Mask::causal_top_left()), {"1", "5.5"});
  expect_output(call, masked(Mask::causal_at(1)), {"5.5", "37"});
  expect_failure(attention(call.inputs(), masked(Mask::causal())), "shape-mismatch",
                 "[oracle attention] a square mask needs T = S; T is 2, S is 5");
  expect_output(spelling(3, 3), masked(Mask::causal()), {"1", "5.5", "37"});
}

TEST(Oracle, KeysBeyondTheirLengthAreNotRead) {
  const Head cache =
      head({0}, {0, 0, 0, 0, nan, inf, nan, nan}, {1, 2, 3, 4, nan, nan, inf, nan}, 1);
  Mask mask = Mask::causal_bottom_right();
  mask.key_lengths = {4};
  expect_output(cache, masked(mask), {"2.5"});
}

TEST(Oracle, ProductsBeyondHalfPrecisionAreNoMatter) {
  std::vector<double> key(64, 48);
  key.resize(128, 47.96875);
  expect_output(head(std::vector<double>(64, 48), key, {0, 1}, 64), {}, {"6.1441746022147178e-06"});
}

TEST(Oracle, HiddenNaNNeverLeaks) {
  const Head call = head({1, 0, 0, 1}, {1, 0, 0, 1, inf, nan}, {1, 2, 3, 4, nan, -inf}, 2);
  const Tensor<bool> visible = booleans({1, 1, 2, 3}, {1, 1, 0, 1, 0, 0});
  const Tensor<double> bias = tensor({1, 1, 2, 3}, {0, 0, nan, 0, inf, nan});
  AttentionOptions<double> options;
  options.mask.visible = visible.view<4>();
  options.bias = bias.view<4>();
  expect_output(call, options, {"1.6604769013466861", "2.6604769013466861", "1", "2"});
  const Tensor<double> d_output = tensor({1, 1, 2, 2}, {1, 0, 0, 1});
  const auto d = attention_backward(call.inputs(), options, d_output.view<4>()).value();
  for (const auto* part : {&d.d_query, &d.d_key, &d.d_value, &d.d_bias}) {
    for (const Real& x : part->values) EXPECT_TRUE(is_finite(x));
  }
  EXPECT_EQ(d.d_key(0, 0, 2, 1), 0);
}

TEST(Oracle, BiasOfMinusInfinityHidesItsKey) {
  const Head call = head({1, 0, 0, 1}, {1, 0, 0, 1, inf, nan}, {1, 2, 3, 4, nan, -inf}, 2);
  const Tensor<double> bias = tensor({1, 1, 2, 3}, {0, 0, -inf, 0, -inf, -inf});
  AttentionOptions<double> options;
  options.bias = bias.view<4>();
  expect_output(call, options, {"1.6604769013466861", "2.6604769013466861", "1", "2"});
  const Tensor<double> all = tensor({1, 1, 1, 3}, {-inf, -inf, -inf});
  options.bias = all.view<4>();
  expect_failure(attention(call.inputs(), options), "no-visible-key",
                 "[oracle attention] query 0 of batch 0, head 0 sees no key");
}

TEST(Oracle, VisibleNonFiniteNumbersAreRefused) {
  const Head call = spelling(1, 2);
  const Tensor<double> bias = tensor({1, 1, 1, 2}, {0, inf});
  AttentionOptions<double> options;
  options.bias = bias.view<4>();
  expect_failure(attention(call.inputs(), options), "not-finite",
                 "[oracle attention] a visible bias holds a number that is not finite");
  EXPECT_EQ(attention(head({nan}, {0}, {1}, 1).inputs()).failure().id, "not-finite");
  EXPECT_EQ(attention(head({0}, {inf}, {1}, 1).inputs()).failure().id, "not-finite");
  EXPECT_EQ(attention(head({0}, {0}, {-inf}, 1).inputs()).failure().id, "not-finite");
  EXPECT_EQ(softmax(tensor({2}, {0, nan})).failure().id, "not-finite");
}

TEST(Oracle, QueryHeadsShareKeyHeadsInRuns) {
  const Tensor<double> query({1, 6, 1, 1});
  const Tensor<double> key({1, 3, 1, 1});
  const Tensor<double> value = tensor({1, 3, 1, 1}, {10, 20, 30});
  const auto out = attention({query.view<4>(), key.view<4>(), value.view<4>()}).value();
  expect_digits(out.output, {"10", "10", "20", "20", "30", "30"});
}

TEST(Oracle, WindowCountsBesideTheOwnPosition) {
  Mask mask = Mask::causal();
  mask.window.left = 1;
  expect_output(spelling(5, 5), masked(mask), {"1", "5.5", "55", "550", "5500"});
  Mask last = Mask::causal_bottom_right();
  last.window.left = 1;
  expect_output(spelling(1, 5), masked(last), {"5500"});
  Mask both;
  both.window = {1, 1};
  expect_output(spelling(5, 5), masked(both), {"5.5", "37", "370", "3700", "5500"});
}

TEST(Oracle, LogSumExpIsNaturalAndIncludesTheSink) {
  const Head call = head({1}, {0, 0, std::log(4.0)}, {1, 3, 10}, 1);
  const Attention out = attention(call.inputs()).value();
  EXPECT_LE(abs(out.output(0, 0, 0, 0) - Real(22) / 3), Real("1e-15"));
  EXPECT_LE(abs(out.log_sum_exp(0, 0, 0) - log(Real(6))), Real("1e-15"));
  AttentionOptions<double> options;
  options.sink = {0};
  const Attention sunk = attention(spelling(1, 3).inputs(), options).value();
  EXPECT_EQ(sunk.output(0, 0, 0, 0), Real(111) / 4);
  EXPECT_LE(abs(sunk.log_sum_exp(0, 0, 0) - log(Real(4))), Real("1e-60"));
}

TEST(Oracle, AlibiFollowsThePublishedSlopes) {
  const std::vector<Real> six = formula::alibi_slopes(6);
  const double expected[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (std::size_t h = 0; h < 6; ++h) EXPECT_LE(abs(six[h] - expected[h]), Real("1e-62"));
  EXPECT_EQ(digits(formula::alibi_slopes(12)[8], 10), "7.071067812e-01");
  EXPECT_EQ(digits(formula::alibi_slopes(12)[11], 10), "8.838834765e-02");
  AttentionOptions<double> options = masked(Mask::causal());
  options.alibi_slopes = {0.25};
  expect_output(spelling(3, 3), options, {"1", "6.0595885079721829", "45.442128731558603"});
  options.alibi_slopes = {0.5};
  expect_output(spelling(3, 3), options, {"1", "6.6021339808166911", "53.906321685976234"});
}

TEST(Oracle, StridesSayWhereTheHeadsAre) {
  std::vector<double> fused;  // [position 3][query, key, value][head 2][2]
  for (int k = 1; k <= 36; ++k) fused.push_back(k / 8.0);
  const auto part = [&](std::ptrdiff_t which) {
    return View<const double, 4>(fused.data() + 4 * which, {1, 2, 3, 2}, {36, 2, 12, 1});
  };
  const auto out = attention({part(0), part(1), part(2)}, masked(Mask::causal())).value();
  expect_digits(out.output,
                {"1.125", "1.25", "2.5843096612007801", "2.7093096612007801", "4.1232621204871039",
                 "4.2482621204871039", "1.375", "1.5", "2.8507870276063675", "2.9757870276063675",
                 "4.3739778978004074", "4.4989778978004074"});
}

TEST(Oracle, DefaultScaleDividesByTheRootOfTheWidth) {
  const std::pair<std::size_t, std::string> published[] = {
      {1, "0.73105857863000488"}, {3, "0.84967455308983857"}, {5, "0.90344199375317724"},
      {7, "0.9337486414889455"},  {9, "0.95257412682243322"}, {80, "0.99986953458479691"}};
  for (const auto& [D, output] : published) {
    std::vector<double> key(D, 1);
    key.resize(2 * D);
    expect_output(head(std::vector<double>(D, 1), key, {1, 0}, static_cast<std::int64_t>(D)), {},
                  {output});
  }
  std::vector<double> key(16, 0.5);
  key.resize(32);
  AttentionOptions<double> options;
  const Head call = head(std::vector<double>(16, 2), key, {1, 0}, 16);
  expect_output(call, options, {"0.98201379003790844"});
  options.scale = 1;
  expect_output(call, options, {"0.99999988746483794"});
}

TEST(Oracle, SizesOfScoresHaveNoLimit) {
  const Head far = head({1e200, 1e200}, {1e200, -1e200, 0, 0}, {1, 2}, 2);  // both scores are 0
  expect_output(far, {}, {"1.5"});
  expect_output(head({1e200}, {1e200, -1e200}, {7, 2}, 1), {}, {"7"});
  const Attention out = attention(head({1}, {1e7, 1e7}, {1, 2}, 1).inputs()).value();
  EXPECT_LE(abs(out.log_sum_exp(0, 0, 0) - 10000000 - log(Real(2))), Real("1e-55"));
}

TEST(Oracle, EmptyTensorsGiveEmptyResults) {
  const Tensor<double> none({1, 1, 0, 2});
  const Tensor<double> some({1, 1, 3, 2});
  const auto no_query = attention({none.view<4>(), some.view<4>(), some.view<4>()}).value();
  EXPECT_TRUE(no_query.output.values.empty());
  AttentionOptions<double> options;
  EXPECT_EQ(attention({some.view<4>(), none.view<4>(), none.view<4>()}).failure().id,
            "no-visible-key");
  options.empty_row = EmptyRow::zero;
  const auto no_key = attention({some.view<4>(), none.view<4>(), none.view<4>()}, options).value();
  EXPECT_EQ(no_key.output(0, 0, 2, 1), 0);
  EXPECT_EQ(no_key.log_sum_exp(0, 0, 2), -infinity());
}

TEST(Oracle, WrongShapesAndOptionsAreNamed) {
  const Tensor<double> a({1, 2, 3, 2});
  const Tensor<double> b({1, 2, 4, 2});
  const Tensor<double> odd({1, 3, 4, 2});
  expect_failure(attention({a.view<4>(), a.view<4>(), b.view<4>()}), "shape-mismatch",
                 "[oracle attention] key and value must have the same S; key has 3, value has 4");
  expect_failure(
      attention({a.view<4>(), odd.view<4>(), odd.view<4>()}), "shape-mismatch",
      "[oracle attention] the key/value heads must divide the query heads; H is 2, G is 3");
  expect_failure(attention({}), "missing-tensor",
                 "[oracle attention] query, key and value are all needed");
  const AttentionInputs<double> in{a.view<4>(), a.view<4>(), a.view<4>()};
  const auto id_of = [&](auto change) {
    AttentionOptions<double> options;
    change(options);
    const auto out = attention(in, options);
    return out ? std::string("none") : out.failure().id;
  };
  EXPECT_EQ(id_of([](auto& o) { o.softcap = 0; }), "bad-option");
  EXPECT_EQ(id_of([](auto& o) { o.scale = nan; }), "bad-option");
  EXPECT_EQ(id_of([](auto& o) { o.sink = {1}; }), "shape-mismatch");
  EXPECT_EQ(id_of([](auto& o) { o.alibi_slopes = {1, inf}; }), "not-finite");
  EXPECT_EQ(id_of([](auto& o) { o.mask.key_lengths = {4}; }), "bad-option");
  EXPECT_EQ(id_of([](auto& o) { o.mask.corner = Corner::at_offset; }), "bad-option");
  EXPECT_EQ(id_of([&](auto& o) { o.bias = b.view<4>(); }), "shape-mismatch");
  const auto d = attention_backward(in, {}, b.view<4>());
  EXPECT_EQ(d.failure().message,
            "[oracle attention] d_output must be [1, 2, 3, 2]; it is [1, 2, 4, 2]");
  EXPECT_EQ(matmul(tensor({1, 2}, {1, 2}), tensor({1, 2}, {3, 4})).failure().message,
            "[oracle matmul] left has 2 columns, right has 1 rows");
}

TEST(Oracle, BlocksRefuseWhatTheyWouldNotUse) {
  const BlockConfig config{.model_dim = 1,
                           .head_dim = 1,
                           .value_dim = 1,
                           .ffn_dim = 1,
                           .norm = Norm::rms_norm,
                           .scale = {},
                           .softcap = {},
                           .rope = {}};
  const Tensor<double> one = tensor({1, 1}, {1});
  BlockWeights<double> weights;
  weights.query_weight = weights.key_weight = weights.value_weight = weights.output_weight = one;
  weights.up_weight = weights.down_weight = one;
  EXPECT_TRUE(block(one, config, weights).has_value());
  weights.norm1_bias = tensor({1}, {1});
  EXPECT_EQ(block(one, config, weights).failure().message,
            "[oracle block] norm1_bias is given, but is no part of this block");
  weights.norm1_bias = {};
  weights.up_weight = {};
  EXPECT_EQ(block(one, config, weights).failure().message,
            "[oracle block] up_weight must be [1, 1]; it is [0]");
}

TEST(Oracle, NormsOfConstantRows) {
  const Tensor<double> rows = tensor({1, 3}, {5, 5, 5});
  expect_digits(norm(rows, {.gain = {}, .bias = {}}).value(), {"0", "0", "0"});
  EXPECT_FALSE(norm(rows, {.gain = {}, .bias = {}, .epsilon = 0}).has_value());
}

TEST(Oracle, ActivationsKeepTheirDigitsFarFromZero) {
  const Tensor<double> x = tensor({2}, {-30, -1e6});
  const OracleTensor gelu = activation(Activation::gelu_erf, x).value();
  EXPECT_EQ(digits(gelu(0), 40), "-1.472014178144456117860142776974057141599e-196");
  EXPECT_EQ(digits(activation(Activation::silu, x).value()(0), 20), "-2.8072868906517896862e-12");
  EXPECT_TRUE(activation_backward(Activation::gelu_tanh, x, x).has_value());
}

TEST(Oracle, CrossEntropyOfSureAnswersKeepsItsDigits) {
  Tensor<std::int64_t> target({1});
  const auto sure = cross_entropy(tensor({1, 2}, {100, 0}), target).value();
  EXPECT_LE(abs(sure.mean - log1p(exp(Real(-100)))), Real("1e-100"));
  const auto wrong = cross_entropy(tensor({1, 2}, {-1e9, 1e9}), target).value();
  EXPECT_EQ(wrong.sum, Real(2e9));
  EXPECT_EQ(cross_entropy(tensor({1, 2}, {1, 0}), target, 0).failure().id, "no-target");
  EXPECT_EQ(cross_entropy(tensor({1, 1}, {1}), target).value().sum, 0);
}

TEST(Oracle, EmbeddingAddsUpTheGradientsOfEqualIds) {
  const Tensor<double> table = tensor({3, 2}, {1, 2, 3, 4, 5, 6});
  Tensor<std::int64_t> ids({3});
  ids(0) = 2;
  ids(1) = 2;
  expect_digits(embedding(table, ids).value(), {"5", "6", "5", "6", "1", "2"});
  const Tensor<double> d_output = tensor({3, 2}, {1, 2, 4, 8, 16, 32});
  expect_digits(embedding_backward(table, ids, d_output).value(),
                {"16", "32", "0", "0", "5", "10"});
  ids(2) = 3;
  EXPECT_EQ(embedding(table, ids).failure().message,
            "[oracle embedding] id 3 is outside a table of V = 3 rows");
}

}  // namespace
}  // namespace attest::lab::oracle
