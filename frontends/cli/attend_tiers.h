// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/visibility.h"
#include "attest/linalg/isa.h"
#include "frontends/cli/case_options.h"
#include "frontends/cli/print.h"

namespace attest::cli {

struct AttendOptions {
  CaseOptions inputs;
  NumberStyle style;
  bool exact = false;
  bool engine = false;
  bool oracle = false;
  bool compare = false;
  bool json = false;                    ///< of compare
  std::optional<std::int64_t> rows;     ///< of compare
  std::string isa;                      ///< of the engine and of compare
  std::optional<std::int64_t> threads;  ///< likewise
  bool weights = false;
  bool log_sum_exp = false;
  std::string out;
  std::string dtype;  ///< of the written numbers; "": what the tier computed in
};

/// What was computed, in the layout of the input; the oracle's decimal texts beside the doubles.
struct Named {
  std::string name;
  Tensor<double> values;
  std::vector<std::string> texts{};  ///< of the oracle, one for each value
  DType dtype = DType::f64;          ///< that the tier computed it in
};
struct Outcome {
  std::vector<Named> results{};
  std::string tier{};  ///< "exact", "engine in f32 on avx2, 2 threads": what computed it
};

[[nodiscard]] Result<Outcome> run_exact(LoadedCase& loaded, const AttendOptions& options);
/// An estimate for the oracle, in seconds, if the call hides nothing.
[[nodiscard]] double oracle_seconds(const lab::AttentionShape& shape);

/// Fails with too-large if that is more than ten minutes.
[[nodiscard]] Result<Outcome> run_oracle(LoadedCase& loaded, const AttendOptions& options);
[[nodiscard]] Result<Outcome> run_engine(const LoadedCase& loaded, const AttendOptions& options);

/// The letters of the call, as far as the tensors say them; nothing is checked.
[[nodiscard]] lab::AttentionShape shape_of(const LoadedCase& loaded);

/// The number type that the engine computes a call in.
struct EngineType {
  DType dtype = DType::f32;
  std::string remark{};  ///< why it is not that of the query; "" if it is
};

/// The type that query, key, value and bias all fit in without a rounding: the narrowest of theirs
/// that holds the others. f64 where there are whole numbers, or a bias beyond f32.
[[nodiscard]] EngineType engine_type(const LoadedCase& loaded);

/// Whose kernels compute in that type, when a call uses a set. What a set adds to avx512 is products
/// of bfloat16; the rest of its kernels are avx512's.
[[nodiscard]] constexpr Isa kernels_of(DType type, Isa set) {
  return type == DType::bf16 ? set : std::min(set, Isa::avx512);
}

/// The instruction set that is asked for. Fails with bad-isa.
[[nodiscard]] Result<Isa> chosen_isa(const AttendOptions& options);

}  // namespace attest::cli
