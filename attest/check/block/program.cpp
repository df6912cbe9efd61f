// SPDX-License-Identifier: MIT
#include "attest/check/block/program.h"

#include <algorithm>
#include <cmath>

#include "attest/check/block/layer_math.h"

namespace attest::check {

std::string_view name_of(BlockStage stage) noexcept {
  constexpr std::string_view names[] = {"norm1",          "projection.query",
                                        "projection.key", "projection.value",
                                        "rope.query",     "rope.key",
                                        "weights",        "heads",
                                        "concat",         "output_projection",
                                        "norm1_out",      "residual1",
                                        "norm2",          "ffn.up",
                                        "ffn.gate",       "ffn.activation",
                                        "ffn.gated",      "ffn.down",
                                        "norm2_out",      "residual2",
                                        "output"};
  return names[static_cast<int>(stage)];
}

std::int64_t BlockDump::rows() const {
  if (x.size() != 0) return static_cast<std::int64_t>(x.size()) / x.shape().back();
  for (const auto& [stage, table] : stages) {
    if (stage != BlockStage::weights && stage != BlockStage::heads) return table.values.extent(0);
  }
  for (const auto& [stage, table] : stages) return table.values.extent(0) / config.heads;
  return 0;
}

namespace block {
namespace {

ActivationForm form_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return ActivationForm::relu;
    case Activation::gelu_erf:
      return ActivationForm::gelu_erf;
    case Activation::gelu_tanh:
      return ActivationForm::gelu_tanh;
    case Activation::silu:
      return ActivationForm::silu;
  }
  return ActivationForm::none;
}

using WeightOf = Tensor<double> BlockWeights<double>::*;
constexpr std::pair<WeightOf, WeightOf> matrix_weights[] = {
    {&BlockWeights<double>::query_weight, &BlockWeights<double>::query_bias},
    {&BlockWeights<double>::key_weight, &BlockWeights<double>::key_bias},
    {&BlockWeights<double>::value_weight, &BlockWeights<double>::value_bias},
    {&BlockWeights<double>::output_weight, &BlockWeights<double>::output_bias},
    {&BlockWeights<double>::up_weight, &BlockWeights<double>::up_bias},
    {&BlockWeights<double>::gate_weight, &BlockWeights<double>::gate_bias},
    {&BlockWeights<double>::down_weight, &BlockWeights<double>::down_bias}};
constexpr std::pair<WeightOf, WeightOf> norm_weights[] = {
    {&BlockWeights<double>::norm1_gain, &BlockWeights<double>::norm1_bias},
    {&BlockWeights<double>::norm2_gain, &BlockWeights<double>::norm2_bias},
    {&BlockWeights<double>::norm1_out_gain, &BlockWeights<double>::norm1_out_bias},
    {&BlockWeights<double>::norm2_out_gain, &BlockWeights<double>::norm2_out_bias}};

Numbers rounded_stream(Numbers table, ResidualRounding rounding) {
  for (double& value : table.value) {
    if (rounding == ResidualRounding::bf16) value = to_double(to_bfloat16(value));
    if (rounding == ResidualRounding::f16) value = to_double(to_half(value));
  }
  return table;
}

}  // namespace

BlockRecipe claimed(const BlockConfig& config) {
  BlockRecipe out;
  out.placement = config.placement;
  for (NormRecipe& norm : out.norms) norm.kind = config.norm, norm.epsilon = config.epsilon;
  AttendRecipe& attend = out.attend;
  attend.scale = config.scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim)));
  attend.softcap = config.softcap;
  attend.visible = config.causal ? AttendRecipe::Visible::causal : AttendRecipe::Visible::all;
  attend.alibi = config.alibi;
  attend.rope.none = !config.rope.has_value();
  if (config.rope) {
    attend.rope.pairing = config.rope->pairing;
    attend.rope.rotary_dim = config.rope->rotary_dim;
    attend.rope.base = config.rope->base;
  }
  out.ffn.activation = form_of(config.activation);
  out.ffn.gated = config.gated;
  return out;
}

