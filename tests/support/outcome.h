// SPDX-License-Identifier: MIT
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "attest/base/attention_case.h"
#include "attest/base/result.h"
#include "attest/lab/attention.h"

/// Looking at results so that a mistake fails an assertion, and does not end the test program.
namespace attest::test {

template <class T>
std::string failure_id(const Result<T>& result) {
  return result ? "(no failure)" : result.failure().id;
}
template <class T>
std::string failure_message(const Result<T>& result) {
  return result ? "(no failure)" : result.failure().message;
}

/// The result of a call; where it failed, tables of the same shapes full of NaN.
inline lab::AttentionResult run_or_nan(const AttentionCase& call) {
  auto found = lab::attention(call.inputs(), call.options());
  if (found) return *std::move(found);
  const auto nans = [](Shape shape) {
    Tensor<double> out(std::move(shape));
    for (double& x : out.elements()) x = std::numeric_limits<double>::quiet_NaN();
    return out;
  };
  const auto B = call.query.extent(0), H = call.query.extent(1), T = call.query.extent(2);
  return {nans({B, H, T, call.value.extent(3)}), nans({B, H, T, call.key.extent(2)}),
          nans({B, H, T})};
}

}  // namespace attest::test
