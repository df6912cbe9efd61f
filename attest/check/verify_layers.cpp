// SPDX-License-Identifier: MIT
// The workbook's block within its derived bound; the layers around attention within the accuracy
// that their headers state; a whole configured block, and backward passes whose headers state no
// bound, within a generous multiple of u (said at each place).
#include <algorithm>
#include <array>
#include <cmath>

#include "attest/base/text.h"
#include "attest/check/verify_record.h"
#include "attest/lab/block.h"
#include "attest/lab/layers.h"
#include "attest/lab/positions.h"

namespace attest::check {
namespace {

using lab::oracle::OracleTensor;

constexpr double unit = 0x1p-53;
constexpr std::uint64_t layer_streams = 1ULL << 43U;
constexpr std::int64_t experiments = 12;

double largest(const Tensor<double>& x) {
  double out = 0;
  for (const double number : x.elements()) out = std::max(out, std::abs(number));
  return out;
}
double largest(const OracleTensor& x) {
  double out = 0;
  for (const auto& number : x.values) {
    out = std::max(out, std::abs(lab::oracle::nearest_double(number)));
  }
  return out;
}
Tensor<double> everywhere(const Shape& shape, double value) {
  Tensor<double> out(shape);
  std::ranges::fill(out.elements(), value);
  return out;
}

/// One random try: its stream of numbers and its name.
struct Try {
  Random random;
  std::string name;
};
using Experiment = void (*)(Try&, const VerifyContext&, Recorder&);

// ---- the workbook's block ---------------------------------------------------------------------

void workbook_block(Try& t, const VerifyContext& context, Recorder& record) {
  const bool causal = t.random.between(0, 1) == 1;
  const Tensor<double> x = random_tensor(t.random, {t.random.between(1, 5), 4}, 2);
  lab::workbook::BlockParameters p;
  if (t.random.between(0, 2) > 0) {
    for (auto* matrix : {&p.P1, &p.P2, &p.WO, &p.W1, &p.W2}) {
      *matrix = random_tensor(t.random, matrix->shape(), 1);
    }
  }
  const auto found = context.use.block(x, p, {.causal = causal});
  const auto bound = lab::bound_block(x, p, {.causal = causal});
  const auto expected =
      lab::oracle::workbook_block(x, {p.P1, p.P2, p.WO, p.W1, p.W2, p.epsilon, causal});
  if (!record.succeeded(found, t.name) || !record.succeeded(bound, t.name) ||
      !record.succeeded(expected, t.name + ", oracle")) {
    return;
  }
  record.within(found->output, expected->output, bound->output, {t.name, "output"});
  const std::int64_t L = x.extent(0);
  for (std::size_t h = 0; h < 2; ++h) {
    OracleTensor map({L, L});
    for (std::int64_t n = 0; n < L * L; ++n) {
      map.values[static_cast<std::size_t>(n)] =
          expected->weights(0, static_cast<std::int64_t>(h), n / L, n % L);
    }
    record.within(found->maps[h], map, bound->maps[h],
                  {t.name, h == 0 ? "h0.weights" : "h1.weights"});
  }
}

// ---- layers -----------------------------------------------------------------------------------

/// |error| ≤ u·(Σ |products| + |result|), of a product of two matrices.
Tensor<double> product_bound(const Tensor<double>& left, const Tensor<double>& right,
                             const Tensor<double>& result) {
  Tensor<double> out(result.shape());
  for (std::int64_t i = 0; i < out.extent(0); ++i) {
    for (std::int64_t j = 0; j < out.extent(1); ++j) {
      double sizes = std::abs(result(i, j));
      for (std::int64_t n = 0; n < left.extent(1); ++n) sizes += std::abs(left(i, n) * right(n, j));
      out(i, j) = unit * sizes * (1 + 0x1p-40);
    }
  }
  return out;
}

Tensor<double> transposed(const Tensor<double>& x) {
  Tensor<double> out({x.extent(1), x.extent(0)});
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    for (std::int64_t j = 0; j < x.extent(1); ++j) out(j, i) = x(i, j);
  }
  return out;
}

void linear(Try& t, const VerifyContext&, Recorder& record) {
  const std::int64_t N = t.random.between(1, 4), I = t.random.between(1, 5),
                     O = t.random.between(1, 4);
  const auto x = random_tensor(t.random, {N, I}, 3);
  const auto weight = random_tensor(t.random, {I, O}, 2);
  const auto d_y = random_tensor(t.random, {N, O}, 1);
  const auto y = lab::linear(x.view<2>(), weight.view<2>());
  const auto back = lab::linear_backward(x.view<2>(), weight.view<2>(), d_y.view<2>());
  const auto expected = lab::oracle::linear(x, {weight, {}});
  const auto expected_back = lab::oracle::linear_backward(x, {weight, {}}, d_y);
  if (!record.succeeded(y, t.name) || !record.succeeded(back, t.name) ||
      !record.succeeded(expected, t.name) || !record.succeeded(expected_back, t.name)) {
    return;
  }
  record.within(*y, *expected, product_bound(x, weight, *y), {t.name, "y"});
  record.within(back->d_x, expected_back->d_input,
                product_bound(d_y, transposed(weight), back->d_x), {t.name, "d_x"});
  record.within(back->d_weight, expected_back->d_weight,
                product_bound(transposed(x), d_y, back->d_weight), {t.name, "d_weight"});
}

/// As layers_norm.h states: u·(|gain|·((7 + 2k)·|n| + 2k) + |y|), or u·(5·|gain·n| + |y|).
Tensor<double> norm_bound(const lab::NormResult& found, const Tensor<double>& x,
                          const lab::NormParameters& p) {
  Tensor<double> out(x.shape());
  for (std::int64_t i = 0; i < x.extent(0); ++i) {
    const double deviation = std::sqrt(found.variance(i) + p.epsilon);
    const bool centred = found.mean.size() > 0;
    const double mean = centred ? found.mean(i) : 0;
    const double k = std::abs(mean) / deviation;
    for (std::int64_t c = 0; c < x.extent(1); ++c) {
      const double n = std::abs(x(i, c) - mean) / deviation;
      const double gain = std::abs(p.gain(c));
      const double sizes = centred ? gain * ((7 + 2 * k) * n + 2 * k) : 5 * gain * n;
      out(i, c) = unit * (sizes + std::abs(found.output(i, c))) * (1 + 0x1p-40);
    }
  }
  return out;
}

/// Backward: the headers state no bound. Allowed: 2⁸·u times the largest d_y·gain, divided by the
/// deviation and once more by its share in the row's offset (1 + k).
template <Norm kind>
void norm(Try& t, const VerifyContext&, Recorder& record) {
  const std::int64_t N = t.random.between(1, 3), C = t.random.between(2, 6);
  const auto x = random_tensor(t.random, {N, C}, 3);
  const auto gain = random_tensor(t.random, {C}, 2);
  const auto bias = random_tensor(t.random, {C}, 1);
  const auto d_y = random_tensor(t.random, {N, C}, 1);
  const lab::NormParameters p{gain.view<1>(), bias.view<1>(), 1e-5};
  constexpr bool layer = kind == Norm::layer_norm;
  const auto found = layer ? lab::layer_norm(x.view<2>(), p) : lab::rms_norm(x.view<2>(), p);
  const auto back = layer ? lab::layer_norm_backward(x.view<2>(), p, d_y.view<2>())
                          : lab::rms_norm_backward(x.view<2>(), p, d_y.view<2>());
  const lab::oracle::Normalisation same{kind, gain, bias, p.epsilon};
  const auto expected = lab::oracle::norm(x, same);
  const auto expected_back = lab::oracle::norm_backward(x, same, d_y);
  if (!record.succeeded(found, t.name) || !record.succeeded(back, t.name) ||
      !record.succeeded(expected, t.name) || !record.succeeded(expected_back, t.name)) {
    return;
  }
  record.within(found->output, *expected, norm_bound(*found, x, p), {t.name, "y"});
  double least = 1;
  for (const double variance : found->variance.elements()) least = std::min(least, variance);
  const double deviation = std::sqrt(least + p.epsilon);
  const double allowed =
      0x1p8 * unit * largest(d_y) * std::max(largest(gain), 1.0) * (1 + largest(x) / deviation);
  record.within(back->d_x, expected_back->d_input, everywhere(x.shape(), allowed / deviation),
                {t.name, "d_x"});
  record.within(back->d_gain, expected_back->d_gain, everywhere(gain.shape(), allowed),
                {t.name, "d_gain"});
}

/// As layers_activation.h states for each.
double activation_bound(Activation kind, double x, double y) {
  const double w = std::sqrt(2 / 3.14159265358979) * (std::abs(x) + 0.044715 * std::abs(x * x * x));
  switch (kind) {
    case Activation::relu:
      return 0;
    case Activation::gelu_erf:
      return 8 * unit * std::abs(y);
    case Activation::gelu_tanh:
      return unit * (12 * w + 5) * std::abs(y) * (1 + 0x1p-40);
    case Activation::silu:
      return 5 * unit * std::abs(y);
  }
  return 0;
}

void activations(Try& t, const VerifyContext&, Recorder& record) {
  const auto x = random_tensor(t.random, {3, 4}, t.random.between(0, 1) == 1 ? 3 : 12);
  const auto d_y = random_tensor(t.random, {3, 4}, 1);
  for (const Activation kind :
       {Activation::relu, Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    const auto y = lab::activate(x.view<2>(), kind);
    const auto back = lab::activate_backward(x.view<2>(), kind, d_y.view<2>());
    const auto expected = lab::oracle::activation(kind, x);
    const auto expected_back = lab::oracle::activation_backward(kind, x, d_y);
    if (!record.succeeded(y, t.name) || !record.succeeded(back, t.name) ||
        !record.succeeded(expected, t.name) || !record.succeeded(expected_back, t.name)) {
      continue;
    }
    Tensor<double> bound(x.shape());
    for (std::size_t n = 0; n < x.size(); ++n) {
      bound.elements()[n] = activation_bound(kind, x.elements()[n], y->elements()[n]);
    }
    record.within(*y, *expected, bound, {t.name, "y"});
    // The derivatives' own bounds are at most u·(12|w| + 10)·1.2, and |w| < 71 for |x| ≤ 12.
    record.within(*back, *expected_back, everywhere(x.shape(), 0x1p10 * unit * largest(d_y)),
                  {t.name, "d_x"});
  }
}

/// As positions.h states: u·(2·|angle| + 3)·(|x[a]| + |x[b]|).
void rope(Try& t, const VerifyContext&, Recorder& record) {
  const std::int64_t T = t.random.between(1, 4), D = 2 * t.random.between(1, 3);
  const auto x = random_tensor(t.random, {1, 2, T, D}, 2);
  for (const RopePairing pairing : {RopePairing::half, RopePairing::interleaved}) {
    const RopeConfig config{pairing, 0, 10000};
    const std::array<std::int64_t, 1> offset{t.random.between(0, 100)};
    const auto y = lab::rope(x.view<4>(), config, offset);
    const auto expected = lab::oracle::rope(x, config, offset[0]);
    if (!record.succeeded(y, t.name) || !record.succeeded(expected, t.name)) continue;
    const double angle = static_cast<double>(offset[0] + T);
    record.within(*y, *expected, everywhere(x.shape(), unit * (2 * angle + 3) * 2 * largest(x)),
                  {t.name, "y"});
  }
}

/// As layers.h states: u·(2 + 2·log V + loss) each.
void cross_entropy(Try& t, const VerifyContext&, Recorder& record) {
  const std::int64_t N = t.random.between(1, 4), V = t.random.between(2, 6);
  const auto logits = random_tensor(t.random, {N, V}, 5);
  Tensor<std::int64_t> targets({N});
  for (std::int64_t& id : targets.elements()) id = t.random.between(0, V - 1);
  const lab::Targets wanted{targets.view<1>(), {}};
  const auto found = lab::cross_entropy(logits.view<2>(), wanted);
  const auto back = lab::cross_entropy_backward(logits.view<2>(), wanted);
  const auto expected = lab::oracle::cross_entropy(logits, targets);
  const auto expected_back = lab::oracle::cross_entropy_backward(logits, targets);
  if (!record.succeeded(found, t.name) || !record.succeeded(back, t.name) ||
      !record.succeeded(expected, t.name) || !record.succeeded(expected_back, t.name)) {
    return;
  }
  const double log_v = std::log(static_cast<double>(V));
  OracleTensor loss({1});
  loss.values = {expected->mean};
  record.within(Tensor<double>({1}, std::array{found->loss}), loss,
                everywhere({1}, unit * (4 + 2 * log_v + 3 * found->loss)), {t.name, "loss"});
  record.within(*back, *expected_back,
                everywhere(logits.shape(), unit * (8 + log_v) / static_cast<double>(N)),
                {t.name, "d_logits"});
}

// ---- a whole block ----------------------------------------------------------------------------

/// One of the blocks that a config can describe; x [T, C] with C = 4.
BlockConfig random_config(Random& random) {
  BlockConfig config;
  config.model_dim = 4;
  config.heads = config.head_dim = 2;
  config.kv_heads = random.between(1, 2);
  config.value_dim = random.between(1, 3);
  config.ffn_dim = 3;
  config.norm = random.between(0, 1) == 0 ? Norm::layer_norm : Norm::rms_norm;
  constexpr std::array placements{NormPlacement::post, NormPlacement::pre, NormPlacement::sandwich};
  config.placement = placements[static_cast<std::size_t>(random.between(0, 2))];
  constexpr std::array kinds{Activation::relu, Activation::gelu_erf, Activation::gelu_tanh,
                             Activation::silu};
  config.activation = kinds[static_cast<std::size_t>(random.between(0, 3))];
  config.gated = random.between(0, 1) == 1;
  config.causal = random.between(0, 1) == 1;
  if (random.between(0, 1) == 1) config.rope = RopeConfig{};
  if (random.between(0, 2) == 0) config.softcap = 10;
  config.alibi = random.between(0, 2) == 0;
  return config;
}

BlockWeights<double> random_weights(Random& random, const BlockConfig& config) {
  BlockWeights<double> weights;
  for (const lab::BlockParameter& parameter : lab::block_parameters(config)) {
    const bool wanted = parameter.need == lab::Need::required ||
                        (parameter.need == lab::Need::optional && random.between(0, 1) == 1);
    if (wanted) weights.*parameter.tensor = random_tensor(random, parameter.shape, 1);
  }
  return weights;
}

/// Allowed: 2¹²·u of the largest value of any stage, and 2¹⁶·u of the largest gradient times that.
/// A norm of a row with deviation d multiplies errors by 1/d, and the stages show no d.
void configured_block(Try& t, const VerifyContext&, Recorder& record) {
  const BlockConfig config = random_config(t.random);
  const auto weights = random_weights(t.random, config);
  const auto x = random_tensor(t.random, {t.random.between(1, 4), config.model_dim}, 2);
  const auto d_output = random_tensor(t.random, x.shape(), 1);
  const auto found = lab::block(x.view<2>(), config, weights);
  const auto back = lab::block_backward(x.view<2>(), config, weights, d_output.view<2>());
  const auto expected = lab::oracle::block(x, config, weights);
  const auto expected_back = lab::oracle::block_backward(x, config, weights, d_output);
  if (!record.succeeded(found, t.name) || !record.succeeded(back, t.name) ||
      !record.succeeded(expected, t.name) || !record.succeeded(expected_back, t.name)) {
    return;
  }
  double size = 1;
  for (const lab::Stage& stage : found->stages) size = std::max(size, largest(stage.values));
  record.within(found->output, expected->output, everywhere(x.shape(), 0x1p12 * unit * size),
                {t.name, "output"});
  const double steep = std::max(largest(expected_back->d_input), 1.0) * size * 0x1p16 * unit;
  record.within(back->d_x, expected_back->d_input, everywhere(x.shape(), steep), {t.name, "d_x"});
  record.within(back->d_weights.query_weight, expected_back->d_weights.query_weight,
                everywhere(weights.query_weight.shape(), steep), {t.name, "d_query_weight"});
  record.within(back->d_weights.down_weight, expected_back->d_weights.down_weight,
                everywhere(weights.down_weight.shape(), steep), {t.name, "d_down_weight"});
}

}  // namespace

VerifySection verify_layers(const VerifyContext& context) {
  struct Layer {
    const char* name;
    const char* about;
    Experiment work;
  };
  constexpr Layer layers[] = {
      {"the workbook's block within its derived bound", "chapter 4", workbook_block},
      {"linear and its gradients", "stated in lab/layers.h", linear},
      {"layer_norm and its gradients", "stated; gradients 2^8 u", norm<Norm::layer_norm>},
      {"rms_norm and its gradients", "stated; gradients 2^8 u", norm<Norm::rms_norm>},
      {"activations and their derivatives", "stated; derivatives 2^10 u", activations},
      {"rope", "stated in lab/positions.h", rope},
      {"cross_entropy and its gradient", "stated in lab/layers.h", cross_entropy},
      {"configured blocks and their gradients", "2^12 u and 2^16 u", configured_block}};
  VerifySection section;
  std::uint64_t stream = layer_streams;
  for (const Layer& layer : layers) {
    add_check(section, layer.name, layer.about, [&](Recorder& record) {
      for (std::int64_t n = 0; n < experiments; ++n) {
        Try t{Random(context.options.seed, stream++), sentence("experiment ", n)};
        layer.work(t, context, record);
      }
    });
  }
  return section;
}

}  // namespace attest::check