BlockRecipe claimed(const BlockDump& dump) {
  BlockRecipe out = claimed(dump.config);
  if (dump.quick_gelu) out.ffn.activation = ActivationForm::gelu_quick;
  return out;
}

std::vector<BlockStage> stages_of(const BlockConfig& config) {
  using S = BlockStage;
  const bool post = config.placement == NormPlacement::post;
  const bool sandwich = config.placement == NormPlacement::sandwich;
  std::vector<S> out;
  if (!post) out.push_back(S::norm1);
  out.insert(out.end(), {S::query, S::key, S::value});
  if (config.rope) out.insert(out.end(), {S::rope_query, S::rope_key});
  out.insert(out.end(), {S::weights, S::heads, S::concat, S::output_projection});
  if (sandwich) out.push_back(S::norm1_out);
  out.push_back(S::residual1);
  out.push_back(post ? S::norm1 : S::norm2);
  out.push_back(S::up);
  if (config.gated) out.push_back(S::gate);
  out.push_back(S::activation);
  if (config.gated) out.push_back(S::gated);
  out.push_back(S::down);
  if (sandwich) out.push_back(S::norm2_out);
  out.push_back(S::residual2);
  if (post) out.push_back(S::norm2);
  out.push_back(S::output);
  return out;
}

std::pair<std::int64_t, std::int64_t> shape_of(BlockStage stage, const BlockConfig& c,
                                               std::int64_t rows, std::int64_t sequences) {
  using S = BlockStage;
  switch (stage) {
    case S::query:
    case S::rope_query:
      return {rows, c.heads * c.head_dim};
    case S::key:
    case S::rope_key:
      return {rows, c.kv_heads * c.head_dim};
    case S::value:
      return {rows, c.kv_heads * c.value_dim};
    case S::weights:
      return {rows * c.heads, rows / std::max<std::int64_t>(sequences, 1)};
    case S::heads:
      return {rows * c.heads, c.value_dim};
    case S::concat:
      return {rows, c.heads * c.value_dim};
    case S::up:
    case S::gate:
    case S::activation:
    case S::gated:
      return {rows, c.ffn_dim};
    default:
      return {rows, c.model_dim};
  }
}

Program::Program(const BlockDump& dump, const BlockRecipe& recipe, Reach reach, Noise noise,
                 Program* claim)
    : dump_(dump),
      recipe_(recipe),
      reach_(reach),
      noisy_(noise == Noise::with),
      claim_(claim),
      u_(rounding_of(dump.precision)) {
  const BlockConfig& c = dump.config;
  shape_ = {dump.sequences, c.heads,    c.kv_heads, dump.rows() / dump.sequences,
            c.head_dim,     c.value_dim};
}

const Numbers& Program::stage(BlockStage stage) {
  using S = BlockStage;
  // Two names of one table.
  if (stage == S::output) stage = post() ? S::norm2 : S::residual2;
  std::optional<Numbers>& kept = computed_[static_cast<std::size_t>(stage)];
  if (kept) return *kept;
  if (claim_ != nullptr && as_claimed(stage)) return claim_->stage(stage);
  kept = compute(stage);
  return *kept;
}

