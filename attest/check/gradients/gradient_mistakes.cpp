// SPDX-License-Identifier: MIT
#include "attest/check/gradients/gradient_mistakes.h"

#include <vector>

namespace attest::check {

std::span<const GradientMistake> gradient_mistakes() {
  static const std::vector<GradientMistake> all = [] {
    std::vector<GradientMistake> out;
    for (const auto part : {gradients::score_mistakes(), gradients::sum_mistakes(),
                            gradients::forget_mistakes(), gradients::result_mistakes()}) {
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }();
  return all;
}

}  // namespace attest::check
