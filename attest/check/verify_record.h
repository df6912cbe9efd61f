// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/check/verify.h"
#include "attest/check/verify_cases.h"
#include "attest/lab/bound.h"
#include "attest/lab/bound_fraction.h"
#include "attest/lab/oracle.h"

/// How the sections of verify write down what they find. Internal to verify*.cpp.
namespace attest::check {

/// Where an assertion speaks of: a case and a stage; the index is added where one fails.
struct Spot {
  std::string_view subject;  ///< "workbook case 3 (…)"; may be empty
  std::string_view stage;    ///< "weights"
};

/// Counts the assertions of one check and keeps the first failures.
class Recorder {
 public:
  explicit Recorder(VerifyCheck& check) : check_(check) {}

  /// found = expected as numbers: +0 equals −0, and a NaN equals nothing.
  void equal(double found, double expected, const std::string& address);

  /// |found − expected| ≤ allowed.
  void near(double found, double expected, double allowed, const std::string& address);

  /// low − allowed ≤ found ≤ high + allowed; a failure shows the side that is passed.
  struct Range {
    double low = 0;
    double high = 0;
    double allowed = 0;
  };
  void inside(double found, const Range& range, const std::string& address);

  /// A statement; a failure shows 0 for found and 1 for expected.
  void that(bool holds, const std::string& address);

  /// A call that must not have failed; a failure shows its message. Returns whether it has a value.
  template <class T>
  bool succeeded(const Result<T>& result, std::string_view subject) {
    that(result.has_value(),
         result ? std::string() : std::string(subject) + ": " + result.failure().message);
    return result.has_value();
  }

  /// A call that must have failed with this id.
  template <class T>
  void failed_with(const Result<T>& result, std::string_view id, std::string_view subject) {
    const std::string found = result ? "no failure" : result.failure().id;
    that(found == id, std::string(subject) + ": expected " + std::string(id) + ", found " + found);
  }

  /// Every element within its bound of the oracle's value; keeps the largest used fraction.
  void within(const Tensor<double>& found, const lab::oracle::OracleTensor& expected,
              const Tensor<double>& bound, const Spot& spot);

  /// Every element has the same bits.
  void same_bits(const Tensor<double>& found, const Tensor<double>& expected, const Spot& spot);

 private:
  void fail(const std::string& address, double found, double expected, double allowed);
  VerifyCheck& check_;
};

/// "subject: stage[1,0]" for the n-th element of a tensor of that shape.
[[nodiscard]] std::string address_of(const Spot& spot, const Shape& shape, std::size_t n);

/// A random case with everything that is known about it, computed once.
struct EvaluatedCase {
  VerifyCase c;
  Result<lab::AttentionResult> found;
  Result<lab::oracle::Attention> expected;
  Result<lab::AttentionBound> bound;

  [[nodiscard]] bool complete() const {
    return found.has_value() && expected.has_value() && bound.has_value();
  }
};

struct VerifyContext {
  const VerifyOptions& options;
  const Implementation& use;
  std::vector<EvaluatedCase> cases;
};

/// A check under construction: `work` gets its recorder.
void add_check(VerifySection& section, std::string name, std::string about,
               const std::function<void(Recorder&)>& work);

/// query [T, D], key [S, D], value [S, E] as one batch with one head.
[[nodiscard]] AttentionCase one_head(const Tensor<double>& query, const Tensor<double>& key,
                                     const Tensor<double>& value);
[[nodiscard]] Tensor<double> rows_of(std::initializer_list<std::initializer_list<double>> rows);

// The sections, in order.
[[nodiscard]] VerifySection verify_facts(const VerifyContext& context);
[[nodiscard]] VerifySection verify_invariants(const VerifyContext& context);
[[nodiscard]] VerifySection verify_against_oracle(const VerifyContext& context);
[[nodiscard]] VerifySection verify_future_change(const VerifyContext& context);
[[nodiscard]] VerifySection verify_permutation(const VerifyContext& context);
[[nodiscard]] VerifySection verify_gradients(const VerifyContext& context);
[[nodiscard]] VerifySection verify_layers(const VerifyContext& context);
[[nodiscard]] VerifySection verify_elementary(const VerifyContext& context);
[[nodiscard]] VerifySection verify_errors(const VerifyContext& context);

}  // namespace attest::check
