// SPDX-License-Identifier: MIT
#pragma once

#include <utility>
#include <vector>

#include "tests/check/gradients_dropout_mistakes.h"
#include "tests/check/gradients_mask_mistakes.h"
#include "tests/check/gradients_result_mistakes.h"
#include "tests/check/gradients_score_mistakes.h"
#include "tests/check/gradients_shared_mistakes.h"
#include "tests/check/gradients_sum_mistakes.h"

/// Mistakes as people make them, in the tests' own program: one for every entry of the catalogue.
namespace attest::test {

inline std::vector<Made> all_made() {
  std::vector<Made> out;
  for (auto part : {row_term_mistakes(), score_step_mistakes(), shared_mistakes(), head_mistakes(),
                    value_mistakes(), mask_mistakes(), block_mistakes(), transposed_mistakes(),
                    result_mistakes()}) {
    for (Made& made : part) out.push_back(std::move(made));
  }
  return out;
}

}  // namespace attest::test
