// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attest/base/dropout.h"
#include "attest/base/random.h"
#include "attest/lab/oracle/activations.h"
#include "attest/lab/oracle/attention.h"
#include "attest/lab/oracle/block.h"
#include "attest/lab/oracle/layers.h"
#include "attest/lab/oracle/tape.h"

// Laws that the formulas of the oracle obey, on random inputs and to nearly all digits.
namespace attest::lab::oracle {
namespace {

using Arrays = std::vector<Array<Real>>;

Array<Real> random_array(Random& random, Shape shape, double size = 2) {
  Array<Real> out(std::move(shape));
  for (Real& x : out.values) x = random.uniform(-size, size);
  return out;
}

template <class Function>
Real objective(const Arrays& inputs, const Array<Real>& d_output, Function f) {
  const Array<Real> output = f(inputs);
  return sum_of_products(
      static_cast<std::int64_t>(output.values.size()), Real(0),
      [&](auto k) { return output.values[static_cast<std::size_t>(k)]; },
      [&](auto k) { return d_output.values[static_cast<std::size_t>(k)]; });
}

/// (f(x + h) − f(x − h)) / 2h is off by h²/6 · f''', and by 10⁻⁶⁴ / h for rounding. With h = 10⁻¹⁸
/// that is below 10⁻³⁰ while f''' is below 10⁶, a bound that the inputs used here keep.
template <class Function>
void expect_tape_agrees(Random& random, Arrays inputs, Function f) {
  const Array<Real> d_output = random_array(random, f(inputs).shape, 1);
  const Arrays gradients = pull_back(inputs, d_output, f);
  const Real h("1e-18");
  for (std::size_t a = 0; a < inputs.size(); ++a) {
    for (std::size_t k = 0; k < inputs[a].values.size(); ++k) {
      const Real x = inputs[a].values[k];
      inputs[a].values[k] = x + h;
      const Real above = objective(inputs, d_output, f);
      inputs[a].values[k] = x - h;
      const Real below = objective(inputs, d_output, f);
      inputs[a].values[k] = x;
      const Real difference = (above - below) / (2 * h);
      EXPECT_LE(abs(gradients[a].values[k] - difference), Real("1e-30"))
          << "input " << a << ", element " << k << ": tape " << digits(gradients[a].values[k], 40)
          << ", difference " << digits(difference, 40);
    }
  }
}

Real largest_difference(const Array<Real>& a, const Array<Real>& b) {
  Real largest = 0;
  for (std::size_t k = 0; k < a.values.size(); ++k) {
    if (a.values[k] == b.values[k]) continue;  // also two equal infinities
    const Real difference = abs(a.values[k] - b.values[k]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

struct RandomCall {
  AttentionArrays<Real> arrays;
  AttentionRules rules;
};

/// Any combination of the options, with shapes in which no two extents need be equal.
RandomCall random_call(Random& random) {
  RandomCall call;
  const std::int64_t B = random.between(1, 2), G = random.between(1, 2);
  const std::int64_t H = G * random.between(1, 2), T = random.between(1, 3);
  const std::int64_t S = random.between(1, 4), D = random.between(1, 3), E = random.between(1, 2);
  call.arrays.query = random_array(random, {B, H, T, D});
  call.arrays.key = random_array(random, {B, G, S, D});
  call.arrays.value = random_array(random, {B, G, S, E});
  const auto coin = [&] { return random.between(0, 1) == 1; };
  if (coin()) {
    call.arrays.bias = random_array(random, {coin() ? B : 1, coin() ? H : 1, coin() ? T : 1, S});
  }
  if (coin()) call.arrays.sink = random_array(random, {H});
  AttentionRules& rules = call.rules;
  rules.empty_row = EmptyRow::zero;
  rules.mask.future_hidden = coin();
  if (coin()) rules.mask.corner = Corner::bottom_right;
  if (coin()) {
    rules.mask.corner = Corner::at_offset;
    for (std::int64_t b = 0; b < B; ++b) rules.mask.query_offset.push_back(random.between(-1, 3));
  }
  if (coin()) rules.mask.window.left = random.between(0, 2);
  if (coin()) rules.mask.window.right = random.between(0, 2);
  if (coin()) rules.mask.key_lengths = {random.between(0, S)};
  if (coin()) rules.scale = random.uniform(-1, 1);
  if (coin()) rules.softcap = random.uniform(0.5, 3);
  if (coin()) {
    for (std::int64_t h = 0; h < H; ++h) rules.alibi_slopes.emplace_back(random.uniform(0, 1));
  }
  if (coin()) rules.dropout = {random.uniform(0, 0.9), random.bits()};
  if (coin()) {
    const std::int64_t cut = random.between(0, T);
    rules.mask.packing = {{0, cut, T}, {0, random.between(0, S), S}};
  }
  const auto names = [&](std::vector<std::int64_t>& list, std::int64_t tokens) {
    for (std::int64_t n = 0; n < tokens; ++n) list.push_back(random.between(0, 1));
  };
  if (coin()) {
    names(rules.mask.documents.query, coin() ? T : B * T);
    names(rules.mask.documents.key, coin() ? S : B * S);
  }
  return call;
}

Arrays inputs_of(const AttentionArrays<Real>& in) {
  return {in.query, in.key, in.value, in.bias, in.sink};
}

/// Output and log_sum_exp of a call as one array; an infinite log_sum_exp is left out as 0.
template <class Scalar>
Array<Scalar> run(const std::vector<Array<Scalar>>& in, const AttentionRules& rules) {
  const auto values =
      formula::attention(AttentionArrays<Scalar>{in[0], in[1], in[2], in[3], in[4]}, rules);
  Array<Scalar> out;
  out.values = values.output.values;
  for (const Scalar& z : values.log_sum_exp.values) {
    out.values.push_back(is_finite(value_of(z)) ? z : Scalar(Real(0)));
  }
  out.shape = {static_cast<std::int64_t>(out.values.size())};
  return out;
}

TEST(OracleLaw, TapeGradientAgreesWithCentralDifferencesForEveryAttentionOption) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed, 1);
    const RandomCall call = random_call(random);
    expect_tape_agrees(random, inputs_of(call.arrays),
                       [&](const auto& in) { return run(in, call.rules); });
  }
}

TEST(OracleLaw, TapeGradientAgreesWithCentralDifferencesForEveryLayer) {
  Random random(1, 2);
  SCOPED_TRACE("seed 1, stream 2");
  const auto array = [&](Shape shape) { return random_array(random, std::move(shape)); };
  const Real epsilon = Real(1) / 1000;
  expect_tape_agrees(random, {array({2, 3}), array({3, 2})},
                     [](const auto& in) { return formula::matmul(in[0], in[1]); });
  expect_tape_agrees(random, {array({2, 3}), array({3, 2}), array({2})},
                     [](const auto& in) { return formula::linear(in[0], in[1], in[2]); });
  for (const SoftmaxPath path : {SoftmaxPath::shifted, SoftmaxPath::unshifted}) {
    expect_tape_agrees(random, {array({2, 4})},
                       [&](const auto& in) { return formula::softmax(in[0], path); });
  }
  expect_tape_agrees(random, {array({2, 5}), array({5}), array({5})}, [&](const auto& in) {
    return formula::layer_norm(in[0], in[1], in[2], epsilon);
  });
  expect_tape_agrees(random, {array({2, 5}), array({5}), array({5})}, [&](const auto& in) {
    return formula::rms_norm(in[0], in[1], in[2], epsilon);
  });
  for (const Activation kind :
       {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    expect_tape_agrees(random, {random_array(random, {8}, 9)},
                       [&](const auto& in) { return formula::activation(kind, in[0]); });
    expect_tape_agrees(random, {array({4}), array({4})},
                       [&](const auto& in) { return formula::gated(kind, in[0], in[1]); });
  }
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    expect_tape_agrees(random, {array({2, 6})}, [&](const auto& in) {
      return formula::rope(in[0], RopeConfig{pairing, 4, 100}, 3);
    });
  }
  Tensor<std::int64_t> ids({3});
  ids(0) = 1;
  ids(2) = 1;
  expect_tape_agrees(random, {array({3, 2})},
                     [&](const auto& in) { return formula::embedding(in[0], ids); });
  expect_tape_agrees(random, {array({3, 4})}, [&](const auto& in) {
    auto out = in[0];
    out.shape = {1};
    out.values = {formula::cross_entropy_sum(in[0], ids, 0)};
    return out;
  });
}

TEST(OracleLaw, TapeGradientAgreesWithCentralDifferencesForBlocks) {
  Random random(2, 3);
  SCOPED_TRACE("seed 2, stream 3");
  const auto array = [&](Shape shape) { return random_array(random, std::move(shape), 1); };
  for (const NormPlacement placement :
       {NormPlacement::post, NormPlacement::pre, NormPlacement::sandwich}) {
    const BlockConfig config{.model_dim = 2,
                             .heads = 2,
                             .kv_heads = 1,
                             .head_dim = 2,
                             .value_dim = 1,
                             .ffn_dim = 2,
                             .norm = Norm::rms_norm,
                             .placement = placement,
                             .epsilon = 0.125,
                             .activation = Activation::gelu_erf,
                             .scale = {},
                             .softcap = 2,
                             .rope = RopeConfig{},
                             .alibi = true};
    const Arrays inputs{array({2, 2}), array({2, 4}), array({2, 2}), array({2, 1}),
                        array({2, 2}), array({2, 2}), array({2, 2}), array({2})};
    expect_tape_agrees(random, inputs, [&](const auto& in) {
      BlockParameters<std::decay_t<decltype(in[0])>> w;
      w.query_weight = in[1];
      w.key_weight = in[2];
      w.value_weight = in[3];
      w.output_weight = in[4];
      w.up_weight = in[5];
      w.down_weight = in[6];
      w.norm1_gain = in[7];
      return formula::block(in[0], config, w).output;
    });
  }
  const Arrays inputs{array({3, 4}), array({4, 2}), array({4, 2}),
                      array({4, 4}), array({4, 3}), array({3, 4})};
  expect_tape_agrees(random, inputs, [&](const auto& in) {
    return formula::workbook_block(in[0], {in.begin() + 1, in.end()}, Real(0.125), true).output;
  });
}

TEST(OracleLaw, TapeOperationsHaveTheirTextbookSlopes) {
  const std::function<Var<Real>(const Var<Real>&)> operations[] = {
      [](const auto& x) { return exp(x); },           [](const auto& x) { return log(x); },
      [](const auto& x) { return log1p(x); },         [](const auto& x) { return sqrt(x); },
      [](const auto& x) { return tanh(x); },          [](const auto& x) { return erf(x); },
      [](const auto& x) { return erfc(x); },          [](const auto& x) { return logistic(x); },
      [](const auto& x) { return sin(x); },           [](const auto& x) { return cos(x); },
      [](const auto& x) { return pow(x, Real(2.5)); }};
  const Real x("0.7");
  const Real two_over_root_pi = 2 / sqrt(pi());
  const Real s = logistic(x);
  const Real slopes[] = {exp(x),
                         1 / x,
                         1 / (1 + x),
                         1 / (2 * sqrt(x)),
                         1 - tanh(x) * tanh(x),
                         two_over_root_pi * exp(-x * x),
                         -two_over_root_pi * exp(-x * x),
                         s * (1 - s),
                         cos(x),
                         -sin(x),
                         Real(2.5) * x * sqrt(x)};
  for (std::size_t k = 0; k < std::size(slopes); ++k) {
    Tape<Real> tape;
    const Var<Real> variable = tape.variable(x);
    tape.seed(operations[k](variable), Real(1));
    tape.backward();
    EXPECT_LE(abs(tape.gradient(variable) - slopes[k]), Real("1e-60")) << "operation " << k;
  }
}

TEST(OracleLaw, TapeAddsUpEveryUseOfAVariable) {
  Tape<Real> tape;
  const Var<Real> x = tape.variable(Real(3));
  const Var<Real> y = x * x * x - Real(2) * x + x / x - (-x);  // x³ − x + 1
  tape.seed(y, Real(1));
  tape.seed(x, Real(10));
  tape.backward();
  EXPECT_EQ(y.value, Real(25));
  EXPECT_EQ(tape.gradient(x), Real(36));  // 3x² − 1 + 10
  EXPECT_TRUE(x < y && y > x && x <= y && y >= x && !(x == y));
}

TEST(OracleLaw, ShiftedAndUnshiftedSoftmaxAgree) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed, 4);
    RandomCall call = random_call(random);
    if (call.rules.scale) *call.rules.scale *= 1000;
    call.rules.path = SoftmaxPath::unshifted;
    const Array<Real> plain = run(inputs_of(call.arrays), call.rules);
    call.rules.path = SoftmaxPath::shifted;
    EXPECT_LE(largest_difference(plain, run(inputs_of(call.arrays), call.rules)), Real("1e-55"))
        << "seed " << seed;
  }
}

