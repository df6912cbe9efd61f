// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/operands.h"

#include <algorithm>

#include "attest/check/mistakes/operand_orders.h"

namespace attest::check {
namespace {

std::size_t size(std::int64_t count) noexcept { return static_cast<std::size_t>(count); }

}  // namespace

std::optional<Operands> Operands::make(const Claim& claim, const OperandRecipe& recipe) {
  auto query = OperandRows::make(claim, recipe, Role::query);
  auto key = OperandRows::make(claim, recipe, Role::key);
  auto value = OperandRows::make(claim, recipe, Role::value);
  if (!query || !key || !value) return std::nullopt;
  Operands out(recipe, {std::move(*query), std::move(*key), std::move(*value)});
  if (!out.settle_shape() || !out.settle_slots(claim) || !out.settle_heads() ||
      !out.settle_output(claim)) {
    return std::nullopt;
  }
  return out;
}

bool Operands::settle_shape() {
  const OperandRows& query = passed_as(Role::query);
  const OperandRows& key = passed_as(Role::key);
  const OperandRows& value = passed_as(Role::value);
  const bool all = query.present() && key.present() && value.present();
  if (!all && recipe_.arguments != own_roles) return false;

  const OperandShape &q = query.shape(), &k = key.shape(), &v = value.shape();
  const bool key_known = key.present() || !value.present();
  const OperandShape& kv = key_known ? k : v;
  shape_ = {.B = q.B, .H = q.N, .G = kv.N, .T = q.L, .S = kv.L, .D = q.W, .E = v.W};
  if (!key.present() && !value.present() && shape_.G == 0) shape_.G = shape_.H;
  if (shape_.G <= 0 || shape_.H % shape_.G != 0) return false;
  if (query.present() && key.present() && (q.B != k.B || q.W != k.W)) return false;
  if (query.present() && value.present() && q.B != v.B) return false;
  return !key.present() || !value.present() || (k.B == v.B && k.N == v.N && k.L == v.L);
}

bool Operands::settle_slots(const Claim& claim) {
  const SlotRecipe& slots = recipe_.slots;
  rows_of_keys_ = shape_.S;
  past_ = claim.past;
  if (recipe_.cache != CacheUse::claimed && (past_ <= 0 || past_ >= shape_.S)) return false;

  std::int64_t last = rows_of_keys_ - slots.drop_last;
  first_slot_ = slots.drop_first;
  if (recipe_.cache == CacheUse::ignored) first_slot_ += past_;
  if (recipe_.cache == CacheUse::alone) last -= rows_of_keys_ - past_;
  if (slots.whole_blocks > 0) last = last / slots.whole_blocks * slots.whole_blocks;
  if (rows_of_keys_ > 0 && last <= first_slot_) return false;
  shape_.S = last - first_slot_;

  const bool in_order = recipe_.cache == CacheUse::claimed || recipe_.cache == CacheUse::ignored ||
                        recipe_.cache == CacheUse::alone;
  slots_as_they_stand_ = in_order && slots.roll_keys == 0 && slots.roll_values == 0 &&
                         !slots.keys_reversed && !slots.values_reversed;
  return true;
}

bool Operands::settle_heads() const {
  const HeadRecipe& heads = recipe_.heads;
  if (heads.wrong_head >= shape_.H) return false;
  for (const HeadMap map : {heads.keys, heads.values}) {
    if (map == HeadMap::divided_by_G && (shape_.H - 1) / shape_.G >= shape_.G) return false;
    if (map == HeadMap::modulo_group && shape_.H / shape_.G > shape_.G) return false;
  }
  return true;
}

std::span<const double> Operands::query(lab::RowPlace at) {
  OperandRows& rows = passed_as(Role::query);
  if (!rows.present()) return {};
  const HeadOrder order = recipe_.heads.queries;
  if (order != HeadOrder::group_means) {
    const std::int64_t head = head_at(order, at.h, shape_.H, shape_.G);
    if (rows.direct()) return {rows.row(at.b, head, at.i), size(shape_.D)};
    query_.resize(size(shape_.D));
    rows.copy_row(at.b, head, at.i, query_);
    return query_;
  }
  const std::int64_t group = shape_.H / shape_.G;
  query_.assign(size(shape_.D), 0);
  summand_.resize(size(shape_.D));
  for (std::int64_t n = 0; n < group; ++n) {
    rows.copy_row(at.b, at.h / group * group + n, at.i, summand_);
    for (std::size_t d = 0; d < query_.size(); ++d) query_[d] += summand_[d];
  }
  for (double& number : query_) number /= static_cast<double>(group);
  return query_;
}

std::span<const double> Operands::keys(std::int64_t b, std::int64_t h) {
  return gather(Role::key, b, h);
}

std::span<const double> Operands::values(std::int64_t b, std::int64_t h) {
  return gather(Role::value, b, h);
}

std::span<const double> Operands::gather(Role role, std::int64_t b, std::int64_t h) {
  const OperandRows& rows = passed_as(role);
  if (!rows.present()) return {};
  const bool key = role == Role::key;
  HeadMap map = key ? recipe_.heads.keys : recipe_.heads.values;
  if (h == recipe_.heads.wrong_head) map = HeadMap::first;
  const std::int64_t W = key ? shape_.D : shape_.E;
  const bool transposed =
      key ? recipe_.slots.keys_read_transposed : recipe_.slots.values_read_transposed;
  b = batch_at(recipe_.key_batch, b, shape_.B);

  // Which gathering this is: by key head where there is one, else by query head.
  const std::int64_t own = key_head_at(map, h, shape_.H, shape_.G);
  if (rows.direct() && slots_as_they_stand_ && own >= 0 && !transposed) {
    return {rows.row(b, own, first_slot_), size(shape_.S * W)};
  }
  const std::int64_t head = own >= 0 ? own : shape_.G + h;
  Gathered& last = key ? keys_ : values_;
  if (last.b == b && last.head == head) return last.numbers;
  last.b = b;
  last.head = head;
  gather_head(last, role, map, h);
  if (!transposed) return last.numbers;

  // Memory [S, W] read as [W, S]: number w·S + j for feature w of key j.
  const std::vector<double> dense = last.numbers;
  for (std::int64_t j = 0; j < shape_.S; ++j) {
    for (std::int64_t w = 0; w < W; ++w) {
      last.numbers[size(j * W + w)] = dense[size(w * shape_.S + j)];
    }
  }
  return last.numbers;
}

void Operands::gather_head(Gathered& into, Role role, HeadMap map, std::int64_t h) {
  OperandRows& rows = passed_as(role);
  const std::size_t W = size(role == Role::key ? shape_.D : shape_.E);
  into.numbers.assign(size(shape_.S) * W, 0);
  into.row.resize(W);
  const std::int64_t summands = map == HeadMap::mean ? shape_.G : 1;
  for (std::int64_t j = 0; j < shape_.S; ++j) {
    const auto to = std::span(into.numbers).subspan(size(j) * W, W);
    const SlotSource from = slot_source(role, map, h, j);
    if (from.l < 0) continue;
    if (summands == 1) {
      rows.copy_row(into.b, from.head, from.l, to);
      continue;
    }
    for (std::int64_t g = 0; g < summands; ++g) {
      rows.copy_row(into.b, g, from.l, into.row);
      for (std::size_t w = 0; w < W; ++w) to[w] += into.row[w];
    }
    for (double& number : to) number /= static_cast<double>(summands);
  }
}

Operands::SlotSource Operands::slot_source(Role role, HeadMap map, std::int64_t h,
                                           std::int64_t j) const {
  const bool key = role == Role::key;
  const std::int64_t S = shape_.S, n = shape_.H / shape_.G;
  std::int64_t head = std::max<std::int64_t>(0, key_head_at(map, h, shape_.H, shape_.G));
  if (map == HeadMap::repeated_keys) {
    head = h % shape_.G;
    j = j / n;
  } else if (map == HeadMap::reshaped_keys) {
    const std::int64_t flat = h * S + j;
    head = flat / (S * n);
    j = flat / n % S;
  }
  const std::int64_t roll = key ? recipe_.slots.roll_keys : recipe_.slots.roll_values;
  if (key ? recipe_.slots.keys_reversed : recipe_.slots.values_reversed) j = S - 1 - j;
  j = ((j + roll) % S + S) % S;
  return {head, cache_source(j + first_slot_)};
}

std::int64_t Operands::cache_source(std::int64_t j) const noexcept {
  const std::int64_t S = rows_of_keys_, fresh = S - past_;
  switch (recipe_.cache) {
    case CacheUse::claimed:
    case CacheUse::ignored:
    case CacheUse::alone:
      return j;
    case CacheUse::after_new:
      return j < fresh ? past_ + j : j - fresh;
    case CacheUse::overwritten:
      return j < fresh ? past_ + j : j < past_ ? j : -1;
    case CacheUse::one_slot_early:
      return j < past_ - 1 ? j : j < S - 1 ? j + 1 : -1;
    case CacheUse::one_slot_late:
      return j < past_ ? j : j == past_ ? -1 : j - 1;
  }
  return j;
}

}  // namespace attest::check
