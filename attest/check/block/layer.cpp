// SPDX-License-Identifier: MIT
#include "attest/check/block/layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "attest/base/text.h"
#include "attest/check/block/judge.h"
#include "attest/check/block/layer_math.h"
#include "attest/check/block/search.h"
#include "attest/check/block/sentences.h"
#include "attest/lab/layers.h"
#include "attest/lab/positions.h"
#include "attest/lab/softmax.h"

namespace attest::check {
namespace {

using namespace block;

Failure bad_shape(const char* name, const Shape& found, const Shape& expected) {
  return {ErrorKind::shape, "shape-mismatch",
          sentence("[check layer] ", name, " must have shape ", to_string(expected), "; it has ",
                   to_string(found))};
}

Result<void> check_given(const char* name, const Tensor<double>& tensor, const Shape& expected,
                         bool required) {
  if (tensor.size() == 0 && !required) return {};
  if (tensor.size() == 0) {
    return Failure{ErrorKind::value, "missing-tensor",
                   sentence("[check layer] ", name, " is missing")};
  }
  if (tensor.shape() != expected) return bad_shape(name, tensor.shape(), expected);
  return {};
}

Result<void> check_rope(const LayerDump& dump, std::int64_t N, std::int64_t C) {
  if (dump.heads < 1 || C % dump.heads != 0) {
    return Failure{
        ErrorKind::value, "bad-option",
        sentence("[check layer] ", C, " features do not divide into ", dump.heads, " heads")};
  }
  const std::int64_t D = C / dump.heads;
  if (auto ok = lab::rope_frequencies(dump.rope, D); !ok) return ok.failure();
  const std::int64_t R = dump.rope.rotary_dim == 0 ? D : dump.rope.rotary_dim;
  const bool tables = dump.cos.size() != 0 || dump.sin.size() != 0;
  if (auto ok = check_given("cos", dump.cos, {N, R / 2}, tables); !ok) return ok;
  if (auto ok = check_given("sin", dump.sin, {N, R / 2}, tables); !ok) return ok;
  if (dump.positions.empty() || static_cast<std::int64_t>(dump.positions.size()) == N) return {};
  return Failure{ErrorKind::shape, "shape-mismatch",
                 sentence("[check layer] there must be a position for each of ", N,
                          " rows; there are ", dump.positions.size())};
}

Result<void> check_layer(const LayerDump& dump) {
  if (dump.input.size() == 0 || dump.output.size() == 0) {
    return Failure{ErrorKind::value, "missing-tensor",
                   "[check layer] input and output must be given"};
  }
  if (dump.input.rank() != 2) {
    return Failure{ErrorKind::shape, "shape-mismatch",
                   sentence("[check layer] input must have two axes; it has shape ",
                            to_string(dump.input.shape()))};
  }
  const std::int64_t N = dump.input.extent(0), C = dump.input.extent(1);
  std::int64_t O = C;
  if (dump.kind == LayerKind::linear) {
    if (dump.weight.rank() != 2 || dump.weight.size() == 0 || dump.weight.extent(0) != C) {
      return bad_shape("weight", dump.weight.shape(), {C, dump.output.shape().back()});
    }
    O = dump.weight.extent(1);
    if (auto ok = check_given("bias", dump.bias, {O}, false); !ok) return ok;
  }
  if (dump.kind == LayerKind::norm) {
    if (!(dump.epsilon >= 0 && std::isfinite(dump.epsilon))) {
      return Failure{
          ErrorKind::value, "bad-option",
          sentence("[check layer] epsilon must be finite and at least 0; found ", dump.epsilon)};
    }
    if (auto ok = check_given("gain", dump.weight, {C}, false); !ok) return ok;
    if (auto ok = check_given("bias", dump.bias, {C}, false); !ok) return ok;
  }
  if (dump.kind == LayerKind::gated) {
    if (auto ok = check_given("up", dump.up, {N, C}, true); !ok) return ok;
  }
  if (dump.kind == LayerKind::rope) {
    if (auto ok = check_rope(dump, N, C); !ok) return ok;
  }
  return check_given("output", dump.output, {N, O}, true);
}

std::vector<std::int64_t> positions_of(const LayerDump& dump) {
  if (!dump.positions.empty()) return dump.positions;
  std::vector<std::int64_t> out(static_cast<std::size_t>(dump.input.extent(0)));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

BlockConfig config_of(const LayerDump& dump) {
  BlockConfig out;
  const std::int64_t C = dump.input.extent(1);
  out.model_dim = C;
  out.heads = out.kv_heads = dump.heads;
  out.head_dim = out.value_dim = std::max<std::int64_t>(C / dump.heads, 1);
  out.ffn_dim = dump.kind == LayerKind::linear ? dump.weight.extent(1) : C;
  out.norm = dump.norm;
  out.epsilon = dump.epsilon;
  out.activation = dump.activation;
  out.gated = dump.kind == LayerKind::gated;
  if (dump.kind == LayerKind::rope) out.rope = dump.rope;
  return out;
}

/// Whether a mistake of a block can be made in this layer alone.
bool belongs(std::string_view name, LayerKind kind) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool form = is({"ffn.relu", "ffn.gelu_erf", "ffn.gelu_tanh", "ffn.gelu_quick", "ffn.silu",
                        "ffn.leaky_relu", "ffn.activation_missing"});
  switch (kind) {
    case LayerKind::norm:
      return name.starts_with("norm.") && name != "norm.parameters_exchanged";
    case LayerKind::activation:
      return form;
    case LayerKind::gated:
      return form || is({"ffn.activates_up", "ffn.both_active", "ffn.up_ignored",
                         "ffn.gate_ignored", "ffn.gate_added"});
    case LayerKind::linear:
      return is({"ffn.up_transposed", "ffn.up_bias_missing", "ffn.up_bias_twice"});
    case LayerKind::rope:
      return name.starts_with("rope.") &&
             !is({"rope.query_only", "rope.key_only", "rope.value_too", "rope.positions_from_one"});
    case LayerKind::softmax:
      return name.starts_with("softmax.") && name != "softmax.over_heads";
  }
  return false;
}

Numbers softened(const Numbers& x, const AttendRecipe& recipe, const Rounding& u) {
  if (recipe.softmax == AttendRecipe::Over::nothing) return x;
  const bool down = recipe.softmax == AttendRecipe::Over::queries;
  Numbers out = x;
  for (std::int64_t line = 0; line < (down ? x.columns : x.rows); ++line) {
    SoftmaxInput row;
    const std::int64_t count = down ? x.rows : x.columns;
    const auto at = [&](std::int64_t k) { return down ? x.at(k, line) : x.at(line, k); };
    for (std::int64_t k = 0; k < count; ++k) row.x.push_back(x.value[at(k)]);
    if (x.noisy()) row.variance = row.bound = std::vector<double>(row.x.size(), 0);
    weigh(row, recipe.form, u);
    for (std::int64_t k = 0; k < count; ++k) {
      const auto n = static_cast<std::size_t>(k);
      const bool noisy = x.noisy();
      out.set(at(k), row.x[n], noisy ? row.variance[n] : 0, noisy ? row.bound[n] : 0);
    }
  }
  return out;
}

Numbers gated_layer(const LayerDump& dump, const Numbers& in, const FfnRecipe& recipe,
                    const Rounding& u) {
  const Numbers up = given(dump.up, dump.up.extent(0), in.noisy());
  if (recipe.gate_ignored) return activated(up, recipe.activation, u);
  Numbers active = activated(recipe.activates_up ? up : in, recipe.activation, u);
  if (recipe.up_ignored) return active;
  const Numbers other = recipe.activates_up  ? in
                        : recipe.both_active ? activated(up, recipe.activation, u)
                                             : up;
  return recipe.sum_for_product ? added(active, other, 1, u) : multiplied(active, other, u);
}

/// The layer as a program computes it.
Numbers computed(const LayerDump& dump, const BlockRecipe& recipe, Noise noise) {
  const Rounding u = rounding_of(dump.precision);
  const std::int64_t N = dump.input.extent(0);
  const Numbers in = given(dump.input, N, noise == Noise::with);
  Numbers out;
  switch (dump.kind) {
    case LayerKind::norm:
      out = normalise(in, recipe.norm(NormPlace::norm1), {&dump.weight, &dump.bias, 1}, u);
      break;
    case LayerKind::activation:
      out = activated(in, recipe.ffn.activation, u);
      break;
    case LayerKind::gated:
      out = gated_layer(dump, in, recipe.ffn, u);
      break;
    case LayerKind::linear:
      out = project(in, recipe.matrix(Matrix::up), dump.weight, dump.bias, u);
      break;
    case LayerKind::rope: {
      std::vector<std::int64_t> positions = positions_of(dump);
      for (std::int64_t& position : positions) position += recipe.attend.rope.query_offset;
      const bool tables = dump.cos.size() != 0;
      const std::int64_t width = dump.rope.rotary_dim;
      // Given tables have cosines for R features, not for others.
      if (tables && (recipe.attend.rope.rotary_dim != width || recipe.attend.rope.across_heads)) {
        return {};
      }
      out = turned(in, dump.heads, recipe.attend.rope,
                   {positions, tables ? &dump.cos : nullptr, tables ? &dump.sin : nullptr}, u);
      break;
    }
    case LayerKind::softmax:
      out = softened(in, recipe.attend, u);
      break;
  }
  store_coarser(out, dump.dtype, dump.precision);
  return out;
}

Result<Tensor<double>> exact_rope(const LayerDump& dump) {
  const std::int64_t N = dump.input.extent(0), C = dump.input.extent(1), D = C / dump.heads;
  const View<const double, 4> rows(dump.input.data(), {N, dump.heads, 1, D});
  Result<Tensor<double>> out = Tensor<double>();
  if (dump.cos.size() != 0) {
    const std::int64_t half = dump.cos.extent(1);
    const View<const double, 3> cos(dump.cos.data(), {N, 1, half});
    const View<const double, 3> sin(dump.sin.data(), {N, 1, half});
    out = lab::rope_turn(rows, {cos, sin, dump.rope.pairing});
  } else {
    out = lab::rope(rows, dump.rope, positions_of(dump));
  }
  if (!out) return out;
  return std::move(*out).reshaped({N, C});
}

/// The layer by the exact tier.
Result<Tensor<double>> exact(const LayerDump& dump) {
  const auto x = dump.input.view<2>();
  const auto vector = [](const Tensor<double>& t) {
    return t.size() == 0 ? View<const double, 1>{} : t.view<1>();
  };
  switch (dump.kind) {
    case LayerKind::norm: {
      const lab::NormParameters parameters{vector(dump.weight), vector(dump.bias), dump.epsilon};
      auto out = dump.norm == Norm::layer_norm ? lab::layer_norm(x, parameters)
                                               : lab::rms_norm(x, parameters);
      if (!out) return out.failure();
      return std::move(out->output);
    }
    case LayerKind::activation:
      return lab::activate(x, dump.activation);
    case LayerKind::gated: {
      auto active = lab::activate(x, dump.activation);
      if (!active) return active;
      return lab::gated_product(active->view<2>(), dump.up.view<2>());
    }
    case LayerKind::linear:
      return lab::linear(x, dump.weight.view<2>(), vector(dump.bias));
    case LayerKind::rope:
      return exact_rope(dump);
    case LayerKind::softmax:
      break;
  }
  Tensor<double> out(dump.input.shape());
  const auto width = static_cast<std::size_t>(dump.input.extent(1));
  for (std::size_t first = 0; first < out.size(); first += width) {
    const lab::SoftmaxRow row = lab::softmax_row(dump.input.elements().subspan(first, width));
    std::copy(row.weights.begin(), row.weights.end(), out.data() + first);
  }
  return out;
}

std::string why(const LayerDump& dump, std::int64_t row, std::int64_t column) {
  const std::string here = sentence(dump.name, "[", row, ",", column, "]");
  const std::int64_t C = dump.input.extent(1);
  switch (dump.kind) {
    case LayerKind::norm:
      return sentence(here, " = ",
                      norm_sentence({dump.input.data() + row * C, {1, C}}, config_of(dump),
                                    dump.weight, dump.bias, column));
    case LayerKind::activation:
      return sentence(here, " = f(", dump.input(row, column), ")");
    case LayerKind::gated:
      return sentence(here, " = f(", dump.input(row, column), ") · ", dump.up(row, column));
    case LayerKind::linear:
      return sentence(here, " = Σ_i input[", row, ",i]·weight[i,", column, "] + bias[", column,
                      "]");
    case LayerKind::rope:
      return sentence(here, ": input[", row, ",", column,
                      "] turned with its partner by the row's position");
    case LayerKind::softmax:
      break;
  }
  return sentence(here, " = exp(", dump.input(row, column), " − peak) / Σ over row ", row);
}

constexpr const char* kind_names[] = {"norm", "activation", "gated", "linear", "rope", "softmax"};

}  // namespace

Result<Diagnosis> diagnose_layer(const LayerDump& dump, const DiagnoseOptions& options) {
  if (auto ok = check_layer(dump); !ok) return ok.failure();
  const Result<Tensor<double>> expected = exact(dump);
  if (!expected) return expected.failure();
  Trial trial;
  trial.config = config_of(dump);
  trial.claim = claimed(trial.config);
  for (const Candidate& candidate : candidates_of(trial.config)) {
    if (belongs(candidate.mistake->text.name, dump.kind)) trial.candidates.push_back(candidate);
  }
  trial.unit = rounding_of(dump.precision).store;
  trial.zones = {rounding_of(dump.precision).safety, static_cast<double>(dump.input.extent(1))};
  trial.links.push_back({kind_names[static_cast<int>(dump.kind)], dump.name,
                         given(dump.output, dump.output.extent(0), false)});
  trial.start = [&dump](const BlockRecipe& recipe, Noise noise) -> Recompute {
    return [&dump, recipe, noise](std::size_t) { return computed(dump, recipe, noise); };
  };
  const Numbers tolerance = computed(dump, trial.claim, Noise::with);
  const Judged on_trial{
      &trial.links[0],
      &*expected,
      &tolerance,
      trial.zones,
      [&](std::int64_t r, std::int64_t c) { return sentence(dump.name, "[", r, ",", c, "]"); },
      [&](std::int64_t r, std::int64_t c) { return why(dump, r, c); }};
  Diagnosis out;
  out.tolerance = tolerance_text(dump.precision, trial.zones);
  Judgements judged = judge(on_trial);
  if (judged.judgement.wrong != 0) {
    const bool heads = dump.kind == LayerKind::rope;
    out.where = places_of(on_trial, {dump.input.extent(0), heads ? dump.heads : 1});
  }
  out.stages.push_back(std::move(judged.judgement));
  conclude(trial, {judged.fit}, options, out);
  return out;
}

}  // namespace attest::check
