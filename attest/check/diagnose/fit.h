// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attest/check/diagnose/search.h"

/// Constants of a program, found from its numbers and then looked up.
namespace attest::check {

/// Fits one constant at a time (scale, softcap, base of the softmax, factor of the weights, keys of
/// score 0 in the denominator, factor of ALiBi's slopes), and counts window and offset. Returns
/// those that explain the samples.
///
/// Formula       least squares in units of the noise over some rows: a grid, a golden section in the
///               logarithm, Newton's steps (Gauss, 1809); the error of a constant is 1/√Σ (d/dx)²
[[nodiscard]] std::vector<Candidate> fit_constants(const Dump& dump, const Samples& samples,
                                                   ThreadPool& pool, std::int64_t& tried);

/// The same beside each of the mistakes that come nearest.
[[nodiscard]] std::vector<Candidate> fit_constants_beside(const Dump& dump, const Samples& samples,
                                                          const std::vector<Candidate>& singles,
                                                          ThreadPool& pool, std::int64_t& tried);

/// What a number may stand for: "1/sqrt(D)", "1/D"; all that agree within its relative error.
[[nodiscard]] std::vector<std::string> names_of_scale(const Claim& claim, double scale,
                                                      double error);

/// "scale = 0.0833333 = 1/D": for a recipe that has a scale of its own.
[[nodiscard]] std::vector<std::string> constants_of(const Claim& claim, const Recipe& recipe);

}  // namespace attest::check
