// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

/// Whose dump holds an input.
enum class HeldBy { both, first_alone, second_alone };

/// One tensor that the implementations were given, number by number.
struct InputDifference {
  std::string name{};  ///< "query"
  HeldBy held_by = HeldBy::both;
  std::int64_t compared = 0;
  std::int64_t different = 0;  ///< beyond what storing them in the coarser number type does
  double largest = 0;          ///< |second − first|
  double used = 0;             ///< the largest |second − first| / that rounding
  std::string address{};       ///< of the first that differs: "key[1,0,2,3]"
  double first = 0, second = 0;
};

/// Compares query, key, value, mask, bias, sink, key_lengths and the starts of documents: two outputs say
/// nothing of each other if these differ.
///
/// Formula       a number differs where |second − first| is more than the unit roundoff of the coarser of
///               the two claimed precisions times the larger; a mask's where it is not equal.
/// Edge cases    NaN equals NaN. Of a tensor that one alone has, it is told who; nothing is compared, for the
///               other may have been given it without dumping it. What neither has is left out.
/// Fails         shape-mismatch.
[[nodiscard]] Result<std::vector<InputDifference>> compare_inputs(const Claim& first,
                                                                  const Claim& second);

}  // namespace attest::check