/// Whether what a stage itself does is what the claim does.
bool Program::own_part_as_claimed(BlockStage stage) const {
  using S = BlockStage;
  const BlockRecipe& mine = recipe_;
  const BlockRecipe& other = claim_->recipe_;
  const auto norm = [&](NormPlace place) { return mine.norm(place) == other.norm(place); };
  const auto matrix = [&](Matrix which) { return mine.matrix(which) == other.matrix(which); };
  switch (stage) {
    case S::norm1:
      return norm(NormPlace::norm1);
    case S::norm2:
      return norm(NormPlace::norm2);
    case S::norm1_out:
      return norm(NormPlace::norm1_out);
    case S::norm2_out:
      return norm(NormPlace::norm2_out);
    case S::query:
    case S::key:
    case S::value: {
      const bool all = matrix(Matrix::query) && matrix(Matrix::key) && matrix(Matrix::value);
      const AttendRecipe &a = mine.attend, &b = other.attend;
      return all && a.packing == b.packing && a.roles == b.roles &&
             a.rope.turns_value == b.rope.turns_value;
    }
    case S::rope_query:
    case S::rope_key:
      return mine.attend.rope == other.attend.rope && mine.attend.packing == other.attend.packing;
    case S::weights:
    case S::heads:
    case S::concat:
      return mine.attend == other.attend;
    case S::output_projection:
      return matrix(Matrix::output);
    case S::residual1:
      return mine.residuals[0] == other.residuals[0];
    case S::residual2:
      return mine.residuals[1] == other.residuals[1];
    case S::up:
    case S::gate:
      return matrix(Matrix::up) && matrix(Matrix::gate) && mine.ffn == other.ffn;
    case S::activation:
    case S::gated:
      return mine.ffn == other.ffn;
    case S::down:
      return matrix(Matrix::down);
    case S::output:
      break;
  }
  return false;
}

/// Whether a stage and all that comes before it, but for tables of the dump, are as claimed.
bool Program::as_claimed(BlockStage stage) const {
  const BlockRecipe& other = claim_->recipe_;
  if (recipe_.placement != other.placement || recipe_.ffn_place != other.ffn_place ||
      recipe_.ffn_reads_residual != other.ffn_reads_residual || recipe_.stream != other.stream) {
    return false;
  }
  if (recipe_.norms == other.norms && recipe_.linear == other.linear &&
      recipe_.attend == other.attend && recipe_.ffn == other.ffn &&
      recipe_.residuals == other.residuals) {
    return true;
  }
  for (const BlockStage before : stages_of(dump_.config)) {
    if (before == stage) return own_part_as_claimed(stage);
    const bool is_dumped = reach_ == Reach::links && dump_.stages.count(before) != 0;
    if (!is_dumped && !own_part_as_claimed(before)) return false;
  }
  return false;
}

const Numbers& Program::source(BlockStage stage) {
  const auto found = dump_.stages.find(stage);
  if (reach_ == Reach::whole || found == dump_.stages.end()) return this->stage(stage);
  std::optional<Numbers>& kept = dumped_[static_cast<std::size_t>(stage)];
  const auto dumped = [&](BlockStage which) {
    const BlockTable& table = dump_.stages.at(which);
    Numbers out = given(table.values, table.values.extent(0), noisy_);
    // A program may go on with more digits than it dumps: fused kernels do.
    store(out, rounding_of(dump_.precision, table.dtype));
    return out;
  };
  using S = BlockStage;
  const bool cut = stage == S::query || stage == S::key || stage == S::value;
  if (!kept && cut && reads_packed_table()) {
    const int which = stage == S::query ? 0 : stage == S::key ? 1 : 2;
    kept = repacked(dumped(S::query), dumped(S::key), dumped(S::value), which,
                    recipe_.attend.packing, shape_);
  }
  if (!kept) kept = dumped(stage);
  return *kept;
}

/// Whether the recipe cuts the dump's packed table in another way than the dump does.
bool Program::reads_packed_table() const {
  return dump_.packed_table && reach_ == Reach::links && recipe_.attend.packing != Packing::blocked;
}

const Numbers& Program::x() {
  if (x_.empty()) x_ = given(dump_.x, dump_.rows(), noisy_);
  return x_;
}

const Numbers& Program::attention_in() { return post() ? x() : source(BlockStage::norm1); }

/// What the first sub-layer hands to the second.
const Numbers& Program::hidden() {
  return source(post() ? BlockStage::norm1 : BlockStage::residual1);
}

