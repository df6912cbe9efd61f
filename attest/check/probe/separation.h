// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/catalogue.h"
#include "attest/check/probe/probe.h"

namespace attest::check {

/// Two mistakes, or a mistake and the claim itself ("right"), and how far their outputs are apart.
struct MistakePair {
  std::string first, second;
  double apart = 0;  ///< ‖first − second‖ / ‖right‖
};

/// How well the outputs on one input tell single mistakes of the catalogue apart.
struct Separation {
  /// Mistakes that can be made on the claim and change its numbers, each with each of its values.
  std::int64_t mistakes = 0;
  /// Labels that give the claim's own output: nothing on this input shows them.
  std::vector<std::string> unseen{};
  /// Labels of different mistakes with one output, class by class.
  std::vector<std::vector<std::string>> same{};
  /// Other pairs nearer than 3 times the noise of bf16, the nearest first.
  std::vector<MistakePair> near{};
  /// Of all pairs that are not the same, at least; infinite if there are none.
  double smallest = std::numeric_limits<double>::infinity();

  /// How many pairs are nearer than 3 times the noise of this type.
  [[nodiscard]] std::int64_t untold_at(Precision precision) const;
};

/// Two outputs are told apart if they are farther than this many times the noise.
inline constexpr double told_apart = 3;

/// Multiplications of an output that is computed for every mistake: some milliseconds.
inline constexpr double affordable_output = 3e7;

/// Measures an input: every mistake of the catalogue that can be made on the claim is made, and every
/// two outputs are compared.
///
/// Formula       apart(a, b) = ‖a − b‖ / ‖right‖, Frobenius; infinite where NaN or infinities lie
///               differently. Told apart at a precision: apart ≥ 3·u, u its unit roundoff. Up to 2⁻⁴⁰
///               two outputs are the same: they are recomputed in binary64, sum by sum another way.
/// Edge cases    harmless mistakes and those of rounding alone are left out, and two values of one
///               mistake are not held against each other. The claim needs query, key and value.
///               Where an output of all rows costs more than `multiplications`, rows that cost so much are
///               compared first, and of pairs that those do not tell apart others, if need be all: rows left
///               out can only add to a distance. So what is listed as the same or near is measured on every
///               row, and what is not listed is told apart on any input.
/// Determinism   any number of threads.
/// Cost          as many outputs as there are mistakes, some hundreds, and a call for each that is listed.
///               Memory: those outputs, of the rows that are compared.
[[nodiscard]] Separation separation(const Claim& claim, double multiplications = affordable_output);

/// A probe, and what it tells apart.
struct MeasuredProbe {
  Probe probe{};
  Separation separation{};
};

/// Draws probes of one seed after the other, from the request's on, until every pair is told apart at
/// bf16; of `seeds` that do not, the one that leaves the fewest pairs, first at f16, then at bf16. Of
/// large calls they are ranked by rows that stand for all, and the one taken is measured as above.
/// `progress` is told how many seeds were tried. Fails as make_probe.
[[nodiscard]] Result<MeasuredProbe> decisive_probe(
    ProbeRequest request, std::int64_t seeds,
    const std::function<void(std::int64_t tried)>& progress = {});

}  // namespace attest::check
