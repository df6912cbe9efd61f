// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/operand_rows.h"

#include <algorithm>

namespace attest::check {
namespace {

bool turns(const Claim& claim, const RopeRecipe& recipe, Role role) {
  if (!claim.rope && !recipe.added) return false;
  if (role == Role::value) return recipe.value_too;
  return (role == Role::query ? recipe.query : recipe.key) != Turn::none;
}

}  // namespace

std::optional<OperandRows> OperandRows::make(const Claim& claim, const OperandRecipe& recipe,
                                             Role role) {
  auto memory = OperandMemory::make(claim, recipe, role);
  if (!memory) return std::nullopt;
  OperandRows out(std::move(*memory));
  const Tensor<double>& tensor = role == Role::query ? claim.call.query
                                 : role == Role::key ? claim.call.key
                                                     : claim.call.value;
  out.present_ = tensor.rank() == 4;
  if (out.present_ && turns(claim, recipe.rope, role) &&
      !out.settle_rotation(claim, recipe.rope, role)) {
    return std::nullopt;
  }
  // A row of all heads is known only where heads stand side by side.
  const bool whole = recipe.head_count == HeadCount::claimed &&
                     recipe.reading[static_cast<std::size_t>(role)].split == Split::right;
  if (out.before_split_ && !whole) return std::nullopt;
  return out;
}

bool OperandRows::settle_rotation(const Claim& claim, const RopeRecipe& recipe, Role role) {
  const OperandShape& own = shape();
  key_like_ = role != Role::query;
  before_split_ = recipe.before_split;
  past_ = claim.past;
  from_ = key_like_ ? recipe.key_positions : recipe.query_positions;
  shift_ = key_like_ ? recipe.key_shift : recipe.query_shift;
  cached_ = recipe.cached;
  if (cached_ != CachedTurn::claimed &&
      (past_ <= 0 || past_ >= claimed_shape(claim, Role::key).L)) {
    return false;
  }
  if (claim.rope) positions_ = key_like_ ? claim.rope->key_positions : claim.rope->query_positions;
  const auto known = static_cast<std::int64_t>(positions_.size());
  if (known != 0 && known < own.L) return false;
  if (known > own.L && known != own.B * own.L) return false;
  rotation_ = Rotation::make(claim.rope ? claim.rope->config : RopeConfig{}, recipe,
                             before_split_ ? own.N * own.W : own.W, role);
  return rotation_.has_value();
}

std::int64_t OperandRows::claimed_position(std::int64_t b, std::int64_t l) const {
  if (positions_.empty()) return key_like_ ? l : past_ + l;
  const std::int64_t L = shape().L;
  const bool by_batch = static_cast<std::int64_t>(positions_.size()) > L;
  return positions_[static_cast<std::size_t>(by_batch ? b * L + l : l)];
}

std::int64_t OperandRows::position(std::int64_t b, std::int64_t n, std::int64_t l) const {
  switch (from_) {
    case RopePositions::head:
      return n + shift_;
    case RopePositions::from_zero:
      return claimed_position(b, l) - claimed_position(b, 0) + shift_;
    case RopePositions::first_for_all:
      return claimed_position(b, 0) + shift_;
    case RopePositions::last_for_all:
      return claimed_position(b, shape().L - 1) + shift_;
    case RopePositions::claimed:
      break;
  }
  if (key_like_ && cached_ == CachedTurn::new_from_zero && l >= past_) {
    return claimed_position(b, l) - claimed_position(b, past_) + shift_;
  }
  return claimed_position(b, l) + shift_;
}

void OperandRows::turn(std::span<double> row, std::int64_t b, std::int64_t n, std::int64_t l) {
  const bool cached = key_like_ && l < past_;
  if (cached && cached_ == CachedTurn::cached_unturned) return;
  const std::int64_t at = position(b, n, l);
  rotation_->turn(row, at);
  if (cached && cached_ == CachedTurn::cached_twice) rotation_->turn(row, at);
}

void OperandRows::copy_row(std::int64_t b, std::int64_t n, std::int64_t l, std::span<double> out) {
  if (!rotation_ || !before_split_) {
    memory_.copy_row(b, n, l, out);
    if (rotation_) turn(out, b, n, l);
    return;
  }
  const auto W = static_cast<std::size_t>(shape().W);
  packed_.resize(static_cast<std::size_t>(shape().N) * W);
  for (std::int64_t head = 0; head < shape().N; ++head) {
    memory_.copy_row(b, head, l, std::span(packed_).subspan(static_cast<std::size_t>(head) * W, W));
  }
  turn(packed_, b, n, l);
  const auto own = std::span(packed_).subspan(static_cast<std::size_t>(n) * W, W);
  std::copy(own.begin(), own.end(), out.begin());
}

}  // namespace attest::check
