// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/base/tensor.h"

/// The random calls that verify tries. Internal to verify*.cpp and the tests.
namespace attest::check {

/// One call, what flows back into it, and how to speak of it.
struct VerifyCase {
  AttentionCase call;
  Tensor<double> d_output;       // [B, H, T, E]
  Tensor<double> d_log_sum_exp;  // [B, H, T]
  std::string name;              ///< "workbook case 17 (T=3 S=3 D=2 E=1, causal)"
};

/// The workbook's family: lengths 1 to 5, query/key widths 1 to 4, value widths 1 to 3, with or
/// without a random allow mask that leaves every query a key, causal or not. Case n of a seed is a
/// function of both alone. One in four holds small whole numbers, the others numbers up to 3.
[[nodiscard]] VerifyCase workbook_case(std::uint64_t seed, std::int64_t n);

/// Everything else: batches, heads and groups, offsets and corners, windows, bias (with −∞ entries
/// and broadcast axes), softcap, ALiBi, sinks, key lengths, a given scale, rows that see nothing
/// under EmptyRow::zero, and magnitudes from 10⁻¹⁶⁰, whose products underflow, up to 10⁶.
[[nodiscard]] VerifyCase general_case(std::uint64_t seed, std::int64_t n);

/// Uniform in ±size.
[[nodiscard]] Tensor<double> random_tensor(Random& random, Shape shape, double size);

}  // namespace attest::check
