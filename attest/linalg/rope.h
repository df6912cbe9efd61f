// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "attest/base/config.h"
#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"

namespace attest {

/// At which positions rows stand: row t of batch b at offsets[b] + t, or at positions[b,t].
struct RopePlaces {
  std::span<const std::int64_t> offsets{};  ///< [B], or [1] for every batch; none: 0
  View<const std::int64_t, 2>
      positions{};  ///< [B, T], or [1, T] for every batch; instead of offsets
};

/// Rotary position embedding: turns each pair of features by an angle that grows with the position.
/// Overwrites y.
///
/// Formula       angle = position·base^(−2i/R), i < R/2, R = rotary_dim, or D if that is 0
///               y[a] = x[a]·cos − x[b]·sin,   y[b] = x[b]·cos + x[a]·sin
///               half: (a, b) = (i, i + R/2),  interleaved: (a, b) = (2i, 2i + 1)
///               features from R on are copied
/// Shapes        x, y [B, H, T, D] with any strides, but the D numbers of a row lie beside each other.
///               B, H and T may be 0. y may be x, if that is the same view, else they must not overlap.
/// Types         S is double, float, Half or BFloat16; 16-bit numbers are storage, what is calculated
///               with is float. Angles, cosines and sines are calculated in double for all.
/// Edge cases    position 0 turns nothing. NaN and ∞ reach the partner that they are turned with (∞·0
///               is NaN), no other number.
/// Accuracy      |error| ≤ (4·u + w)·(|x[a]| + |x[b]|), u = 2⁻⁵³ for double, 2⁻²⁴ otherwise, then one
///               rounding to 16 bits; w = 2⁻⁵³·(4 + (4 + |log base|)·|angle|), the angle's own error.
/// Determinism   the same bits for any number of threads and any strides, per instruction set; a row's
///               bits depend on its position alone, and not on the pairing, but for where they stand.
///               The host's rounding and flushing modes change nothing.
/// Throws        ShapeError, ValueError: shape-mismatch; bad-stride; bad-option, unless R is even,
///               2 ≤ R ≤ D, base is positive and finite, positions lie within ±2⁵³ and there are 1 or B
///               offsets; bad-isa. Nothing is written then.
/// Cost          R/2·T cosines and sines (a batch, if their positions differ), for all heads together;
///               1.5·B·H·T·R flops; scratch of at most 64·R numbers a thread.
/// Sources       Su et al. 2021 (arXiv:2104.09864).
/// See also      rope_backward · lab::rope · attest/base/config.h for the pairings.
template <class S>
void rope(View<S, 4> y, std::type_identity_t<View<const S, 4>> x, const RopeConfig& config,
          const RopePlaces& places = {}, const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_rope(View<S, 4> y, std::type_identity_t<View<const S, 4>> x,
                                    const RopeConfig& config, const RopePlaces& places = {},
                                    const Execution& execution = {});

/// The gradient of `rope`: the turn by the negative angles, since a turn's transpose is its inverse.
/// Overwrites d_x. All else as `rope`.
template <class S>
void rope_backward(View<S, 4> d_x, std::type_identity_t<View<const S, 4>> d_y,
                   const RopeConfig& config, const RopePlaces& places = {},
                   const Execution& execution = {});
template <class S>
[[nodiscard]] Result<void> try_rope_backward(View<S, 4> d_x,
                                             std::type_identity_t<View<const S, 4>> d_y,
                                             const RopeConfig& config,
                                             const RopePlaces& places = {},
                                             const Execution& execution = {});

}  // namespace attest
