// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>

#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/diagnose/dump_of.h"

/// Assertions for GoogleTest 1.11 and later, which this header alone of the library includes:
///
///     TEST(MyAttention, IsRight) {
///       const auto dump = attest::check::dump_of(call, my_attention(call));
///       EXPECT_TRUE(attest::check::is_right(dump));
///     }
///
/// and with GoogleMock `EXPECT_THAT(dump, attest::check::IsRight())`. A failure prints the diagnosis: the
/// first wrong stage and number, and the mistake that gives the dump's numbers.
/// docs/examples/check_in_a_test.cpp is a whole test.
namespace attest::check {

/// Matches a Dump that is judged right, or right within the rounding of its number type.
class IsRightMatcher {
 public:
  using is_gtest_matcher = void;

  explicit IsRightMatcher(DiagnoseOptions options = {}) : options_(std::move(options)) {}

  bool MatchAndExplain(const Dump& dump, std::ostream* out) const {  // NOLINT: GoogleTest's name
    const auto diagnosis = diagnose(dump, options_);
    if (!diagnosis) {
      if (out != nullptr) *out << "cannot be judged: " << diagnosis.failure().message;
      return false;
    }
    if (out != nullptr) *out << "is judged so:\n" << to_text(dump, *diagnosis);
    return diagnosis->judgement == Judgement::right ||
           diagnosis->judgement == Judgement::right_by_rounding;
  }
  void DescribeTo(std::ostream* out) const { *out << "is right attention"; }  // NOLINT
  void DescribeNegationTo(std::ostream* out) const {                          // NOLINT
    *out << "is not right attention";
  }

 private:
  DiagnoseOptions options_;
};

[[nodiscard]] inline IsRightMatcher IsRight(DiagnoseOptions options = {}) {  // NOLINT
  return IsRightMatcher(std::move(options));
}

/// Matches a Dump that this mistake alone explains best, or one that gives the same numbers on it: for
/// tests that put a mistake into a program on purpose. "kv.tail_block_dropped" is met with any of its
/// values, "kv.tail_block_dropped (16)" with that one. Of a name that is not in the catalogue it says so.
class IsExplainedByMatcher {
 public:
  using is_gtest_matcher = void;

  explicit IsExplainedByMatcher(std::string name) : name_(std::move(name)) {}

  bool MatchAndExplain(const Dump& dump, std::ostream* out) const {  // NOLINT
    if (find_mistake(name_.substr(0, name_.find(" ("))) == nullptr) {
      if (out != nullptr) *out << "is not looked at: there is no mistake '" << name_ << "'";
      return false;
    }
    const auto diagnosis = diagnose(dump);
    if (!diagnosis) {
      if (out != nullptr) *out << "cannot be judged: " << diagnosis.failure().message;
      return false;
    }
    if (out != nullptr) *out << "is judged so:\n" << to_text(dump, *diagnosis);
    if (diagnosis->explanations.empty()) return false;
    const Explanation& best = diagnosis->explanations[0];
    if (best.mistakes.size() != 1 || best.mistakes[0].mistake == nullptr) return false;
    return is_named(best.mistakes[0].label()) ||
           std::any_of(best.same.begin(), best.same.end(),
                       [this](const std::string& label) { return is_named(label); });
  }
  void DescribeTo(std::ostream* out) const { *out << "is explained by " << name_; }  // NOLINT
  void DescribeNegationTo(std::ostream* out) const {                                 // NOLINT
    *out << "is not explained by " << name_;
  }

 private:
  [[nodiscard]] bool is_named(const std::string& label) const {
    return label == name_ || label.substr(0, label.find(" (")) == name_;
  }

  std::string name_;
};

[[nodiscard]] inline IsExplainedByMatcher IsExplainedBy(std::string name) {  // NOLINT
  return IsExplainedByMatcher(std::move(name));
}

/// The same for EXPECT_TRUE and ASSERT_TRUE.
[[nodiscard]] inline testing::AssertionResult is_right(const Dump& dump,
                                                       DiagnoseOptions options = {}) {
  std::ostringstream text;
  const bool right = IsRight(std::move(options)).MatchAndExplain(dump, &text);
  return (right ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "the dump " << text.str();
}

[[nodiscard]] inline testing::AssertionResult is_explained_by(const Dump& dump, std::string name) {
  std::ostringstream text;
  const bool explained = IsExplainedBy(std::move(name)).MatchAndExplain(dump, &text);
  return (explained ? testing::AssertionSuccess() : testing::AssertionFailure())
         << "the dump " << text.str();
}

/// GoogleTest prints a dump by its shape, not byte by byte.
inline void PrintTo(const Dump& dump, std::ostream* out) {  // NOLINT
  const lab::AttentionShape& s = dump.claim.shape;
  *out << "a dump of B " << s.B << ", H " << s.H << ", T " << s.T << ", S " << s.S;
}

}  // namespace attest::check
