// SPDX-License-Identifier: MIT
#include "attest/check/block/program.h"

#include <algorithm>
#include <cmath>

#include "attest/check/block/layer_math.h"

namespace attest::check {

namespace block {
namespace {

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

Program::Program(const BlockDump& dump, const BlockRecipe& recipe, Reach reach, Noise noise,
                 Program* claim, RowSet sample)
    : dump_(dump),
      recipe_(recipe),
      reach_(reach),
      noisy_(noise == Noise::with),
      claim_(claim),
      u_(rounding_of(dump.precision)),
      sample_(std::move(sample)),
      sample_by_head_(by_head(dump, sample_)),
      plan_(plan_of(dump, recipe, reach == Reach::links, sample_)) {
  const BlockConfig& c = dump.config;
  shape_ = {dump.sequences, c.heads,    c.kv_heads, dump.rows() / dump.sequences,
            c.head_dim,     c.value_dim};
}

const RowSet& Program::computed_rows(BlockStage stage) const {
  return plan_.computed[static_cast<std::size_t>(stage)];
}
const RowSet& Program::taken_rows(BlockStage stage) const {
  return plan_.taken[static_cast<std::size_t>(stage)];
}

const Numbers& Program::stage(BlockStage stage) {
  using S = BlockStage;
  // Two names of one table.
  if (stage == S::output) stage = post() ? S::norm2 : S::residual2;
  const Numbers& table = whole(stage);
  const RowSet& want = stage == S::weights || stage == S::heads ? sample_by_head_ : sample_;
  if (table.empty() || computed_rows(stage) == want) return table;
  std::optional<Numbers>& kept = looked_at_[static_cast<std::size_t>(stage)];
  if (!kept) kept = picked(table, computed_rows(stage), want);
  return *kept;
}

/// A stage in every row that the plan computes.
const Numbers& Program::whole(BlockStage stage) {
  std::optional<Numbers>& kept = computed_[static_cast<std::size_t>(stage)];
  if (kept) return *kept;
  if (claim_ != nullptr && computed_rows(stage) == claim_->computed_rows(stage) &&
      as_claimed(stage)) {
    return claim_->whole(stage);
  }
  kept = compute(stage);
  return *kept;
}

const Numbers& Program::in_rows(const Numbers& table, const RowSet& have, const RowSet& want) {
  if (table.empty() || have == want) return table;
  picked_.push_back(picked(table, have, want));
  return picked_.back();
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

const Numbers& Program::source(BlockStage stage, const RowSet& rows) {
  const auto found = dump_.stages.find(stage);
  if (reach_ == Reach::whole || found == dump_.stages.end()) {
    if (stage == BlockStage::output) stage = post() ? BlockStage::norm2 : BlockStage::residual2;
    const Numbers& table = whole(stage);
    return in_rows(table, computed_rows(stage), rows);
  }
  const RowSet& have = taken_rows(stage);
  using S = BlockStage;
  const bool cut = stage == S::query || stage == S::key || stage == S::value;
  if (!cut || !reads_packed_table()) return in_rows(dumped(stage), have, rows);
  const int which = stage == S::query ? 0 : stage == S::key ? 1 : 2;
  picked_.push_back(repacked(dumped(S::query), dumped(S::key), dumped(S::value), which,
                             recipe_.attend.packing, shape_));
  return in_rows(picked_.back(), have, rows);
}

/// A table of the dump in the rows that are taken from it.
const Numbers& Program::dumped(BlockStage stage) {
  if (claim_ != nullptr && taken_rows(stage) == claim_->taken_rows(stage)) {
    return claim_->dumped(stage);
  }
  std::optional<Numbers>& kept = dumped_[static_cast<std::size_t>(stage)];
  if (kept) return *kept;
  const BlockTable& table = dump_.stages.at(stage);
  kept = given(table.values, table.values.extent(0), taken_rows(stage), noisy_);
  // A program may go on with more digits than it dumps: fused kernels do.
  store(*kept, rounding_of(dump_.precision, table.dtype));
  return *kept;
}

/// Whether the recipe cuts the dump's packed table in another way than the dump does.
bool Program::reads_packed_table() const {
  return dump_.packed_table && reach_ == Reach::links && recipe_.attend.packing != Packing::blocked;
}

const Numbers& Program::x() {
  if (claim_ != nullptr) return claim_->x();
  if (x_.empty()) x_ = given(dump_.x, dump_.rows(), noisy_);
  return x_;
}
const Numbers& Program::x(const RowSet& rows) { return in_rows(x(), {}, rows); }

const Numbers& Program::attention_in(const RowSet& rows) {
  return post() ? x(rows) : source(BlockStage::norm1, rows);
}

/// What the first sub-layer hands to the second.
const Numbers& Program::hidden(const RowSet& rows) {
  return source(post() ? BlockStage::norm1 : BlockStage::residual1, rows);
}

const Numbers& Program::ffn_in(const RowSet& rows) {
  if (recipe_.ffn_place == BlockRecipe::Ffn::beside_norm1) return attention_in(rows);
  if (recipe_.ffn_reads_residual) return source(BlockStage::residual1, rows);
  return post() ? hidden(rows) : source(BlockStage::norm2, rows);
}

/// A norm of a stage, or of x.
Numbers Program::norm(NormPlace place, std::optional<BlockStage> of, const RowSet& rows) {
  const NormRecipe& recipe = recipe_.norm(place);
  const RowSet every;
  const RowSet& read = recipe.over_positions ? every : rows;
  const Numbers& in = of ? source(*of, read) : x(read);
  if (in.empty()) return {};
  NormPlace from = place;
  if (recipe.other_norms_parameters) {
    from = place == NormPlace::norm1       ? NormPlace::norm2
           : place == NormPlace::norm2     ? NormPlace::norm1
           : place == NormPlace::norm1_out ? NormPlace::norm2_out
                                           : NormPlace::norm1_out;
  }
  const auto& [gain, bias] = norm_weights[static_cast<std::size_t>(from)];
  const Numbers out =
      normalise(in, recipe, {&(dump_.weights.*gain), &(dump_.weights.*bias), dump_.sequences}, u_);
  return picked(out, read, rows);
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
Numbers Program::projected(int which, const RowSet& rows) {
  using Roles = AttendRecipe::Roles;
  const Numbers& in = attention_in(rows);
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

std::vector<std::int64_t> Program::positions(const RowSet& rows, std::int64_t offset) const {
  std::vector<std::int64_t> out;
  const std::int64_t all = shape_.B * shape_.T;
  for (std::int64_t n = 0; n < rows.count(all); ++n) out.push_back(rows.at(n) % shape_.T + offset);
  return out;
}

Numbers Program::turned_rows(BlockStage from, const RowSet& rows) {
  const RopeRecipe& rope = recipe_.attend.rope;
  const bool query = from == BlockStage::query;
  const Numbers& in = source(from, rows);
  if ((query ? rope.skips_query : rope.skips_key) || rope.none || in.empty()) return in;
  return turned(in, query ? shape_.H : shape_.G, rope,
                {.positions = positions(rows, query ? rope.query_offset : rope.key_offset)}, u_);
}

Numbers Program::residual(int which, const RowSet& rows) {
  const bool first = which == 0;
  const Numbers& before = first ? x(rows) : hidden(rows);
  const ResidualRecipe& recipe = recipe_.residuals[static_cast<std::size_t>(which)];
  const Numbers& change =
      first ? source(sandwich() ? BlockStage::norm1_out : BlockStage::output_projection, rows)
            : source(sandwich() ? BlockStage::norm2_out : BlockStage::down, rows);
  if (change.empty()) return {};
  Numbers out;
  if (recipe.missing) {
    out = scaled(change, recipe.branch, u_);
  } else {
    const Numbers& base = recipe.from_x         ? x(rows)
                          : !recipe.from_normed ? before
                          : first               ? attention_in(rows)
                                                : ffn_in(rows);
    if (base.empty()) return {};
    const Numbers left = recipe.doubled ? scaled(base, 2, u_) : base;
    out = added(left, change, recipe.branch, u_);
  }
  return recipe_.stream == ResidualRounding::none ? out : rounded_stream(out, recipe_.stream);
}

Numbers Program::up_or_gate(BlockStage stage, const RowSet& rows) {
  const bool gate = (stage == BlockStage::gate) != recipe_.ffn.exchanged;
  return linear(gate ? Matrix::gate : Matrix::up, ffn_in(rows));
}

Numbers Program::activation(const RowSet& rows) {
  const bool gate = recipe_.ffn.gated && !recipe_.ffn.activates_up;
  return activated(source(gate ? BlockStage::gate : BlockStage::up, rows), recipe_.ffn.activation,
                   u_);
}

Numbers Program::gated(const RowSet& rows) {
  using S = BlockStage;
  const FfnRecipe& ffn = recipe_.ffn;
  if (!ffn.gated) return source(S::activation, rows);
  if (ffn.gate_ignored) return activated(source(S::up, rows), ffn.activation, u_);
  const Numbers& active = source(S::activation, rows);
  if (ffn.up_ignored || active.empty()) return active;
  const Numbers& plain = source(ffn.activates_up ? S::gate : S::up, rows);
  if (plain.empty()) return {};
  const Numbers up = ffn.both_active ? activated(plain, ffn.activation, u_) : plain;
  return ffn.sum_for_product ? added(active, up, 1, u_) : multiplied(active, up, u_);
}

/// Weights, heads and their merger, whose rows are those of other tables' in their own order.
Numbers Program::attended(BlockStage stage, const RowSet& rows) {
  using S = BlockStage;
  const AttendRecipe& attend = recipe_.attend;
  const auto have = [&](S of) -> const RowSet& {
    const bool is_given = reach_ == Reach::links && dump_.stages.count(of) != 0;
    return is_given ? taken_rows(of) : computed_rows(of);
  };
  const auto table = [&](S of) -> const Numbers& { return source(of, have(of)); };
  if (stage == S::weights) {
    const Numbers &query = table(S::rope_query), &key = table(S::rope_key);
    if (query.empty() || key.empty()) return {};
    return attention_weights({{query, have(S::rope_query)}, {key, have(S::rope_key)}}, rows, attend,
                             shape_, u_);
  }
  if (stage == S::heads) {
    const Numbers& weights = source(S::weights, rows);
    const Numbers& value = table(S::value);
    if (weights.empty() || value.empty()) return {};
    return mixed_heads({weights, rows}, {value, have(S::value)}, attend, shape_, u_);
  }
  const Numbers& heads = table(S::heads);
  return heads.empty() ? Numbers{} : merged_heads({heads, have(S::heads)}, rows, attend, shape_);
}

Numbers Program::compute(BlockStage stage) {
  using S = BlockStage;
  const AttendRecipe& attend = recipe_.attend;
  const RowSet& rows = computed_rows(stage);
  switch (stage) {
    case S::norm1:
      return norm(NormPlace::norm1, post() ? std::optional(S::residual1) : std::nullopt, rows);
    case S::query:
      return projected(0, rows);
    case S::key:
      return projected(1, rows);
    case S::value: {
      Numbers value = projected(2, rows);
      if (!attend.rope.turns_value || attend.rope.none || value.empty()) return value;
      return turned(value, shape_.G, attend.rope, {.positions = positions(rows, 0)}, u_);
    }
    case S::rope_query:
      return turned_rows(S::query, rows);
    case S::rope_key:
      return turned_rows(S::key, rows);
    case S::weights:
    case S::heads:
    case S::concat:
      return attended(stage, rows);
    case S::output_projection:
      return linear(Matrix::output, source(S::concat, rows));
    case S::norm1_out:
      return norm(NormPlace::norm1_out, S::output_projection, rows);
    case S::residual1:
      return residual(0, rows);
    case S::norm2: {
      if (post()) return norm(NormPlace::norm2, S::residual2, rows);
      const bool beside = recipe_.ffn_place == BlockRecipe::Ffn::beside_norm2;
      return norm(NormPlace::norm2, beside ? std::nullopt : std::optional(S::residual1), rows);
    }
    case S::up:
    case S::gate:
      return up_or_gate(stage, rows);
    case S::activation:
      return activation(rows);
    case S::gated:
      return gated(rows);
    case S::down:
      return linear(Matrix::down, source(S::gated, rows));
    case S::norm2_out:
      return norm(NormPlace::norm2_out, S::down, rows);
    case S::residual2:
      return residual(1, rows);
    case S::output:
      break;
  }
  return {};
}

}  // namespace block
}  // namespace attest::check
