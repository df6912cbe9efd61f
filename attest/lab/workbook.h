// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/lab/stage.h"

/// The workbook's own functions with exactly its contracts: small finite matrices, True = visible,
/// a row that sees nothing is an error. Each one is the exact tier underneath; only the limits,
/// which make numbers small enough to follow by hand, are the workbook's.
namespace attest::lab::workbook {

inline constexpr std::int64_t max_rows = 64;
inline constexpr std::int64_t max_columns = 64;
inline constexpr double max_size = 1e6;  ///< of any input number

/// Checks that `value` is a matrix as the workbook wants it: rank 2, 1 to 64 rows and columns, every
/// number finite and at most 1e6 in size. Fails (bad-matrix) naming the argument and the index.
[[nodiscard]] Result<void> matrix(const Tensor<double>& value, std::string_view name);

/// product[i,j] = Σ_n left[i,n]·right[n,j]: rounded products, their sum correctly rounded.
/// Fails         bad-matrix; shape-mismatch if left's width is not right's row count.
[[nodiscard]] Result<Tensor<double>> matmul(const Tensor<double>& left,
                                            const Tensor<double>& right);

/// weights[j] = exp(scores[j] − peak) / Σ exp: −∞ means hidden and gets exactly 0.
/// Fails         bad-scores (no score, a NaN, +∞); no-visible-key if all are −∞.
[[nodiscard]] Result<Tensor<double>> softmax(std::span<const double> scores);

struct AttentionOptions {
  bool causal = false;                  ///< query i sees keys j ≤ i; needs equal lengths
  std::optional<Tensor<bool>> allow{};  ///< [L, S], true = visible; and-ed with causal
};
struct AttentionResult {
  Tensor<double> output;   // [L, dv]
  Tensor<double> weights;  // [L, S]
};

/// The workbook's attention: query [L, dk], key [S, dk], value [S, dv]; see lab::attention.
/// Fails         bad-matrix, shape-mismatch, causal-needs-square, bad-allow, no-visible-key.
[[nodiscard]] Result<AttentionResult> attention(const Tensor<double>& query,
                                                const Tensor<double>& key,
                                                const Tensor<double>& value,
                                                const AttentionOptions& options = {});

/// (x − mean) / √(variance + ε) along each row, population variance; a constant row gives zeros.
/// Mean and variance of each row come back too, since a trace shows them.
struct Normalised {
  Tensor<double> mean;      // [rows]
  Tensor<double> variance;  // [rows]
  Tensor<double> values;    // [rows, columns]
};
[[nodiscard]] Normalised normalise(const Tensor<double>& rows, double epsilon = 1e-5);

/// a + b, element by element. Fails (shape-mismatch) if the shapes differ.
[[nodiscard]] Result<Tensor<double>> add(const Tensor<double>& a, const Tensor<double>& b);

/// The numbers of the block; the defaults are the workbook's.
struct BlockParameters {
  Tensor<double> P1;  // [4, 2], selects features 0 and 1
  Tensor<double> P2;  // [4, 2], selects features 2 and 3
  Tensor<double> WO;  // [4, 4], identity
  Tensor<double> W1;  // [4, 4], differences of neighbours
  Tensor<double> W2;  // [4, 4], halves
  double epsilon = 1e-5;
  BlockParameters();
};

struct BlockOptions {
  bool causal = true;  ///< position i sees positions j ≤ i
};

struct BlockResult {
  Tensor<double> output;             // [L, 4]
  std::vector<Tensor<double>> maps;  // one [L, L] for each head
  std::vector<Stage> stages;         // every intermediate value, in order of computation
};

/// The workbook's two-head block, normalising after each residual:
///
///     head_n = attention(x·P_n, x·P_n, x·P_n)             hidden = normalise(x + [head_0 head_1]·WO)
///     output = normalise(hidden + max(0, hidden·W1)·W2)
///
/// Fails         bad-matrix, also for a product beyond the limits on its way; block-width if x has
///               not four features; shape-mismatch if parameters do not fit.
[[nodiscard]] Result<BlockResult> transformer_block(const Tensor<double>& rows,
                                                    const BlockParameters& parameters = {},
                                                    const BlockOptions& options = {});

/// The fixtures that the workbook calculates by hand.
namespace fixture {
[[nodiscard]] Tensor<double> query();  // [2, 2], also the keys
[[nodiscard]] Tensor<double> value();  // [2, 2]
[[nodiscard]] Tensor<double> rows();   // [3, 4], X of the block
}  // namespace fixture

}  // namespace attest::lab::workbook
