// SPDX-License-Identifier: MIT
#pragma once

#include "attest/linalg/kernels/functions.h"

/// The activations and their slopes, for the layer of that name and for what follows a matrix product.
namespace attest::kernels::ATTEST_ISA {

/// x times the share of it that passes; where nothing passes, −∞ counts too.
template <class T>
ATTEST_INLINE Vec<T> passed(Vec<T> x, Vec<T> share) {
  return select(share == Vec<T>{}, broadcast(T(-0.0)), x * share);
}

/// Flat on the left, the identity on the right: what every slope comes to where the bend is below
/// the smallest number. Asked apart, because ∞ times a vanished density is no number.
template <class T>
ATTEST_INLINE Vec<T> bent(Vec<T> bend, Vec<T> x, Vec<T> slope) {
  const Vec<T> straight = select(x > Vec<T>{}, broadcast(T(1)), Vec<T>{});
  return select(bend == Vec<T>{}, straight, slope);
}

// Each activation: f(x), then f′(x).

struct Relu {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return select(x <= Vec<T>{}, Vec<T>{}, x);  // NaN stays
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Vec<T> step = select(x > Vec<T>{}, broadcast(T(1)), Vec<T>{});
    return select(x == x, step, x);
  }
};

struct GeluErf {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    const NormalParts<T> p = normal_parts<T>(size<T>(x));
    return passed<T>(x, distribution<T>(x, p));
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    constexpr T most = NormalTailFit<T>::most;
    constexpr T density_at_0 = T(0.398942280401432677940);  // 1/√(2π)
    const NormalParts<T> p = normal_parts<T>(size<T>(x));
    // Φ(x) + x·φ(x); φ is 0 at the limits where x is held
    return fma(held<T>(x, -most, most) * broadcast(density_at_0), p.bell, distribution<T>(x, p));
  }

 private:
  template <class T>
  ATTEST_INLINE static Vec<T> size(Vec<T> x) {
    return held<T>(absolute<T>(x), T(0), NormalTailFit<T>::most);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> distribution(Vec<T> x, const NormalParts<T>& p) {
    const Vec<T> outside = select(x < Vec<T>{}, p.tail, broadcast(T(1)) - p.tail);
    return select(absolute<T>(x) < broadcast(T(1)), normal_middle<T>(x), outside);
  }
};

/// x·σ(2w), w = √(2/π)·(x + 0.044715·x³).
struct GeluTanh {
  static constexpr double twice = 1.59576912160573071176;  // 2·√(2/π)
  static constexpr double cubic = 0.044715;

  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return passed<T>(x, sigmoid_of<T>(angle<T>(x)).here);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Sigmoid<T> s = sigmoid_of<T>(angle<T>(x));
    // σ(2w) + x·(2w)′·σ(2w)·σ(−2w)
    const Vec<T> d_angle =
        fma(x * x, broadcast(T(3 * twice * cubic)), broadcast(static_cast<T>(twice)));
    return bent<T>(s.smaller, x, fma(x * d_angle * s.here, s.opposite, s.here));
  }

 private:
  template <class T>
  ATTEST_INLINE static Vec<T> angle(Vec<T> x) {
    return x * fma(x * x, broadcast(T(twice * cubic)), broadcast(static_cast<T>(twice)));
  }
};

struct Silu {
  template <class T>
  ATTEST_INLINE static Vec<T> value(Vec<T> x) {
    return passed<T>(x, sigmoid_of<T>(x).here);
  }
  template <class T>
  ATTEST_INLINE static Vec<T> slope(Vec<T> x) {
    const Sigmoid<T> s = sigmoid_of<T>(x);
    return bent<T>(s.smaller, x, s.here * fma(x, s.opposite, broadcast(T(1))));
  }
};

}  // namespace attest::kernels::ATTEST_ISA
