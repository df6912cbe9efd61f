// SPDX-License-Identifier: MIT
#include "attest/check/block/exact.h"

#include <algorithm>

#include "attest/base/attention_call.h"
#include "attest/lab/attention.h"
#include "attest/lab/layers.h"
#include "attest/lab/positions.h"

namespace attest::check::block {
namespace {

View<const double, 1> vector_of(const Tensor<double>& tensor) {
  return tensor.size() == 0 ? View<const double, 1>{} : tensor.view<1>();
}

/// [B·T, H·W] as [B, H, T, W]
View<const double, 4> split(const Tensor<double>& rows, std::int64_t sequences,
                            std::int64_t heads) {
  const std::int64_t T = rows.extent(0) / sequences;
  const std::int64_t all = rows.extent(1);
  return {rows.data(), {sequences, heads, T, all / heads}, {T * all, all / heads, all, 1}};
}

/// [B, H, T, W] as [B·T, H·W]
Tensor<double> joined(View<const double, 4> heads) {
  const auto& [B, H, T, W] = heads.extents;
  Tensor<double> out({B * T, H * W});
  for (std::int64_t n = 0; n < B * T * H * W; ++n) {
    const std::int64_t r = n / (H * W), h = n / W % H;
    out.data()[n] = heads(r / T, h, r % T, n % W);
  }
  return out;
}

Tensor<double> value_or_nothing(Result<Tensor<double>> result) {
  return result ? *std::move(result) : Tensor<double>();
}

/// Some rows of a table.
Tensor<double> rows_of(const Tensor<double>& table, const RowSet& rows) {
  const std::int64_t columns = table.extent(1);
  Tensor<double> out({static_cast<std::int64_t>(rows.ids.size()), columns});
  for (std::size_t n = 0; n < rows.ids.size(); ++n) {
    std::copy_n(table.data() + rows.ids[n] * columns, columns,
                out.data() + static_cast<std::int64_t>(n) * columns);
  }
  return out;
}

/// x·σ(1.702 x) = silu(1.702 x) / 1.702, so that two roundings are added to the exact function's.
Tensor<double> quick_gelu(const Tensor<double>& in) {
  constexpr double steepness = 1.702;
  Tensor<double> out = in;
  for (double& x : out.elements()) x *= steepness;
  out = value_or_nothing(lab::activate(out.view<2>(), Activation::silu));
  for (double& x : out.elements()) x /= steepness;
  return out;
}

}  // namespace

Exact::Exact(const BlockDump& dump, Reach reach, RowSet sample, Program* plain)
    : dump_(dump),
      reach_(reach),
      sample_(std::move(sample)),
      sample_by_head_(by_head(dump, sample_)),
      plain_(plain) {}

std::int64_t Exact::place_of(std::int64_t row) const {
  if (all()) return row;
  const auto found = std::lower_bound(sample_.ids.begin(), sample_.ids.end(), row);
  return found == sample_.ids.end() || *found != row ? -1 : found - sample_.ids.begin();
}

const Tensor<double>& Exact::x() {
  if (all() || dump_.x.size() == 0) return dump_.x;
  if (!x_) x_ = rows_of(dump_.x, sample_);
  return *x_;
}

const Tensor<double>& Exact::stage(BlockStage stage) {
  using S = BlockStage;
  const bool post = dump_.config.placement == NormPlacement::post;
  if (stage == S::output) stage = post ? S::norm2 : S::residual2;
  std::optional<Tensor<double>>& kept = computed_[static_cast<std::size_t>(stage)];
  if (!kept) kept = compute(stage);
  return *kept;
}

const Tensor<double>& Exact::source(BlockStage stage) {
  const auto found = dump_.stages.find(stage);
  if (reach_ == Reach::whole || found == dump_.stages.end()) return this->stage(stage);
  if (all()) return found->second.values;
  const bool stacked = stage == BlockStage::weights || stage == BlockStage::heads;
  std::optional<Tensor<double>>& kept = picked_[static_cast<std::size_t>(stage)];
  if (!kept) kept = rows_of(found->second.values, stacked ? sample_by_head_ : sample_);
  return *kept;
}

View<const double, 2> Exact::every(BlockStage stage) {
  const auto found = dump_.stages.find(stage);
  if (reach_ == Reach::links && found != dump_.stages.end()) {
    return found->second.values.view<2>();
  }
  if (!dump_.config.rope && stage == BlockStage::rope_key) return every(BlockStage::key);
  const Numbers& table = plain_->stage(stage);
  return {table.value.data(), {table.rows, table.columns}};
}

const Tensor<double>& Exact::attention_in() {
  return dump_.config.placement == NormPlacement::post ? x() : source(BlockStage::norm1);
}
const Tensor<double>& Exact::hidden() {
  return source(dump_.config.placement == NormPlacement::post ? BlockStage::norm1
                                                              : BlockStage::residual1);
}
const Tensor<double>& Exact::ffn_in() {
  return dump_.config.placement == NormPlacement::post ? hidden() : source(BlockStage::norm2);
}

Tensor<double> Exact::norm(int place, const Tensor<double>& in) const {
  if (in.size() == 0) return {};
  const BlockWeights<double>& w = dump_.weights;
  const Tensor<double>* const gains[] = {&w.norm1_gain, &w.norm2_gain, &w.norm1_out_gain,
                                         &w.norm2_out_gain};
  const Tensor<double>* const biases[] = {&w.norm1_bias, &w.norm2_bias, &w.norm1_out_bias,
                                          &w.norm2_out_bias};
  const lab::NormParameters parameters{vector_of(*gains[place]), vector_of(*biases[place]),
                                       dump_.config.epsilon};
  auto out = dump_.config.norm == Norm::layer_norm ? lab::layer_norm(in.view<2>(), parameters)
                                                   : lab::rms_norm(in.view<2>(), parameters);
  return out ? std::move(out->output) : Tensor<double>();
}

Tensor<double> Exact::linear(Tensor<double> BlockWeights<double>::*weight,
                             Tensor<double> BlockWeights<double>::*bias,
                             const Tensor<double>& in) const {
  const Tensor<double>& matrix = dump_.weights.*weight;
  if (in.size() == 0 || matrix.size() == 0) return {};
  return value_or_nothing(
      lab::linear(in.view<2>(), matrix.view<2>(), vector_of(dump_.weights.*bias)));
}

Tensor<double> Exact::turned(const Tensor<double>& in, std::int64_t heads) const {
  if (!dump_.config.rope || in.size() == 0) return in;
  if (!all()) {
    const std::int64_t N = in.extent(0), D = in.extent(1) / heads;
    const std::int64_t T = dump_.rows() / dump_.sequences;
    std::vector<std::int64_t> positions;
    for (const std::int64_t row : sample_.ids) positions.push_back(row % T);
    const View<const double, 4> rows(in.data(), {N, heads, 1, D});
    auto turned_rows = lab::rope(rows, *dump_.config.rope, positions);
    if (!turned_rows) return {};
    return value_or_nothing(std::move(*turned_rows).reshaped({N, heads * D}));
  }
  const auto out = lab::rope(split(in, dump_.sequences, heads), *dump_.config.rope);
  return out ? joined(out->view<4>()) : Tensor<double>();
}

/// Values are not wanted: one of zero serves.
Tensor<double> Exact::weights() {
  if (!all()) return sampled_weights();
  const BlockConfig& c = dump_.config;
  const Tensor<double>& query = source(BlockStage::rope_query);
  const Tensor<double>& key = source(BlockStage::rope_key);
  if (query.size() == 0 || key.size() == 0) return {};
  AttentionOptions<double> options;
  if (c.causal) options.mask = Mask::causal();
  options.scale = c.scale;
  options.softcap = c.softcap;
  if (c.alibi) options.alibi_slopes = lab::alibi_slopes(c.heads);
  const std::int64_t B = dump_.sequences, T = query.extent(0) / B;
  const double none = 0;
  const AttentionInputs<double> inputs{split(query, B, c.heads),
                                       split(key, B, c.kv_heads),
                                       {&none, {B, c.kv_heads, T, 1}, {0, 0, 0, 0}}};
  auto out = lab::attention(inputs, options);
  return out ? std::move(out->weights).reshaped({B * c.heads * T, T}) : Tensor<double>();
}

Tensor<double> Exact::mixed() {
  if (!all()) return sampled_heads();
  const Tensor<double>& shares = source(BlockStage::weights);
  const Tensor<double>& value = source(BlockStage::value);
  if (shares.size() == 0 || value.size() == 0) return {};
  const BlockConfig& c = dump_.config;
  const std::int64_t B = dump_.sequences, T = value.extent(0) / B, E = c.value_dim;
  Tensor<double> out({B * c.heads * T, E});
  for (std::int64_t n = 0; n < B * c.heads; ++n) {
    const std::int64_t b = n / c.heads, g = n % c.heads / (c.heads / c.kv_heads);
    const View<const double, 2> mine(shares.data() + n * T * T, {T, T});
    const View<const double, 2> values(value.data() + b * T * c.kv_heads * E + g * E, {T, E},
                                       {c.kv_heads * E, 1});
    const auto product = lab::linear(mine, values);
    if (!product) return {};
    std::copy_n(product->data(), T * E, out.data() + n * T * E);
  }
  return out;
}

/// Each row of each head as a call of one query.
Tensor<double> Exact::sampled_weights() {
  const BlockConfig& c = dump_.config;
  const Tensor<double>& query = source(BlockStage::rope_query);
  if (query.size() == 0) return {};
  const View<const double, 2> keys = every(BlockStage::rope_key);
  const std::int64_t T = dump_.rows() / dump_.sequences, D = c.head_dim;
  if (keys.extents[0] == 0) return {};
  const std::int64_t wide = c.kv_heads * D;
  Tensor<double> out({static_cast<std::int64_t>(sample_by_head_.ids.size()), T});
  const double none = 0;
  for (std::size_t n = 0; n < sample_by_head_.ids.size(); ++n) {
    const std::int64_t id = sample_by_head_.ids[n], head = id / T, b = head / c.heads;
    const std::int64_t h = head % c.heads, g = h / (c.heads / c.kv_heads), i = id % T;
    AttentionOptions<double> options;
    options.mask = Mask::causal_at(i);
    options.mask.future_hidden = c.causal;
    options.scale = c.scale;
    options.softcap = c.softcap;
    if (c.alibi) options.alibi_slopes = {lab::alibi_slopes(c.heads)[static_cast<std::size_t>(h)]};
    const double* row = query.data() + place_of(b * T + i) * c.heads * D + h * D;
    const AttentionInputs<double> inputs{
        {row, {1, 1, 1, D}},
        {keys.data + b * T * wide + g * D, {1, 1, T, D}, {0, 0, wide, 1}},
        {&none, {1, 1, T, 1}, {0, 0, 0, 0}}};
    const auto made = lab::attention(inputs, options);
    if (!made) return {};
    std::copy_n(made->weights.data(), T, out.data() + static_cast<std::int64_t>(n) * T);
  }
  return out;
}

Tensor<double> Exact::sampled_heads() {
  const Tensor<double>& shares = source(BlockStage::weights);
  if (shares.size() == 0) return {};
  const View<const double, 2> value = every(BlockStage::value);
  if (value.extents[0] == 0) return {};
  const BlockConfig& c = dump_.config;
  const std::int64_t T = dump_.rows() / dump_.sequences, E = c.value_dim;
  Tensor<double> out({static_cast<std::int64_t>(sample_by_head_.ids.size()), E});
  for (std::size_t n = 0; n < sample_by_head_.ids.size(); ++n) {
    const std::int64_t head = sample_by_head_.ids[n] / T, b = head / c.heads;
    const std::int64_t g = head % c.heads / (c.heads / c.kv_heads);
    const View<const double, 2> mine(shares.data() + static_cast<std::int64_t>(n) * T, {1, T});
    const View<const double, 2> values(value.data + b * T * c.kv_heads * E + g * E, {T, E},
                                       {c.kv_heads * E, 1});
    const auto product = lab::linear(mine, values);
    if (!product) return {};
    std::copy_n(product->data(), E, out.data() + static_cast<std::int64_t>(n) * E);
  }
  return out;
}

Tensor<double> Exact::sampled_concat() {
  const Tensor<double>& heads = source(BlockStage::heads);
  const BlockConfig& c = dump_.config;
  const std::int64_t T = dump_.rows() / dump_.sequences, E = c.value_dim;
  Tensor<double> out({sample_.count(dump_.rows()), c.heads * E});
  for (std::size_t n = 0; n < sample_by_head_.ids.size(); ++n) {
    const std::int64_t id = sample_by_head_.ids[n], head = id / T, b = head / c.heads;
    const std::int64_t row = place_of(b * T + id % T);
    std::copy_n(heads.data() + static_cast<std::int64_t>(n) * E, E,
                out.data() + (row * c.heads + head % c.heads) * E);
  }
  return out;
}

Tensor<double> Exact::compute(BlockStage stage) {
  using S = BlockStage;
  using W = BlockWeights<double>;
  const BlockConfig& c = dump_.config;
  const bool post = c.placement == NormPlacement::post;
  const bool sandwich = c.placement == NormPlacement::sandwich;
  const auto sum = [](const Tensor<double>& a, const Tensor<double>& b) {
    if (a.size() == 0 || b.size() == 0) return Tensor<double>();
    Tensor<double> out = a;
    for (std::size_t n = 0; n < out.size(); ++n) out.data()[n] += b.data()[n];
    return out;
  };
  switch (stage) {
    case S::norm1:
      return norm(0, post ? source(S::residual1) : x());
    case S::query:
      return linear(&W::query_weight, &W::query_bias, attention_in());
    case S::key:
      return linear(&W::key_weight, &W::key_bias, attention_in());
    case S::value:
      return linear(&W::value_weight, &W::value_bias, attention_in());
    case S::rope_query:
      return turned(source(S::query), c.heads);
    case S::rope_key:
      return turned(source(S::key), c.kv_heads);
    case S::weights:
      return weights();
    case S::heads:
      return mixed();
    case S::concat: {
      const Tensor<double>& heads = source(S::heads);
      if (heads.size() == 0) return {};
      if (!all()) return sampled_concat();
      const std::int64_t B = dump_.sequences, H = c.heads;
      return joined(
          View<const double, 4>(heads.data(), {B, H, heads.extent(0) / (B * H), heads.extent(1)}));
    }
    case S::output_projection:
      return linear(&W::output_weight, &W::output_bias, source(S::concat));
    case S::norm1_out:
      return norm(2, source(S::output_projection));
    case S::residual1:
      return sum(x(), source(sandwich ? S::norm1_out : S::output_projection));
    case S::norm2:
      return norm(1, source(post ? S::residual2 : S::residual1));
    case S::up:
      return linear(&W::up_weight, &W::up_bias, ffn_in());
    case S::gate:
      return linear(&W::gate_weight, &W::gate_bias, ffn_in());
    case S::activation: {
      const Tensor<double>& in = source(c.gated ? S::gate : S::up);
      if (in.size() == 0) return {};
      if (dump_.quick_gelu) return quick_gelu(in);
      return value_or_nothing(lab::activate(in.view<2>(), c.activation));
    }
    case S::gated: {
      const Tensor<double>& active = source(S::activation);
      if (!c.gated || active.size() == 0) return active;
      const Tensor<double>& up = source(S::up);
      if (up.size() == 0) return {};
      return value_or_nothing(lab::gated_product(active.view<2>(), up.view<2>()));
    }
    case S::down:
      return linear(&W::down_weight, &W::down_bias, source(S::gated));
    case S::norm2_out:
      return norm(3, source(S::down));
    case S::residual2:
      return sum(hidden(), source(sandwich ? S::norm2_out : S::down));
    case S::output:
      break;
  }
  return {};
}

}  // namespace attest::check::block
