// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/operand_memory.h"
#include "attest/check/mistakes/operand_rotation.h"

namespace attest::check {

/// One of the three as a program passes it to attention: split into heads, and turned.
class OperandRows {
 public:
  /// Nothing if the recipe does not fit the claim's shapes.
  static std::optional<OperandRows> make(const Claim& claim, const OperandRecipe& recipe,
                                         Role role);

  [[nodiscard]] const OperandShape& shape() const noexcept { return memory_.shape(); }
  /// Whether the claim gives this tensor at all.
  [[nodiscard]] bool present() const noexcept { return present_; }
  /// Whether every row is the claim's row at the same place.
  [[nodiscard]] bool direct() const noexcept { return memory_.direct() && !rotation_; }
  /// [W], where it stands; only if `direct`.
  [[nodiscard]] const double* row(std::int64_t b, std::int64_t n, std::int64_t l) const {
    return memory_.row(b, n, l);
  }
  void copy_row(std::int64_t b, std::int64_t n, std::int64_t l, std::span<double> out);

 private:
  explicit OperandRows(OperandMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] bool settle_rotation(const Claim& claim, const RopeRecipe& recipe, Role role);
  void turn(std::span<double> row, std::int64_t b, std::int64_t n, std::int64_t l);
  [[nodiscard]] std::int64_t position(std::int64_t b, std::int64_t n, std::int64_t l) const;
  /// The claim's position, or the natural one where it gives none.
  [[nodiscard]] std::int64_t claimed_position(std::int64_t b, std::int64_t l) const;

  OperandMemory memory_;
  std::optional<Rotation> rotation_{};
  bool present_ = false;
  bool key_like_ = false;
  bool before_split_ = false;
  std::span<const std::int64_t> positions_{};  // [L] or [B·L]
  std::int64_t past_ = 0;
  RopePositions from_ = RopePositions::claimed;
  std::int64_t shift_ = 0;
  CachedTurn cached_ = CachedTurn::claimed;
  std::vector<double> packed_{};  // [N·W]
};

}  // namespace attest::check
