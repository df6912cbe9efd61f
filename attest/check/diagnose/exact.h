// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "attest/check/diagnose/judge.h"
#include "attest/lab/attention_row.h"

/// What the exact tier says of a claim's rows: the judge of those that decide.
namespace attest::check {

/// Rows of the exact tier for a claim, whatever the dump begins with.
///
/// With query and key: lab::attention's row, after lab::rope where the claim rotates. Without, the
/// exact softmax of the masked scores, and exact sums of the given weights; what lies between the
/// first table and those is the evaluation's, one operation a step.
class ExactRows {
 public:
  /// Fails as lab::check_attention and lab::rope do. The dump must outlive it.
  static Result<ExactRows> make(const Dump& dump);

  struct Row {
    StageRow stages{};
    std::optional<lab::AttentionRow> all{};  ///< if the dump has query and key
  };
  /// `evaluated` is the same row as the default recipe gives it.
  [[nodiscard]] Row row(lab::RowPlace at, const StageRow& evaluated) const;

  /// "h1.output[2,0]"
  [[nodiscard]] std::string address(Stage stage, lab::RowPlace at, std::int64_t n) const;
  /// How number n of a stage comes about: "0.61 * value[0,0] + 0.39 * value[2,0]; key 3 is hidden by
  /// causal".
  [[nodiscard]] std::string sentence_of(Stage stage, lab::RowPlace at, std::int64_t n,
                                        const Row& row) const;

 private:
  explicit ExactRows(const Dump& dump) : dump_(&dump) {}
  [[nodiscard]] std::string prefix(lab::RowPlace at) const;
  [[nodiscard]] std::string terms_of_output(lab::RowPlace at, std::int64_t e, const Row& row) const;
  [[nodiscard]] std::string terms_of_dot(lab::RowPlace at, std::int64_t j) const;

  const Dump* dump_;
  Tensor<double> query_{}, key_{}, value_{};  // rotated, or a stand-in for what the dump lacks
  lab::AttentionShape shape_{};
};

}  // namespace attest::check
