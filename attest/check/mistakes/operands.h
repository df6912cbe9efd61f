// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// What a program takes for query, key and value, and how it lays out what it produced.
struct OperandRecipe {
  bool operator==(const OperandRecipe&) const = default;
};

/// The call as the mistaken program sees it: its own shape, and its rows of query, key and value.
///
/// Its batch, heads and queries need not be the claim's: a program that takes heads for the sequence has
/// T queries for every H. `source_of_output` says which of its numbers lies where the dump has one.
class Operands {
 public:
  /// Nothing if the recipe cannot be carried out on tensors of these shapes. The claim must outlive it.
  static std::optional<Operands> make(const Claim& claim, const OperandRecipe& recipe);

  [[nodiscard]] const lab::AttentionShape& shape() const noexcept { return shape_; }

  /// [D]
  [[nodiscard]] std::span<const double> query(lab::RowPlace at);
  /// [S, D] as query head h of the program reads them. Kept until another head is asked for.
  [[nodiscard]] std::span<const double> keys(std::int64_t b, std::int64_t h);
  /// [S, E]
  [[nodiscard]] std::span<const double> values(std::int64_t b, std::int64_t h);

  /// The index that the program's key j has in the claim: masks and positions count from it.
  [[nodiscard]] std::int64_t key_index(std::int64_t j) const noexcept;

  struct Source {
    lab::RowPlace row{};
    std::int64_t feature = 0;
  };
  /// Which number of the program lies at [b, h, i, e] of the dump.
  [[nodiscard]] Source source_of_output(lab::RowPlace at, std::int64_t e) const;

 private:
  const Claim* claim_ = nullptr;
  lab::AttentionShape shape_;
};

}  // namespace attest::check