TEST(OracleLaw, JointPermutationOfKeysAndValuesChangesNothing) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed, 5);
    RandomCall call = random_call(random);
    call.arrays.bias = {};
    AttentionRules rules;  // without positions
    rules.softcap = call.rules.softcap;
    AttentionArrays<Real> reversed = call.arrays;
    const Extents n = call.arrays.extents();
    for (std::int64_t b = 0; b < n.B; ++b) {
      for (std::int64_t g = 0; g < n.G; ++g) {
        for (std::int64_t j = 0; j < n.S; ++j) {
          const std::int64_t k = n.S - 1 - j;
          for (std::int64_t d = 0; d < n.D; ++d) {
            reversed.key(b, g, j, d) = call.arrays.key(b, g, k, d);
          }
          for (std::int64_t e = 0; e < n.E; ++e) {
            reversed.value(b, g, j, e) = call.arrays.value(b, g, k, e);
          }
        }
      }
    }
    EXPECT_LE(
        largest_difference(run(inputs_of(call.arrays), rules), run(inputs_of(reversed), rules)),
        Real("1e-60"))
        << "seed " << seed;
  }
}

/// What dropout makes of a weight of 1, the k-th of a [B, H, T, S].
Real left_of_one(const Dropout& dropout, const Extents& n, std::size_t k) {
  const auto place = [&](std::int64_t below, std::int64_t extent) {
    return static_cast<std::uint32_t>(static_cast<std::int64_t>(k) / below % extent);
  };
  const WeightPlace at{place(n.H * n.T * n.S, n.B), place(n.T * n.S, n.H), place(n.S, n.T),
                       place(1, n.S)};
  if (dropped(dropout.seed, dropout_threshold(dropout.rate), at)) return 0;
  return 1 / (1 - Real(dropout.rate));
}

