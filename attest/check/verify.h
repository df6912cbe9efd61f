// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/attention_call.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/workbook.h"

namespace attest::check {

/// What is verified: the exact tier, or another one, or a wrong one, in its place.
struct Implementation {
  using Attention = Result<lab::AttentionResult>(const AttentionInputs<double>&,
                                                 const AttentionOptions<double>&);
  using AttentionBackward = Result<lab::AttentionGradients>(const AttentionInputs<double>&,
                                                            const AttentionOptions<double>&,
                                                            const lab::AttentionOutputGradients&);
  using Block = Result<lab::workbook::BlockResult>(const Tensor<double>& rows,
                                                   const lab::workbook::BlockParameters&,
                                                   const lab::workbook::AttentionOptions& causal);
  using Matmul = Result<Tensor<double>>(const Tensor<double>& left, const Tensor<double>& right);
  using Softmax = Result<Tensor<double>>(std::span<const double> scores);

  std::function<Attention> attention;
  std::function<AttentionBackward> attention_backward;
  std::function<Block> block;  ///< `allow` is not looked at
  std::function<Matmul> matmul;
  std::function<Softmax> softmax;

  [[nodiscard]] static Implementation exact_tier();
};

/// The workbook's release verification had this many random cases and assertions.
inline constexpr std::int64_t release_cases = 120;
inline constexpr std::int64_t release_assertions = 3722;

struct VerifyOptions {
  std::uint64_t seed = 20170612;
  std::int64_t cases = release_cases;  ///< of the workbook's family, and as many general ones;
                                       ///< fewer than 120 are raised to that
  std::function<void(std::string_view section, std::int64_t done, std::int64_t sections)>
      progress{};
  Implementation implementation = Implementation::exact_tier();
};

/// One assertion that did not hold.
struct VerifyFailure {
  std::string address;  ///< "workbook case 17 (T=3 …): weights[0,0,2,1]"
  double found = 0;
  double expected = 0;  ///< rounded to binary64, if it is the oracle's
  double allowed = 0;   ///< how far apart they may be
};

/// One law, or one table, and how often it was put to the test.
struct VerifyCheck {
  std::string name;
  std::string about;  ///< the workbook's chapter, or the stage that the law belongs to
  std::int64_t assertions = 0;
  std::int64_t failed = 0;
  double used = 0;      ///< the largest |found − expected| / bound; 0 where there is no bound
  std::string used_at;  ///< its address
  std::vector<VerifyFailure> failures;  ///< the first five
};

struct VerifySection {
  std::string name;
  std::vector<VerifyCheck> checks;

  [[nodiscard]] std::int64_t assertions() const;
  [[nodiscard]] std::int64_t failed() const;
};

struct VerifyReport {
  std::uint64_t seed = 0;
  std::int64_t cases = 0;
  std::vector<VerifySection> sections;

  [[nodiscard]] std::int64_t assertions() const;
  [[nodiscard]] std::int64_t failed() const;
  /// Nothing failed, and no check was empty.
  [[nodiscard]] bool passed() const;
  /// The section of that name, or null.
  [[nodiscard]] const VerifySection* find(std::string_view name) const;
};

/// The workbook's release verification, and what the library adds to it.
///
/// Sections      "hand-calculated facts"  every table and number of the workbook, by chapter
///               "invariants"             laws of single stages, on every random case
///               "oracle"                 every output, weight and log_sum_exp of every random case
///                                        within lab/bound.h of the 50-digit value
///               "future change"          a later input changes no earlier output under the causal
///                                        mask, and some without
///               "permutation and constants"
///               "gradients"              query, key, value, bias and sink within lab/bound.h
///               "block and layers"       the workbook's block and the layers around it
///               "elementary functions"   equal to the nearest double of the oracle's value
///               "errors"                 every broken contract is answered by its id
/// Determinism   a report is a function of seed, cases and implementation.
/// Fails         never: a call that fails where it should not is a failed assertion.
/// Cost          about a second at 120 cases.
/// Sources       the workbook, chapters 1 to 5.
[[nodiscard]] VerifyReport verify(const VerifyOptions& options = {});

/// One line a check with its count and, where there is a bound, the used fraction; then failures
/// with address, both numbers and the seed; then the total.
[[nodiscard]] std::string to_text(const VerifyReport& report);
[[nodiscard]] std::string to_json(const VerifyReport& report);

}  // namespace attest::check
