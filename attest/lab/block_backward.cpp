// SPDX-License-Identifier: MIT
// The gradients of a block, its stages taken last to first.
#include <cassert>
#include <initializer_list>
#include <vector>

#include "attest/lab/attention_backward.h"
#include "attest/lab/block.h"
#include "attest/lab/block_detail.h"
#include "attest/lab/environment.h"
#include "attest/lab/exact_sum.h"
#include "attest/lab/layers_check.h"
#include "attest/lab/positions.h"

namespace attest::lab {
namespace {

using namespace detail;

/// What comes back to a value that flowed several ways.
Tensor<double> sum(std::initializer_list<const Tensor<double>*> parts) {
  Tensor<double> total((*parts.begin())->shape());
  std::vector<double> terms;
  for (std::size_t n = 0; n < total.size(); ++n) {
    terms.clear();
    for (const Tensor<double>* part : parts) terms.push_back(part->data()[n]);
    total.data()[n] = exact_sum(terms);
  }
  return total;
}

/// One way back through a block that has been checked and run. The weights' gradients are
/// overwritten: each parameter is used once.
struct Backward {
  const BlockConfig& config;
  const BlockWeights<double>& weights;
  const BlockResult& forward;
  BlockWeights<double> d_weights{};

  [[nodiscard]] const Tensor<double>& stage(std::string_view name) const {
    const Tensor<double>* values = forward.stage(name);
    assert(values != nullptr);
    return *values;
  }

  /// Keeps a parameter's gradient if there is such a parameter.
  void note(Tensor<double> BlockWeights<double>::*parameter, Tensor<double> gradient) {
    if ((weights.*parameter).size() != 0) d_weights.*parameter = std::move(gradient);
  }

  /// y = in·weight + bias
  Tensor<double> through(const LinearSite& site, const Tensor<double>& in,
                         const Tensor<double>& d_y) {
    LinearGradients gradients =
        proven(linear_backward(in.view<2>(), (weights.*site.weight).view<2>(), d_y.view<2>()));
    note(site.weight, std::move(gradients.d_weight));
    note(site.bias, std::move(gradients.d_bias));
    return std::move(gradients.d_x);
  }

  /// y = norm(in)
  Tensor<double> through(const NormSite& site, const Tensor<double>& in,
                         const Tensor<double>& d_y) {
    const NormParameters parameters = site.parameters(config, weights);
    NormGradients gradients =
        proven(config.norm == Norm::layer_norm
                   ? layer_norm_backward(in.view<2>(), parameters, d_y.view<2>())
                   : rms_norm_backward(in.view<2>(), parameters, d_y.view<2>()));
    note(site.gain, std::move(gradients.d_gain));
    note(site.bias, std::move(gradients.d_bias));
    return std::move(gradients.d_x);
  }

  /// Back from a turned query or key to the projection; nothing to do without RoPE.
  [[nodiscard]] Tensor<double> turn_back(const Tensor<double>& d_heads) const {
    return join_heads(config.rope ? proven(rope_backward(d_heads.view<4>(), *config.rope))
                                  : d_heads);
  }

  /// attention(in·query, in·key, in·value)·output
  Tensor<double> attend(const Tensor<double>& in, const Tensor<double>& d_y) {
    const BlockAttention& call = forward.attention;
    // y = concat·output             d_concat = d_y·outputᵀ
    const Tensor<double> d_concat = through(output_site, stage("concat"), d_y);  // [T, H·E]
    // concat = attention(…)         d_query, d_key, d_value
    const AttentionGradients d = proven(
        attention_backward(call.inputs(), call.options, {split_heads(d_concat, config.heads), {}}));
    // query = turn(in·query_weight) d_in from three sides
    const Tensor<double> from_query = through(query_site, in, turn_back(d.d_query));
    const Tensor<double> from_key = through(key_site, in, turn_back(d.d_key));
    const Tensor<double> from_value = through(value_site, in, join_heads(d.d_value));
    return sum({&from_query, &from_key, &from_value});
  }