TEST(OracleLaw, WeightsAreExpOfScoreLessLogSumExp) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed, 6);
    const RandomCall call = random_call(random);
    const AttentionValues<Real> out = formula::attention(call.arrays, call.rules);
    const Extents n = call.arrays.extents();
    for (std::size_t k = 0; k < out.weights.values.size(); ++k) {
      const Real& log_sum_exp = out.log_sum_exp.values[k / static_cast<std::size_t>(n.S)];
      const Real expected =
          is_finite(out.scores.values[k]) ? exp(out.scores.values[k] - log_sum_exp) : Real(0);
      const Real left = left_of_one(call.rules.dropout, n, k);
      EXPECT_LE(abs(out.weights.values[k] - expected * left), Real("1e-60")) << "seed " << seed;
    }
  }
}

TEST(OracleLaw, RopeKeepsLengthsAndDependsOnDistanceAlone) {
  Random random(3, 7);
  SCOPED_TRACE("seed 3, stream 7");
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    const RopeConfig config{pairing, 0, 10000};
    const Array<Real> x = random_array(random, {1, 6});
    const Array<Real> y = random_array(random, {1, 6});
    const auto product = [&](std::int64_t p, std::int64_t q) {
      const Array<Real> a = formula::rope(x, config, p);
      const Array<Real> b = formula::rope(y, config, q);
      return sum_of_products(
          6, Real(0), [&](auto k) { return a(0, k); }, [&](auto k) { return b(0, k); });
    };
    EXPECT_LE(abs(product(7, 3) - product(1004, 1000)), Real("1e-57"));
    EXPECT_GE(abs(product(7, 3) - product(3, 7)), Real("1e-3"));
  }
}

