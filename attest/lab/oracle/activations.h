// SPDX-License-Identifier: MIT
#pragma once

#include "attest/base/config.h"
#include "attest/lab/oracle/array.h"
#include "attest/lab/oracle/real.h"

/// Functions of one number, for any scalar, and their gated use.
namespace attest::lab::oracle::formula {

/// max(0, x); its slope at 0 is taken as 0.
template <class Scalar>
[[nodiscard]] Scalar relu(const Scalar& x) {
  return value_of(x) > 0 ? x : Scalar(Real(0));
}

/// x/2 · (1 + erf(x/√2)) = x/2 · erfc(−x/√2), which does not cancel for negative x.
template <class Scalar>
[[nodiscard]] Scalar gelu_erf(const Scalar& x) {
  return x / Real(2) * erfc(Scalar(-x / Real(sqrt(Real(2)))));
}

/// x/2 · (1 + tanh(u)) with u = √(2/π) · (x + 0.044715 x³); 1 + tanh(u) = 2 / (1 + exp(−2u)).
/// The constant is the decimal fraction, not the binary64 number next to it.
template <class Scalar>
[[nodiscard]] Scalar gelu_tanh(const Scalar& x) {
  const Real c = Real(44715) / 1000000;
  const Scalar u = Real(sqrt(2 / pi())) * (x + c * x * x * x);
  return x * logistic(Scalar(Real(2) * u));
}

/// x / (1 + exp(−x)).
template <class Scalar>
[[nodiscard]] Scalar silu(const Scalar& x) {
  return x * logistic(x);
}

template <class Scalar>
[[nodiscard]] Array<Scalar> activation(Activation kind, Array<Scalar> x) {
  for (Scalar& number : x.values) {
    switch (kind) {
      case Activation::relu:
        number = relu(number);
        break;
      case Activation::gelu_erf:
        number = gelu_erf(number);
        break;
      case Activation::gelu_tanh:
        number = gelu_tanh(number);
        break;
      case Activation::silu:
        number = silu(number);
        break;
    }
  }
  return x;
}

/// activation(gate) ⊙ up.
template <class Scalar>
[[nodiscard]] Array<Scalar> gated(Activation kind, const Array<Scalar>& gate,
                                  const Array<Scalar>& up) {
  Array<Scalar> out = activation(kind, gate);
  for (std::size_t k = 0; k < out.values.size(); ++k) out.values[k] = out.values[k] * up.values[k];
  return out;
}

}  // namespace attest::lab::oracle::formula
