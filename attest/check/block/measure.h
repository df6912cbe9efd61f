// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "attest/check/block/search.h"

/// How near the tables of one recipe come to a dump's.
namespace attest::check::block {

using Choice = std::vector<std::size_t>;  // candidates, in the order in which they are made

/// What one recipe does to every link.
struct Outcome {
  Choice choice{};
  std::vector<Fit> fits{};
  std::vector<char> changes{};  ///< other numbers than the claim's

  [[nodiscard]] bool explains() const;
  [[nodiscard]] std::size_t good_links() const;
  [[nodiscard]] double distance() const;
};

/// Whether one comes nearer than another: more tables first, then by distance.
[[nodiscard]] bool nearer(const Outcome& a, const Outcome& b);

class Measurer {
 public:
  /// The trial must outlive it.
  explicit Measurer(const Trial& trial);

  /// Every link, with noise where it is near; no fits if the recipe does not fit the shapes.
  [[nodiscard]] Outcome measure(const BlockRecipe& recipe);
  /// The claim's own.
  [[nodiscard]] const Outcome& claim() const { return claim_; }

  std::int64_t tried = 0;

 private:
  const Trial& trial_;
  std::vector<Numbers> claimed_{};
  Outcome claim_{};
  std::vector<double> reject_{};
};

}  // namespace attest::check::block
