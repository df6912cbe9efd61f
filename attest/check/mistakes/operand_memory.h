// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/check/mistakes/operand_recipe.h"

namespace attest::check {

/// The extents of an operand: batch, heads, positions, width.
struct OperandShape {
  std::int64_t B = 0;
  std::int64_t N = 0;
  std::int64_t L = 0;
  std::int64_t W = 0;
  bool operator==(const OperandShape&) const = default;
  [[nodiscard]] std::int64_t count() const noexcept { return B * N * L * W; }
};

/// The claim's extents of one of the three; 0 where nothing is known.
[[nodiscard]] OperandShape claimed_shape(const Claim& claim, Role role);

/// One of the three as a program splits it into heads, before it turns anything: an index map into
/// the claim's tensors. Nothing is copied until rows are asked for.
class OperandMemory {
 public:
  /// Nothing if the recipe's reading does not fit the claim's shapes.
  static std::optional<OperandMemory> make(const Claim& claim, const OperandRecipe& recipe,
                                           Role role);

  [[nodiscard]] const OperandShape& shape() const noexcept { return shape_; }
  /// Whether every row is the claim's row at the same place.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  /// [W] at these indices, where it stands; only if `direct`.
  [[nodiscard]] const double* row(std::int64_t b, std::int64_t n, std::int64_t l) const;
  void copy_row(std::int64_t b, std::int64_t n, std::int64_t l, std::span<double> out);

 private:
  OperandMemory() = default;
  [[nodiscard]] bool settle(const Claim& claim, const OperandRecipe& recipe);
  [[nodiscard]] bool settle_fused(const Claim& claim);
  [[nodiscard]] bool settle_heads(HeadCount count);
  void find_columns(std::int64_t b, std::int64_t n);
  [[nodiscard]] const double* element(std::int64_t b, std::int64_t n, std::int64_t l,
                                      std::int64_t w) const;
  /// From batch b and place p of the packed row l, both as the program has them, to the claim.
  [[nodiscard]] const double* packed_element(std::int64_t b, std::int64_t l, std::int64_t p) const;
  [[nodiscard]] const double* fused_element(std::int64_t b, std::int64_t l, std::int64_t p) const;
  [[nodiscard]] const double* own_element(Role role, std::int64_t b, std::int64_t l,
                                          std::int64_t p) const;

  std::array<const double*, 3> data_{};
  std::array<OperandShape, 3> claimed_{};
  Role role_ = Role::query;
  std::array<Role, 3> loaded_ = own_roles;
  Reading reading_{};
  BatchTime batch_time_ = BatchTime::claimed;
  FusedOrder written_ = FusedOrder::chd;
  FusedOrder read_ = FusedOrder::chd;
  OperandShape shape_{};
  std::int64_t first_ = 0;  ///< rows before it come from a cache, as claimed
  std::int64_t past_ = 0;   ///< the claim's
  std::int64_t run_ = 1;    ///< so many features lie side by side
  bool direct_ = false;
  bool fused_ = false;
  /// Whether the features of each next row lie one claimed row further; then where they are in the
  /// first row of the head that was asked for last.
  bool in_columns_ = false;
  std::vector<const double*> columns_{};  // [W]
  std::int64_t columns_batch_ = -1;
  std::int64_t columns_head_ = -1;
};

}  // namespace attest::check