const Numbers& Program::ffn_in() {
  if (recipe_.ffn_place == BlockRecipe::Ffn::beside_norm1) return attention_in();
  if (recipe_.ffn_reads_residual) return source(BlockStage::residual1);
  return post() ? hidden() : source(BlockStage::norm2);
}

Numbers Program::norm(NormPlace place, const Numbers& in) const {
  const NormRecipe& recipe = recipe_.norm(place);
  NormPlace from = place;
  if (recipe.other_norms_parameters) {
    from = place == NormPlace::norm1       ? NormPlace::norm2
           : place == NormPlace::norm2     ? NormPlace::norm1
           : place == NormPlace::norm1_out ? NormPlace::norm2_out
                                           : NormPlace::norm1_out;
  }
  const auto& [gain, bias] = norm_weights[static_cast<std::size_t>(from)];
  return normalise(in, recipe, {&(dump_.weights.*gain), &(dump_.weights.*bias), dump_.sequences},
                   u_);
}

Numbers Program::linear(Matrix which, const Numbers& in) const {
  const LinearRecipe& recipe = recipe_.matrix(which);
  const auto& [own, bias] = matrix_weights[static_cast<std::size_t>(which)];
  const Tensor<double>& named = dump_.weights.*own;
  const Tensor<double>& weight =
      recipe.weights_of
          ? dump_.weights.*(matrix_weights[static_cast<std::size_t>(*recipe.weights_of)].first)
          : named;
  if (in.empty() || weight.size() == 0 || weight.rank() != 2) return {};
  if (recipe.weights_of && weight.shape() != named.shape()) return {};
  return project(in, recipe, weight, dump_.weights.*bias, u_);
}

/// Query, key or value before any rotation.
Numbers Program::projected(int which) {
  using Roles = AttendRecipe::Roles;
  const Numbers& in = attention_in();
  if (in.empty()) return {};
  const Roles roles = recipe_.attend.roles;
  const auto projection = [&](int role) {
    const auto exchanged = [&](int a, int b) { return role == a ? b : role == b ? a : role; };
    const int from = roles == Roles::query_key     ? exchanged(0, 1)
                     : roles == Roles::key_value   ? exchanged(1, 2)
                     : roles == Roles::query_value ? exchanged(0, 2)
                                                   : role;
    constexpr Matrix three[] = {Matrix::query, Matrix::key, Matrix::value};
    return linear(three[from], in);
  };
  if (recipe_.attend.packing == Packing::blocked || reads_packed_table()) return projection(which);
  const Numbers q = projection(0), k = projection(1), v = projection(2);
  if (q.empty() || k.empty() || v.empty()) return {};
  return repacked(q, k, v, which, recipe_.attend.packing, shape_);
}

Numbers Program::turned_rows(BlockStage from, std::int64_t heads, bool skips, std::int64_t offset) {
  const Numbers& in = source(from);
  if (skips || recipe_.attend.rope.none || in.empty()) return in;
  std::vector<std::int64_t> positions;
  for (std::int64_t r = 0; r < in.rows; ++r) positions.push_back(r % shape_.T + offset);
  return turned(in, heads, recipe_.attend.rope, {.positions = positions}, u_);
}

Numbers Program::residual(int which, const Numbers& before, const Numbers& normed,
                          const Numbers& change) {
  const ResidualRecipe& recipe = recipe_.residuals[static_cast<std::size_t>(which)];
  if (change.empty()) return {};
  Numbers out;
  if (recipe.missing) {
    out = scaled(change, recipe.branch, u_);
  } else {
    const Numbers& base = recipe.from_x ? x() : recipe.from_normed ? normed : before;
    if (base.empty()) return {};
    const Numbers left = recipe.doubled ? scaled(base, 2, u_) : base;
    out = added(left, change, recipe.branch, u_);
  }
  return recipe_.stream == ResidualRounding::none ? out : rounded_stream(out, recipe_.stream);
}

