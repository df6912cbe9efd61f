// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/check/mistakes/claim.h"

namespace attest::check {

enum class GradientOf { query, key, value, bias, sink };
/// "d_query", "d_key", "d_value", "d_bias", "d_sink"
[[nodiscard]] std::string_view name_of(GradientOf of) noexcept;

/// One gradient that the implementation produced.
///
/// Its shape is that of what it is the gradient of: [B, H, T, D], [B, G, S, D], [B, G, S, E], the bias's
/// own with all four axes, [H]. Gradients that were never summed are taken too, and judged wrong: of key
/// and value with a head for every query head, [B, H, S, …], and of the bias as [B, H, T, S].
struct ObservedGradient {
  GradientOf of = GradientOf::query;
  Tensor<double> values{};
  DType dtype = DType::f32;  ///< that it was stored in
  std::string name{};        ///< its name in the file, for sentences
  /// Of key and value: the first key that it was given for. Behind a cache that is often the first new
  /// one. What `values` has for keys before it is not looked at.
  std::int64_t first_key = 0;

  [[nodiscard]] bool given(std::size_t place) const {
    if (first_key == 0) return true;
    const auto key = static_cast<std::int64_t>(place) / values.extent(3) % values.extent(2);
    return key >= first_key;
  }
};

/// Everything that a verdict on a backward pass is made of.
struct GradientDump {
  Claim claim{};                                  ///< with query, key and value
  Tensor<double> d_output{};                      // [B, H, T, E]
  std::optional<Tensor<double>> d_log_sum_exp{};  // [B, H, T]
  std::vector<ObservedGradient> gradients{};      ///< each at most once
};

/// Says whether gradients are those of the claim, and if not, which mistakes give their numbers.
///
/// Formula       a gradient is right where |found − expected| ≤ tolerance, number by number; the tolerance
///               is derived from shapes, precision and the sizes of what is summed, step by step.
///               Expected is lab::attention_backward; of a call too large for it, plain binary64,
///               whose own error is far below the tolerance.
///               A mistake explains a gradient if what it gives is within that; one that explains all of
///               them comes before others that explain one each.
/// Edge cases    NaN patterns are compared before numbers; the gradients of a row that sees no key are
///               zero, whatever the claim's EmptyRow but `error`. Cached keys are keys like others: the
///               gradient of a cache is what d_key and d_value have for them. With RopeClaim, gradients are of query and
///               key as they were before the rotation. Gradients that are zero all over are `undecided`.
/// Determinism   a function of its arguments; any number of threads.
/// Fails         missing-tensor, shape-mismatch, and as lab::attention_backward.
/// Cost          that of lab::attention_backward on small calls; on large ones one pass of plain loops,
///               and if something is wrong a second, and a search on some rows and keys of every head.
[[nodiscard]] Result<Diagnosis> diagnose_gradients(const GradientDump& dump,
                                                   const DiagnoseOptions& options = {});

}  // namespace attest::check
