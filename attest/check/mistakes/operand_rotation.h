// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attest/check/mistakes/claim.h"
#include "attest/check/mistakes/operand_recipe.h"

namespace attest::check {

/// Turns rows as a program with that recipe does.
///
/// Formula       the pair (x, y) at position p becomes (x·c − y·s, y·c + x·s) with the angles'
///               cosines and sines, which come from tables of 64 positions and of multiples of 64:
///               four multiplications for each pair in place of a sine and a cosine.
/// Cost          a row: 4 multiplications a pair, and 4 more for the tables.
class Rotation {
 public:
  /// For rows of `width` features; `key` says which of the recipe's two pairings and turns count.
  /// Nothing if the rotated width does not fit.
  static std::optional<Rotation> make(const RopeConfig& config, const RopeRecipe& recipe,
                                      std::int64_t width, Role role);

  void turn(std::span<double> row, std::int64_t position);

 private:
  struct Pair {
    std::int64_t x = 0;  ///< its two features
    std::int64_t y = 0;
    std::size_t x_angle = 0;  ///< which angle each of them turns by
    std::size_t y_angle = 0;
  };
  struct Table {
    std::vector<double> cosine, sine;  // [R/2]
  };

  Rotation() = default;
  void set_pairs(bool interleaved, bool interleaved_tables, std::int64_t first);
  void set_frequencies(const RopeConfig& config, const RopeRecipe& recipe, std::int64_t width);
  void fill(Table& table, double position) const;
  void prepare(std::int64_t position);
  void turn_halves(double* row) const;

  std::vector<Pair> pairs_;          // [R/2]
  std::vector<double> frequencies_;  // [R/2]
  bool halves_ = false;              ///< pair i is (i, i + R/2), and turns by angle i
  double sign_ = 1;
  bool twice_ = false;
  RopeForm form_ = RopeForm::claimed;
  RopeRounding rounding_ = RopeRounding::none;
  std::vector<Table> low_;  ///< of the positions 0 … 63, as they are needed
  Table high_{};            ///< of one multiple of 64
  Table now_{};             ///< of the last position
  std::optional<std::int64_t> high_block_{};
  std::optional<std::int64_t> prepared_{};
};

}  // namespace attest::check