Numbers Program::up_or_gate(BlockStage stage) {
  const bool gate = (stage == BlockStage::gate) != recipe_.ffn.exchanged;
  const Numbers& in = ffn_in();
  return linear(gate ? Matrix::gate : Matrix::up, in);
}

Numbers Program::activation() {
  const bool gate = recipe_.ffn.gated && !recipe_.ffn.activates_up;
  const Numbers& in = source(gate ? BlockStage::gate : BlockStage::up);
  return activated(in, recipe_.ffn.activation, u_);
}

Numbers Program::gated() {
  if (!recipe_.ffn.gated) return source(BlockStage::activation);
  if (recipe_.ffn.gate_ignored)
    return activated(source(BlockStage::up), recipe_.ffn.activation, u_);
  const Numbers& active = source(BlockStage::activation);
  if (recipe_.ffn.up_ignored || active.empty()) return active;
  const Numbers& plain = source(recipe_.ffn.activates_up ? BlockStage::gate : BlockStage::up);
  if (plain.empty()) return {};
  const Numbers up = recipe_.ffn.both_active ? activated(plain, recipe_.ffn.activation, u_) : plain;
  return recipe_.ffn.sum_for_product ? added(active, up, 1, u_) : multiplied(active, up, u_);
}

Numbers Program::compute(BlockStage stage) {
  using S = BlockStage;
  const AttendRecipe& attend = recipe_.attend;
  switch (stage) {
    case S::norm1: {
      const Numbers& in = post() ? source(S::residual1) : x();
      return in.empty() ? Numbers{} : norm(NormPlace::norm1, in);
    }
    case S::query:
      return projected(0);
    case S::key:
      return projected(1);
    case S::value: {
      Numbers value = projected(2);
      if (!attend.rope.turns_value || attend.rope.none || value.empty()) return value;
      std::vector<std::int64_t> positions;
      for (std::int64_t r = 0; r < value.rows; ++r) positions.push_back(r % shape_.T);
      return turned(value, shape_.G, attend.rope, {.positions = positions}, u_);
    }
    case S::rope_query:
      return turned_rows(S::query, shape_.H, attend.rope.skips_query, attend.rope.query_offset);
    case S::rope_key:
      return turned_rows(S::key, shape_.G, attend.rope.skips_key, attend.rope.key_offset);
    case S::weights: {
      const AttendInputs in{&source(S::rope_query), &source(S::rope_key), nullptr};
      if (in.query->empty() || in.key->empty()) return {};
      return attention_weights(in, attend, shape_, u_);
    }
    case S::heads: {
      const Numbers& weights = source(S::weights);
      const Numbers& value = source(S::value);
      if (weights.empty() || value.empty()) return {};
      return mixed_heads(weights, value, attend, shape_, u_);
    }
    case S::concat: {
      const Numbers& heads = source(S::heads);
      return heads.empty() ? Numbers{} : merged_heads(heads, attend, shape_);
    }
    case S::output_projection:
      return linear(Matrix::output, source(S::concat));
    case S::norm1_out:
      return norm(NormPlace::norm1_out, source(S::output_projection));
    case S::residual1:
      return residual(0, x(), attention_in(),
                      source(sandwich() ? S::norm1_out : S::output_projection));
    case S::norm2: {
      if (post()) return norm(NormPlace::norm2, source(S::residual2));
      const bool beside = recipe_.ffn_place == BlockRecipe::Ffn::beside_norm2;
      return norm(NormPlace::norm2, beside ? x() : source(S::residual1));
    }
    case S::up:
    case S::gate:
      return up_or_gate(stage);
    case S::activation:
      return activation();
    case S::gated:
      return gated();
    case S::down:
      return linear(Matrix::down, source(S::gated));
    case S::norm2_out:
      return norm(NormPlace::norm2_out, source(S::down));
    case S::residual2:
      return residual(1, hidden(), ffn_in(), source(sandwich() ? S::norm2_out : S::down));
    case S::output:
      break;
  }
  return {};
}

}  // namespace block
}  // namespace attest::check
