// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/check/mistakes/operand_recipe.h"
#include "attest/check/mistakes/operand_rows.h"

namespace attest::check {

/// The call as the mistaken program sees it: its own shape, and its rows of query, key and value.
///
/// Its batch, heads, queries and keys need not be the claim's: a program that takes heads for the
/// sequence has T queries for every H. `source_of_output` says which of its numbers lies where the
/// dump has one.
/// Cost          making one copies nothing; `keys` and `values` are the claim's own memory where
///               the program reads that as it stands, else S·D copies, or S·D·4 multiplications
///               where it turns them. The last head is kept, whichever query head asks.
class Operands {
 public:
  /// Nothing if the recipe cannot be carried out on tensors of these shapes. The claim must outlive
  /// it.
  static std::optional<Operands> make(const Claim& claim, const OperandRecipe& recipe);

  [[nodiscard]] const lab::AttentionShape& shape() const noexcept { return shape_; }

  /// [D]; empty if the claim has no query. Kept until the next call.
  [[nodiscard]] std::span<const double> query(lab::RowPlace at);
  /// [S, D] as query head h of the program reads them; empty if the claim has no key. Kept until
  /// the next call.
  [[nodiscard]] std::span<const double> keys(std::int64_t b, std::int64_t h);
  /// [S, E]; likewise.
  [[nodiscard]] std::span<const double> values(std::int64_t b, std::int64_t h);

  /// The index that the program's key j has in the claim: masks and positions count from it.
  [[nodiscard]] std::int64_t key_index(std::int64_t j) const noexcept { return j + first_slot_; }

  struct Source {
    lab::RowPlace row{};
    std::int64_t feature = 0;
  };
  /// Which number of the program lies at [b, h, i, e] of the dump.
  [[nodiscard]] Source source_of_output(lab::RowPlace at, std::int64_t e) const;

 private:
  /// One head of keys or values as it was last asked for.
  struct Gathered {
    std::vector<double> numbers{};  // [S, W]
    std::vector<double> row{};      // [W]
    std::int64_t b = -1;
    std::int64_t head = -1;
  };
  /// Where a slot of a head comes from.
  struct SlotSource {
    std::int64_t head = 0;
    std::int64_t l = 0;  ///< −1: zeros
  };

  explicit Operands(const OperandRecipe& recipe, std::array<OperandRows, 3> rows)
      : recipe_(recipe), rows_(std::move(rows)) {}
  [[nodiscard]] bool settle_shape();
  [[nodiscard]] bool settle_slots(const Claim& claim);
  [[nodiscard]] bool settle_heads() const;
  [[nodiscard]] bool settle_output(const Claim& claim);

  [[nodiscard]] OperandRows& passed_as(Role role) {
    return rows_[static_cast<std::size_t>(recipe_.arguments[static_cast<std::size_t>(role)])];
  }
  [[nodiscard]] std::span<const double> gather(Role role, std::int64_t b, std::int64_t h);
  void gather_head(Gathered& into, Role role, HeadMap map, std::int64_t h);
  [[nodiscard]] SlotSource slot_source(Role role, HeadMap map, std::int64_t h,
                                       std::int64_t j) const;
  [[nodiscard]] std::int64_t cache_source(std::int64_t j) const noexcept;

  OperandRecipe recipe_;
  std::array<OperandRows, 3> rows_;
  lab::AttentionShape shape_{};
  lab::AttentionShape claimed_{};  ///< of the dump
  std::int64_t rows_of_keys_ = 0;  ///< before any is dropped
  std::int64_t past_ = 0;
  std::int64_t first_slot_ = 0;
  bool slots_as_they_stand_ = true;
  bool output_as_it_stands_ = true;
  std::vector<double> query_{};  // [D]
  std::vector<double> summand_{};
  Gathered keys_{};
  Gathered values_{};
};

}  // namespace attest::check
