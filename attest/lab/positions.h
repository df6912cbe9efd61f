// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attest/base/config.h"
#include "attest/base/result.h"
#include "attest/base/tensor.h"
#include "attest/base/view.h"

namespace attest::lab {

/// ALiBi's published slopes for H heads: with n the largest power of two ≤ H, the n slopes
/// 2^(−8(h+1)/n), then every other slope of 2n heads. Each correctly rounded.
/// Source        Press, Smith, Lewis 2022 (arXiv:2108.12409) and its published code.
[[nodiscard]] std::vector<double> alibi_slopes(std::int64_t heads);

/// How far each pair of features turns from one position to the next.
///
/// Formula       frequency[i] = base^(−2i/R), i < R/2, with R = rotary_dim, or D if that is 0
/// Accuracy      each correctly rounded, of the exact power.
/// Fails         bad-option unless R is even, 2 ≤ R ≤ D, R ≤ 2²⁰ and base is positive and finite.
/// Sources       Su et al. 2021 (arXiv:2104.09864) §3.2.2.
[[nodiscard]] Result<std::vector<double>> rope_frequencies(const RopeConfig& config,
                                                           std::int64_t head_dim);

/// The rows that turn: T of them, row t of batch b at position offsets[b] + t. One offset serves
/// every batch; none means 0.
struct RopeRows {
  std::int64_t T = 0;
  std::span<const std::int64_t> offsets{};  // [B], or [1]
};

/// The turn of every pair at every position, with B = 1 when all batches share it.
struct RopeTable {
  Tensor<double> angle;  // [B, T, R/2], in radians
  Tensor<double> cos;    // [B, T, R/2]
  Tensor<double> sin;    // [B, T, R/2]
};

/// The angles of `rope`, their cosines and sines.
///
/// Formula       angle[b,t,i] = (offsets[b] + t)·frequency[i], rounded; cos and sin of that
/// Accuracy      cos and sin are correctly rounded values at the rounded angle, which itself errs
///               by up to 2u·|angle|: inherent to frequencies that are binary64 numbers.
/// Fails         as rope_frequencies; bad-option for a position beyond ±2⁵³, where doubles skip.
/// See also      rope · rope_turn.
[[nodiscard]] Result<RopeTable> rope_table(const RopeConfig& config, std::int64_t head_dim,
                                           const RopeRows& rows);

/// Turns given by their cosines and sines, wherever these come from.
struct RopeTurns {
  View<const double, 3> cos;  // [B, T, R/2], or [1, T, R/2] for all batches
  View<const double, 3> sin;  // likewise
  RopePairing pairing = RopePairing::half;
};

/// Turns each pair of features in its plane; features from R on stay as they are.
///
/// Formula       first  = x[a]·cos[i] − x[b]·sin[i]
///               second = x[b]·cos[i] + x[a]·sin[i]       rounded products, one sum each
///               half: (a, b) = (i, i + R/2),  interleaved: (a, b) = (2i, 2i + 1)
/// Shapes        x [B, H, T, D] with any strides; returns a dense [B, H, T, D].
/// Edge cases    a cosine of 1 with a sine of 0 leaves finite features as they are, but −0 as +0.
/// Accuracy      |error| ≤ u·(|x[a]·cos| + |x[b]·sin| + |result|), for the given cos and sin.
/// Fails         shape-mismatch, if the tables do not fit x.
/// See also      rope.
[[nodiscard]] Result<Tensor<double>> rope_turn(View<const double, 4> x, const RopeTurns& turns);

/// Rotary position embedding.
///
/// Formula       rope_turn by rope_table: pair i of row t turns by (offset + t)·base^(−2i/R)
/// Shapes        x [B, H, T, D] with any strides; returns a dense [B, H, T, D]. offsets: one for
///               each batch, one for all, or none (0).
/// Edge cases    position 0 turns nothing; B, H and T may be 0.
/// Accuracy      |error| ≤ u·(2·|angle| + 3)·(|x[a]| + |x[b]|), beside the exact turn.
/// Determinism   the same bits on every machine and compiler, whatever the host's rounding mode; a
///               row's bits depend on its position alone.
/// Fails         as rope_table; shape-mismatch; bad-option for another number of offsets.
/// Cost          (R/2)·T (a batch, if they differ) cosines and sines, 2·B·H·T·R products.
/// Sources       Su et al. 2021 (arXiv:2104.09864).
/// See also      rope_backward · oracle::rope · attest/base/config.h for the pairings.
[[nodiscard]] Result<Tensor<double>> rope(View<const double, 4> x, const RopeConfig& config,
                                          std::span<const std::int64_t> offsets = {});

/// The gradient of `rope`: the turn back. Overwrites nothing: returns a new tensor.
///
/// Formula       rope_turn of d_y with −sin for sin: a turn's transpose is its inverse
/// Shapes        d_y [B, H, T, D]; returns d_x, dense.
/// Fails, accuracy and cost as `rope`.
[[nodiscard]] Result<Tensor<double>> rope_backward(View<const double, 4> d_y,
                                                   const RopeConfig& config,
                                                   std::span<const std::int64_t> offsets = {});

}  // namespace attest::lab