  /// activation(in·up)·down, gated: (activation(in·gate) ⊙ (in·up))·down
  Tensor<double> feed_forward(const Tensor<double>& in, const Tensor<double>& d_y) {
    const Tensor<double>& active = stage(activation_stage(config.activation));  // [T, F]
    const Tensor<double>& up = stage("ffn.up");                                 // [T, F]
    const Activation kind = config.activation;
    if (!config.gated) {
      // y = active·down             d_active
      const Tensor<double> d_active = through(down_site, active, d_y);
      // active = f(up)              d_up = d_active·f′(up)
      return through(up_site, in,
                     proven(activate_backward(up.view<2>(), kind, d_active.view<2>())));
    }
    // y = gated·down                d_gated
    const Tensor<double> d_gated = through(down_site, stage("ffn.gated"), d_y);
    // gated = active ⊙ up           d_active = d_gated ⊙ up,   d_up = d_gated ⊙ active
    const GatedProductGradients d =
        proven(gated_product_backward(active.view<2>(), up.view<2>(), d_gated.view<2>()));
    // active = f(gate)              d_gate = d_active·f′(gate)
    const Tensor<double> d_gate =
        proven(activate_backward(stage("ffn.gate").view<2>(), kind, d.d_gate.view<2>()));
    const Tensor<double> from_gate = through(gate_site, in, d_gate);
    const Tensor<double> from_up = through(up_site, in, d.d_up);
    return sum({&from_gate, &from_up});
  }

  using Layer = Tensor<double> (Backward::*)(const Tensor<double>&, const Tensor<double>&);

  /// The layer between its norms, added to what went in.
  Tensor<double> apply(const Sublayer& sublayer, const Tensor<double>& in, Layer layer,
                       const Tensor<double>& d_y) {
    const bool post = config.placement == NormPlacement::post;
    const bool sandwich = config.placement == NormPlacement::sandwich;
    // post: y = norm(residual)      d_residual
    const Tensor<double> d_residual =
        post ? through(sublayer.norm, stage(sublayer.residual), d_y) : d_y;
    // residual = in + change        d_change = d_residual, and as much goes straight to in
    // sandwich: change = norm_out(layer(before))
    const Tensor<double> d_layer =
        sandwich ? through(sublayer.norm_out, stage(sublayer.layer), d_residual) : d_residual;
    const Tensor<double>& before = post ? in : stage(sublayer.norm.name);
    const Tensor<double> d_before = (this->*layer)(before, d_layer);
    // else: before = norm(in)       d_in
    const Tensor<double> d_in = post ? d_before : through(sublayer.norm, in, d_before);
    return sum({&d_residual, &d_in});
  }
};

}  // namespace

Result<BlockGradients> block_backward(View<const double, 2> x, const BlockConfig& config,
                                      const BlockWeights<double>& weights,
                                      View<const double, 2> d_output) {
  const ExactEnvironment environment;
  const auto forward = block(x, config, weights);
  if (!forward) return forward.failure();
  if (auto ok = check_same("block_backward", Named{"x", x}, Named{"d_output", d_output}); !ok) {
    return ok.failure();
  }
  Backward run{config, weights, *forward};
  // hidden = attention_sublayer(x),   output = ffn_sublayer(hidden)
  const bool post = config.placement == NormPlacement::post;
  const Tensor<double>& hidden = run.stage(post ? "norm1" : "residual1");
  const Tensor<double> d_hidden =
      run.apply(ffn_sublayer, hidden, &Backward::feed_forward, dense(d_output));
  Tensor<double> d_x = run.apply(attention_sublayer, dense(x), &Backward::attend, d_hidden);
  return BlockGradients{std::move(d_x), std::move(run.d_weights)};
}

}  // namespace attest::lab
