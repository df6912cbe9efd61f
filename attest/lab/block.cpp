// SPDX-License-Identifier: MIT
#include "attest/lab/block.h"

#include <algorithm>
#include <string>

#include "attest/lab/attention.h"
#include "attest/lab/block_detail.h"
#include "attest/lab/environment.h"
#include "attest/lab/layers_check.h"
#include "attest/lab/positions.h"

namespace attest::lab {
namespace {

using namespace detail;

Tensor<double> sum(Tensor<double> a, const Tensor<double>& b) {
  for (std::size_t n = 0; n < a.size(); ++n) a.data()[n] += b.data()[n];
  return a;
}

AttentionOptions<double> attention_options(const BlockConfig& config) {
  AttentionOptions<double> options;
  if (config.causal) options.mask = Mask::causal();
  options.scale = config.scale;
  options.softcap = config.softcap;
  if (config.alibi) options.alibi_slopes = alibi_slopes(config.heads);
  return options;
}

/// One run through a block that has been checked.
struct Forward {
  const BlockConfig& config;
  const BlockWeights<double>& weights;
  BlockResult out{};

  /// Notes a stage and hands it on.
  Tensor<double> keep(std::string name, Tensor<double> values) {
    out.stages.push_back({std::move(name), values});
    return values;
  }

  Tensor<double> project(const LinearSite& site, const Tensor<double>& in) {
    const auto bias = optional_vector(weights.*site.bias);
    return keep(site.stage, proven(linear(in.view<2>(), (weights.*site.weight).view<2>(), bias)));
  }

  Tensor<double> normalise(const NormSite& site, const Tensor<double>& in) {
    const NormParameters parameters = site.parameters(config, weights);
    const bool centred = config.norm == Norm::layer_norm;
    NormResult norm =
        proven(centred ? layer_norm(in.view<2>(), parameters) : rms_norm(in.view<2>(), parameters));
    const std::string name = site.name;
    if (centred) keep(name + ".mean", std::move(norm.mean));
    keep(name + (centred ? ".variance" : ".mean_square"), std::move(norm.variance));
    return keep(name, std::move(norm.output));
  }

  /// Queries and keys at position t turn by t's angles; values do not.
  Tensor<double> turn(std::string name, const Tensor<double>& rows, std::int64_t heads) {
    return keep(std::move(name), join_heads(proven(rope(split_heads(rows, heads), *config.rope))));
  }

  /// attention(y·query, y·key, y·value)·output
  Tensor<double> attend(const Tensor<double>& in) {
    BlockAttention& call = out.attention;
    call.heads = config.heads;
    call.kv_heads = config.kv_heads;
    call.options = attention_options(config);
    call.query = project(query_site, in);
    call.key = project(key_site, in);
    call.value = project(value_site, in);
    if (config.rope) {
      call.query = turn("rope.query", call.query, config.heads);
      call.key = turn("rope.key", call.key, config.kv_heads);
    }
    AttentionResult result = proven(attention(call.inputs(), call.options));
    call.weights = std::move(result.weights);
    call.log_sum_exp = std::move(result.log_sum_exp);
    return project(output_site, keep("concat", join_heads(result.output)));
  }

  /// activation(y·up)·down, gated: (activation(y·gate) ⊙ (y·up))·down
  Tensor<double> feed_forward(const Tensor<double>& in) {
    const Tensor<double> up = project(up_site, in);  // [T, F]
    const Tensor<double> bent = config.gated ? project(gate_site, in) : up;
    const Tensor<double> active = keep(activation_stage(config.activation),
                                       proven(activate(bent.view<2>(), config.activation)));
    if (!config.gated) return project(down_site, active);
    return project(down_site,
                   keep("ffn.gated", proven(gated_product(active.view<2>(), up.view<2>()))));
  }

  /// The layer between its norms, added to what went in.
  Tensor<double> apply(const Sublayer& sublayer, const Tensor<double>& in,
                       Tensor<double> (Forward::*layer)(const Tensor<double>&)) {
    const bool post = config.placement == NormPlacement::post;
    const bool sandwich = config.placement == NormPlacement::sandwich;
    const Tensor<double> before = post ? in : normalise(sublayer.norm, in);
    Tensor<double> change = (this->*layer)(before);
    if (sandwich) change = normalise(sublayer.norm_out, change);
    const Tensor<double> residual = keep(sublayer.residual, sum(in, change));
    return post ? normalise(sublayer.norm, residual) : residual;
  }
};

}  // namespace

Tensor<double> detail::dense(View<const double, 2> x) {
  Tensor<double> rows({x.extent(0), x.extent(1)});
  for (std::int64_t t = 0; t < x.extent(0); ++t) {
    for (std::int64_t c = 0; c < x.extent(1); ++c) rows(t, c) = x(t, c);
  }
  return rows;
}

View<const double, 4> detail::split_heads(const Tensor<double>& rows, std::int64_t heads) {
  const std::int64_t T = rows.extent(0);
  const std::int64_t all = rows.extent(1);  // H·W
  return {rows.data(), {1, heads, T, all / heads}, {T * all, all / heads, all, 1}};
}

Tensor<double> detail::join_heads(const Tensor<double>& heads) {
  const std::int64_t H = heads.extent(1);
  const std::int64_t T = heads.extent(2);
  const std::int64_t W = heads.extent(3);
  Tensor<double> rows({T, H * W});
  for (std::int64_t h = 0; h < H; ++h) {
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t w = 0; w < W; ++w) rows(t, h * W + w) = heads(0, h, t, w);
    }
  }
  return rows;
}

const char* detail::activation_stage(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return "ffn.relu";
    case Activation::gelu_erf:
    case Activation::gelu_tanh:
      return "ffn.gelu";
    case Activation::silu:
      return "ffn.silu";
  }
  return "ffn";
}

AttentionInputs<double> BlockAttention::inputs() const {
  return {split_heads(query, heads), split_heads(key, kv_heads), split_heads(value, kv_heads)};
}

const Tensor<double>* BlockResult::stage(std::string_view name) const {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [&](const Stage& stage) { return stage.name == name; });
  return found == stages.end() ? nullptr : &found->values;
}

Result<BlockResult> block(View<const double, 2> x, const BlockConfig& config,
                          const BlockWeights<double>& weights) {
  const ExactEnvironment environment;
  if (auto ok = check_block(x, config, weights); !ok) return ok.failure();
  Forward run{config, weights};
  const Tensor<double> hidden =
      run.apply(attention_sublayer, dense(x), &Forward::attend);  // [T, C]
  run.out.output =
      run.keep("output", run.apply(ffn_sublayer, hidden, &Forward::feed_forward));  // [T, C]
  return std::move(run.out);
}

}  // namespace attest::lab
