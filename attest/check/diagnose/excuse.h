// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/check/diagnose/judge.h"

/// Whether rounding is a good excuse for numbers that it could have made.
namespace attest::check {

/// What speaks against the excuse.
struct Excuse {
  std::int64_t far = 0;    ///< numbers beyond what such roundings come to by chance
  std::int64_t blind = 0;  ///< rows for which other rows' numbers, or zeros, would have it too
  std::int64_t rows = 0;   ///< that were looked at for that

  [[nodiscard]] bool holds() const { return far == 0 && blind == 0; }
  /// What speaks against it, and what would decide.
  [[nodiscard]] std::vector<std::string> remarks() const;
  [[nodiscard]] std::vector<std::string> would_decide(const Dump& dump) const;
};

/// Of a dump whose numbers are beyond what its arithmetic typically leaves, and not beyond its worst.
///
/// A row of the output is blind if zeros, or the claim's numbers for the query after it or the head
/// after it, differ from it beyond typical rounding and would be excused in its place.
[[nodiscard]] Excuse excuse_of(const Dump& dump, const Judged& claim, const Noise& noise);

}  // namespace attest::check
