// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/text.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/tape.h"

/// What the public functions of the oracle share: from binary64 tensors to a formula and back, with
/// failures as values.
namespace attest::lab::oracle {

/// A tensor and what a failure calls it.
struct Named {
  std::string_view name;
  const Tensor<double>& tensor;
};

template <class... Parts>
[[nodiscard]] Failure failure(ErrorKind kind, const char* id, std::string_view operation,
                              const Parts&... parts) {
  return {kind, id, sentence("[oracle ", operation, "] ", parts...)};
}

[[nodiscard]] inline Failure not_finite(std::string_view operation, std::string_view name) {
  return failure(ErrorKind::value, "not-finite", operation, name,
                 " holds a number that is not finite");
}

[[nodiscard]] inline Failure wrong_shape(std::string_view operation, std::string_view name,
                                         const Shape& found, const Shape& expected) {
  return failure(ErrorKind::shape, "shape-mismatch", operation, name, " must be ",
                 to_string(expected), "; it is ", to_string(found));
}

/// Runs work, and turns an exception (of the arithmetic, or for want of memory) into a failure.
template <class Work>
[[nodiscard]] auto guarded(std::string_view operation, Work work) -> decltype(work()) {
#if defined(__cpp_exceptions)
  try {
    return work();
  } catch (const std::exception& error) {
    return failure(ErrorKind::value, "cannot-compute", operation, error.what());
  }
#else
  return work();
#endif
}

[[nodiscard]] inline bool all_finite(const Array<Real>& x) {
  for (const Real& number : x.values) {
    if (!is_finite(number)) return false;
  }
  return true;
}

[[nodiscard]] inline Result<std::vector<Array<Real>>> finite_inputs(
    std::string_view operation, const std::vector<Named>& inputs) {
  std::vector<Array<Real>> numbers;
  for (const Named& input : inputs) {
    numbers.push_back(to_real(input.tensor));
    if (!all_finite(numbers.back())) return not_finite(operation, input.name);
  }
  return numbers;
}

/// f(inputs), for a function from arrays to one array.
template <class Function>
[[nodiscard]] Result<Array<Real>> evaluate(std::string_view operation,
                                           const std::vector<Named>& inputs, Function f) {
  return guarded(operation, [&]() -> Result<Array<Real>> {
    const auto numbers = finite_inputs(operation, inputs);
    if (!numbers) return numbers.failure();
    Array<Real> out = f(*numbers);
    if (!all_finite(out)) return not_finite(operation, "the result");
    return out;
  });
}

/// The gradients of Σ d_output · f(inputs), one array for each input, in its shape.
template <class Function>
[[nodiscard]] Result<std::vector<Array<Real>>> differentiate(std::string_view operation,
                                                             const std::vector<Named>& inputs,
                                                             const Tensor<double>& d_output,
                                                             const Shape& output_shape,
                                                             Function f) {
  if (d_output.shape() != output_shape) {
    return wrong_shape(operation, "d_output", d_output.shape(), output_shape);
  }
  return guarded(operation, [&]() -> Result<std::vector<Array<Real>>> {
    const auto numbers = finite_inputs(operation, inputs);
    if (!numbers) return numbers.failure();
    const Array<Real> seeds = to_real(d_output);
    if (!all_finite(seeds)) return not_finite(operation, "d_output");
    std::vector<Array<Real>> gradients = pull_back(*numbers, seeds, f);
    for (const Array<Real>& gradient : gradients) {
      if (!all_finite(gradient)) return not_finite(operation, "the gradient");
    }
    return gradients;
  });
}

}  // namespace attest::lab::oracle
