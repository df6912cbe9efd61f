// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "attest/base/tensor.h"

namespace attest::lab {

/// A named table of intermediate values: "h1.weights" with shape [T, S], "norm1.mean" with [T].
struct Stage {
  std::string name;
  Tensor<double> values;
};

}  // namespace attest::lab
