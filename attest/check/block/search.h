// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attest/check/block/block_mistakes.h"
#include "attest/check/block/numbers.h"
#include "attest/check/block/program.h"
#include "attest/check/diagnose/diagnosis.h"

/// Which mistakes give the numbers of a dump, whatever it is a dump of.
namespace attest::check::block {

/// One table that is explained, from the tables before it.
struct Link {
  std::string stage{};
  std::string name{};
  Numbers found{};
};

/// Recomputes link after link with one recipe; empty where the recipe does not fit.
using Recompute = std::function<Numbers(std::size_t link)>;

struct Trial {
  std::vector<Link> links{};  ///< in order of computation
  std::function<Recompute(const BlockRecipe&, Noise)> start{};
  BlockRecipe claim{};
  BlockConfig config{};
  std::vector<Candidate> candidates{};
  double unit = 0;  ///< of what is stored
  Zones zones{};
  bool large = false;  ///< the links are samples of tables
  /// Of a large dump, whether a recipe gives all rows of all tables.
  std::function<bool(const BlockRecipe&)> confirms{};
};

/// How a recomputed table compares with the found one.
struct Fit {
  double distance = 0;  ///< root mean square of (found − recomputed) / noise
  double used = 0;      ///< the largest |found − recomputed| / what is possible
  double unusual = 0;   ///< the largest |found − recomputed| / what is typical
  [[nodiscard]] bool good() const { return used <= 1 && distance <= good_distance; }
  /// Numbers whose noise is as numbers.h models it are at a distance of about 1. Sums in another order, or
  /// errors that rows share, move it; tests/check/block_test.cpp prints how far right programs are.
  static constexpr double good_distance = 3;
};
[[nodiscard]] Fit fit_of(const Numbers& found, const Numbers& recomputed, const Zones& zones);

struct Found {
  std::vector<Explanation> explanations{};
  std::int64_t tried = 0;
};

/// Singles, then pairs, then what extends the best pairs; it ends with the first number of mistakes that
/// explains everything. Those that give the same numbers are one, with `same`; `apart` is from the best.
[[nodiscard]] Found search(const Trial& trial, const DiagnoseOptions& options);

/// Labels of mistakes that would leave every number of this dump as it is, within noise.
[[nodiscard]] std::vector<std::string> invisible(const Trial& trial, std::int64_t& tried);

}  // namespace attest::check::block
