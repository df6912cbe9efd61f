// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// One table that two dumps have, number by number.
struct TableDifference {
  Stage stage = Stage::output;
  std::string first_name, second_name;  ///< in the files
  std::int64_t compared = 0;
  std::int64_t different = 0;  ///< beyond rounding, NaN patterns included
  std::int64_t nan_both =
      0;                  ///< NaN in both, where the claim asks for none: nothing is known of them
  double largest = 0;     ///< |second − first|
  double used = 0;        ///< the largest |second − first| / tolerance
  std::string address{};  ///< of the first that differs: "h1.weights[2,0]"
  double first = 0, second = 0;
};

/// Compares the tables that both have, in order of computation.
///
/// Formula       a number differs where |second − first| is more than what rounding may do to the first
///               and to the second together: the bounds of noise.h, with the first's claim and tensors.
/// Edge cases    NaN or an infinity in one alone differs. A score that the claim hides, before the stage
///               at which it is hidden, is not compared. A NaN in both proves nothing, and is counted.
/// Fails         shape-mismatch if the two are not of one shape; missing-tensor if nothing is common.
[[nodiscard]] Result<std::vector<TableDifference>> compare_stages(const Dump& first,
                                                                  const Dump& second);

/// The dump whose diagnosis says what the second did at the stage: its table there, judged from the
/// first's table before it, or from the first's inputs where there is none.
[[nodiscard]] Dump dump_at_stage(const Dump& first, const Dump& second, Stage stage);

}  // namespace attest::check
