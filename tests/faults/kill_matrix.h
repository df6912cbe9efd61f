// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tests/faults/experiment.h"
#include "tests/faults/mutations.h"

/// What the experiments show together.
namespace attest::faults {

struct Experiment {
  Mutation mutation;
  Outcome outcome;
};

/// The table: mistakes down, fixtures across, an x where a fixture gives another result, and the
/// number of tests that failed; below it what the workbook's own fixtures would have missed.
[[nodiscard]] std::string kill_matrix(const std::vector<Experiment>& experiments,
                                      const Outcome& control);

/// Everything that is not as it must be, a line for each; empty if nothing is: the control passes,
/// every mistake is killed and shows on a fixture, and no two look alike on all of them.
[[nodiscard]] std::vector<std::string> complaints(const std::vector<Experiment>& experiments,
                                                  const Outcome& control);

}  // namespace attest::faults