TEST(OracleReal, NearestDoubleIsCorrectlyRounded) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed, 8);
    const double size = std::ldexp(1.0, static_cast<int>(random.between(-1074, 1023)));
    const double x = std::trunc(random.uniform(1, 2) * 0x1p52) * 0x1p-52 * size;
    const double next = std::nextafter(x, std::numeric_limits<double>::infinity());
    EXPECT_EQ(nearest_double(Real(x)), x) << "seed " << seed;
    if (std::isinf(next)) continue;
    const Real middle = (Real(x) + Real(next)) / 2;
    const Real hair = (Real(next) - Real(x)) * Real("1e-40");
    EXPECT_EQ(nearest_double(middle - hair), x) << "seed " << seed;
    EXPECT_EQ(nearest_double(middle + hair), next) << "seed " << seed;
    EXPECT_EQ(nearest_double(-middle - hair), -next) << "seed " << seed;
    const double even = std::fmod(x, 2 * (next - x)) == 0 ? x : next;
    EXPECT_EQ(nearest_double(middle), even) << "seed " << seed;
  }
}

TEST(OracleReal, NearestDoubleAtTheEdgesOfTheRange) {
  const double tiny = std::numeric_limits<double>::denorm_min();
  const double huge = std::numeric_limits<double>::max();
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(nearest_double(Real(tiny) / 2), 0);
  EXPECT_EQ(nearest_double(Real(tiny) * Real("0.5000001")), tiny);
  EXPECT_EQ(nearest_double(Real(tiny) * Real("0.4999999")), 0);
  EXPECT_EQ(nearest_double(Real(tiny) * Real("1.5")), 2 * tiny);
  EXPECT_EQ(nearest_double(exp(Real(-1000000))), 0);
  EXPECT_EQ(nearest_double(exp(Real(1000000))), inf);
  const Real half_step = ldexp(Real(1), 970);
  EXPECT_EQ(nearest_double(Real(huge) + half_step), inf);
  EXPECT_EQ(nearest_double(Real(huge) + half_step * Real("0.999")), huge);
  EXPECT_EQ(nearest_double(-infinity()), -inf);
  EXPECT_TRUE(std::isnan(nearest_double(not_a_number())));
}

TEST(OracleReal, DigitsReadAsDecimalText) {
  EXPECT_EQ(digits(Real(2) / 3, 6), "6.66667e-01");
  EXPECT_EQ(digits(Real(-1234567), 4), "-1.235e+06");
  EXPECT_EQ(digits(-infinity(), 4), "-inf");
  EXPECT_EQ(digits(not_a_number(), 4), "nan");
  EXPECT_EQ(digits(exp(Real(10000000)), 10), "6.592232535e+4342944");
  EXPECT_EQ(digits(sqrt(Real(2)), 50), "1.4142135623730950488016887242096980785696718753769e+00");
}

}  // namespace
}  // namespace attest::lab::oracle
