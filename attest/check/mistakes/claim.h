// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/visibility.h"

namespace attest::check {

/// The arithmetic that an implementation is said to use: what its sums are made in, and what its
/// results are stored in. Sums of tf32 products, and of 16-bit numbers, are made in f32.
enum class Precision { f64, f32, tf32, f16, bf16 };
[[nodiscard]] std::string_view name_of(Precision precision) noexcept;
/// The unit roundoff of a result: 2^-53, 2^-24, 2^-11 (tf32 and f16), 2^-8.
[[nodiscard]] double unit_of(Precision precision) noexcept;

/// Rotary positions that the implementation applies to query and key before anything else.
struct RopeClaim {
  RopeConfig config{};
  std::vector<std::int64_t> query_positions{};  ///< [T], or [B·T]
  std::vector<std::int64_t> key_positions{};    ///< [S], or [B·S]
};

/// What somebody says that an implementation computes, and the tensors that it was given: what a
/// verdict is relative to.
///
/// `call` owns query, key and value in the order [B, H, T, D], whatever the files' layout was, as they
/// were before any rotation; cached keys and values stand before the new ones. Where a dump has no
/// query, key or value, that tensor has no element, and `shape` says what is known: 0 is not known.
struct Claim {
  AttentionCase call{};
  std::optional<RopeClaim> rope{};
  std::int64_t past = 0;  ///< how many of the keys came from a cache
  Precision precision = Precision::f32;
  lab::AttentionShape shape{};

  [[nodiscard]] bool has_query_and_key() const {
    return call.query.size() != 0 && call.key.size() != 0;
  }
  [[nodiscard]] bool has_value() const { return call.value.size() != 0; }
};

/// Refuses what `lab::attention` refuses: rates, positions, lengths, tables that do not broadcast.
/// Reads the shape and the options alone, for what is not query, key or value is claimed without them too.
[[nodiscard]] Result<void> check_call(const Claim& claim);

/// The tables that a dump can hold, in order of computation.
enum class Stage {
  dot,          ///< query·key, before the scale
  scaled,       ///< after the scale
  capped,       ///< after softcap
  biased,       ///< after bias and ALiBi; hidden keys still have their number
  masked,       ///< hidden keys are −∞, or what the implementation fills in
  weights,      ///< after the softmax (and dropout)
  log_sum_exp,  ///< [B, H, T]
  output,       ///< [B, H, T, E]
};
[[nodiscard]] std::string_view name_of(Stage stage) noexcept;

/// One table that the implementation produced, in the order [B, H, T, …].
struct Observed {
  Stage stage = Stage::output;
  Tensor<double> values{};
  DType dtype = DType::f32;  ///< that it was stored in
  std::string name{};        ///< its name in the file, for sentences
};

/// Everything that a verdict is made of.
struct Dump {
  Claim claim{};
  std::vector<Observed> stages{};  ///< in order of computation, each stage at most once
};

}  // namespace attest::check
